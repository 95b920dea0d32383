//! Plain element types to f32. Quantised types are ggml's business.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use crate::error::{Error, Result};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Writes each element of `bytes` as f32 to `out`. An error for quantised types and for counts that differ.
///
/// NaN stays NaN; f64 and i64 round to nearest; fp8 values are all exact in f32 (and in f16).
pub fn convert_source(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    if dtype.is_quantised() {
        return Err(Error::Internal(format!("{dtype} is no plain type")));
    }
    if Some(bytes.len()) != out.len().checked_mul(dtype.type_size()) {
        return Err(Error::Internal(format!(
            "{} bytes for {} values of type {dtype}",
            bytes.len(),
            out.len()
        )));
    }
    match dtype {
        Dtype::F32 => each(bytes, out, f32::from_le_bytes),
        Dtype::F16 => match bytemuck::try_cast_slice::<u8, f16>(bytes) {
            // many at a time where the processor can
            Ok(halves) if cfg!(target_endian = "little") => halves.convert_to_f32_slice(out),
            _ => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        },
        Dtype::BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        Dtype::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
        Dtype::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        Dtype::I16 => each(bytes, out, |b| i16::from_le_bytes(b).into()),
        Dtype::I8 => each(bytes, out, |b| i8::from_le_bytes(b).into()),
        Dtype::U8 => each(bytes, out, |b: [u8; 1]| b[0].into()),
        Dtype::BOOL => each(bytes, out, |b: [u8; 1]| f32::from(b[0] != 0)),
        Dtype::F8_E4M3 => {
            let table = e4m3_table();
            each(bytes, out, |b: [u8; 1]| table[b[0] as usize]);
        }
        Dtype::F8_E5M2 => each(bytes, out, |b: [u8; 1]| e5m2_to_f32(b[0])),
        _ => return Err(Error::Internal(format!("{dtype} is no plain type"))),
    }
    Ok(())
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (o, &chunk) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *o = value(chunk);
    }
}

/// Multiplies values by the factors of a scaled weight: one for all, or one for each of `scale.len()` equal runs
/// (output channels, the slowest axis).
pub fn apply_scale(values: &mut [f32], scale: &[f32]) {
    let run = values.len() / scale.len().max(1);
    if run == 0 {
        return;
    }
    for (channel, &factor) in values.chunks_mut(run).zip(scale) {
        channel.iter_mut().for_each(|v| *v *= factor);
    }
}

/// 64 bit integers to 32 bit ones by dropping the upper half, as the recorded library stores them in GGUF.
/// `out` has as many values as `bytes` holds; what has no partner stays as it is.
pub fn i64_to_i32(bytes: &[u8], out: &mut [i32]) {
    for (o, &b) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *o = i64::from_le_bytes(b) as i32;
    }
}

fn e4m3_table() -> [f32; 256] {
    std::array::from_fn(|i| e4m3_to_f32(i as u8))
}

/// E4M3 "fn": bias 7, no infinity, 0x7f and 0xff are NaN. arXiv 2209.05433.
pub fn e4m3_to_f32(byte: u8) -> f32 {
    let sign = if byte & 0x80 != 0 { -1.0f32 } else { 1.0 };
    let exponent = i32::from(byte >> 3 & 0xf);
    let mantissa = f32::from(byte & 7);
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    magnitude.copysign(sign)
}

/// E4M3 to the bits of an f16; all values are exact.
pub fn e4m3_to_f16(byte: u8) -> u16 {
    f16::from_f32(e4m3_to_f32(byte)).to_bits()
}

/// E5M2: the upper half of an f16. arXiv 2209.05433.
pub fn e5m2_to_f32(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte) << 8).to_f32()
}
