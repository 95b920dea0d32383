//! From a pickle to named tensors: flattening of nested dictionaries, places within storages.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::metadata::{Metadata, Value};
use super::model::TensorEntry;
use super::pickle::{Id, Node, Pickle, RawTensor, Storage};
use super::source::Source;
use super::{check, limits, strided};
use crate::error::Result;
use std::collections::HashMap;

/// Where the bytes of a storage lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// First byte, in the file or in the inflated member.
    pub offset: u64,
    pub bytes: u64,
    pub packed: Option<u32>,
}

/// All tensors of the dictionaries in `pickle`, whose storages `place` finds.
pub(super) fn tensors(
    source: &Source,
    pickle: &Pickle<'_>,
    mut place: impl FnMut(&Storage) -> Result<Place>,
) -> Result<Vec<TensorEntry>> {
    let mut found = Flatten { source, pickle, leaves: Vec::new(), by_name: HashMap::new(), visits: 0 };
    found.dict(pickle.root, 0, Rank::Plain)?;
    let leaves = found.leaves;
    let mut entries = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let raw = &pickle.tensors[leaf.tensor as usize];
        let storage = &pickle.storages[raw.storage as usize];
        entries.push(entry(source, leaf.name, raw, storage, place(storage)?)?);
    }
    if entries.is_empty() {
        return Err(source.error("holds no dictionary of tensors: a state dict was expected"));
    }
    Ok(entries)
}

/// Numbers and texts beside the tensors, `epoch` and the like.
pub(super) fn metadata(pickle: &Pickle<'_>) -> Metadata {
    let mut metadata = Metadata::default();
    if let Node::Dict(pairs) = pickle.node(pickle.root) {
        for &(key, value) in pairs {
            let value = match *pickle.node(value) {
                Node::Int(v) => Value::I64(v),
                Node::Float(v) => Value::F64(v),
                Node::Bool(v) => Value::Bool(v),
                Node::Text(_) => match pickle.text(value) {
                    Some(text) => Value::String(text.to_owned()),
                    None => continue,
                },
                _ => continue,
            };
            if let Some(key) = pickle.text(key) {
                metadata.insert(key, value);
            }
        }
    }
    metadata
}

/// Which of two tensors with one name is taken: averaged weights are those meant for use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Plain,
    Wrapped,
    Averaged,
}

/// What a dictionary within a dictionary means by its key.
fn rank(key: &str) -> Option<Rank> {
    Some(match key {
        "optimizer" | "optimizer_states" | "optimizers" | "opt" | "lr_schedulers" | "callbacks" | "loops"
        | "scaler" => return None,
        "params_ema" | "ema" | "model_ema" | "ema_state_dict" | "g_ema" => Rank::Averaged,
        "state_dict" | "model_state_dict" | "params" | "model" | "module" => Rank::Wrapped,
        _ => Rank::Plain,
    })
}

struct Leaf {
    name: String,
    tensor: Id,
    rank: Rank,
}

struct Flatten<'p, 'a> {
    source: &'p Source,
    pickle: &'p Pickle<'a>,
    leaves: Vec<Leaf>,
    by_name: HashMap<String, usize>,
    /// Shared dictionaries are visited once for each mention, which has to be bounded.
    visits: usize,
}

impl Flatten<'_, '_> {
    /// Takes the tensors of a dictionary and of those within it; their names are the innermost keys.
    fn dict(&mut self, id: Id, depth: usize, outer: Rank) -> Result<()> {
        let Node::Dict(pairs) = self.pickle.node(id) else { return Ok(()) };
        self.visits += 1 + pairs.len();
        if depth > limits::NESTING || self.visits > limits::PICKLE_STEPS {
            return Err(self.source.error(format!(
                "has dictionaries within dictionaries deeper than {} or too many of them",
                limits::NESTING
            )));
        }
        for &(key, value) in pairs {
            let Some(key) = self.pickle.text(key) else { continue };
            match self.pickle.node(value) {
                &Node::Tensor(tensor) => self.leaf(key, tensor, outer)?,
                Node::Dict(_) => {
                    if let Some(inner) = rank(key) {
                        self.dict(value, depth + 1, outer.max(inner))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn leaf(&mut self, name: &str, tensor: Id, rank: Rank) -> Result<()> {
        check::name(self.source, name)?;
        if let Some(&at) = self.by_name.get(name) {
            let held = &mut self.leaves[at];
            if held.rank == rank && held.tensor != tensor {
                return Err(self.source.error(format!("tensor '{name}' occurs twice")));
            }
            if held.rank < rank {
                (held.tensor, held.rank) = (tensor, rank);
            }
            return Ok(());
        }
        if self.leaves.len() as u64 == limits::TENSORS {
            return Err(self.source.error(format!("has more than {} tensors", limits::TENSORS)));
        }
        self.by_name.insert(name.to_owned(), self.leaves.len());
        self.leaves.push(Leaf { name: name.to_owned(), tensor, rank });
        Ok(())
    }
}

/// Checks one tensor against its storage.
fn entry(
    source: &Source,
    name: String,
    raw: &RawTensor,
    storage: &Storage,
    place: Place,
) -> Result<TensorEntry> {
    let unsupported = |t: &String| source.error(format!("tensor '{name}' has the unsupported type '{t}'"));
    let dtype: Dtype = *raw.dtype.as_ref().map_err(unsupported)?;
    let size = dtype.type_size() as u64;
    let negative = || source.error(format!("tensor '{name}' has a negative extent, stride or offset"));
    let extents: Option<Vec<u64>> = raw.shape.iter().rev().map(|&v| v.try_into().ok()).collect();
    let strides: Option<Vec<usize>> = raw.strides.iter().rev().map(|&v| v.try_into().ok()).collect();
    let (extents, strides) = extents.zip(strides).ok_or_else(negative)?;
    let first: u64 = raw.first.try_into().map_err(|_| negative())?;
    let shape = check::shape(source, &name, extents.into_iter())?;
    let storage_size = storage.dtype.as_ref().map_or(1, |d| d.type_size() as u64);
    let claimed = storage.elements.checked_mul(storage_size).filter(|&b| b <= place.bytes);
    let outside = || {
        source.error(format!(
            "tensor '{name}' of type {dtype} and shape {shape:?} reaches beyond its storage '{}' of {} bytes",
            storage.key, place.bytes
        ))
    };
    let begin = storage.first.checked_mul(storage_size).zip(first.checked_mul(size));
    let begin = begin.and_then(|(view, first)| view.checked_add(first));
    let span = strided::span(&shape, &strides).and_then(|s| s.checked_mul(size));
    let end = begin.zip(span).and_then(|(b, s)| b.checked_add(s)).filter(|&e| e <= place.bytes);
    let (Some(_), Some(begin), Some(_)) = (claimed, begin, end) else { return Err(outside()) };
    let nbytes = dtype.nbytes(&shape).ok_or_else(outside)?;
    if nbytes > place.bytes && nbytes > limits::EXPANDED_BYTES {
        return Err(outside());
    }
    let in_order = strided::is_contiguous(&shape, &strides);
    Ok(TensorEntry {
        strides: (!in_order).then_some(strides),
        packed: place.packed,
        ..TensorEntry::plain(name, dtype, shape, place.offset + begin, nbytes)
    })
}
