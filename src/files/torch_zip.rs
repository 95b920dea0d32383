//! torch checkpoints since 1.6: a zip archive with `data.pkl` and one member for each storage.
//!
//! <https://docs.pytorch.org/docs/stable/notes/serialization.html>
#![forbid(unsafe_code)]

use super::model::{Contents, Format};
use super::packed::Packed;
use super::source::Source;
use super::torch::{self, Place};
use super::zip::{Archive, Method};
use super::{limits, pickle};
use crate::error::Result;
use std::collections::HashMap;

/// Reads the archive's table and the pickle.
pub(super) fn read(source: &Source) -> Result<Contents> {
    let archive = Archive::read(source)?;
    // the folder's name is the checkpoint's own
    let root = archive
        .members
        .iter()
        .map(|m| m.name.as_str())
        .filter(|n| *n == "data.pkl" || n.ends_with("/data.pkl"));
    let pickle_name = root.min_by_key(|n| n.len()).ok_or_else(|| {
        source.error("is a zip archive without 'data.pkl': a torch checkpoint was expected")
    })?;
    let folder = &pickle_name[..pickle_name.len() - "data.pkl".len()];
    if let Some(order) = archive.find(&format!("{folder}byteorder"))
        && member(source, &archive, order, 16)? != b"little"
    {
        return Err(source.error("holds big-endian data, little-endian was expected"));
    }
    let index = archive.find(pickle_name).unwrap_or_default();
    let bytes = member(source, &archive, index, limits::PICKLE_BYTES)?;
    let pickle = pickle::parse(&bytes).map_err(|m| source.error(m))?;

    let by_name: HashMap<&str, usize> =
        archive.members.iter().enumerate().map(|(i, m)| (m.name.as_str(), i)).collect();
    let mut packed = Vec::new();
    let mut places: HashMap<usize, Place> = HashMap::new();
    let tensors = torch::tensors(source, &pickle, |storage| {
        let name = format!("{folder}data/{}", storage.key);
        let index = *by_name
            .get(name.as_str())
            .ok_or_else(|| source.error(format!("the storage '{name}' is missing from the archive")))?;
        if let Some(&place) = places.get(&index) {
            return Ok(place);
        }
        let place = place(source, &archive, index, &mut packed)?;
        places.insert(index, place);
        Ok(place)
    })?;
    disjoint(source, places.values().copied(), &packed)?;
    let metadata = torch::metadata(&pickle);
    Ok(Contents { packed, ..Contents::new(Format::TorchZip, tensors, metadata) })
}

fn place(source: &Source, archive: &Archive, index: usize, packed: &mut Vec<Packed>) -> Result<Place> {
    let m = &archive.members[index];
    let (offset, method) = archive.place(source, m)?;
    Ok(match method {
        Method::Stored => Place { offset, bytes: m.size, packed: None },
        Method::Deflated => {
            packed.push(Packed {
                name: m.name.clone(),
                offset,
                compressed: m.compressed,
                size: m.size,
                crc: m.crc,
            });
            Place { offset: 0, bytes: m.size, packed: Some(packed.len() as u32 - 1) }
        }
    })
}

/// Members that share bytes are the way to make a small archive stand for a huge one.
fn disjoint(source: &Source, places: impl Iterator<Item = Place>, packed: &[Packed]) -> Result<()> {
    let stored = places.filter(|p| p.packed.is_none()).map(|p| (p.offset, p.bytes));
    let mut ranges: Vec<(u64, u64)> = stored.chain(packed.iter().map(|p| (p.offset, p.compressed))).collect();
    ranges.sort_unstable();
    match ranges.windows(2).find(|w| w[0].0 + w[0].1 > w[1].0 && w[1].1 > 0) {
        Some(w) => Err(source.error(format!("zip members overlap at bytes {} and {}", w[0].0, w[1].0))),
        None => Ok(()),
    }
}

/// The bytes of a small member.
fn member(source: &Source, archive: &Archive, index: usize, limit: u64) -> Result<Vec<u8>> {
    let m = &archive.members[index];
    if m.size > limit {
        return Err(source
            .error(format!("zip member '{}' has {} bytes, at most {limit} were expected", m.name, m.size)));
    }
    let (offset, method) = archive.place(source, m)?;
    match method {
        Method::Stored => source.read_vec(offset, m.size),
        Method::Deflated => {
            Packed { name: m.name.clone(), offset, compressed: m.compressed, size: m.size, crc: m.crc }
                .inflate(source)
        }
    }
}
