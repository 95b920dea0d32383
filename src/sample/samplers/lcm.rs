//! Latent consistency sampling (Luo et al. 2023): denoise fully, then add the noise of the next sigma.
#![forbid(unsafe_code)]

use super::{Sampling, number};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let noise = s.request.args.lcm;
    let steps = s.steps();
    for i in 0..steps {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        s.take_denoised();
        if next > 0.0 {
            if s.request.flow {
                s.scale(1.0 - next);
            }
            s.rng.normal(&mut s.ws.noise.data);
            if noise.clip_std > 0.0 {
                clip(&mut s.ws.noise.data, noise.clip_std);
            }
            let t = if steps > 1 { i as f32 / (steps - 1) as f32 } else { 0.0 };
            let scale = next * (noise.scale_start + (noise.scale_end - noise.scale_start) * t);
            super::ops::each(&mut s.x.data, &s.ws.noise.data, |x, noise| x + noise * scale);
        }
        s.end_step(i)?;
    }
    Ok(())
}

/// Clips at `limit` standard deviations of the draw itself.
fn clip(noise: &mut [f32], limit: f32) {
    let count = noise.len().max(1) as f64;
    let mean = noise.iter().map(|&n| f64::from(n)).sum::<f64>() / count;
    let variance = noise.iter().map(|&n| (f64::from(n) - mean).powi(2)).sum::<f64>() / count;
    let bound = limit * variance.sqrt() as f32;
    noise.iter_mut().for_each(|n| *n = n.max(-bound).min(bound));
}
