//! Refined exponential solver over two steps (Zhang et al. 2023), with ancestral noise.
#![forbid(unsafe_code)]

use super::ancestral::ancestral_step;
use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let mut last_down = None;
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        let step = ancestral_step(sigma, next, s.request.eta, s.request.flow);
        match last_down {
            Some(last_down) if step.down != 0.0 => multistep(s, i, step.down, last_down),
            _ => s.update(|x, denoised| x + (x - denoised) / sigma * (step.down - sigma)),
        }
        if next > 0.0 {
            s.renoise(step);
        }
        s.ws.remember_denoised();
        last_down = Some(step.down);
        s.end_step(i)?;
    }
    Ok(())
}

/// A step from sigma `i` to `down`, the last one having gone down to `last_down`.
fn multistep(s: &mut Sampling<'_>, i: usize, down: f32, last_down: f32) {
    let t = -s.request.sigmas[i].ln();
    let h = -down.ln() - t;
    let c2 = (-s.request.sigmas[i - 1].ln() - -last_down.ln()) / h;
    let (first, second) = (phi1(-h), phi2(-h));
    let finite = |b: f32| if b.is_finite() { b } else { 0.0 };
    let (b1, b2) = (finite(first - second / c2), finite(second / c2));
    let decay = (-h).exp();
    ops::each2(&mut s.x.data, &s.ws.out.pred.data, &s.ws.history[0].data, |x, denoised, old| {
        decay * x + h * (b1 * denoised + b2 * old)
    });
}

/// (e^t - 1) / t.
pub(super) fn phi1(t: f32) -> f32 {
    if t.abs() < 1e-6 { 1.0 + t * 0.5 + (t * t) / 6.0 } else { (t.exp() - 1.0) / t }
}

/// (phi1(t) - 1) / t.
pub(super) fn phi2(t: f32) -> f32 {
    if t.abs() < 1e-6 { 0.5 + t / 6.0 + (t * t) / 24.0 } else { (phi1(t) - 1.0) / t }
}
