//! Schedules of straight flows. Each returns N sigmas without the final 0, except [`linear`].
#![forbid(unsafe_code)]

use super::super::args::{LogitNormal, SampleArgs};
use super::super::prediction::exponential_shift;

/// 1 to 0 in equal steps, N + 1 values.
pub(super) fn linear(n: usize) -> Vec<f32> {
    let mut sigmas: Vec<f32> = (0..n).map(|i| 1.0 - i as f32 / n as f32).collect();
    sigmas.push(0.0);
    sigmas
}

/// A line through two anchors: `low` at `from` tokens, `high` at 4096 tokens.
fn token_line(tokens: usize, from: f32, low: f32, high: f32) -> f32 {
    let slope = (high - low) / (4096.0 - from);
    tokens as f32 * slope + (low - slope * from)
}

/// Exponential shift that grows with the tokens: `base_shift` (0.5) at 256, `max_shift` (1.15) at 4096.
pub(super) fn resolution_shift(n: usize, tokens: usize, args: &SampleArgs) -> Vec<f32> {
    let mu = token_line(tokens, 256.0, args.base_shift.unwrap_or(0.5), args.max_shift.unwrap_or(1.15));
    (0..n).map(|i| exponential_shift(mu, 1.0 - i as f32 / n as f32)).collect()
}

/// Exponential shift fitted for 10 and for 200 steps as lines over the tokens, linear in the steps between
/// them.
pub(super) fn empirical_shift(n: usize, tokens: usize) -> Vec<f32> {
    let tokens = tokens as f32;
    let at_200 = 0.000_169_27 * tokens + 0.456_666_66;
    let at_10 = 8.738_095_5e-5 * tokens + 1.898_333_3;
    let mu = if tokens > 4300.0 {
        at_200
    } else {
        let slope = (at_200 - at_10) / 190.0;
        slope * n as f32 + (at_200 - 200.0 * slope)
    };
    (0..n).map(|i| if i == 0 { 1.0 } else { exponential_shift(mu, 1.0 - i as f32 / n as f32) }).collect()
}

/// Exponential shift over the tokens, 0.95 at 1024 and 2.05 at 4096, stretched so that the last sigma is
/// `terminal`.
pub(super) fn token_shift(n: usize, tokens: usize, args: &SampleArgs) -> Vec<f32> {
    let tokens = if tokens > 0 { tokens } else { 4096 };
    let shift =
        token_line(tokens, 1024.0, args.base_shift.unwrap_or(0.95), args.max_shift.unwrap_or(2.05)).exp();
    let mut sigmas: Vec<f32> = (0..n)
        .map(|i| {
            let sigma = 1.0 - i as f32 / n as f32;
            shift / (shift + (1.0 / sigma - 1.0))
        })
        .collect();
    if args.stretch && n > 1 {
        let scale = (1.0 - sigmas[n - 1]) / (1.0 - args.terminal.clamp(0.0, 0.99));
        if scale > 1e-8 {
            sigmas.iter_mut().for_each(|sigma| *sigma = 1.0 - (1.0 - *sigma) / scale);
        }
    }
    sigmas
}

/// Quantiles of a logit-normal distribution, cut at two signal-to-noise ratios; the mean grows with the
/// picture from 512 x 512 (1024 tokens of 16 x 16 pixels) on.
pub(super) fn logit_normal(n: usize, tokens: usize, params: LogitNormal) -> Vec<f32> {
    const KNOWN_TOKENS: f32 = 1024.0;
    let mut mean = params.mean;
    if params.resolution_aware && tokens > 0 {
        mean += 0.5 * (tokens as f32 / KNOWN_TOKENS).ln();
    }
    let highest = sigmoid(0.5 * params.logsnr_max);
    let lowest = sigmoid(0.5 * params.logsnr_min);
    (0..n)
        .map(|i| {
            let z = -normal_quantile(f64::from(i as f32 / n as f32)) as f32;
            let sigma = sigmoid(mean + params.std * z);
            let sigma = if sigma > highest { highest } else { sigma };
            if sigma < lowest { lowest } else { sigma }
        })
        .collect()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Inverse of the normal distribution function by Acklam's rational approximation.
fn normal_quantile(p: f64) -> f64 {
    const TAIL: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const TAIL_BELOW: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    const MIDDLE: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const MIDDLE_BELOW: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const P_LOW: f64 = 0.02425;
    let polynomial = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let tail = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&TAIL, q) / polynomial(&TAIL_BELOW, q)
    };
    if p <= 0.0 {
        f64::NEG_INFINITY
    } else if p >= 1.0 {
        f64::INFINITY
    } else if p < P_LOW {
        tail(p)
    } else if p > 1.0 - P_LOW {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        polynomial(&MIDDLE, r) * q / polynomial(&MIDDLE_BELOW, r)
    }
}
