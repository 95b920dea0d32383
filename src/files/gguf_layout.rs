//! Header of a GGUF file, version 3.
#![forbid(unsafe_code)]

use super::gguf::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use super::metadata::{Array, Metadata, Value};
use super::writer::{Layout, Planned};
use crate::error::{Error, Result};
use std::path::Path;

/// Axes that ggml can hold.
const RANK: usize = 4;

/// Metadata, table and places of the tensors of `plan`, whose bytes are `sizes`.
/// The end is padded too, since ggml's own reader wants the last tensor padded.
pub(super) fn layout(target: &Path, plan: &[Planned], sizes: &[u64], metadata: &Metadata) -> Result<Layout> {
    let alignment = alignment(target, metadata)?;
    let mut h = MAGIC.to_vec();
    h.extend(3u32.to_le_bytes());
    h.extend((plan.len() as u64).to_le_bytes());
    h.extend((metadata.len() as u64).to_le_bytes());
    for (key, v) in metadata.iter() {
        text(&mut h, key);
        value(&mut h, v);
    }
    let mut relative = Vec::with_capacity(plan.len());
    let mut end = 0u64;
    for (p, &size) in plan.iter().zip(sizes) {
        let Some(id) = p.dtype.ggml_id() else {
            return Err(Error::file(target, format!("tensor '{}': GGUF has no type {}", p.name, p.dtype)));
        };
        if p.shape.len() > RANK {
            return Err(Error::file(
                target,
                format!("tensor '{}' has {} axes, GGUF has {RANK}", p.name, p.shape.len()),
            ));
        }
        text(&mut h, &p.name);
        // a scalar is a row of one, as ggml has it
        let shape = if p.shape.is_empty() { &[1][..] } else { &p.shape };
        h.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|&d| h.extend((d as u64).to_le_bytes()));
        h.extend(id.to_le_bytes());
        h.extend(end.to_le_bytes());
        relative.push(end);
        end = (end + size).next_multiple_of(alignment);
    }
    h.resize(h.len().next_multiple_of(alignment as usize), 0);
    let start = h.len() as u64;
    Ok(Layout { header: h, offsets: relative.iter().map(|o| start + o).collect(), total: start + end })
}

fn alignment(target: &Path, metadata: &Metadata) -> Result<u64> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(v)) if v.is_power_of_two() && u64::from(v) <= super::limits::ALIGNMENT => {
            Ok(v.into())
        }
        Some(v) => {
            Err(Error::file(target, format!("{ALIGNMENT_KEY} is {v:?}, a u32 power of two was expected")))
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Number of the type, then the value; numbers as in `enum gguf_type`.
fn value(out: &mut Vec<u8>, value: &Value) {
    let mut plain = |kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(v) => plain(0, &v.to_le_bytes()),
        Value::I8(v) => plain(1, &v.to_le_bytes()),
        Value::U16(v) => plain(2, &v.to_le_bytes()),
        Value::I16(v) => plain(3, &v.to_le_bytes()),
        Value::U32(v) => plain(4, &v.to_le_bytes()),
        Value::I32(v) => plain(5, &v.to_le_bytes()),
        Value::F32(v) => plain(6, &v.to_le_bytes()),
        Value::Bool(v) => plain(7, &[u8::from(*v)]),
        Value::U64(v) => plain(10, &v.to_le_bytes()),
        Value::I64(v) => plain(11, &v.to_le_bytes()),
        Value::F64(v) => plain(12, &v.to_le_bytes()),
        Value::String(v) => {
            plain(8, &[]);
            text(out, v);
        }
        Value::Array(v) => {
            plain(9, &[]);
            array(out, v);
        }
    }
}

fn array(out: &mut Vec<u8>, array: &Array) {
    fn numbers<T: Copy, const N: usize>(out: &mut Vec<u8>, kind: u32, values: &[T], bytes: fn(T) -> [u8; N]) {
        out.extend(kind.to_le_bytes());
        out.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|&v| out.extend(bytes(v)));
    }
    match array {
        Array::U8(v) => numbers(out, 0, v, u8::to_le_bytes),
        Array::I8(v) => numbers(out, 1, v, i8::to_le_bytes),
        Array::U16(v) => numbers(out, 2, v, u16::to_le_bytes),
        Array::I16(v) => numbers(out, 3, v, i16::to_le_bytes),
        Array::U32(v) => numbers(out, 4, v, u32::to_le_bytes),
        Array::I32(v) => numbers(out, 5, v, i32::to_le_bytes),
        Array::F32(v) => numbers(out, 6, v, f32::to_le_bytes),
        Array::Bool(v) => numbers(out, 7, v, |b| [u8::from(b)]),
        Array::U64(v) => numbers(out, 10, v, u64::to_le_bytes),
        Array::I64(v) => numbers(out, 11, v, i64::to_le_bytes),
        Array::F64(v) => numbers(out, 12, v, f64::to_le_bytes),
        Array::String(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|t| text(out, t));
        }
    }
}
