//! Scaled fp8: a weight stored as small floats and a tensor of the factors that bring it back.
//!
//! Two spellings are in use: `X.scale_weight` (with an empty marker tensor `scaled_fp8` in the file) and
//! `X.weight_scale`. One factor serves the whole tensor, or there is one for each output channel.
//! Factors for activations (`X.scale_input`, `X.input_scale`) only matter to fp8 products and are left alone.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::model::TensorEntry;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::path::Path;

/// Whether `name` belongs to the bookkeeping of scaled fp8 files: factors, markers, descriptions.
/// Such a tensor is no weight of a network by itself.
pub fn is_bookkeeping(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(
        last,
        "scaled_fp8" | "scale_weight" | "weight_scale" | "scale_input" | "input_scale" | "comfy_quant"
    )
}

/// Sets `scale` of each fp8 or 8 bit integer weight that has factors beside it.
pub(super) fn link(path: &Path, tensors: &mut [TensorEntry], by_name: &HashMap<String, usize>) -> Result<()> {
    for i in 0..tensors.len() {
        let t = &tensors[i];
        if !matches!(t.dtype, Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::I8) {
            continue;
        }
        let Some(stem) = t.name.strip_suffix("weight") else { continue };
        let found = ["scale_weight", "weight_scale"]
            .iter()
            .find_map(|suffix| by_name.get(&format!("{stem}{suffix}")).copied());
        let Some(scale) = found else { continue };
        check(path, t, &tensors[scale])?;
        tensors[i].scale = Some(scale);
    }
    Ok(())
}

/// The factors are one, or one for each output channel (the slowest axis of the weight).
fn check(path: &Path, weight: &TensorEntry, scale: &TensorEntry) -> Result<()> {
    let channels = weight.shape.last().copied().unwrap_or(1);
    let count = scale.elements();
    let float = matches!(scale.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64);
    if !float || (count != 1 && count != channels) {
        return Err(Error::file(
            path,
            format!(
                "'{}' scales '{}' with {count} values of type {}, 1 or {channels} floats were expected",
                scale.name, weight.name, scale.dtype
            ),
        ));
    }
    Ok(())
}
