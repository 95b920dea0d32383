//! Packing rows of x and panels of weights.

use super::block::{SIDE, STEP};
use super::isa::{Format, Isa};
use super::matmul::{K_BLOCK, MatMul, MatMulArgs};
use super::pack;
use super::team::round_up;
use super::weight::{self, WeightType};

/// Packs rows `row..row + rows` of x as panels at `dst`, the last one filled up with zeros.
///
/// # Safety
/// x has these rows, `dst` their panels.
pub(super) unsafe fn pack_rows(plan: &MatMul, args: &MatMulArgs, row: usize, rows: usize, dst: *mut u8) {
    for i in 0..round_up(rows, SIDE) {
        // SAFETY: the row exists in x and in its panel.
        unsafe {
            let panel = dst.add(i / SIDE * plan.row_panel_bytes());
            if i < rows {
                let x = args.x.add((row + i) * args.x_stride);
                pack_row(plan.isa, plan.format, plan.x_type, x, plan.k, panel, i % SIDE);
            } else {
                pack::a_zero(plan.format, plan.steps(), panel, i % SIDE);
            }
        }
    }
}

/// Packs one row of `k` values of `kind` into A steps.
///
/// # Safety
/// `src` holds the row, `panel` the steps; `row` < 32.
unsafe fn pack_row(
    isa: Isa,
    format: Format,
    kind: WeightType,
    src: *const u8,
    k: usize,
    panel: *mut u8,
    row: usize,
) {
    // SAFETY: chunks stay below `k` and begin at whole blocks, since blocks divide 256.
    unsafe {
        if let WeightType::F32 = kind {
            pack::a_row(isa, format, src.cast(), k, panel, row);
            return;
        }
        let mut values = [0f32; K_BLOCK];
        for k0 in (0..k).step_by(K_BLOCK) {
            let len = (k - k0).min(K_BLOCK);
            weight::to_f32(isa, kind, src, k0, len, values.as_mut_ptr());
            pack::a_row(isa, format, values.as_ptr(), len, panel.add(k0 / STEP * format.a_step()), row);
        }
    }
}

/// Packs panel `panel` of the plan's weights, all of k.
///
/// # Safety
/// `w` holds the weights, `dst` (64-aligned) the panel.
pub(super) unsafe fn pack_weights(plan: &MatMul, w: *const u8, stride: usize, panel: usize, dst: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { plan.weights(w, stride, panel).pack(plan.isa, plan.format, 0, plan.k, dst) };
}

/// Up to 32 rows of a weight matrix, to be packed as columns of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub weight: WeightType,
    pub rows: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
    /// Rows there are, 1 to 32.
    pub count: usize,
}

impl Weights {
    /// Packs values `k0..k0 + len` of the rows into B steps at `dst`; missing rows and values are zero.
    ///
    /// Only the first 16 columns are written when there are no more.
    ///
    /// # Safety
    /// The rows are valid for these values, `k0` begins a block, `dst` (64-aligned) holds the steps.
    pub(super) unsafe fn pack(&self, isa: Isa, format: Format, k0: usize, len: usize, dst: *mut u8) {
        let mut values = [[0f32; K_BLOCK]; 16];
        for half in 0..self.count.div_ceil(16) {
            let rows = (self.count - 16 * half).min(16);
            values[rows..].iter_mut().for_each(|row| row.fill(0.0));
            for k in (0..len).step_by(K_BLOCK) {
                let part = (len - k).min(K_BLOCK);
                let steps = part.div_ceil(STEP);
                // SAFETY: rows and blocks are the caller's promise; `values` takes up to 256 of each row.
                unsafe {
                    for (row, out) in values.iter_mut().enumerate().take(rows) {
                        let src = self.rows.add((16 * half + row) * self.stride);
                        weight::to_f32(isa, self.weight, src, k0 + k, part, out.as_mut_ptr());
                        out[part..steps * STEP].fill(0.0);
                    }
                    let out = dst.add(k / STEP * format.b_step());
                    pack::b_columns(isa, format, values.as_ptr().cast(), K_BLOCK, steps, out, half);
                }
            }
        }
    }
}
