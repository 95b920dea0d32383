//! Refined exponential solver with a second evaluation in the middle of the step (Zhang et al. 2023), with
//! ancestral noise.
#![forbid(unsafe_code)]

use super::ancestral::{AncestralStep, ancestral_step};
use super::res_multistep::{phi1, phi2};
use super::{Sampling, number, ops};
use crate::error::Result;

/// Place of the second evaluation within the step.
const C2: f32 = 0.5;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, -number(i))?;
        let step = ancestral_step(sigma, next, s.request.eta, s.request.flow);
        if step.down == 0.0 || sigma == 0.0 {
            s.take_denoised();
        } else {
            two_stages(s, i, step)?;
        }
        if next > 0.0 {
            s.renoise(step);
        }
        s.end_step(i)?;
    }
    Ok(())
}

fn two_stages(s: &mut Sampling<'_>, i: usize, step: AncestralStep) -> Result<()> {
    let t = -s.request.sigmas[i].ln();
    let h = -step.down.ln() - t;
    let trial = h * (C2 * phi1(-h * C2));
    let b2 = phi2(-h) / C2;
    let b1 = phi1(-h) - b2;
    ops::write(&mut s.ws.d.data, &s.ws.out.pred.data, &s.x.data, |denoised, x| denoised - x);
    ops::write(&mut s.ws.x2.data, &s.x.data, &s.ws.d.data, |x, d| x + d * trial);
    s.evaluate_trial((-(t + h * C2)).exp(), number(i))?;
    ops::each2(&mut s.x.data, &s.ws.d.data, &s.ws.out.pred.data, |x, d, denoised| {
        x + h * (b1 * d + b2 * (denoised - x))
    });
    Ok(())
}
