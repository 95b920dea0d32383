use super::{Values, relative_rms};
use crate::kernels::*;

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Runs `body(path, team, y)` on every path with 1 to 3 threads and compares with `exact`.
fn everywhere(exact: &[f64], limit: f64, scratch: usize, body: impl Fn(CpuPath, &Team, *mut f32) + Sync) {
    for path in available_paths() {
        let mut first: Option<Vec<f32>> = None;
        for nth in 1..=3 {
            let mut y = vec![f32::NAN; exact.len()];
            let out = y.as_mut_ptr() as usize;
            run_team(nth, scratch, |team| body(path, team, out as *mut f32));
            let error = relative_rms(&y, exact);
            assert!(error < limit, "{path:?}: {error:e}");
            assert!(first.get_or_insert_with(|| y.clone()) == &y, "{path:?} differs with {nth} threads");
        }
    }
}

fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, values.map(|v| (v - mean).powi(2)).sum::<f64>() / count)
}

#[test]
fn group_norm_in_both_orders() {
    for (pixels, channels, groups, batch) in
        [(1, 32, 32, 1), (70, 64, 32, 2), (200, 36, 4, 1), (129, 320, 32, 2)]
    {
        // Far from zero, so that a careless variance would lose its digits.
        let x: Vec<f32> =
            Values::new(1).many(pixels * channels * batch).into_iter().map(|v| v + 100.0).collect();
        let (weight, bias) = (Values::new(2).many(channels), Values::new(3).many(channels));
        for layout in [MapLayout::Planes, MapLayout::ChannelsLast] {
            let at = |n: usize, c: usize, p: usize| match layout {
                MapLayout::Planes => (n * channels + c) * pixels + p,
                MapLayout::ChannelsLast => (n * pixels + p) * channels + c,
            };
            let mut exact = vec![0f64; x.len()];
            let per = channels / groups;
            for n in 0..batch {
                for g in 0..groups {
                    let all = (g * per..(g + 1) * per).flat_map(|c| (0..pixels).map(move |p| (c, p)));
                    let (mean, variance) = moments(all.clone().map(|(c, p)| f64::from(x[at(n, c, p)])));
                    for (c, p) in all {
                        let v = (f64::from(x[at(n, c, p)]) - mean) / (variance + 1e-6).sqrt();
                        exact[at(n, c, p)] = silu(v * f64::from(weight[c]) + f64::from(bias[c]));
                    }
                }
            }
            let p = [x.as_ptr() as usize, weight.as_ptr() as usize, bias.as_ptr() as usize];
            everywhere(&exact, 2e-4, 1 << 20, |path, team, y| {
                let plan = GroupNorm::on(path, pixels, channels, groups, batch, 1e-6)
                    .unwrap()
                    .with_activation(Activation::Silu)
                    .with_layout(layout);
                let args = GroupNormArgs {
                    x: p[0] as *const f32,
                    y,
                    weight: p[1] as *const f32,
                    bias: p[2] as *const f32,
                };
                assert!(plan.scratch_bytes(team.nth) <= team.scratch_len);
                // SAFETY: all operands are the vectors above.
                assert!(unsafe { plan.run(&args, team) });
            });
        }
    }
}

#[test]
fn row_norms_with_modulation() {
    for (rows, width) in [(1, 1), (6, 33), (10, 768), (4, 5000)] {
        let x = Values::new(1).many(rows * width);
        let (weight, bias) = (Values::new(2).many(width), Values::new(3).many(width));
        let (scale, shift) = (Values::new(4).many(2 * width), Values::new(5).many(2 * width));
        let per_sample = rows.div_ceil(2);
        for kind in [RowNorm::Layer, RowNorm::Rms] {
            let mut exact = vec![];
            for (r, row) in wide(&x).chunks(width).enumerate() {
                let (mut mean, mut variance) = moments(row.iter().copied());
                if kind == RowNorm::Rms {
                    (mean, variance) = (0.0, row.iter().map(|v| v * v).sum::<f64>() / width as f64);
                }
                for (i, v) in row.iter().enumerate() {
                    let n = (v - mean) / (variance + 1e-5).sqrt() * f64::from(weight[i]) + f64::from(bias[i]);
                    let m = r / per_sample * width + i;
                    exact.push(n * (1.0 + f64::from(scale[m])) + f64::from(shift[m]));
                }
            }
            let p = [&x, &weight, &bias, &scale, &shift].map(|v| v.as_ptr() as usize);
            everywhere(&exact, 1e-5, 64, |path, team, y| {
                let args = NormArgs {
                    x: p[0] as *const f32,
                    y,
                    rows,
                    width,
                    eps: 1e-5,
                    weight: p[1] as *const f32,
                    bias: p[2] as *const f32,
                    scale: p[3] as *const f32,
                    shift: p[4] as *const f32,
                    modulation_stride: width,
                    rows_per_sample: per_sample,
                };
                // SAFETY: all operands are the vectors above.
                unsafe { RowKernels::on(path).unwrap().norm(kind, &args, team) };
            });
        }
    }
}

#[test]
fn gated_units_softmax_and_activations() {
    let (rows, width) = (7, 300);
    let x: Vec<f32> = Values::new(1).many(rows * 2 * width).into_iter().map(|v| v * 4.0).collect();
    let source = x.as_ptr() as usize;
    let exact: Vec<f64> = wide(&x)
        .chunks(2 * width)
        .flat_map(|row| (0..width).map(|i| row[i] * silu(row[width + i])).collect::<Vec<_>>())
        .collect();
    everywhere(&exact, 1e-6, 64, |path, team, y| {
        let value = source as *const f32;
        let gate = value.wrapping_add(width);
        let args = GluArgs { value, gate, x_stride: 2 * width, y, rows, width };
        // SAFETY: all operands are the vectors above.
        unsafe { RowKernels::on(path).unwrap().glu(Activation::Silu, &args, team) };
    });
    let exact: Vec<f64> = wide(&x)
        .chunks(width)
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|v| (v * 0.5).exp()).sum();
            row.iter().map(|v| (v * 0.5).exp() / sum).collect::<Vec<_>>()
        })
        .collect();
    everywhere(&exact, 1e-6, 64, |path, team, y| {
        // SAFETY: all operands are the vectors above.
        unsafe { RowKernels::on(path).unwrap().softmax(source as *const f32, y, 2 * rows, width, 0.5, team) };
    });
    let exact: Vec<f64> = wide(&x).into_iter().map(silu).collect();
    everywhere(&exact, 1e-6, 64, |path, team, y| {
        let count = 2 * rows * width;
        // SAFETY: all operands are the vectors above.
        unsafe {
            RowKernels::on(path).unwrap().activate(Activation::Silu, source as *const f32, y, count, team);
        }
    });
}

#[test]
fn rotary_embedding_in_both_pairings() {
    let (head, heads, tokens, batch) = (20, 3, 5, 2);
    let x = Values::new(1).many(head * heads * tokens * batch);
    let table = Values::new(2).many(4 * head / 2 * tokens);
    for halves in [false, true] {
        let mut exact = vec![0f64; x.len()];
        for (t, pair) in (0..tokens * batch).flat_map(|t| (0..head / 2).map(move |p| (t, p))) {
            let m = wide(&table[(t % tokens * head / 2 + pair) * 4..][..4]);
            for h in 0..heads {
                let base = (t * heads + h) * head;
                let (i, j) = if halves { (pair, pair + head / 2) } else { (2 * pair, 2 * pair + 1) };
                let (a, b) = (f64::from(x[base + i]), f64::from(x[base + j]));
                exact[base + i] = m[0] * a + m[1] * b;
                exact[base + j] = m[2] * a + m[3] * b;
            }
        }
        let p = [x.as_ptr() as usize, table.as_ptr() as usize];
        everywhere(&exact, 1e-6, 64, |path, team, y| {
            let (x, table) = (p[0] as *const f32, p[1] as *const f32);
            let args = RopeArgs { x, y, head, heads, tokens, batch, table, halves };
            // SAFETY: all operands are the vectors above.
            unsafe { RowKernels::on(path).unwrap().rope(&args, team) };
        });
    }
}
