//! DPM-Solver++(2M) (Lu et al. 2022): one evaluation per step, the denoised latent extrapolated from the last
//! two.
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        let t = ops::log_time(sigma);
        let h = ops::log_time(next) - t;
        let a = next / sigma;
        let b = ops::exp_minus_one(-h);
        if i == 0 || next == 0.0 {
            s.update(|x, denoised| a * x - b * denoised);
        } else {
            let r = (t - ops::log_time(s.request.sigmas[i - 1])) / h;
            let extrapolate = Extrapolation::new(r);
            ops::each2(&mut s.x.data, &s.ws.out.pred.data, &s.ws.history[0].data, |x, denoised, old| {
                a * x - b * extrapolate.at(denoised, old)
            });
        }
        s.ws.remember_denoised();
        s.end_step(i)?;
    }
    Ok(())
}

/// Weights of the last two denoised latents.
#[derive(Clone, Copy)]
pub(super) struct Extrapolation {
    last: f32,
    former: f32,
}

impl Extrapolation {
    /// `r` is the length of the last step relative to this one.
    pub(super) fn new(r: f32) -> Self {
        let former = 1.0 / (2.0 * r);
        Self { last: 1.0 + former, former }
    }

    pub(super) fn at(self, denoised: f32, old: f32) -> f32 {
        self.last * denoised - self.former * old
    }
}
