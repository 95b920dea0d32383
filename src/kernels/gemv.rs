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

/// Bytes for x as f32, rows padded to whole blocks.
pub(super) fn x_bytes(m: usize, k: usize) -> usize {
    m * k.next_multiple_of(K_BLOCK) * 4
}

impl Rows {
    /// # Safety
    /// As `MatMul::run`; `x` holds [`x_bytes`] and is shared by the team.
    pub(super) unsafe fn run(&self, args: &MatMulArgs, activation: Activation, x: *mut f32, team: &Team) {
        let padded = self.k.next_multiple_of(K_BLOCK);
        // SAFETY: x has `m` padded rows; each block of 256 is filled by one thread, and read after the wait.
        unsafe {
            for i in team.share(self.m * padded / K_BLOCK) {
                let (row, k0) = (i * K_BLOCK / padded, i * K_BLOCK % padded);
                let len = (self.k - k0).min(K_BLOCK);
                let out = x.add(row * padded + k0);
                let src = args.x.add(row * args.x_stride);
                weight::to_f32(self.isa, self.x_type, src, k0, len, out);
                std::ptr::write_bytes(out.add(len), 0, K_BLOCK - len);
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
        let mut lanes = [[0f32; LANES]; MAX_ROWS];
        let mut values = [0f32; K_BLOCK];
        for k0 in (0..self.k).step_by(K_BLOCK) {
            let len = (self.k - k0).min(K_BLOCK);
            // SAFETY: `values` takes a block; x rows are padded to whole blocks.
            unsafe {
                weight::to_f32(self.isa, self.weight, w, k0, len, values.as_mut_ptr());
                values[len..].fill(0.0);
                for (row, lanes) in lanes.iter_mut().enumerate().take(self.m) {
                    let x = &*x.add(row * padded + k0).cast::<[f32; K_BLOCK]>();
                    multiply(self.isa, &values, x, lanes);
                }
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(&lanes) {
            *sum = lanes
                .chunks_exact(16)
                .fold([0f32; 16], |a, c| std::array::from_fn(|i| a[i] + c[i]))
                .iter()
                .sum();
        }
    }
}

dispatch! {
    /// `lanes[i] += sum of w[j] * x[j]` over all `j` of the same remainder.
    ///
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn multiply = multiply_body(w: &[f32; K_BLOCK], x: &[f32; K_BLOCK], lanes: &mut [f32; LANES])
}

/// # Safety
/// None; the signature is that of [`multiply`].
#[inline(always)]
unsafe fn multiply_body(w: &[f32; K_BLOCK], x: &[f32; K_BLOCK], lanes: &mut [f32; LANES]) {
    let mut sum = *lanes;
    for (w, x) in w.chunks_exact(LANES).zip(x.chunks_exact(LANES)) {
        for i in 0..LANES {
            sum[i] = w[i].mul_add(x[i], sum[i]);
        }
    }
    *lanes = sum;
}
