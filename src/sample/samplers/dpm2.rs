//! DPM-Solver-2 (Lu et al. 2022): the slope in the middle of the step, in log sigma.
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, -number(i))?;
        if next == 0.0 {
            s.update(|x, denoised| x + (x - denoised) / sigma * (next - sigma));
        } else {
            let middle = (0.5 * (f64::from(sigma).ln() + f64::from(next).ln())).exp() as f32;
            let half = middle - sigma;
            ops::write(&mut s.ws.x2.data, &s.x.data, &s.ws.out.pred.data, |x, denoised| {
                x + (x - denoised) / sigma * half
            });
            s.evaluate_trial(middle, number(i))?;
            let dt = next - sigma;
            ops::each2(&mut s.x.data, &s.ws.x2.data, &s.ws.out.pred.data, |x, x2, denoised| {
                x + (x2 - denoised) / middle * dt
            });
        }
        s.end_step(i)?;
    }
    Ok(())
}
