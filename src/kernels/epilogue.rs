//! What happens to a block of C on its way out: bias, activation, residual, and the store.

use super::math::{Activation, activate, dispatch};

/// Where a block of sums goes and what is added on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    /// One value per column, or null.
    pub column_bias: *const f32,
    /// One value per row, or null.
    pub row_bias: *const f32,
    pub activation: Activation,
    /// Added after the activation; rows `residual_stride` values apart; or null.
    pub residual: *const f32,
    pub residual_stride: usize,
    /// Rows `y_stride` values apart.
    pub y: *mut f32,
    pub y_stride: usize,
}

dispatch! {
    /// Finishes `rows` x `columns` sums at `c` (rows `c_stride` values apart).
    ///
    /// # Safety
    /// All pointers in `finish` that are not null are valid for that many rows and columns, `c` too; nobody else
    /// touches those values of `y` and `c`.
    pub(super) unsafe fn finish = finish_body(
        c: *mut f32, c_stride: usize, rows: usize, columns: usize, finish: &Finish)
}

/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn finish_body(c: *mut f32, c_stride: usize, rows: usize, columns: usize, finish: &Finish) {
    for row in 0..rows {
        // SAFETY: row `row` of each operand exists and does not overlap with another's, by the caller's promise.
        unsafe {
            let values = std::slice::from_raw_parts_mut(c.add(row * c_stride), columns);
            if !finish.column_bias.is_null() {
                add(values, std::slice::from_raw_parts(finish.column_bias, columns));
            }
            if !finish.row_bias.is_null() {
                let bias = *finish.row_bias.add(row);
                values.iter_mut().for_each(|v| *v += bias);
            }
            activate(finish.activation, values);
            if !finish.residual.is_null() {
                let from = finish.residual.add(row * finish.residual_stride);
                add(values, std::slice::from_raw_parts(from, columns));
            }
            std::ptr::copy_nonoverlapping(values.as_ptr(), finish.y.add(row * finish.y_stride), columns);
        }
    }
}

#[inline(always)]
fn add(values: &mut [f32], other: &[f32]) {
    values.iter_mut().zip(other).for_each(|(v, o)| *v += o);
}
