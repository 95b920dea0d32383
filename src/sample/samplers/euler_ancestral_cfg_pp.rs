//! CFG++ (Chung et al. 2024) with Euler steps and ancestral noise.
#![forbid(unsafe_code)]

use super::ancestral::exploding_step;
use super::{Sampling, euler_cfg_pp, number};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        let ancestral = exploding_step(sigma, next, s.request.eta);
        euler_cfg_pp::step(s, sigma, ancestral.down);
        if next > 0.0 {
            s.add_noise(ancestral.up);
        }
        s.end_step(i)?;
    }
    Ok(())
}
