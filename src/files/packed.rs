//! Deflated members of a zip: inflated when one of their tensors is read.
#![forbid(unsafe_code)]

use super::limits;
use super::source::{Source, zeroed};
use crate::error::{Error, Result};
use flate2::read::DeflateDecoder;
use parking_lot::Mutex;
use std::io::Read;
use std::sync::Arc;

/// A deflated run of bytes and what it has to become.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    /// Name within the archive, for messages.
    pub name: String,
    pub offset: u64,
    pub compressed: u64,
    pub size: u64,
    pub crc: u32,
}

impl Packed {
    fn wrong(&self, source: &Source, what: impl std::fmt::Display) -> Error {
        source.error(format!("zip member '{}': {what}", self.name))
    }

    fn decoder<'a>(&self, source: &'a Source) -> DeflateDecoder<Window<'a>> {
        DeflateDecoder::new(Window { source, at: self.offset, left: self.compressed })
    }

    /// The inflated bytes: exactly `size` of them, with the right checksum.
    pub(super) fn inflate(&self, source: &Source) -> Result<Vec<u8>> {
        let mut out = zeroed(self.size)?;
        let mut decoder = self.decoder(source);
        decoder.read_exact(&mut out).map_err(|e| self.wrong(source, e))?;
        if decoder.read(&mut [0]).map_err(|e| self.wrong(source, e))? != 0 {
            return Err(self.wrong(source, format_args!("inflates to more than its {} bytes", self.size)));
        }
        let mut crc = flate2::Crc::new();
        crc.update(&out);
        if crc.sum() != self.crc {
            return Err(self.wrong(source, "the checksum is wrong"));
        }
        Ok(out)
    }

    /// Fills `out` from byte `at` of a member that is too large to be kept: what lies before is inflated and dropped.
    fn inflate_part(&self, source: &Source, at: u64, out: &mut [u8]) -> Result<()> {
        let mut decoder = self.decoder(source);
        let dropped = std::io::copy(&mut decoder.by_ref().take(at), &mut std::io::sink());
        let dropped = dropped.map_err(|e| self.wrong(source, e))?;
        if dropped != at {
            return Err(self.wrong(source, format_args!("inflates to less than its {} bytes", self.size)));
        }
        decoder.read_exact(out).map_err(|e| self.wrong(source, e))
    }
}

/// Part of a source as a stream.
struct Window<'a> {
    source: &'a Source,
    at: u64,
    left: u64,
}

impl Read for Window<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        self.source.read_at(self.at, &mut out[..len]).map_err(std::io::Error::other)?;
        self.at += len as u64;
        self.left -= len as u64;
        Ok(len)
    }
}

/// The member inflated last: tensors of one storage are mostly read one after the other.
#[derive(Debug, Default)]
pub(super) struct Last(Mutex<Option<(u32, Arc<Vec<u8>>)>>);

impl Last {
    /// Fills `out` from byte `at` of member `index`; the range lies within its size.
    pub(super) fn read(
        &self,
        index: u32,
        packed: &Packed,
        source: &Source,
        at: u64,
        out: &mut [u8],
    ) -> Result<()> {
        if packed.size > limits::INFLATED_KEPT {
            return packed.inflate_part(source, at, out);
        }
        let held = self.0.lock().clone().filter(|(held, _)| *held == index);
        let bytes = match held {
            Some((_, bytes)) => bytes,
            None => {
                // threads that want other members do not wait for this one
                let bytes = Arc::new(packed.inflate(source)?);
                *self.0.lock() = Some((index, bytes.clone()));
                bytes
            }
        };
        let at = at as usize;
        out.copy_from_slice(&bytes[at..at + out.len()]);
        Ok(())
    }
}
