//! Checks that all readers share.
#![forbid(unsafe_code)]

use super::limits;
use super::model::TensorEntry;
use super::source::Source;
use crate::error::Result;

/// A name is some text of bearable length without NUL (names travel through C strings).
pub(super) fn name(source: &Source, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::NAME_BYTES || name.contains('\0') {
        let start: String = name.chars().take(60).collect();
        return Err(source.error(format!(
            "a tensor's name is {} bytes long ('{start}'), 1 to {} without NUL were expected",
            name.len(),
            limits::NAME_BYTES
        )));
    }
    Ok(())
}

/// Extents as `usize`, fastest axis first; their product, zeros counted as one, stays within the limit.
pub(super) fn shape(
    source: &Source,
    name: &str,
    extents: impl DoubleEndedIterator<Item = u64>,
) -> Result<Vec<usize>> {
    let mut count = 1u64;
    let mut shape = Vec::new();
    for extent in extents {
        let next = count.checked_mul(extent.max(1)).filter(|&n| n <= limits::ELEMENTS);
        count = next.ok_or_else(|| {
            source.error(format!(
                "tensor '{name}' has an extent of {extent}, more than {} elements in all",
                limits::ELEMENTS
            ))
        })?;
        shape.push(
            usize::try_from(extent).map_err(|_| source.error(format!("tensor '{name}' is too large")))?,
        );
    }
    if shape.len() > limits::RANK {
        return Err(source.error(format!(
            "tensor '{name}' has {} axes, at most {} were expected",
            shape.len(),
            limits::RANK
        )));
    }
    Ok(shape)
}

/// No two tensors share bytes.
pub(super) fn overlaps(source: &Source, tensors: &[TensorEntry]) -> Result<()> {
    let mut order: Vec<&TensorEntry> = tensors.iter().filter(|t| t.nbytes > 0).collect();
    order.sort_unstable_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].nbytes > pair[1].offset {
            return Err(source.error(format!(
                "tensors '{}' and '{}' overlap: {} bytes at {} and {} bytes at {}",
                pair[0].name, pair[1].name, pair[0].nbytes, pair[0].offset, pair[1].nbytes, pair[1].offset
            )));
        }
    }
    Ok(())
}
