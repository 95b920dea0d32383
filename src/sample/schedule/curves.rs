//! Schedules that are curves between the smallest and the largest sigma. Each returns N sigmas without the
//! final 0.
#![forbid(unsafe_code)]

use std::f32::consts::PI;

/// Sigmas between which a curve runs.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub min: f32,
    pub max: f32,
}

impl Range {
    /// A lower end that has a logarithm.
    fn positive_min(self) -> f32 {
        self.min.max(1e-6)
    }
}

/// Equation 5 of Karras et al. 2022.
pub(super) fn karras(n: usize, range: Range) -> Vec<f32> {
    const RHO: f32 = 7.0;
    if n == 1 {
        return vec![range.max];
    }
    let low = range.positive_min().powf(1.0 / RHO);
    let high = range.max.powf(1.0 / RHO);
    (0..n).map(|i| (high + i as f32 / (n as f32 - 1.0) * (low - high)).powf(RHO)).collect()
}

/// Equal steps of log sigma.
pub(super) fn exponential(n: usize, range: Range) -> Vec<f32> {
    if n == 1 {
        return vec![range.max];
    }
    let (low, high) = (range.min.ln(), range.max.ln());
    let step = (high - low) / (n - 1) as f32;
    (0..n).map(|i| (high - step * i as f32).exp()).collect()
}

/// Equal steps of atan(sigma).
pub(super) fn kl_optimal(n: usize, range: Range) -> Vec<f32> {
    if n == 1 {
        return vec![range.max];
    }
    let (low, high) = (range.positive_min().atan(), range.max.atan());
    (0..n)
        .map(|i| {
            let t = i as f32 / (n - 1) as f32;
            (t * low + (1.0 - t) * high).tan()
        })
        .collect()
}

/// Two arcs, each with its pivot at 0.6 of the steps and slope 0.2 at 40 steps; the second starts where the
/// first ends.
pub(super) fn bong_tangent(n: usize, range: Range) -> Vec<f32> {
    let steps = n + 2;
    let pivot = (steps as f32 * 0.6) as usize;
    let slope = 0.2 / (steps as f32 / 40.0);
    let first = pivot.min(steps);
    let middle = range.min + (range.max - range.min) * 0.5;
    let mut sigmas = arc(first, slope, pivot as f32, range.max, middle);
    sigmas.pop();
    sigmas.extend(arc(steps - first, slope, pivot as f32 - first as f32, middle, range.min));
    sigmas.resize(n, range.min);
    sigmas
}

/// A falling arc of atan from `start` to `end`.
fn arc(steps: usize, slope: f32, pivot: f32, start: f32, end: f32) -> Vec<f32> {
    let value = |x: f32| ((2.0 / PI) * (-slope * (x - pivot)).atan() + 1.0) * 0.5;
    if steps < 2 {
        return vec![start; steps];
    }
    let low = value((steps - 1) as f32);
    let inverse = 1.0 / (value(0.0) - low);
    (0..steps).map(|x| ((value(x as f32) - low) * inverse) * (start - end) + end).collect()
}
