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

/// Rank and size of `up` x `down`. The product gives rows of the weight, at most as many as it has, or all of its
/// values where a format has merged the weight's last axes.
pub fn rank(up: &Shape, down: &Shape, weight: Matrix) -> Result<(usize, Matrix), String> {
    let (Some(ups), Some(downs)) = (count(up), count(down)) else { return Err(too_large(up, down)) };
    let size = |rank: usize| {
        let divides =
            rank > 0 && ups > 0 && downs > 0 && ups.is_multiple_of(rank) && downs.is_multiple_of(rank);
        divides.then(|| Matrix { rows: ups / rank, columns: downs / rank })
    };
    let sizes: Vec<(usize, Matrix)> =
        candidates(up, down).filter_map(|rank| Some((rank, size(rank)?))).collect();
    let of_rows = |m: &Matrix| m.columns == weight.columns && m.rows <= weight.rows;
    let of_all = |m: &Matrix| m.rows.checked_mul(m.columns) == weight.rows.checked_mul(weight.columns);
    let found = sizes.iter().find(|(_, m)| of_rows(m)).or_else(|| sizes.iter().find(|(_, m)| of_all(m)));
    found
        .copied()
        .ok_or_else(|| format!("up {up:?} and down {down:?} do not make rows of {} values", weight.columns))
}

/// Rank and size of `up` x `core` x `down`, where the core is a kernel of `kernel` values for each pair of ranks.
pub fn core_rank(
    up: &Shape,
    core: &Shape,
    down: &Shape,
    weight: Matrix,
    kernel: usize,
) -> Result<(usize, Matrix), String> {
    let inputs = Matrix { rows: weight.rows, columns: weight.columns / kernel.max(1) };
    let (rank, size) = rank(up, down, inputs)?;
    let values = rank.checked_mul(rank).and_then(|pairs| pairs.checked_mul(kernel));
    if size.columns != inputs.columns || values.is_none() || values != count(core) {
        return Err(format!("up {up:?}, core {core:?} and down {down:?} do not fit {weight:?}"));
    }
    Ok((rank, Matrix { rows: size.rows, columns: weight.columns }))
}

/// What the extents suggest as rank, the likeliest first: an extent of both tensors, or 1.
pub fn candidates<'s>(up: &'s Shape, down: &'s Shape) -> impl Iterator<Item = usize> + 's {
    down.iter().rev().copied().filter(|rank| up.contains(rank)).chain([1])
}

fn too_large(up: &Shape, down: &Shape) -> String {
    format!("extents of {up:?} or {down:?} overflow")
}
