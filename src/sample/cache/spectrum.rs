//! Spectrum: denoised latents are a smooth function of the step; between computed ones they are predicted by
//! a ridge regression on Chebyshev polynomials, mixed with a linear extrapolation.
#![forbid(unsafe_code)]

use super::change::copy;

/// Parameters, named as in `sd_cache_params_t` behind `spectrum_`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpectrumParams {
    /// Share of the regression in the prediction.
    pub w: f32,
    /// Degree of the polynomials.
    pub m: i32,
    /// Ridge parameter.
    pub lam: f32,
    /// One evaluation in so many is computed.
    pub window_size: i32,
    /// How much the window grows with each computed one.
    pub flex_window: f32,
    /// Evaluations that are always computed first.
    pub warmup_steps: i32,
    /// Share of the steps after which all are computed.
    pub stop_percent: f32,
}

impl Default for SpectrumParams {
    fn default() -> Self {
        Self { w: 0.4, m: 3, lam: 1.0, window_size: 2, flex_window: 0.5, warmup_steps: 4, stop_percent: 0.9 }
    }
}

/// Highest degree that is computed.
const MAX_DEGREE: usize = 32;
/// Evaluations over which time runs from -1 to 1.
const TIME_SCALE: f32 = 50.0;

/// History and counters.
pub(super) struct Spectrum {
    params: SpectrumParams,
    /// Number of basis polynomials.
    basis: usize,
    /// Latents that are kept.
    capacity: usize,
    window: f32,
    stop: usize,
    /// Evaluations so far.
    count: usize,
    /// Predictions since the last computed one.
    row: usize,
    skipped: usize,
    /// Computed latents with their times, the oldest first.
    history: Vec<(f32, Vec<f32>)>,
}

impl Spectrum {
    pub(super) fn new(params: SpectrumParams, steps: usize) -> Self {
        let basis = usize::try_from(params.m).unwrap_or(0).min(MAX_DEGREE) + 1;
        Self {
            params,
            basis,
            capacity: basis.max(6),
            window: params.window_size as f32,
            stop: (params.stop_percent * steps as f32) as usize,
            count: 0,
            row: 0,
            skipped: 0,
            history: Vec::new(),
        }
    }

    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// Adds a computed latent.
    pub(super) fn record(&mut self, denoised: &[f32]) {
        let mut buffer =
            if self.history.len() >= self.capacity { self.history.remove(0).1 } else { Vec::new() };
        copy(&mut buffer, denoised);
        self.history.push((time(self.count), buffer));
        if self.count >= self.warmup() {
            self.window += self.params.flex_window;
        }
        self.row = 0;
        self.count += 1;
    }

    /// Writes a prediction when it is the turn of one.
    pub(super) fn predict(&mut self, denoised: &mut [f32]) -> bool {
        if !self.due() {
            return false;
        }
        let Some(weights) = self.weights() else { return false };
        let taylor = 1.0 - self.params.w;
        let [.., (_, former), (_, last)] = self.history.as_slice() else { return false };
        if last.len() != denoised.len() || former.len() != denoised.len() {
            return false;
        }
        for ((out, &last), &former) in denoised.iter_mut().zip(last).zip(former) {
            *out = taylor * (last + 0.5 * (last - former));
        }
        for ((_, latent), weight) in self.history.iter().zip(weights) {
            let weight = self.params.w * weight;
            for (out, value) in denoised.iter_mut().zip(latent) {
                *out += weight * value;
            }
        }
        self.row += 1;
        self.skipped += 1;
        self.count += 1;
        true
    }

    fn warmup(&self) -> usize {
        usize::try_from(self.params.warmup_steps).unwrap_or(0)
    }

    fn due(&self) -> bool {
        if self.count < self.warmup() || (self.stop > 0 && self.count >= self.stop) || self.history.len() < 2
        {
            return false;
        }
        let window = (self.window.floor() as usize).max(1);
        !(self.row + 1).is_multiple_of(window)
    }

    /// Weight of each kept latent in the regression's value at the present time.
    fn weights(&self) -> Option<Vec<f32>> {
        let n = self.basis;
        let rows: Vec<Vec<f32>> = self.history.iter().map(|(t, _)| chebyshev(*t, n)).collect();
        let mut gram = vec![0f32; n * n];
        for i in 0..n {
            for j in 0..n {
                let sum: f32 = rows.iter().map(|row| row[i] * row[j]).sum();
                gram[i * n + j] = sum + if i == j { self.params.lam } else { 0.0 };
            }
        }
        let target = chebyshev(time(self.count), n);
        let solution = solve(&gram, &target).or_else(|| {
            // Singular without a ridge: add a little.
            let trace: f32 = (0..n).map(|i| gram[i * n + i]).sum();
            (0..n).for_each(|i| gram[i * n + i] += 1e-4 * trace / n as f32);
            solve(&gram, &target)
        })?;
        Some(rows.iter().map(|row| row.iter().zip(&solution).map(|(x, v)| x * v).sum()).collect())
    }
}

fn time(count: usize) -> f32 {
    count as f32 / TIME_SCALE * 2.0 - 1.0
}

/// The first `n` Chebyshev polynomials at `t`.
fn chebyshev(t: f32, n: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(n);
    for j in 0..n {
        values.push(match j {
            0 => 1.0,
            1 => t,
            _ => 2.0 * t * values[j - 1] - values[j - 2],
        });
    }
    values
}

/// Solves a symmetric positive definite system by Cholesky's method; `None` when it is not one.
fn solve(matrix: &[f32], right: &[f32]) -> Option<Vec<f32>> {
    let n = right.len();
    let mut lower = vec![0f32; n * n];
    for i in 0..n {
        for j in 0..=i {
            let sum: f32 = (0..j).map(|k| lower[i * n + k] * lower[j * n + k]).sum();
            if i == j {
                let diagonal = matrix[i * n + i] - sum;
                if diagonal <= 0.0 || diagonal.is_nan() {
                    return None;
                }
                lower[i * n + i] = diagonal.sqrt();
            } else {
                lower[i * n + j] = (matrix[i * n + j] - sum) / lower[j * n + j];
            }
        }
    }
    let mut x = right.to_vec();
    for i in 0..n {
        let sum: f32 = (0..i).map(|j| lower[i * n + j] * x[j]).sum();
        x[i] = (x[i] - sum) / lower[i * n + i];
    }
    for i in (0..n).rev() {
        let sum: f32 = (i + 1..n).map(|j| lower[j * n + i] * x[j]).sum();
        x[i] = (x[i] - sum) / lower[i * n + i];
    }
    Some(x)
}
