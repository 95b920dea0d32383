//! Schedules that pick training time steps. Each returns N sigmas without the final 0.
#![forbid(unsafe_code)]

use super::super::prediction::TIMESTEPS;

const T_MAX: f32 = (TIMESTEPS - 1) as f32;

/// From 999 to 0 in equal steps.
pub(super) fn uniform(n: usize, t_to_sigma: impl Fn(f32) -> f32) -> Vec<f32> {
    if n == 1 {
        return vec![t_to_sigma(T_MAX)];
    }
    let step = T_MAX / (n - 1) as f32;
    (0..n).map(|i| t_to_sigma((T_MAX - step * i as f32).max(0.0))).collect()
}

/// From 999 to 0 in one step more, without the last; accumulated as in the reference.
pub(super) fn sgm_uniform(n: usize, t_to_sigma: impl Fn(f32) -> f32) -> Vec<f32> {
    super::tables::linear_space(T_MAX, 0.0, n + 1).take(n).map(t_to_sigma).collect()
}

/// Every (1000 / N)th training step from the end.
pub(super) fn simple(n: usize, t_to_sigma: impl Fn(f32) -> f32) -> Vec<f32> {
    let stride = TIMESTEPS as f32 / n as f32;
    (0..n).map(|i| t_to_sigma((T_MAX - (i as f32 * stride).trunc()).max(0.0))).collect()
}

/// 3u^2 - 2u^3 through time, rounded to training steps.
pub(super) fn smooth_step(n: usize, t_to_sigma: impl Fn(f32) -> f32) -> Vec<f32> {
    if n == 1 {
        return vec![t_to_sigma(T_MAX)];
    }
    (0..n)
        .map(|i| {
            let u = 1.0 - i as f32 / n as f32;
            t_to_sigma((u * u * (3.0 - 2.0 * u) * T_MAX).round())
        })
        .collect()
}

/// Latent consistency models know 50 steps, 20 training steps apart.
pub(super) fn lcm(n: usize, t_to_sigma: impl Fn(f32) -> f32) -> Vec<f32> {
    const STEPS: usize = 50;
    const STRIDE: usize = TIMESTEPS / STEPS;
    (0..n).map(|i| t_to_sigma(((STEPS - i * STEPS / n) * STRIDE - 1) as f32)).collect()
}

/// Quantiles of the beta distribution, rounded to training steps; equal neighbours are merged, so many steps
/// give fewer sigmas than asked for.
pub(super) fn beta(n: usize, t_to_sigma: impl Fn(f32) -> f32) -> Vec<f32> {
    if n == 1 {
        return vec![t_to_sigma(T_MAX)];
    }
    let mut times: Vec<f64> =
        (0..n).map(|i| (beta_quantile(1.0 - i as f64 / n as f64) * f64::from(T_MAX)).round()).collect();
    times.dedup();
    times.into_iter().map(|t| t_to_sigma(t as f32)).collect()
}

/// Both parameters of the distribution.
const SHAPE: f64 = 0.6;
/// ln B(0.6, 0.6).
const LOG_BETA: f64 = 0.881_841_806_141_785_8;

/// Inverse of the cumulative distribution by Newton's method.
fn beta_quantile(u: f64) -> f64 {
    let mut x = 0.5;
    for _ in 0..30 {
        let excess = beta_cdf(x) - u;
        if excess.abs() < 1e-10 {
            break;
        }
        let density = ((SHAPE - 1.0) * x.ln() + (SHAPE - 1.0) * (1.0 - x).ln() - LOG_BETA).exp();
        x -= excess / density;
        if x <= 0.0 {
            x = 1e-10;
        }
        if x >= 1.0 {
            x = 1.0 - 1e-10;
        }
    }
    x
}

fn beta_cdf(x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        x.clamp(0.0, 1.0)
    } else if x < (SHAPE + 1.0) / (2.0 * SHAPE + 2.0) {
        incomplete_beta(x)
    } else {
        1.0 - incomplete_beta(1.0 - x)
    }
}

/// Regularised incomplete beta function by its continued fraction (Lentz), for x below the mean.
fn incomplete_beta(x: f64) -> f64 {
    const TINY: f64 = 1e-30;
    let guarded = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (a, b) = (SHAPE, SHAPE);
    let mut c = 1.0;
    let mut d = 1.0 / guarded(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for m in 1..=200 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a - 1.0 + 2.0 * m) * (a + 2.0 * m));
        d = 1.0 / guarded(1.0 + even * d);
        c = guarded(1.0 + even / c);
        h *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 1.0 + 2.0 * m));
        d = 1.0 / guarded(1.0 + odd * d);
        c = guarded(1.0 + odd / c);
        h *= d * c;
        if (d * c - 1.0).abs() < 3e-7 {
            break;
        }
    }
    (a * x.ln() + b * (1.0 - x).ln() - LOG_BETA).exp() / a * h
}
