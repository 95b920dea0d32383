//! GGUF versions 2 and 3: magic, counts, metadata, tensor table, aligned data.
//!
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Only metadata and table are read here.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::metadata::{Array, Metadata, Value};
use super::model::{Contents, Format, TensorEntry};
use super::source::{Cursor, Source};
use super::{check, limits};
use crate::error::Result;

/// First bytes of every GGUF file.
pub(super) const MAGIC: [u8; 4] = *b"GGUF";

/// Alignment of the data where the metadata does not give one.
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;

/// Key of the alignment.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// Reads and checks metadata and tensor table.
pub(super) fn read(source: &Source) -> Result<Contents> {
    let mut cursor = Cursor::new(source, MAGIC.len() as u64);
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => {}
        v if matches!(v.swap_bytes(), 1..=3) => {
            return Err(source.error("is a big-endian GGUF file, a little-endian one was expected"));
        }
        v => return Err(source.error(format!("is a GGUF file of version {v}, 2 or 3 was expected"))),
    }
    let tensor_count = cursor.u64("the number of tensors")?;
    let pair_count = cursor.u64("the number of metadata pairs")?;
    // 20 bytes are the least that a pair takes, 24 a tensor
    for (what, count, limit) in
        [("tensors", tensor_count, limits::TENSORS), ("metadata pairs", pair_count, limits::METADATA_PAIRS)]
    {
        if count > limit || count > cursor.remaining() / 12 {
            return Err(source.error(format!(
                "claims {count} {what}; the file has {} bytes and the limit is {limit}",
                source.len()
            )));
        }
    }
    let metadata = PairReader { cursor: &mut cursor, elements: 0 }.read_all(pair_count)?;
    let alignment = alignment(source, &metadata)?;
    let mut tensors = Vec::with_capacity(tensor_count as usize);
    for _ in 0..tensor_count {
        tensors.push(tensor(&mut cursor, source)?);
    }
    let data_start = cursor.position().next_multiple_of(alignment);
    for t in &mut tensors {
        place(source, t, data_start, alignment)?;
    }
    check::overlaps(source, &tensors)?;
    Ok(Contents::new(Format::Gguf, tensors, metadata))
}

fn alignment(source: &Source, metadata: &Metadata) -> Result<u64> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(v)) if v.is_power_of_two() && u64::from(v) <= limits::ALIGNMENT => Ok(v.into()),
        Some(v) => Err(source.error(format!(
            "{ALIGNMENT_KEY} is {v:?}, a u32 power of two up to {} was expected",
            limits::ALIGNMENT
        ))),
    }
}

/// One line of the table; its offset still counts from the start of the data.
fn tensor(cursor: &mut Cursor<'_>, source: &Source) -> Result<TensorEntry> {
    let name = string(cursor, limits::NAME_BYTES as u64, "a tensor's name")?;
    check::name(source, &name)?;
    let rank = cursor.u32("a number of axes")?;
    if rank as usize > limits::RANK {
        return Err(
            source.error(format!("tensor '{name}' has {rank} axes, at most {} were expected", limits::RANK))
        );
    }
    let mut extents = Vec::with_capacity(rank as usize);
    for _ in 0..rank {
        extents.push(cursor.u64("a shape")?);
    }
    let shape = check::shape(source, &name, extents.into_iter())?;
    let id = cursor.u32("a tensor's type")?;
    let dtype = Dtype::from_ggml_id(id).ok_or_else(|| {
        let removed = matches!(id, 4 | 5 | 31..=33 | 36..=38);
        source.error(format!(
            "tensor '{name}' has the {} type {id}",
            if removed { "withdrawn" } else { "unsupported" }
        ))
    })?;
    let offset = cursor.u64("a tensor's offset")?;
    let nbytes = dtype.nbytes(&shape).ok_or_else(|| {
        source.error(format!(
            "tensor '{name}' of type {dtype} has rows of {} elements, a multiple of {} was expected",
            shape.first().unwrap_or(&1),
            dtype.block_size()
        ))
    })?;
    Ok(TensorEntry::plain(name, dtype, shape, offset, nbytes))
}

/// Turns the offset into one within the file.
fn place(source: &Source, t: &mut TensorEntry, data_start: u64, alignment: u64) -> Result<()> {
    if !t.offset.is_multiple_of(alignment) {
        return Err(source.error(format!(
            "tensor '{}' lies at offset {}, no multiple of the alignment {alignment}",
            t.name, t.offset
        )));
    }
    let begin = data_start.checked_add(t.offset);
    let end = begin.and_then(|b| b.checked_add(t.nbytes)).filter(|&e| e <= source.len());
    let (Some(begin), Some(_)) = (begin, end) else {
        return Err(source.error(format!(
            "tensor '{}' has {} bytes at offset {} of the data, but the file ends at {}: it may be cut off",
            t.name,
            t.nbytes,
            t.offset,
            source.len()
        )));
    };
    t.offset = begin;
    Ok(())
}

/// Text of at most `limit` bytes.
fn string(cursor: &mut Cursor<'_>, limit: u64, what: &str) -> Result<String> {
    let len = cursor.u64(what)?;
    if len > limit || len > cursor.remaining() {
        return Err(cursor.error(format!("{what} claims {len} bytes, at most {limit} were expected")));
    }
    let bytes = cursor.bytes(len as usize, what)?;
    // vocabularies hold tokens that are no UTF-8 by themselves
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Numbers of the value types, `enum gguf_type`.
mod kind {
    pub const ARRAY: u32 = 9;
    pub const STRING: u32 = 8;
}

struct PairReader<'a, 'b> {
    cursor: &'a mut Cursor<'b>,
    /// Elements of all arrays so far.
    elements: u64,
}

impl PairReader<'_, '_> {
    fn read_all(mut self, count: u64) -> Result<Metadata> {
        let start = self.cursor.position();
        let mut metadata = Metadata::default();
        for _ in 0..count {
            let key = string(self.cursor, limits::NAME_BYTES as u64, "a metadata key")?;
            let value = self.value(&key)?;
            if self.cursor.position() - start > limits::METADATA_BYTES {
                return Err(self.cursor.error(format!("metadata above {} bytes", limits::METADATA_BYTES)));
            }
            if key.is_empty() || !metadata.insert(key.as_str(), value) {
                return Err(self.cursor.error(format!("metadata key '{key}' is empty or occurs twice")));
            }
        }
        Ok(metadata)
    }

    fn value(&mut self, key: &str) -> Result<Value> {
        let kind = self.cursor.u32(key)?;
        if kind == kind::STRING {
            return Ok(Value::String(string(self.cursor, limits::METADATA_BYTES, key)?));
        }
        if kind == kind::ARRAY {
            return self.array(key).map(Value::Array);
        }
        let c = &mut *self.cursor;
        Ok(match kind {
            0 => Value::U8(u8::from_le_bytes(c.array(key)?)),
            1 => Value::I8(i8::from_le_bytes(c.array(key)?)),
            2 => Value::U16(u16::from_le_bytes(c.array(key)?)),
            3 => Value::I16(i16::from_le_bytes(c.array(key)?)),
            4 => Value::U32(u32::from_le_bytes(c.array(key)?)),
            5 => Value::I32(i32::from_le_bytes(c.array(key)?)),
            6 => Value::F32(f32::from_le_bytes(c.array(key)?)),
            7 => Value::Bool(c.array::<1>(key)? != [0]),
            10 => Value::U64(u64::from_le_bytes(c.array(key)?)),
            11 => Value::I64(i64::from_le_bytes(c.array(key)?)),
            12 => Value::F64(f64::from_le_bytes(c.array(key)?)),
            _ => return Err(c.error(format!("metadata key '{key}' has the unknown value type {kind}"))),
        })
    }

    fn array(&mut self, key: &str) -> Result<Array> {
        let kind = self.cursor.u32(key)?;
        let len = self.cursor.u64(key)?;
        // every element takes a byte at least, so the file bounds the claim before anything is allocated
        self.elements = self.elements.saturating_add(len);
        if self.elements > limits::METADATA_ELEMENTS || len > self.cursor.remaining() {
            return Err(self.cursor.error(format!(
                "metadata key '{key}' claims {len} elements; the file has {} bytes left and the limit is {}",
                self.cursor.remaining(),
                limits::METADATA_ELEMENTS
            )));
        }
        let len = len as usize;
        Ok(match kind {
            0 => Array::U8(self.numbers(len, key, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(len, key, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(len, key, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(len, key, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(len, key, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(len, key, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(len, key, f32::from_le_bytes)?),
            7 => Array::Bool(self.numbers(len, key, |b: [u8; 1]| b != [0])?),
            10 => Array::U64(self.numbers(len, key, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(len, key, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(len, key, f64::from_le_bytes)?),
            kind::STRING => {
                let mut texts = Vec::new();
                for _ in 0..len {
                    texts.push(string(self.cursor, limits::METADATA_BYTES, key)?);
                }
                Array::String(texts)
            }
            _ => {
                return Err(self
                    .cursor
                    .error(format!("metadata key '{key}' is an array of the unsupported type {kind}")));
            }
        })
    }

    fn numbers<T, const N: usize>(
        &mut self,
        len: usize,
        key: &str,
        value: fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let bytes = self.cursor.bytes(len * N, key)?;
        Ok(bytes.as_chunks::<N>().0.iter().map(|&chunk| value(chunk)).collect())
    }
}
