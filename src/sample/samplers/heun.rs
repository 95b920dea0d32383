//! Heun's method (Karras et al. 2022, algorithm 1): Euler, corrected by the slope at its end.
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        let dt = next - sigma;
        s.evaluate(sigma, -number(i))?;
        ops::write(&mut s.ws.d.data, &s.x.data, &s.ws.out.pred.data, |x, denoised| (x - denoised) / sigma);
        if next == 0.0 {
            ops::each(&mut s.x.data, &s.ws.d.data, |x, d| x + d * dt);
        } else {
            ops::write(&mut s.ws.x2.data, &s.x.data, &s.ws.d.data, |x, d| x + d * dt);
            s.evaluate_trial(next, number(i))?;
            ops::each2(&mut s.ws.d.data, &s.ws.x2.data, &s.ws.out.pred.data, |d, x2, denoised| {
                (d + (x2 - denoised) / next) / 2.0
            });
            ops::each(&mut s.x.data, &s.ws.d.data, |x, d| x + d * dt);
        }
        s.end_step(i)?;
    }
    Ok(())
}
