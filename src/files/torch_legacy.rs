//! torch checkpoints before 1.6: pickles one after the other, then the storages.
//!
//! Magic number, protocol 1001, facts of the machine, the object, the list of storage keys; then for each key the
//! number of elements (8 bytes) and the elements. Some files lack the first three. `torch/serialization.py`,
//! `_legacy_save`.
#![forbid(unsafe_code)]

use super::limits;
use super::model::{Contents, Format};
use super::pickle::{self, Node, Pickle};
use super::source::Source;
use super::torch::{self, Place};
use crate::error::Result;
use std::collections::HashMap;

/// 0x1950a86a20f9469cfc6c as a `LONG1`.
const MAGIC: [u8; 12] = [0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// Bytes before the elements of each storage.
const COUNT_BYTES: u64 = 8;

/// Whether these can be the first bytes of a pickle.
pub(super) fn sniff(start: &[u8]) -> bool {
    matches!(start, [0x80, 2..=5, ..])
}

/// Reads the pickles; the storages are only located.
pub(super) fn read(source: &Source) -> Result<Contents> {
    let bytes = source.read_vec(0, source.len().min(limits::PICKLE_BYTES))?;
    let mut pickles = Pickles { source, bytes: &bytes, at: 0 };
    if has_magic(&bytes) {
        pickles.next()?;
        let version = pickles.next()?;
        if !matches!(version.node(version.root), Node::Int(1001)) {
            return Err(source.error("is a torch file of an unknown protocol, 1001 was expected"));
        }
        let facts = pickles.next()?;
        if let Node::Dict(pairs) = facts.node(facts.root)
            && pairs.iter().any(|&(k, v)| {
                facts.text(k) == Some("little_endian") && matches!(facts.node(v), Node::Bool(false))
            })
        {
            return Err(source.error("holds big-endian data, little-endian was expected"));
        }
    }
    let object = pickles.next()?;
    let keys = pickles.next()?;
    let places = places(source, &object, &keys, pickles.at as u64)?;
    let tensors = torch::tensors(source, &object, |storage| {
        let missing =
            || source.error(format!("the storage '{}' is missing from the list of keys", storage.key));
        places.get(storage.key.as_str()).copied().ok_or_else(missing)
    })?;
    Ok(Contents::new(Format::TorchLegacy, tensors, torch::metadata(&object)))
}

/// The number stands right after the protocol, or after a frame's header.
fn has_magic(bytes: &[u8]) -> bool {
    [2, 11].iter().any(|&at| bytes.get(at..).is_some_and(|rest| rest.starts_with(&MAGIC)))
}

struct Pickles<'a> {
    source: &'a Source,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Pickles<'a> {
    fn next(&mut self) -> Result<Pickle<'a>> {
        let pickle = pickle::parse(&self.bytes[self.at..]).map_err(|m| self.source.error(m))?;
        self.at += pickle.len;
        Ok(pickle)
    }
}

/// Walks over the storages in the order of the list.
fn places<'a>(
    source: &Source,
    object: &'a Pickle<'_>,
    keys: &Pickle<'_>,
    start: u64,
) -> Result<HashMap<&'a str, Place>> {
    let Node::List(list) = keys.node(keys.root) else {
        return Err(source.error("has no list of storage keys"));
    };
    let known: HashMap<&str, _> = object.storages.iter().map(|s| (s.key.as_str(), s)).collect();
    let mut places = HashMap::with_capacity(list.len().min(known.len()));
    let mut at = start;
    for &key in list {
        let key = keys.text(key).unwrap_or_default();
        let (&key, storage) = known
            .get_key_value(key)
            .ok_or_else(|| source.error(format!("the storage '{}' is not used", key.escape_debug())))?;
        let mut count = [0; COUNT_BYTES as usize];
        source.read_at(at, &mut count)?;
        let count = u64::from_le_bytes(count);
        let size = match &storage.dtype {
            Ok(dtype) => dtype.type_size() as u64,
            Err(name) => {
                return Err(source.error(format!("storage '{key}' has the unsupported type '{name}'")));
            }
        };
        let offset = at + COUNT_BYTES;
        let end = count.checked_mul(size).and_then(|b| offset.checked_add(b)).filter(|&e| e <= source.len());
        let Some(end) = end.filter(|_| count == storage.elements) else {
            return Err(source.error(format!(
                "storage '{key}' at byte {at} has {count} elements of {size} bytes, {} were expected; the file ends at {}: \
                 it may be cut off",
                storage.elements,
                source.len()
            )));
        };
        if places.insert(key, Place { offset, bytes: end - offset, packed: None }).is_some() {
            return Err(source.error(format!("storage '{key}' occurs twice")));
        }
        at = end;
    }
    Ok(places)
}
