//! Pieces of tensors: small enough that many threads together stay within the memory given.
#![forbid(unsafe_code)]

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::plan::{Work, ggml_type};
use crate::error::{Error, Result};
use crate::files::{Dtype, TensorEntry, Writer, convert_source, e4m3_to_f16, i64_to_i32};
use crate::weights::{decode, write_as};

/// Elements of one piece: their values in f32 fit into a core's cache with what is made of them.
const ELEMENTS: usize = 1 << 19;
/// Bytes of one piece that is copied.
const COPIED: usize = 1 << 20;

/// How the bytes of a tensor become those of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As they are.
    Copy,
    /// Small floats to halves, exact, NaN included.
    Halve,
    /// The lower half of 64 bit integers, as the recorded library stores them.
    Truncate,
    /// By way of f32.
    Values,
}

fn way(work: &Work, entry: &TensorEntry) -> Way {
    match (entry.dtype, work.dtype) {
        _ if entry.scale.is_some() => Way::Values,
        (from, to) if from == to => Way::Copy,
        (Dtype::F8_E4M3 | Dtype::F8_E5M2, Dtype::F16) => Way::Halve,
        (Dtype::I64, Dtype::I32) => Way::Truncate,
        _ => Way::Values,
    }
}

/// Part of a tensor: elements `range` of work number `work`.
#[derive(Clone, Debug)]
pub struct Piece {
    pub work: usize,
    pub range: Range<usize>,
    /// Bytes of memory needed while it is worked on.
    pub memory: u64,
}

/// All pieces in the order of the output.
pub fn pieces(works: &[Work]) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    for (number, work) in works.iter().enumerate() {
        let entry = work.item.source()?;
        let count = entry.elements();
        let unit =
            if entry.dtype.is_quantised() || work.dtype.is_quantised() { work.shape[0].max(1) } else { 1 };
        let wanted = match way(work, entry) {
            Way::Copy => COPIED / entry.dtype.type_size().max(1) * entry.dtype.block_size(),
            _ => ELEMENTS,
        };
        let step = if entry.reads_in_parts() { (wanted / unit).max(1) * unit } else { count };
        let mut at = 0;
        while at < count {
            let range = at..at.saturating_add(step).min(count);
            // source, values, output; what is not in order is read as a whole beside its copy
            let each = if entry.reads_in_parts() { 16 } else { 24 };
            pieces.push(Piece {
                work: number,
                memory: (range.len() as u64).saturating_mul(each),
                range: range.clone(),
            });
            at = range.end;
        }
    }
    Ok(pieces)
}

/// Memory of one thread.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    values: Vec<f32>,
    out: Vec<u8>,
}

/// Reads, converts and writes one piece; gives the bytes written.
pub fn process(work: &Work, piece: &Piece, writer: &Writer, scratch: &mut Scratch) -> Result<u64> {
    let entry = work.item.source()?;
    let named = |e: Error| match e {
        Error::Cancelled | Error::Memory(_) => e,
        other => {
            Error::Invalid(format!("tensor '{}' of {}: {other}", entry.name, work.item.file.path().display()))
        }
    };
    let start = size_of_elements(entry.dtype, piece.range.start);
    let len = size_of_elements(entry.dtype, piece.range.len());
    resize(&mut scratch.bytes, len)?;
    work.item.file.read_range(entry, start as u64, &mut scratch.bytes).map_err(named)?;
    let out = convert(work, entry, piece, scratch).map_err(named)?;
    writer.write_part(piece.work, size_of_elements(work.dtype, piece.range.start) as u64, out)?;
    Ok(out.len() as u64)
}

/// The output's bytes of a piece whose bytes have been read.
fn convert<'s>(
    work: &Work,
    entry: &TensorEntry,
    piece: &Piece,
    scratch: &'s mut Scratch,
) -> Result<&'s [u8]> {
    let Scratch { bytes, values, out } = scratch;
    let way = way(work, entry);
    if way == Way::Copy {
        return Ok(bytes);
    }
    resize(out, size_of_elements(work.dtype, piece.range.len()))?;
    match way {
        Way::Copy => {}
        Way::Halve => halve(entry.dtype, bytes, out),
        Way::Truncate => {
            let mut numbers = vec![0i32; piece.range.len()];
            i64_to_i32(bytes, &mut numbers);
            out.chunks_exact_mut(4).zip(numbers).for_each(|(o, n)| o.copy_from_slice(&n.to_le_bytes()));
        }
        Way::Values => {
            values.clear();
            values.try_reserve(piece.range.len()).map_err(|_| memory(piece.range.len() * 4))?;
            values.resize(piece.range.len(), 0.0);
            decode(entry.dtype, bytes, values)?;
            scale(work, entry, piece, values)?;
            encode(work, piece, values, out)?;
        }
    }
    Ok(out)
}

/// Multiplies by the factors of a scaled weight: one, or one for each of as many equal runs.
fn scale(work: &Work, entry: &TensorEntry, piece: &Piece, values: &mut [f32]) -> Result<()> {
    let Some(scale) = work.item.file.scale_of(entry) else { return Ok(()) };
    let mut factors = vec![0.0; scale.elements()];
    convert_source(scale.dtype, &work.item.file.read(scale)?, &mut factors)?;
    let run = (entry.elements() / factors.len().max(1)).max(1);
    let mut at = piece.range.start;
    let mut rest = values;
    while !rest.is_empty() {
        let channel = at / run;
        let until = ((channel + 1) * run - at).min(rest.len());
        let (now, later) = rest.split_at_mut(until);
        let factor = factors.get(channel).copied().unwrap_or(1.0);
        now.iter_mut().for_each(|v| *v *= factor);
        (at, rest) = (at + until, later);
    }
    Ok(())
}

fn encode(work: &Work, piece: &Piece, values: &[f32], out: &mut [u8]) -> Result<()> {
    let ty = ggml_type(work.dtype)
        .ok_or_else(|| Error::Internal(format!("values cannot be written as {}", work.dtype)))?;
    if let Some(importance) = &work.importance {
        return importance.quantize(ty, values, piece.range.start / work.shape[0].max(1), out);
    }
    if work.dtype == Dtype::F16
        && cfg!(target_endian = "little")
        && let Ok(halves) = bytemuck::try_cast_slice_mut::<u8, f16>(out)
    {
        // many at a time where the processor can
        halves.convert_from_f32_slice(values);
        return Ok(());
    }
    write_as(ty, values, values.len(), out)
}

fn halve(dtype: Dtype, bytes: &[u8], out: &mut [u8]) {
    let table: [u16; 256] = std::array::from_fn(|i| match dtype {
        Dtype::F8_E4M3 => e4m3_to_f16(i as u8),
        // E5M2 is the upper half of an f16
        _ => (i as u16) << 8,
    });
    out.chunks_exact_mut(2)
        .zip(bytes)
        .for_each(|(o, &b)| o.copy_from_slice(&table[b as usize].to_le_bytes()));
}

/// Bytes of the first `count` elements, which are whole blocks.
fn size_of_elements(dtype: Dtype, count: usize) -> usize {
    count / dtype.block_size() * dtype.type_size()
}

fn resize(bytes: &mut Vec<u8>, len: usize) -> Result<()> {
    bytes.try_reserve(len.saturating_sub(bytes.len())).map_err(|_| memory(len))?;
    bytes.resize(len, 0);
    Ok(())
}

fn memory(bytes: usize) -> Error {
    Error::Memory(format!("{bytes} bytes for a tensor being converted"))
}
