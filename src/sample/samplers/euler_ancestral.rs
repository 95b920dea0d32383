//! Euler with ancestral noise (k-diffusion `sample_euler_ancestral`); for flows the rectified variant.
#![forbid(unsafe_code)]

use super::ancestral::ancestral_step;
use super::{Sampling, number};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let (eta, flow) = (s.request.eta, s.request.flow);
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        if next == 0.0 {
            s.take_denoised();
        } else {
            let step = ancestral_step(sigma, next, eta, flow);
            let ratio = step.down / sigma;
            s.update(|x, denoised| ratio * x + (1.0 - ratio) * denoised);
            s.renoise(step);
        }
        s.end_step(i)?;
    }
    Ok(())
}
