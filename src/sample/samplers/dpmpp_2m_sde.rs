//! DPM-Solver++(2M) SDE, midpoint variant (Lu et al. 2022; k-diffusion `sample_dpmpp_2m_sde`).
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    run_with(s, |s, _interval, scale| s.add_noise(scale))
}

/// The sampler with noise of another source: `add_noise` adds noise for an interval of sigmas, scaled.
pub(super) fn run_with(
    s: &mut Sampling<'_>,
    mut add_noise: impl FnMut(&mut Sampling<'_>, (f32, f32), f32),
) -> Result<()> {
    let eta = s.request.eta;
    let mut h_last = None;
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        if next == 0.0 {
            s.take_denoised();
        } else {
            let h = -next.ln() - -sigma.ln();
            let eta_h = eta * h;
            let a = next / sigma * (-eta_h).exp();
            let b = -(-h - eta_h).exp_m1();
            match h_last {
                None => s.update(|x, denoised| a * x + b * denoised),
                Some(h_last) => {
                    let r: f32 = h_last / h;
                    let slope = 0.5 * b / r;
                    ops::each2(
                        &mut s.x.data,
                        &s.ws.out.pred.data,
                        &s.ws.history[0].data,
                        |x, denoised, old| a * x + b * denoised + slope * (denoised - old),
                    );
                }
            }
            if eta > 0.0 {
                add_noise(s, (sigma, next), next * (-(-2.0 * eta_h).exp_m1()).sqrt());
            }
            h_last = Some(h);
        }
        s.ws.remember_denoised();
        s.end_step(i)?;
    }
    Ok(())
}
