//! The dense difference of an adapter, on the host in f32.
#![forbid(unsafe_code)]

use super::parse::{Adapter, Delta, Factor, Matrix, Outer, Strength};
use crate::{Error, HostTensor, Result};

/// Reads a tensor of the LoRA file by its index, as f32.
pub type Fetch<'f> = dyn Fn(usize) -> Result<HostTensor> + 'f;

/// Below this many multiplications a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 16;

/// The adapter's strength times `multiplier`. A rank of 1 counts as 1 even where the format drops its axis.
pub fn strength(adapter: &Adapter, multiplier: f32, fetch: &Fetch) -> Result<f32> {
    let scalar = |index: usize| -> Result<f32> {
        let tensor = fetch(index)?;
        tensor
            .data
            .first()
            .copied()
            .ok_or_else(|| Error::Weights(format!("LoRA scalar of {} is empty", adapter.target)))
    };
    Ok(multiplier
        * match adapter.strength {
            Strength::Unit => 1.0,
            Strength::Scalar(index) => scalar(index)?,
            Strength::AlphaOverRank { alpha, rank } => scalar(alpha)? / rank as f32,
        })
}

/// What is to be added to the adapter's rows of its weight: `[columns, rows]`, already scaled.
pub fn dense(adapter: &Adapter, multiplier: f32, fetch: &Fetch, n_threads: usize) -> Result<HostTensor> {
    let scale = strength(adapter, multiplier, fetch)?;
    let size = Matrix { rows: adapter.rows.len(), columns: adapter.columns };
    let mut out = match &adapter.delta {
        Delta::LowRank(factor) => product(factor, fetch, n_threads)?,
        Delta::Loha { first, second } => {
            let mut out = product(first, fetch, n_threads)?;
            let other = product(second, fetch, n_threads)?;
            out.iter_mut().zip(&other).for_each(|(x, y)| *x *= y);
            out
        }
        Delta::Lokr { outer, inner } => {
            let a = factor_values(outer, fetch, n_threads)?;
            let b = factor_values(inner, fetch, n_threads)?;
            kronecker(&a, outer.size(), &b, inner.size(), n_threads)
        }
        Delta::Diff { index } => fetch(*index)?.data,
    };
    if out.len() != size.rows * size.columns {
        let found = out.len();
        return Err(Error::Weights(format!("LoRA of {}: {found} values for {size:?}", adapter.target)));
    }
    if scale != 1.0 {
        out.iter_mut().for_each(|x| *x *= scale);
    }
    HostTensor::new([size.columns, size.rows], out)
}

/// Adds an adapter to the values of its weight (all rows, row by row).
pub fn add_to(
    weight: &mut [f32],
    adapter: &Adapter,
    multiplier: f32,
    fetch: &Fetch,
    n_threads: usize,
) -> Result<()> {
    let delta = dense(adapter, multiplier, fetch, n_threads)?;
    let range = adapter.rows.start * adapter.columns..adapter.rows.end * adapter.columns;
    let rows = weight.get_mut(range).ok_or_else(|| {
        Error::Weights(format!("LoRA of {}: rows {:?} lie outside", adapter.target, adapter.rows))
    })?;
    rows.iter_mut().zip(&delta.data).for_each(|(w, d)| *w += d);
    Ok(())
}

fn factor_values(outer: &Outer, fetch: &Fetch, n_threads: usize) -> Result<Vec<f32>> {
    match outer {
        Outer::Full { index, .. } => Ok(fetch(*index)?.data),
        Outer::Product(factor) => product(factor, fetch, n_threads),
    }
}

/// `up` x `down`, or `up` x core x `down`: rows of `columns` values.
fn product(factor: &Factor, fetch: &Fetch, n_threads: usize) -> Result<Vec<f32>> {
    let Factor { rank, size, .. } = *factor;
    let mut up = fetch(factor.up)?.data;
    let down = fetch(factor.down)?.data;
    if up.len() != rank * size.rows {
        return Err(Error::Weights(format!("LoRA factor of {} values for rank {rank}, {size:?}", up.len())));
    }
    if factor.up_transposed {
        up = transposed(&up, rank, size.rows);
    }
    let right = match factor.core {
        None => down,
        Some(core) => expand_core(&fetch(core)?.data, &down, rank, size.columns),
    };
    if right.len() != rank * size.columns {
        return Err(Error::Weights(format!(
            "LoRA factor of {} values for rank {rank}, {size:?}",
            right.len()
        )));
    }
    let mut out = vec![0.0; size.rows * size.columns];
    each_row(&mut out, size.columns, rank * size.columns, n_threads, |row, values| {
        for (&u, d) in up[row * rank..(row + 1) * rank].iter().zip(right.chunks_exact(size.columns)) {
            values.iter_mut().zip(d).for_each(|(v, d)| *v += u * d);
        }
    });
    Ok(out)
}

/// Core `[kernel, rank, rank]` and `down` `[inputs, rank]` to `[kernel * inputs, rank]`:
/// out[a][i][x] = sum over b of core[a][b][x] * down[b][i].
fn expand_core(core: &[f32], down: &[f32], rank: usize, columns: usize) -> Vec<f32> {
    let kernel = core.len() / (rank * rank).max(1);
    let inputs = down.len() / rank.max(1);
    if kernel * inputs != columns || core.len() != kernel * rank * rank || down.len() != inputs * rank {
        return Vec::new();
    }
    let mut out = vec![0.0; rank * columns];
    for (a, row) in out.chunks_exact_mut(columns.max(1)).enumerate() {
        for b in 0..rank {
            let values = &core[(a * rank + b) * kernel..][..kernel];
            for (&d, cell) in down[b * inputs..][..inputs].iter().zip(row.chunks_exact_mut(kernel.max(1))) {
                cell.iter_mut().zip(values).for_each(|(o, c)| *o += d * c);
            }
        }
    }
    out
}

/// `rows` of `columns` values to `columns` rows.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

/// out[i * b.rows + k][j * b.columns + l] = a[i][j] * b[k][l].
fn kronecker(a: &[f32], a_size: Matrix, b: &[f32], b_size: Matrix, n_threads: usize) -> Vec<f32> {
    let columns = a_size.columns * b_size.columns;
    if a.len() != a_size.rows * a_size.columns || b.len() != b_size.rows * b_size.columns {
        return Vec::new();
    }
    let mut out = vec![0.0; a_size.rows * b_size.rows * columns];
    each_row(&mut out, columns, columns, n_threads, |row, values| {
        let (i, k) = (row / b_size.rows, row % b_size.rows);
        let inner = &b[k * b_size.columns..][..b_size.columns];
        for (&scale, cell) in
            a[i * a_size.columns..][..a_size.columns].iter().zip(values.chunks_exact_mut(b_size.columns))
        {
            cell.iter_mut().zip(inner).for_each(|(o, x)| *o = scale * x);
        }
    });
    out
}

/// Calls `work(row, values)` for each row of `out`, on up to `n_threads` threads. `cost` is the number of
/// multiplications per row.
fn each_row(
    out: &mut [f32],
    columns: usize,
    cost: usize,
    n_threads: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    if columns == 0 || out.is_empty() {
        return;
    }
    let rows = out.len() / columns;
    let useful = rows.saturating_mul(cost) / WORTH_A_THREAD + 1;
    let threads = n_threads.clamp(1, useful).min(rows.max(1));
    let per_thread = rows.div_ceil(threads);
    let run = |start: usize, block: &mut [f32]| {
        block.chunks_exact_mut(columns).enumerate().for_each(|(offset, values)| work(start + offset, values));
    };
    if threads == 1 {
        return run(0, out);
    }
    std::thread::scope(|scope| {
        for (index, block) in out.chunks_mut(per_thread * columns).enumerate() {
            let run = &run;
            scope.spawn(move || run(index * per_thread, block));
        }
    });
}
