//! Header of a safetensors file.
#![forbid(unsafe_code)]

use super::metadata::{Metadata, Value};
use super::writer::{Layout, Planned};
use crate::error::{Error, Result};
use std::fmt::Write;
use std::path::Path;

/// Header and places of the tensors of `plan`, whose bytes are `sizes`, without gaps and in that order.
/// Spaces after the header let the data start at a multiple of the widest element.
pub(super) fn layout(target: &Path, plan: &[Planned], sizes: &[u64], metadata: &Metadata) -> Result<Layout> {
    let mut text = String::from("{");
    if !metadata.is_empty() {
        text.push_str("\"__metadata__\":{");
        for (i, (key, value)) in metadata.iter().enumerate() {
            let Value::String(value) = value else {
                return Err(Error::file(
                    target,
                    format!("metadata '{key}' is no text, safetensors holds texts only"),
                ));
            };
            let comma = if i == 0 { "" } else { "," };
            write!(text, "{comma}{}:{}", quoted(key), quoted(value)).map_err(failed)?;
        }
        text.push('}');
    }
    let mut end = 0u64;
    let mut widest = 1;
    let mut relative = Vec::with_capacity(plan.len());
    for (p, &size) in plan.iter().zip(sizes) {
        let Some(dtype) = p.dtype.safetensors_name() else {
            return Err(Error::file(
                target,
                format!("tensor '{}': safetensors has no type {}", p.name, p.dtype),
            ));
        };
        if p.name == "__metadata__" {
            return Err(Error::file(target, "a tensor named __metadata__ cannot be written to safetensors"));
        }
        if text.len() > 1 {
            text.push(',');
        }
        let shape: Vec<String> = p.shape.iter().rev().map(usize::to_string).collect();
        write!(
            text,
            "{}:{{\"dtype\":\"{dtype}\",\"shape\":[{}],\"data_offsets\":[{end},{}]}}",
            quoted(&p.name),
            shape.join(","),
            end + size
        )
        .map_err(failed)?;
        relative.push(end);
        end += size;
        widest = widest.max(p.dtype.type_size());
    }
    text.push('}');
    while !(8 + text.len()).is_multiple_of(widest) {
        text.push(' ');
    }
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text.as_bytes());
    let start = header.len() as u64;
    Ok(Layout { header, offsets: relative.iter().map(|o| start + o).collect(), total: start + end })
}

/// A JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn failed(_: std::fmt::Error) -> Error {
    Error::Internal("a header could not be formatted".into())
}
