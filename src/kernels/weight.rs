//! Weight types: block layouts as ggml stores them, and rows turned into f32.

use super::isa::Isa;
use half::{bf16, f16};

/// Turns `count` values at `src` (whole blocks) into f32; ggml's `to_float` has this signature.
pub type ToFloat = unsafe extern "C-unwind" fn(src: *const std::ffi::c_void, dst: *mut f32, count: i64);

/// How a weight's values are stored along a row.
#[derive(Clone, Copy, Debug)]
pub enum WeightType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Upper half of an f32.
    Bf16,
    /// ggml `block_q8_0`: f16 scale, 32 signed bytes.
    Q8_0,
    /// ggml `block_q4_0`: f16 scale, 32 nibbles, offset 8.
    Q4_0,
    /// ggml `block_q4_1`: f16 scale and minimum, 32 nibbles.
    Q4_1,
    /// ggml `block_q5_0`: f16 scale, 32 high bits, 32 nibbles, offset 16.
    Q5_0,
    /// ggml `block_q5_1`: f16 scale and minimum, 32 high bits, 32 nibbles.
    Q5_1,
    /// Any other type, through a function such as ggml's `to_float`.
    Other {
        /// Values in a block; divides 256.
        block: usize,
        /// Bytes of a block.
        bytes: usize,
        /// Dequantiser of whole blocks.
        to_float: ToFloat,
    },
}

impl WeightType {
    /// Values in a block.
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => 32,
            Self::Other { block, .. } => block,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Other { bytes, .. } => bytes,
        }
    }

    /// Bytes from the start of a row to value `k`, which must begin a block.
    pub fn offset(self, k: usize) -> usize {
        k / self.block() * self.block_bytes()
    }

    /// Whether the kernels can read rows of `k` values of this type.
    pub fn fits(self, k: usize) -> bool {
        let block = self.block();
        block > 0 && 256 % block == 0 && k.is_multiple_of(block)
    }

    /// Whether every value is exactly one bf16.
    pub(super) fn is_bf16(self) -> bool {
        matches!(self, Self::Bf16)
    }
}

/// Writes values `k0..k0 + len` of the row at `row` to `dst` as f32.
///
/// # Safety
/// `row` holds a row of `weight` with at least `k0 + len` values (rounded up to whole blocks), `k0` begins a
/// block, `len` is a multiple of the block, and `dst` is valid for `len` writes.
pub(super) unsafe fn to_f32(
    isa: Isa,
    weight: WeightType,
    row: *const u8,
    k0: usize,
    len: usize,
    dst: *mut f32,
) {
    // SAFETY: the caller's promise about `row`, `k0` and `len` makes the offset lie inside the row.
    let src = unsafe { row.add(weight.offset(k0)) };
    match weight {
        WeightType::Other { to_float, .. } => {
            // SAFETY: whole blocks are asked for and `dst` takes `len` values, by the caller's promise.
            unsafe { to_float(src.cast(), dst, len as i64) }
        }
        _ => {
            // SAFETY: `Isa` values exist only for instruction sets that this machine supports; the memory is the
            // caller's promise.
            unsafe {
                match isa {
                    Isa::Avx2 => native_avx2(weight, src, len, dst),
                    _ => native_avx512(weight, src, len, dst),
                }
            }
        }
    }
}

/// # Safety
/// As [`to_f32`]; the machine has the features named.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn native_avx512(weight: WeightType, src: *const u8, len: usize, dst: *mut f32) {
    // SAFETY: passed on from the caller.
    unsafe { native(weight, src, len, dst) }
}

/// # Safety
/// As [`to_f32`]; the machine has the features named.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn native_avx2(weight: WeightType, src: *const u8, len: usize, dst: *mut f32) {
    // SAFETY: passed on from the caller.
    unsafe { native(weight, src, len, dst) }
}

/// # Safety
/// `src` holds `len` values in whole blocks of `weight`, `dst` takes `len` values.
#[inline(always)]
unsafe fn native(weight: WeightType, src: *const u8, len: usize, dst: *mut f32) {
    // SAFETY: `len` values and their blocks lie within the memory promised by the caller; f32, f16 and bf16
    // rows are aligned to their element size, as all tensors are.
    unsafe {
        match weight {
            WeightType::F32 => std::ptr::copy_nonoverlapping(src.cast(), dst, len),
            WeightType::F16 => f16_row(src.cast(), len, dst),
            WeightType::Bf16 => {
                let src: *const bf16 = src.cast();
                for i in 0..len {
                    *dst.add(i) = f32::from_bits(u32::from((*src.add(i)).to_bits()) << 16);
                }
            }
            _ => {
                let bytes = weight.block_bytes();
                for b in 0..len / 32 {
                    let block = std::slice::from_raw_parts(src.add(b * bytes), bytes);
                    let out = &mut *dst.add(b * 32).cast::<[f32; 32]>();
                    block32(weight, block, out);
                }
            }
        }
    }
}

/// # Safety
/// `src` and `dst` are valid for `len` values; compiled where F16C is enabled.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn f16_row(src: *const f16, len: usize, dst: *mut f32) {
    use std::arch::x86_64::*;
    // SAFETY: full groups of eight stay below `len`; the tail is read value by value.
    unsafe {
        let full = len / 8 * 8;
        for i in (0..full).step_by(8) {
            _mm256_storeu_ps(dst.add(i), _mm256_cvtph_ps(_mm_loadu_si128(src.add(i).cast())));
        }
        for i in full..len {
            *dst.add(i) = (*src.add(i)).to_f32();
        }
    }
}

/// One block of 32 values; `block` has the type's length.
#[inline(always)]
fn block32(weight: WeightType, block: &[u8], out: &mut [f32; 32]) {
    let half_at = |i: usize| half_to_f32(u16::from_le_bytes([block[i], block[i + 1]]));
    let d = half_at(0);
    let low = |q: u8| i32::from(q & 15);
    let high = |q: u8| i32::from(q >> 4);
    match weight {
        WeightType::Q8_0 => {
            for (o, &q) in out.iter_mut().zip(&block[2..34]) {
                *o = d * f32::from(q as i8);
            }
        }
        WeightType::Q4_0 => {
            for (j, &q) in block[2..18].iter().enumerate() {
                out[j] = d * (low(q) - 8) as f32;
                out[j + 16] = d * (high(q) - 8) as f32;
            }
        }
        WeightType::Q4_1 => {
            let m = half_at(2);
            for (j, &q) in block[4..20].iter().enumerate() {
                out[j] = low(q) as f32 * d + m;
                out[j + 16] = high(q) as f32 * d + m;
            }
        }
        WeightType::Q5_0 => {
            let bits = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
            for (j, &q) in block[6..22].iter().enumerate() {
                out[j] = d * (low(q) + fifth(bits, j) - 16) as f32;
                out[j + 16] = d * (high(q) + fifth(bits, j + 16) - 16) as f32;
            }
        }
        WeightType::Q5_1 => {
            let m = half_at(2);
            let bits = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
            for (j, &q) in block[8..24].iter().enumerate() {
                out[j] = (low(q) + fifth(bits, j)) as f32 * d + m;
                out[j + 16] = (high(q) + fifth(bits, j + 16)) as f32 * d + m;
            }
        }
        _ => {}
    }
}

/// The fifth bit of value `j` of a q5 block, as 0 or 16.
#[inline(always)]
fn fifth(bits: u32, j: usize) -> i32 {
    ((bits >> j & 1) << 4) as i32
}

/// f16 to f32 without a slow step for subnormal values, which small scales often are.
#[inline(always)]
fn half_to_f32(bits: u16) -> f32 {
    use std::arch::x86_64::{_mm_cvtph_ps, _mm_cvtsi32_si128, _mm_cvtss_f32};
    // SAFETY: every path of this room has F16C, and an `Isa` was shown to get here.
    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts() {
        if !is_x86_feature_detected!("f16c") {
            return;
        }
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (half_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn blocks_unpack_as_ggml_defines_them() {
        if !is_x86_feature_detected!("f16c") {
            return;
        }
        let d = f16::from_f32(0.5).to_bits().to_le_bytes();
        let m = f16::from_f32(-1.0).to_bits().to_le_bytes();
        let mut out = [0f32; 32];
        let mut q4 = [&d[..], &[0x1f; 16]].concat();
        block32(WeightType::Q4_0, &q4, &mut out);
        assert_eq!((out[0], out[16]), (0.5 * 7.0, 0.5 * -7.0));
        q4 = [&d[..], &m[..], &[0x1f; 16]].concat();
        block32(WeightType::Q4_1, &q4, &mut out);
        assert_eq!((out[3], out[19]), (6.5, -0.5));
        let q5 = [&d[..], &[1, 0, 2, 0], &[0x1f; 16]].concat();
        block32(WeightType::Q5_0, &q5, &mut out);
        assert_eq!((out[0], out[1], out[16], out[17]), (7.5, -0.5, -7.5, 0.5));
        let q5 = [&d[..], &m[..], &[1, 0, 2, 0], &[0x1f; 16]].concat();
        block32(WeightType::Q5_1, &q5, &mut out);
        assert_eq!((out[0], out[1], out[16], out[17]), (14.5, 6.5, -0.5, 7.5));
        let q8: Vec<u8> = d.iter().copied().chain((0..32).map(|i| (i as i8 - 16) as u8)).collect();
        block32(WeightType::Q8_0, &q8, &mut out);
        assert_eq!((out[0], out[31]), (-8.0, 7.5));
    }
}
