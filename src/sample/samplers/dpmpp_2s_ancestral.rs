//! DPM-Solver++(2S) (Lu et al. 2022) with ancestral noise: the denoised latent in the middle of the step.
#![forbid(unsafe_code)]

use super::ancestral::{exploding_step, flow_step};
use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        if s.request.flow {
            step_of_flow(s, i)?
        } else {
            step(s, i)?
        }
        s.end_step(i)?;
    }
    Ok(())
}

fn step(s: &mut Sampling<'_>, i: usize) -> Result<()> {
    let (sigma, next) = s.interval(i);
    s.evaluate(sigma, -number(i))?;
    let ancestral = exploding_step(sigma, next, s.request.eta);
    if ancestral.down == 0.0 {
        s.take_denoised();
    } else {
        let t = ops::log_time(sigma);
        let t_next = ops::log_time(ancestral.down);
        let h = t_next - t;
        let middle = ops::exp(-(t + 0.5 * h));
        let (ratio, rest) = (middle / ops::exp(-t), ops::exp_minus_one(-h * 0.5));
        ops::write(&mut s.ws.x2.data, &s.x.data, &s.ws.out.pred.data, |x, denoised| {
            ratio * x - rest * denoised
        });
        s.evaluate_trial(middle, number(i))?;
        let (ratio, rest) = (ops::exp(-t_next) / ops::exp(-t), ops::exp_minus_one(-h));
        s.update(|x, denoised| ratio * x - rest * denoised);
    }
    if next > 0.0 {
        s.add_noise(ancestral.up);
    }
    Ok(())
}

/// For flows the middle is taken in the log of the signal-to-noise ratio. At sigma 1 it would be 1 again, so
/// that one evaluation is enough.
fn step_of_flow(s: &mut Sampling<'_>, i: usize) -> Result<()> {
    let (sigma, next) = s.interval(i);
    let single = 1.0 - f64::from(sigma) < 1e-6;
    s.evaluate(sigma, if single { number(i) } else { -number(i) })?;
    if next == 0.0 {
        s.take_denoised();
        return Ok(());
    }
    let ancestral = flow_step(sigma, next, s.request.eta);
    if !single {
        let odds = (((1.0 - sigma) / sigma) * ((1.0 - ancestral.down) / ancestral.down)).sqrt();
        let middle = 1.0 / (odds + 1.0);
        let ratio = middle / sigma;
        ops::write(&mut s.ws.x2.data, &s.x.data, &s.ws.out.pred.data, |x, denoised| {
            x * ratio + denoised * (1.0 - ratio)
        });
        s.evaluate_trial(middle, number(i))?;
    }
    let ratio = ancestral.down / sigma;
    s.update(|x, denoised| x * ratio + denoised * (1.0 - ratio));
    if next > 0.0 && s.request.eta > 0.0 {
        s.scale(ancestral.scale);
        s.add_noise(ancestral.up);
    }
    Ok(())
}
