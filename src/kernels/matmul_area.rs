//! Some rows by some outputs of a product, with both operands packed.

use super::block::{Block, SIDE, STEP};
use super::epilogue::{Finish, finish};
use super::isa::Format;
use super::math::Activation;
use super::matmul::{K_BLOCK, MatMul, MatMulArgs};

/// A block of sums: rows `row..row + rows` of y by outputs `n0..n0 + columns`.
pub(super) struct Area<'a> {
    pub plan: &'a MatMul,
    pub args: &'a MatMulArgs,
    pub row: usize,
    pub rows: usize,
    pub n0: usize,
    pub columns: usize,
    /// Packed rows at the first step in question, panels `MatMul::row_panel_bytes` apart.
    pub x: *const u8,
    /// Packed weights at the same step, panels `w_panel` bytes apart.
    pub w: *const u8,
    pub w_panel: usize,
    /// `rows` (up to whole panels) by `columns` (likewise) sums.
    pub sums: *mut f32,
}

impl Area<'_> {
    /// Sums per row.
    fn width(&self) -> usize {
        self.columns.div_ceil(SIDE) * SIDE
    }

    /// Multiplies over `steps` steps; `accumulate` adds to the sums that are there.
    ///
    /// # Safety
    /// Both operands are packed for `steps` steps; nobody else touches the sums; tiles are configured.
    pub(super) unsafe fn multiply(&self, steps: usize, accumulate: bool) {
        let format = self.plan.format;
        let offsets: [isize; K_BLOCK / STEP] = std::array::from_fn(|i| (i * format.b_step()) as isize);
        for step in (0..steps).step_by(K_BLOCK / STEP) {
            for r in (0..self.rows).step_by(SIDE) {
                let panel = r / SIDE * self.plan.row_panel_bytes();
                let a = self.x.wrapping_add(panel + step * format.a_step());
                for column in (0..self.columns).step_by(SIDE) {
                    let block = Block {
                        a,
                        b: self.w.wrapping_add(column / SIDE * self.w_panel + step * format.b_step()),
                        offsets: offsets.as_ptr(),
                        steps: (steps - step).min(K_BLOCK / STEP),
                        b_stride: if format == Format::F32 { 128 } else { 64 },
                        b_right: 1024,
                        b_low: 2048,
                        c: self.sums.wrapping_add(r * self.width() + column),
                        c_stride: self.width() * 4,
                        accumulate: accumulate || step > 0,
                        wide_rows: self.rows - r > 16,
                        wide_columns: self.columns - column > 16,
                    };
                    // SAFETY: A and B are packed for these steps, C lies in the sums; tiles are configured.
                    unsafe { block.run(self.plan.isa, format) };
                }
            }
        }
    }

    /// Sums of earlier steps come back from y.
    ///
    /// # Safety
    /// y holds them and nobody else touches its part or the sums.
    pub(super) unsafe fn reload(&self) {
        for r in 0..self.rows {
            // SAFETY: the row's part lies in y and in the sums.
            unsafe {
                let y = self.args.y.byte_add((self.row + r) * self.args.y_stride).add(self.n0);
                std::ptr::copy_nonoverlapping(y, self.sums.add(r * self.width()), self.columns);
            }
        }
    }

    /// Sums go to y, with bias, activation and residual when `last`.
    ///
    /// # Safety
    /// The pointers of the arguments are valid; nobody else touches this part of y or the sums.
    pub(super) unsafe fn store(&self, last: bool) {
        let args = self.args;
        let null = std::ptr::null();
        let mut out = Finish {
            column_bias: null,
            row_bias: null,
            activation: Activation::None,
            residual: null,
            residual_stride: args.residual_stride / 4,
            y: args.y.wrapping_byte_add(self.row * args.y_stride).wrapping_add(self.n0),
            y_stride: args.y_stride / 4,
        };
        if last {
            out.activation = self.plan.activation;
            if !args.bias.is_null() {
                out.column_bias = args.bias.wrapping_add(self.n0);
            }
            if !args.residual.is_null() {
                let row = args.residual.wrapping_byte_add(self.row * args.residual_stride);
                out.residual = row.wrapping_add(self.n0);
            }
        }
        // SAFETY: the sums and y hold these rows and columns.
        unsafe { finish(self.plan.isa, self.sums, self.width(), self.rows, self.columns, &out) };
    }
}
