//! A variant of DPM-Solver++(2M) that averages neighbouring step lengths (stable-diffusion-webui discussion
//! 8457).
#![forbid(unsafe_code)]

use super::dpmpp_2m::Extrapolation;
use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        let t = ops::log_time(sigma);
        let h = ops::log_time(next) - t;
        let a = next / sigma;
        if i == 0 || next == 0.0 {
            let b = ops::exp_minus_one(-h);
            s.update(|x, denoised| a * x - b * denoised);
        } else {
            let h_last = t - ops::log_time(s.request.sigmas[i - 1]);
            let (shorter, longer) = (h_last.min(h), h_last.max(h));
            let extrapolate = Extrapolation::new(longer / shorter);
            let b = ops::exp_minus_one(-((longer + shorter) / 2.0));
            ops::each2(&mut s.x.data, &s.ws.out.pred.data, &s.ws.history[0].data, |x, denoised, old| {
                a * x - b * extrapolate.at(denoised, old)
            });
        }
        s.ws.remember_denoised();
        s.end_step(i)?;
    }
    Ok(())
}
