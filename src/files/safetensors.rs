//! safetensors: eight bytes with the length of a JSON header, the header, the data.
//!
//! <https://huggingface.co/docs/safetensors/index>. Only the header is read here.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::metadata::{Metadata, Value};
use super::model::{Contents, Format, TensorEntry};
use super::source::Source;
use super::{check, limits};
use crate::error::Result;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::fmt;

/// Length of the field that holds the header's length.
const LENGTH_BYTES: u64 = 8;

/// Whether the first bytes of a file of `len` bytes can be a safetensors header.
pub(super) fn sniff(start: &[u8], len: u64) -> bool {
    let Some((length, rest)) = start.split_first_chunk::<8>() else { return false };
    let header = u64::from_le_bytes(*length);
    rest.first() == Some(&b'{') && (2..=len.max(1 << 40)).contains(&header)
}

/// Reads and checks the header.
pub(super) fn read(source: &Source) -> Result<Contents> {
    let mut length = [0; LENGTH_BYTES as usize];
    source.read_at(0, &mut length)?;
    let header_len = u64::from_le_bytes(length);
    if header_len > limits::HEADER_BYTES || header_len > source.len() - LENGTH_BYTES {
        return Err(source.error(format!(
            "the safetensors header claims {header_len} bytes, the file has {} and the limit is {}",
            source.len(),
            limits::HEADER_BYTES
        )));
    }
    let text = source.read_vec(LENGTH_BYTES, header_len)?;
    let header = parse(&text).map_err(|m| source.error(format!("safetensors header: {m}")))?;
    drop(text);
    let data_start = LENGTH_BYTES + header_len;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for (name, info) in header.tensors {
        tensors.push(entry(source, data_start, name, &info)?);
    }
    check::overlaps(source, &tensors)?;
    Ok(Contents::new(Format::Safetensors, tensors, header.metadata))
}

fn entry(source: &Source, data_start: u64, name: String, info: &Info) -> Result<TensorEntry> {
    check::name(source, &name)?;
    let dtype = Dtype::from_safetensors_name(&info.dtype)
        .ok_or_else(|| source.error(format!("tensor '{name}' has the unsupported type '{}'", info.dtype)))?;
    let shape = check::shape(source, &name, info.shape.iter().rev().copied())?;
    let [begin, end] = info.offsets;
    let data_len = source.len() - data_start;
    if begin > end || end > data_len {
        return Err(source.error(format!(
            "tensor '{name}' lies at bytes {begin} to {end}, but the data ends at {data_len}: the file may be cut off"
        )));
    }
    let nbytes = end - begin;
    if dtype.nbytes(&shape) != Some(nbytes) {
        return Err(source.error(format!(
            "tensor '{name}' of type {} and shape {:?} has {nbytes} bytes",
            info.dtype, info.shape
        )));
    }
    Ok(TensorEntry::plain(name, dtype, shape, data_start + begin, nbytes))
}

struct Info {
    dtype: String,
    /// Slowest axis first, as torch counts.
    shape: Vec<u64>,
    offsets: [u64; 2],
}

#[derive(Default)]
struct Header {
    metadata: Metadata,
    tensors: Vec<(String, Info)>,
}

/// serde_json bounds the nesting by itself (128 levels).
fn parse(text: &[u8]) -> std::result::Result<Header, String> {
    let current = RefCell::new(String::new());
    let mut json = serde_json::Deserializer::from_slice(text);
    let header = json.deserialize_map(HeaderVisitor(&current)).and_then(|header| {
        json.end()?;
        Ok(header)
    });
    header.map_err(|e| {
        let name = current.borrow();
        if name.is_empty() { e.to_string() } else { format!("tensor '{name}': {e}") }
    })
}

/// Keeps the name of the tensor being parsed, for messages.
struct HeaderVisitor<'a>(&'a RefCell<String>);

impl<'de> Visitor<'de> for HeaderVisitor<'_> {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
        let mut header = Header::default();
        let mut metadata_seen = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if std::mem::replace(&mut metadata_seen, true) {
                    return Err(de::Error::custom("__metadata__ occurs twice"));
                }
                for (key, value) in map.next_value::<Option<TextPairs>>()?.unwrap_or_default().0 {
                    if !header.metadata.insert(key, Value::String(value)) {
                        return Err(de::Error::custom("a key occurs twice in __metadata__"));
                    }
                }
                continue;
            }
            if header.tensors.len() as u64 == limits::TENSORS {
                return Err(de::Error::custom(format_args!("more than {} tensors", limits::TENSORS)));
            }
            self.0.borrow_mut().clone_from(&name);
            header.tensors.push((name, map.next_value_seed(InfoSeed)?));
            self.0.borrow_mut().clear();
        }
        Ok(header)
    }
}

/// An object of texts that keeps repeated keys, so that they can be refused.
#[derive(Default)]
struct TextPairs(Vec<(String, String)>);

impl<'de> de::Deserialize<'de> for TextPairs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = TextPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<TextPairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(TextPairs(pairs))
            }
        }
        d.deserialize_map(PairsVisitor)
    }
}

struct InfoSeed;

impl<'de> DeserializeSeed<'de> for InfoSeed {
    type Value = Info;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> std::result::Result<Info, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for InfoSeed {
    type Value = Info;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Info, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let repeated = match key.as_str() {
                "dtype" => dtype.replace(map.next_value::<String>()?).is_some(),
                "shape" => shape.replace(map.next_value::<Extents>()?.0).is_some(),
                "data_offsets" => offsets.replace(map.next_value::<[u64; 2]>()?).is_some(),
                _ => map.next_value::<de::IgnoredAny>().map(|_| false)?,
            };
            if repeated {
                return Err(de::Error::custom(format_args!("{key} occurs twice")));
            }
        }
        Ok(Info {
            dtype: dtype.ok_or_else(|| de::Error::missing_field("dtype"))?,
            shape: shape.ok_or_else(|| de::Error::missing_field("shape"))?,
            offsets: offsets.ok_or_else(|| de::Error::missing_field("data_offsets"))?,
        })
    }
}

/// A short list of whole numbers that are not negative.
struct Extents(Vec<u64>);

impl<'de> de::Deserialize<'de> for Extents {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct ExtentsVisitor;
        impl<'de> Visitor<'de> for ExtentsVisitor {
            type Value = Extents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Extents, A::Error> {
                let mut extents = Vec::new();
                while let Some(extent) = seq.next_element::<u64>()? {
                    if extents.len() == limits::RANK {
                        return Err(de::Error::custom(format_args!("more than {} axes", limits::RANK)));
                    }
                    extents.push(extent);
                }
                Ok(Extents(extents))
            }
        }
        d.deserialize_seq(ExtentsVisitor)
    }
}
