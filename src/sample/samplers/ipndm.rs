//! Improved pseudo numerical method for diffusion models (Zhang & Chen 2022): Adams-Bashforth up to order 4.
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    for i in 0..s.steps() {
        let (sigma, next) = s.interval(i);
        s.evaluate(sigma, number(i))?;
        ops::write(&mut s.ws.d.data, &s.x.data, &s.ws.out.pred.data, |x, denoised| (x - denoised) / sigma);
        let dt = next - sigma;
        if i == 1 {
            let last = &s.ws.history[0].data;
            ops::each2(&mut s.x.data, &s.ws.d.data, last, |x, d, d1| x + (3.0 * d - d1) / 2.0 * dt);
        } else {
            high_order_step(s, i, dt);
        }
        s.ws.remember_derivative();
        s.end_step(i)?;
    }
    Ok(())
}

/// Order 1 at the first step, 3 at the third, 4 from then on, for equal steps.
pub(super) fn high_order_step(s: &mut Sampling<'_>, i: usize, dt: f32) {
    let [d1, d2, d3] = &s.ws.history;
    let (x, d) = (&mut s.x.data, &s.ws.d.data);
    match i {
        0 => ops::each(x, d, |x, d| x + d * dt),
        1 | 2 => {
            for (((x, &d), &d1), &d2) in x.iter_mut().zip(d).zip(&d1.data).zip(&d2.data) {
                *x += (23.0 * d - 16.0 * d1 + 5.0 * d2) / 12.0 * dt;
            }
        }
        _ => {
            let former = d1.data.iter().zip(&d2.data).zip(&d3.data);
            for ((x, &d), ((&d1, &d2), &d3)) in x.iter_mut().zip(d).zip(former) {
                *x += (55.0 * d - 59.0 * d1 + 37.0 * d2 - 9.0 * d3) / 24.0 * dt;
            }
        }
    }
}
