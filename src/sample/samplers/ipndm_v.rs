//! The improved pseudo numerical method with the second step fitted to unequal step lengths.
#![forbid(unsafe_code)]

use super::ipndm::high_order_step;
use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        ops::write(&mut s.ws.d.data, &s.x.data, &s.ws.out.pred.data, |x, denoised| (x - denoised) / sigma);
        let dt = next - sigma;
        if i == 1 {
            let ratio = dt / (sigma - s.request.sigmas[0]);
            let last = &s.ws.history[0].data;
            ops::each2(&mut s.x.data, &s.ws.d.data, last, |x, d, d1| {
                x + ((2.0 + ratio) * d - ratio * d1) / 2.0 * dt
            });
        } else {
            high_order_step(s, i, dt);
        }
        s.ws.remember_derivative();
        s.end_step(i)?;
    }
    Ok(())
}
