//! CFG++ (Chung et al. 2024) with Euler steps: noise is taken from the prediction without the prompt.
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        step(s, sigma, next);
        s.end_step(i)?;
    }
    Ok(())
}

/// From `sigma` down to `down`.
pub(super) fn step(s: &mut Sampling<'_>, sigma: f32, down: f32) {
    let out = &s.ws.out;
    ops::each2(&mut s.x.data, &out.pred.data, &out.uncond.data, |x, denoised, uncond| {
        denoised + (x - uncond) / sigma * down
    });
}
