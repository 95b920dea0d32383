//! Sizes of an adapter's factors. Files write them as vectors, matrices or kernels, and some formats drop trailing
//! extents of 1, so sizes are taken from counts of values and only the rank is guessed from an extent.
#![forbid(unsafe_code)]

use super::parse::Matrix;

/// A tensor's extents in ggml order, fastest first.
pub type Shape = [usize];

/// Number of values; `None` when it overflows.
pub fn count(shape: &Shape) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// A weight as a matrix: the last axis is rows, all others columns. A vector has one column.
pub fn matrix(shape: &Shape) -> Option<Matrix> {
    let total = count(shape)?;
    let rows = match shape {
        [] => 1,
        [.., last] => *last,
    };
    (rows > 0 && total > 0).then(|| Matrix { rows, columns: total / rows })
}

/// The rank of `up` x `down`: `rank` must divide both, and they must give rows of `columns` values, of which there
/// are at most as many as the weight has.
pub fn rank(up: &Shape, down: &Shape, weight: Matrix) -> Result<usize, String> {
    let (Some(ups), Some(downs)) = (count(up), count(down)) else { return Err(too_large(up, down)) };
    let fits = |rank: &usize| {
        let rank = *rank;
        rank > 0 && ups > 0 && ups % rank == 0 && downs == rank * weight.columns && ups / rank <= weight.rows
    };
    candidates(up, down)
        .into_iter()
        .find(fits)
        .ok_or_else(|| format!("up {up:?} and down {down:?} do not make rows of {} values", weight.columns))
}

/// The rank of `up` x `mid` x `down`, where the core is a kernel over the weight's first two axes.
pub fn core_rank(
    up: &Shape,
    mid: &Shape,
    down: &Shape,
    weight: Matrix,
    kernel: usize,
) -> Result<usize, String> {
    let (Some(ups), Some(mids), Some(downs)) = (count(up), count(mid), count(down)) else {
        return Err(too_large(up, down));
    };
    let inputs = weight.columns / kernel.max(1);
    let fits = |rank: &usize| {
        let rank = *rank;
        rank > 0
            && ups > 0
            && ups % rank == 0
            && ups / rank <= weight.rows
            && downs == rank * inputs
            && rank.checked_mul(rank).and_then(|square| square.checked_mul(kernel)) == Some(mids)
    };
    candidates(up, down)
        .into_iter()
        .find(fits)
        .ok_or_else(|| format!("up {up:?}, core {mid:?} and down {down:?} do not fit {weight:?}"))
}

/// What the extents suggest as rank, the likeliest first: an extent of both tensors, or 1.
pub fn candidates(up: &Shape, down: &Shape) -> Vec<usize> {
    let shared = down.iter().rev().copied().filter(|rank| up.contains(rank));
    shared.chain([1]).collect()
}

fn too_large(up: &Shape, down: &Shape) -> String {
    format!("extents of {up:?} or {down:?} overflow")
}
