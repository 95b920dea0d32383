//! Where bytes come from: a regular file read at positions from any thread, or bytes in memory.
#![forbid(unsafe_code)]

use super::mmap::Map;
use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// An open file. Reads are positional: threads share it without a lock.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    len: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    File { file: File, map: OnceLock<Option<Map>> },
    Bytes(Vec<u8>),
}

impl Source {
    /// Opens a regular file. A folder, pipe, socket or device is an error at once, it is never waited for.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |e: io::Error| Error::file(path, open_message(&e));
        let kind = std::fs::metadata(path).map_err(fail)?;
        refuse_special(path, &kind)?;
        let file = open_unblocked(path).map_err(fail)?;
        // the name may have been given to something else since
        let meta = file.metadata().map_err(fail)?;
        refuse_special(path, &meta)?;
        if meta.len() == 0 {
            return Err(Error::file(path, "the file is empty"));
        }
        Ok(Self {
            path: path.to_path_buf(),
            len: meta.len(),
            data: Data::File { file, map: OnceLock::new() },
        })
    }

    /// Bytes in memory under a name that messages use.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Self { path: name.into(), len: bytes.len() as u64, data: Data::Bytes(bytes) }
    }

    /// Path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An error that names this file.
    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::file(&self.path, message)
    }

    /// Fills `out` from `offset`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|&e| e <= self.len);
        let Some(end) = end else {
            return Err(self.error(format!(
                "{} bytes at {offset} are wanted, but the file ends at {}",
                out.len(),
                self.len
            )));
        };
        match &self.data {
            // the range was checked against `len`, which is the vector's
            Data::Bytes(bytes) => out.copy_from_slice(&bytes[offset as usize..end as usize]),
            Data::File { file, .. } => read_exact_at(file, out, offset)
                .map_err(|e| self.error(format!("reading {} bytes at {offset}: {e}", out.len())))?,
        }
        Ok(())
    }

    /// A copy of `len` bytes from `offset`; nothing is allocated for a range outside the file.
    pub fn read_vec(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        if offset.checked_add(len).is_none_or(|e| e > self.len) {
            return Err(
                self.error(format!("{len} bytes at {offset} are wanted, but the file ends at {}", self.len))
            );
        }
        let mut out = zeroed(len)?;
        self.read_at(offset, &mut out)?;
        Ok(out)
    }

    /// The whole file mapped into memory, made at the first call; `None` where mapping fails.
    pub fn mapped(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Bytes(bytes) => Some(bytes),
            Data::File { file, map } => map.get_or_init(|| Map::new(file)).as_ref().map(Map::bytes),
        }
    }
}

/// Zero bytes, or an error instead of an abort when they cannot be had.
pub(super) fn zeroed(len: u64) -> Result<Vec<u8>> {
    let memory = || Error::Memory(format!("{len} bytes"));
    let len = usize::try_from(len).map_err(|_| memory())?;
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| memory())?;
    out.resize(len, 0);
    Ok(out)
}

fn open_message(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "no permission to read".into(),
        _ => format!("cannot be opened: {e}"),
    }
}

fn refuse_special(path: &Path, meta: &std::fs::Metadata) -> Result<()> {
    if meta.is_dir() {
        return Err(Error::file(path, "is a folder, a model file was expected"));
    }
    if !meta.is_file() {
        return Err(Error::file(path, "is a pipe or device, a regular file was expected"));
    }
    Ok(())
}

/// Opening a pipe without a writer would wait for one; this flag makes it return.
#[cfg(unix)]
fn open_unblocked(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(not(unix))]
fn open_unblocked(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, out, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out = &mut out[n..];
        offset += n as u64;
    }
    Ok(())
}

/// Reads forward through a source in little-endian order, a block at a time.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    source: &'a Source,
    pos: u64,
    block: Vec<u8>,
    block_at: u64,
}

impl<'a> Cursor<'a> {
    const BLOCK: u64 = 256 << 10;

    pub(super) fn new(source: &'a Source, pos: u64) -> Self {
        Self { source, pos, block: Vec::new(), block_at: 0 }
    }

    pub(super) fn position(&self) -> u64 {
        self.pos
    }

    pub(super) fn remaining(&self) -> u64 {
        self.source.len() - self.pos
    }

    pub(super) fn error(&self, message: impl std::fmt::Display) -> Error {
        self.source.error(message)
    }

    /// The next `len` bytes; the caller has bounded `len`.
    pub(super) fn bytes(&mut self, len: usize, what: &str) -> Result<&[u8]> {
        if len as u64 > self.remaining() {
            return Err(self.error(format!(
                "ends within {what}: {len} bytes are wanted at {}, {} are left",
                self.pos,
                self.remaining()
            )));
        }
        let block_end = self.block_at + self.block.len() as u64;
        if self.pos < self.block_at || self.pos + len as u64 > block_end {
            let want = (len as u64).max(Self::BLOCK).min(self.remaining());
            self.block = self.source.read_vec(self.pos, want)?;
            self.block_at = self.pos;
        }
        let start = (self.pos - self.block_at) as usize;
        self.pos += len as u64;
        Ok(&self.block[start..start + len])
    }

    /// The next `N` bytes as an array.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N, what)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }
}
