//! Euler's method (Karras et al. 2022, algorithm 1 without churn).
#![forbid(unsafe_code)]

use super::{Sampling, number};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        let dt = next - sigma;
        s.update(|x, denoised| x + (x - denoised) / sigma * dt);
        s.end_step(i)?;
    }
    Ok(())
}
