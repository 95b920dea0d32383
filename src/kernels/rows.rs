//! Kernels that work row by row: layer and RMS norm, gated units, softmax, activations, rotary embedding.

use super::cpu::{CpuPath, cpu_path};
use super::isa::Isa;
use super::math::{self, Activation, activate, dispatch};
use super::sums::{mean, squares};
use super::team::Team;

/// The path row kernels run on; they are the same on every path with AVX2 or better.
#[derive(Clone, Copy, Debug)]
pub struct RowKernels {
    isa: Isa,
}

/// Which statistics a row is normed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowNorm {
    /// Mean and variance.
    Layer,
    /// Mean of squares.
    Rms,
}

/// Operands of a row norm: `y = norm(x) * weight + bias`, then `* (1 + scale) + shift`.
#[derive(Clone, Copy, Debug)]
pub struct NormArgs {
    /// `rows` rows of `width` values, contiguous.
    pub x: *const f32,
    /// As x; may be x itself.
    pub y: *mut f32,
    /// Rows.
    pub rows: usize,
    /// Values per row.
    pub width: usize,
    /// Added to the variance.
    pub eps: f32,
    /// `[width]` or null.
    pub weight: *const f32,
    /// `[width]` or null.
    pub bias: *const f32,
    /// `[width]` for each group of `rows_per_sample` rows, or null (both).
    pub scale: *const f32,
    /// As scale; null exactly when that is.
    pub shift: *const f32,
    /// Values from the scale (and shift) of one sample to the next.
    pub modulation_stride: usize,
    /// Rows that share a scale and shift; not 0.
    pub rows_per_sample: usize,
}

/// Operands of a gated unit: `y = value * activation(gate)`.
#[derive(Clone, Copy, Debug)]
pub struct GluArgs {
    /// Rows of values; `x_stride` values from row to row.
    pub value: *const f32,
    /// Rows of gates, at the same stride.
    pub gate: *const f32,
    /// Values from row to row of both.
    pub x_stride: usize,
    /// Rows of `width` values, contiguous.
    pub y: *mut f32,
    /// Rows.
    pub rows: usize,
    /// Values per row of y.
    pub width: usize,
}

/// Operands of a rotary embedding on `[head, heads, tokens, batch]`, contiguous.
#[derive(Clone, Copy, Debug)]
pub struct RopeArgs {
    /// Input.
    pub x: *const f32,
    /// As x; may be x itself.
    pub y: *mut f32,
    /// Values per head, even.
    pub head: usize,
    /// Heads per token.
    pub heads: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
    /// Sequences.
    pub batch: usize,
    /// `[4, head / 2, tokens]`: for each pair the matrix (a, b, c, d); y = (a x0 + b x1, c x0 + d x1).
    pub table: *const f32,
    /// Pairs are (i, i + head / 2) rather than (2 i, 2 i + 1).
    pub halves: bool,
}

impl RowKernels {
    /// `None` where ggml's nodes are to be used.
    pub fn new() -> Option<Self> {
        Self::on(cpu_path()?)
    }

    /// As [`RowKernels::new`] on a path of the caller's choice.
    pub fn on(path: CpuPath) -> Option<Self> {
        Isa::new(path).map(|isa| Self { isa })
    }

    /// Norms rows.
    ///
    /// # Safety
    /// The pointers are valid as [`NormArgs`] says; all threads of the team call this with the same arguments.
    pub unsafe fn norm(&self, kind: RowNorm, args: &NormArgs, team: &Team) {
        for row in team.share(args.rows) {
            // SAFETY: the row exists and is this thread's.
            unsafe { norm_row(self.isa, kind, args, row) };
        }
    }

    /// Gated unit.
    ///
    /// # Safety
    /// The pointers are valid as [`GluArgs`] says; all threads of the team call this with the same arguments.
    pub unsafe fn glu(&self, activation: Activation, args: &GluArgs, team: &Team) {
        for row in team.share(args.rows) {
            // SAFETY: the row exists and is this thread's.
            unsafe { glu_row(self.isa, activation, args, row) };
        }
    }

    /// `y = activation(x)` on `count` values; y may be x.
    ///
    /// # Safety
    /// Both pointers are valid for `count` values; all threads of the team call this with the same arguments.
    pub unsafe fn activate(
        &self,
        activation: Activation,
        x: *const f32,
        y: *mut f32,
        count: usize,
        team: &Team,
    ) {
        const CHUNK: usize = 4096;
        for chunk in team.share(count.div_ceil(CHUNK)) {
            let len = (count - chunk * CHUNK).min(CHUNK);
            // SAFETY: the chunk exists and is this thread's.
            unsafe { activate_chunk(self.isa, activation, x.add(chunk * CHUNK), y.add(chunk * CHUNK), len) };
        }
    }

    /// Softmax of `rows` rows of `width` values times `scale`; y may be x.
    ///
    /// # Safety
    /// Both pointers are valid for the rows; all threads of the team call this with the same arguments.
    pub unsafe fn softmax(
        &self,
        x: *const f32,
        y: *mut f32,
        rows: usize,
        width: usize,
        scale: f32,
        team: &Team,
    ) {
        for row in team.share(rows) {
            // SAFETY: the row exists and is this thread's.
            unsafe { softmax_row(self.isa, x.add(row * width), y.add(row * width), width, scale) };
        }
    }

    /// Rotary embedding.
    ///
    /// # Safety
    /// The pointers are valid as [`RopeArgs`] says; all threads of the team call this with the same arguments.
    pub unsafe fn rope(&self, args: &RopeArgs, team: &Team) {
        for token in team.share(args.tokens * args.batch) {
            // SAFETY: the token exists and is this thread's.
            unsafe { rope_token(self.isa, args, token) };
        }
    }
}

dispatch! {
    /// # Safety
    /// Row `row` of x and y is valid and nobody else touches it in y.
    unsafe fn norm_row = norm_row_body(kind: RowNorm, args: &NormArgs, row: usize)
}

/// # Safety
/// As [`norm_row`].
#[inline(always)]
unsafe fn norm_row_body(kind: RowNorm, args: &NormArgs, row: usize) {
    let width = args.width;
    // SAFETY: x, y and the vectors that are not null hold a row of `width` values.
    unsafe {
        let x = args.x.add(row * width);
        let y = args.y.add(row * width);
        let values = std::slice::from_raw_parts(x, width);
        let center = if kind == RowNorm::Layer { mean(values) } else { 0.0 };
        let variance = squares(values, center) / width as f64;
        let factor = (1.0 / (variance + f64::from(args.eps)).sqrt()) as f32;
        let sample = row / args.rows_per_sample * args.modulation_stride;
        for i in 0..width {
            let mut v = (*x.add(i) - center) * factor;
            if !args.weight.is_null() {
                v *= *args.weight.add(i);
            }
            if !args.bias.is_null() {
                v += *args.bias.add(i);
            }
            if !args.scale.is_null() {
                v = v.mul_add(1.0 + *args.scale.add(sample + i), *args.shift.add(sample + i));
            }
            *y.add(i) = v;
        }
    }
}

dispatch! {
    /// # Safety
    /// Row `row` of the operands is valid and nobody else touches it in y.
    unsafe fn glu_row = glu_row_body(activation: Activation, args: &GluArgs, row: usize)
}

/// # Safety
/// As [`glu_row`].
#[inline(always)]
unsafe fn glu_row_body(activation: Activation, args: &GluArgs, row: usize) {
    const CHUNK: usize = 256;
    let mut gate = [0f32; CHUNK];
    for start in (0..args.width).step_by(CHUNK) {
        let len = (args.width - start).min(CHUNK);
        // SAFETY: the row's values from `start` exist; y does not overlap them.
        unsafe {
            let value = std::slice::from_raw_parts(args.value.add(row * args.x_stride + start), len);
            let from = std::slice::from_raw_parts(args.gate.add(row * args.x_stride + start), len);
            let y = std::slice::from_raw_parts_mut(args.y.add(row * args.width + start), len);
            gate[..len].copy_from_slice(from);
            activate(activation, &mut gate[..len]);
            for ((y, v), g) in y.iter_mut().zip(value).zip(&gate) {
                *y = v * g;
            }
        }
    }
}

dispatch! {
    /// # Safety
    /// Both pointers are valid for `len` values.
    unsafe fn activate_chunk = activate_chunk_body(activation: Activation, x: *const f32, y: *mut f32, len: usize)
}

/// # Safety
/// As [`activate_chunk`].
#[inline(always)]
unsafe fn activate_chunk_body(activation: Activation, x: *const f32, y: *mut f32, len: usize) {
    // SAFETY: the caller's promise; `copy` allows x and y to be one.
    unsafe {
        std::ptr::copy(x, y, len);
        activate(activation, std::slice::from_raw_parts_mut(y, len));
    }
}

dispatch! {
    /// # Safety
    /// Both pointers are valid for `width` values.
    unsafe fn softmax_row = softmax_row_body(x: *const f32, y: *mut f32, width: usize, scale: f32)
}

/// # Safety
/// As [`softmax_row`].
#[inline(always)]
unsafe fn softmax_row_body(x: *const f32, y: *mut f32, width: usize, scale: f32) {
    const LANES: usize = 32;
    let factor = scale * std::f32::consts::LOG2_E;
    // SAFETY: the caller's promise; `copy` allows x and y to be one.
    let values = unsafe {
        std::ptr::copy(x, y, width);
        std::slice::from_raw_parts_mut(y, width)
    };
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    values.iter_mut().for_each(|v| *v *= factor);
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], block[i]);
        }
    }
    let max = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
    let reference = if max == f32::NEG_INFINITY { 0.0 } else { max };
    values.iter_mut().for_each(|v| *v = math::exp2(*v - reference));
    let sum = mean(values) * width as f32;
    let inverse = if sum > 0.0 { 1.0 / sum } else { 0.0 };
    values.iter_mut().for_each(|v| *v *= inverse);
}

dispatch! {
    /// # Safety
    /// Token `token` of all sequences is valid and nobody else touches it in y.
    unsafe fn rope_token = rope_token_body(args: &RopeArgs, token: usize)
}

/// # Safety
/// As [`rope_token`].
#[inline(always)]
unsafe fn rope_token_body(args: &RopeArgs, token: usize) {
    let pairs = args.head / 2;
    // SAFETY: the token's heads exist in x and y, its matrices in the table.
    unsafe {
        let table = args.table.add(token % args.tokens * pairs * 4).cast::<[f32; 4]>();
        for head in 0..args.heads {
            let base = (token * args.heads + head) * args.head;
            let (x, y) = (args.x.add(base), args.y.add(base));
            for pair in 0..pairs {
                let (i, j) = if args.halves { (pair, pair + pairs) } else { (2 * pair, 2 * pair + 1) };
                let [a, b, c, d] = *table.add(pair);
                let (x0, x1) = (*x.add(i), *x.add(j));
                *y.add(i) = a.mul_add(x0, b * x1);
                *y.add(j) = c.mul_add(x0, d * x1);
            }
        }
    }
}
