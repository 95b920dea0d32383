//! Products with few rows: weights are read once, turned to f32 and multiplied at once, in f32 on every path.

use super::isa::Isa;
use super::math::{Activation, activate, dispatch};
use super::matmul::{K_BLOCK, MatMulArgs};
use super::team::Team;
use super::weight::{self, WeightType};

/// Rows up to which this way is taken.
pub(super) const MAX_ROWS: usize = 6;
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
        let blocks = self.k.div_ceil(K_BLOCK);
        // SAFETY: x has `m` padded rows; each block of up to 256 is filled by one thread, and read after the wait.
        unsafe {
            for i in team.share(self.m * blocks) {
                let (row, k0) = (i / blocks, i % blocks * K_BLOCK);
                let len = (self.k - k0).min(K_BLOCK);
                let out = x.add(row * padded + k0);
                let src = args.x.add(row * args.x_stride);
                weight::to_f32(self.isa, self.x_type, src, k0, len, out);
                std::ptr::write_bytes(out.add(len), 0, len.next_multiple_of(LANES) - len);
            }
            team.wait();
            let columns = team.share(self.n.div_ceil(16));
            for n in columns.start * 16..self.n.min(columns.end * 16) {
                let mut sums = [0f32; MAX_ROWS];
                self.dots(args.w.add(n * args.w_stride), x, padded, &mut sums);
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
    unsafe fn dots(&self, w: *const u8, x: *const f32, padded: usize, sums: &mut [f32; MAX_ROWS]) {
        let mut values = [0f32; K_BLOCK];
        for k0 in (0..self.k).step_by(K_BLOCK) {
            let len = (self.k - k0).min(K_BLOCK);
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
