//! Gradient estimation (Permenter & Yuan 2024): Euler along a derivative extrapolated from the last two, with
//! ancestral noise.
#![forbid(unsafe_code)]

use super::ancestral::ancestral_step;
use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let gamma = s.request.args.gamma;
    let mut has_last = false;
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        if next == 0.0 {
            s.take_denoised();
        } else {
            let step = ancestral_step(sigma, next, s.request.eta, s.request.flow);
            let dt = step.down - sigma;
            let ws = &mut *s.ws;
            ops::write(&mut ws.d.data, &s.x.data, &ws.out.pred.data, |x, denoised| (x - denoised) / sigma);
            if has_last {
                ops::each2(&mut s.x.data, &ws.d.data, &ws.history[0].data, |x, d, last| {
                    x + (d * gamma + last * (1.0 - gamma)) * dt
                });
            } else {
                ops::each(&mut s.x.data, &ws.d.data, |x, d| x + d * dt);
            }
            ws.remember_derivative();
            has_last = true;
            s.renoise(step);
        }
        s.end_step(i)?;
    }
    Ok(())
}
