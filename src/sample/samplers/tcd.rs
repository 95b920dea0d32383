//! Trajectory consistency distillation (Zheng et al. 2024): denoise to an earlier time, then add noise up to
//! the next.
#![forbid(unsafe_code)]

use super::super::prediction::TIMESTEPS;
use super::{Sampling, number, ops};
use crate::error::Result;

/// `eta` is the paper's gamma; outside 0..=1 there is no such time and it is clamped.
pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let eta = s.request.eta.clamp(0.0, 1.0);
    let schedule = Training::new();
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        let t = ((1.0 - eta) * schedule.time(next) as f32).floor() as usize;
        let alpha_s = schedule.alphas[t] as f32;
        let alpha_next = 1.0 / (next * next + 1.0);
        let keep = (alpha_s / alpha_next).sqrt();
        let noise = ((1.0 - alpha_s) / alpha_next).sqrt();
        s.update(|x, denoised| keep * denoised + noise * ((x - denoised) / sigma));
        if eta > 0.0 && next > 0.0 {
            let keep = (alpha_next / alpha_s).sqrt();
            // Below the smallest training sigma there is nothing left to add.
            let add = (1.0 / alpha_next - 1.0 / alpha_s).max(0.0).sqrt();
            s.rng.normal(&mut s.ws.noise.data);
            ops::each(&mut s.x.data, &s.ws.noise.data, |x, noise| keep * x + add * noise);
        }
        s.end_step(i)?;
    }
    Ok(())
}

/// The training schedule in double precision.
struct Training {
    alphas: Vec<f64>,
    sigmas: Vec<f64>,
}

impl Training {
    fn new() -> Self {
        let start = 0.00085f32.sqrt();
        let amount = 0.012f32.sqrt() - start;
        let mut product = 1.0f64;
        let alphas: Vec<f64> = (0..TIMESTEPS)
            .map(|i| {
                let root = start + amount * (i as f32 / (TIMESTEPS - 1) as f32);
                product *= 1.0 - f64::from(root).powi(2);
                product
            })
            .collect();
        let sigmas = alphas.iter().map(|a| ((1.0 - a) / a).sqrt()).collect();
        Self { alphas, sigmas }
    }

    /// The training step whose sigma is nearest.
    fn time(&self, sigma: f32) -> usize {
        let sigma = f64::from(sigma);
        let high = self.sigmas.partition_point(|&entry| entry < sigma).min(TIMESTEPS - 1);
        let low = high.saturating_sub(1);
        let nearer_high = (self.sigmas[high] - sigma).abs() < (self.sigmas[low] - sigma).abs();
        if nearer_high { high } else { low }
    }
}
