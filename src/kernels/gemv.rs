//! Products with few rows: weights are read once, turned to f32 and multiplied at once, in f32 on every path.

use super::isa::Isa;
use super::math::{Activation, activate, dispatch};
use super::matmul::MatMulArgs;
use super::team::Team;
use super::weight::{self, WeightType};

/// Rows up to which this way is taken.
pub(super) const MAX_ROWS: usize = 6;
/// Values turned to f32 at a time; a multiple of every type's block.
const BLOCK: usize = 2048;
/// Partial sums of one product: four vectors of sixteen.
const LANES: usize = 64;

/// Shape of such a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub isa: Isa,
    pub x_type: WeightType,
    pub weight: WeightType,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// Bytes for x as f32, rows padded to whole lanes.
pub(super) fn x_bytes(m: usize, k: usize) -> usize {
    m * k.next_multiple_of(LANES) * 4
}

impl Rows {
    /// # Safety
    /// As `MatMul::run`; `x` holds [`x_bytes`] and is shared by the team.
    pub(super) unsafe fn run(&self, args: &MatMulArgs, activation: Activation, x: *mut f32, team: &Team) {
        let padded = self.k.next_multiple_of(LANES);
        let blocks = self.k.div_ceil(BLOCK);
        // SAFETY: x has `m` padded rows; each block is filled by one thread, and read after the wait.
        unsafe {
            for i in team.share(self.m * blocks) {
                let (row, k0) = (i / blocks, i % blocks * BLOCK);
                let len = (self.k - k0).min(BLOCK);
                let out = x.add(row * padded + k0);
                let src = args.x.add(row * args.x_stride);
                weight::to_f32(self.isa, self.x_type, src, k0, len, out);
                std::ptr::write_bytes(out.add(len), 0, len.next_multiple_of(LANES) - len);
            }
            team.wait();
            let mut values = [0f32; BLOCK];
            let columns = team.share(self.n.div_ceil(16));
            for n in columns.start * 16..self.n.min(columns.end * 16) {
                let mut sums = [0f32; MAX_ROWS];
                let w = args.w.add(n * args.w_stride);
                if let WeightType::F16 = self.weight {
                    for (row, sum) in sums.iter_mut().enumerate().take(self.m) {
                        half_dot(self.isa, w.cast(), x.add(row * padded), self.k, sum);
                    }
                } else {
                    self.dots(w, x, padded, &mut values, &mut sums);
                }
                for (row, sum) in sums.iter_mut().enumerate().take(self.m) {
                    let bias = if args.bias.is_null() { 0.0 } else { *args.bias.add(n) };
                    let mut value = [*sum + bias];
                    activate(activation, &mut value);
                    if !args.residual.is_null() {
                        value[0] += *args.residual.byte_add(row * args.residual_stride).add(n);
                    }
                    *args.y.byte_add(row * args.y_stride).add(n) = value[0];
                }
            }
        }
    }

    /// # Safety
    /// `w` is a row of weights, `x` holds `m` rows of `padded` values.
    unsafe fn dots(
        &self,
        w: *const u8,
        x: *const f32,
        padded: usize,
        values: &mut [f32; BLOCK],
        sums: &mut [f32; MAX_ROWS],
    ) {
        for k0 in (0..self.k).step_by(BLOCK) {
            let len = (self.k - k0).min(BLOCK);
            let whole = len.next_multiple_of(LANES);
            // SAFETY: `values` takes a block; x rows are padded to whole lanes.
            unsafe {
                weight::to_f32(self.isa, self.weight, w, k0, len, values.as_mut_ptr());
                values[len..whole].fill(0.0);
                for (row, sum) in sums.iter_mut().enumerate().take(self.m) {
                    let x = std::slice::from_raw_parts(x.add(row * padded + k0), whole);
                    multiply(self.isa, &values[..whole], x, sum);
                }
            }
        }
    }
}

dispatch! {
    /// Adds the product of two rows of whole lanes to `sum`.
    ///
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn multiply = multiply_body(w: &[f32], x: &[f32], sum: &mut f32)
}

/// # Safety
/// None; the signature is that of [`multiply`].
#[inline(always)]
unsafe fn multiply_body(w: &[f32], x: &[f32], sum: &mut f32) {
    let mut lanes = [0f32; LANES];
    for (w, x) in w.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            lanes[i] = w[i].mul_add(x[i], lanes[i]);
        }
    }
    // Halves first, so that it stays vector code.
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    *sum += lanes[0];
}

dispatch! {
    /// Product of a row of f16 weights with one of f32.
    ///
    /// # Safety
    /// Both rows hold `k` values.
    unsafe fn half_dot = half_dot_body(w: *const u16, x: *const f32, k: usize, sum: &mut f32)
}

/// # Safety
/// As [`half_dot`].
#[inline(always)]
unsafe fn half_dot_body(w: *const u16, x: *const f32, k: usize, sum: &mut f32) {
    use std::arch::x86_64::*;
    // SAFETY: whole groups of 32 and of 8 stay below `k`, the rest is copied to 8 values of its own; F16C and FMA are
    // enabled in both callers.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); 4];
        let group = |w: *const u16, x: *const f32, sum: __m256| {
            _mm256_fmadd_ps(_mm256_cvtph_ps(_mm_loadu_si128(w.cast())), _mm256_loadu_ps(x), sum)
        };
        let whole = k / 32 * 32;
        for i in (0..whole).step_by(32) {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = group(w.add(i + 8 * lane), x.add(i + 8 * lane), *sum);
            }
        }
        for i in (whole..k).step_by(8) {
            let count = (k - i).min(8);
            let (mut rest, mut values) = ([0u16; 8], [0f32; 8]);
            std::ptr::copy_nonoverlapping(w.add(i), rest.as_mut_ptr(), count);
            std::ptr::copy_nonoverlapping(x.add(i), values.as_mut_ptr(), count);
            sums[0] = group(rest.as_ptr(), values.as_ptr(), sums[0]);
        }
        let total = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
        let half = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps::<1>(total));
        let half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        *sum = _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps::<1>(half, half)));
    }
}
