//! Quantising and dequantising rows.

use ggml_sys as sys;

use super::types::Type;
use crate::error::{Error, Result};

/// Bytes of `values` (rows of `width`) in type `ty`.
///
/// `importance` holds one weight per column; some low-bit types cannot do without it.
pub fn quantize(
    ty: Type,
    values: &[f32],
    width: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<()> {
    let rows = values.len().checked_div(width).unwrap_or(0);
    let row_bytes = ty.row_bytes(width).unwrap_or(0);
    let fits = width > 0 && values.len() == rows * width && row_bytes > 0 && out.len() == rows * row_bytes;
    if !fits || importance.is_some_and(|w| w.len() != width) {
        return Err(Error::shape("quantize", format!("{} values in rows of {width} as {ty}", values.len())));
    }
    if needs_importance(ty) && importance.is_none() {
        return Err(Error::invalid(format!("type {ty} needs an importance matrix (load_imatrix)")));
    }
    let weights = importance.map_or(std::ptr::null(), <[f32]>::as_ptr);
    // SAFETY: `values` holds `rows * width` floats, `out` as many rows of `row_bytes`, `weights` NULL or `width`
    // floats; `start` is 0.
    let written = sys::guard(|| unsafe {
        sys::ggml_quantize_chunk(
            ty.0,
            values.as_ptr(),
            out.as_mut_ptr().cast(),
            0,
            rows as i64,
            width as i64,
            weights,
        )
    })
    .map_err(|text| Error::Backend(format!("ggml: {text}")))?;
    if written == out.len() {
        Ok(())
    } else {
        Err(Error::Internal(format!("{written} bytes of {ty} written")))
    }
}

/// Whether rows of `ty` cannot be made without an importance matrix.
pub fn needs_importance(ty: Type) -> bool {
    // SAFETY: a valid type.
    unsafe { sys::ggml_quantize_requires_imatrix(ty.0) }
}

/// Values of whole rows of type `ty`.
pub fn dequantize(ty: Type, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    if ty.row_bytes(out.len()) != Some(bytes.len()) {
        return Err(Error::shape(
            "dequantize",
            format!("{} bytes of {ty} for {} values", bytes.len(), out.len()),
        ));
    }
    if ty == Type::F32 {
        // ggml has no converter for f32.
        for (value, raw) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *value = f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
        }
        return Ok(());
    }
    // SAFETY: traits of a valid type are a static table; the converter reads `bytes` (whole blocks for
    // `out.len()` values) and writes `out.len()` floats.
    unsafe {
        let traits = sys::ggml_get_type_traits(ty.0);
        let Some(convert) = (*traits).to_float else {
            return Err(Error::invalid(format!("values of type {ty} cannot be read")));
        };
        convert(bytes.as_ptr().cast(), out.as_mut_ptr(), out.len() as i64);
    }
    Ok(())
}
