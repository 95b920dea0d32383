//! The inner product of one block: 32 rows of packed A times 32 columns of packed B.

use super::isa::{Format, Isa};

/// Rows and columns of a block.
pub(super) const SIDE: usize = 32;
/// Inner values of a step.
pub(super) const STEP: usize = 32;

/// One block product `C (+)= A x B`.
///
/// `a` holds `steps` packed steps. Step `i` of B starts `offsets[i]` bytes after `b`. Within a step of B in a
/// tile format, 16 rows of 64 bytes (16 columns x 2 inner values) lie `b_stride` bytes apart, the next 16
/// columns `b_right` bytes on and the low halves `b_low` bytes on; in `F32`, 32 rows of 32 columns lie
/// `b_stride` bytes apart. `c` is row-major f32 with rows `c_stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub a: *const u8,
    pub b: *const u8,
    pub offsets: *const isize,
    pub steps: usize,
    pub b_stride: usize,
    pub b_right: usize,
    pub b_low: usize,
    pub c: *mut f32,
    pub c_stride: usize,
    /// Add to what is in `c` rather than replace it.
    pub accumulate: bool,
    /// More than 16 rows are wanted.
    pub wide_rows: bool,
    /// More than 16 columns are wanted.
    pub wide_columns: bool,
}

impl Block {
    /// Runs the product.
    ///
    /// # Safety
    /// `steps` is at least 1; operands and C are valid as the type describes (C for 16 or 32 rows and
    /// columns, as the `wide` flags say) and nobody else touches C. For a tile format, the thread holds
    /// [`super::amx::Tiles`] and `isa` is `Amx`.
    #[inline(always)]
    pub(super) unsafe fn run(&self, isa: Isa, format: Format) {
        // SAFETY: `Isa` values prove their features; the rest is the caller's promise.
        unsafe {
            match (isa, format) {
                (Isa::Amx, Format::F32) | (Isa::Avx512, _) => super::fma::avx512(self),
                (Isa::Amx, _) => super::amx::run(format, self),
                (Isa::Avx2, _) => super::fma::avx2(self),
            }
        }
    }
}
