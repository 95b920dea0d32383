//! Extended reverse-time SDE solver of order 3 (Cui et al. 2023). `eta` above 0 turns its noise on.
#![forbid(unsafe_code)]

use super::{Sampling, number, ops};
use crate::error::Result;

/// Points of the numerical integral.
const POINTS: usize = 200;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let flow = s.request.flow;
    let mut sigmas = s.request.sigmas.to_vec();
    if flow {
        let before_last = sigmas.len() - 1;
        sigmas[..before_last]
            .iter_mut()
            .filter(|sigma| **sigma > 1.0)
            .for_each(|sigma| *sigma = inside(*sigma));
    }
    let points: Vec<Point> = sigmas.iter().map(|&sigma| Point::new(sigma, flow)).collect();
    let mut has_slope = false;
    for i in 0..s.steps() {
        s.evaluate(sigmas[i], number(i))?;
        if sigmas[i + 1] == 0.0 {
            s.take_denoised();
        } else {
            has_slope = step(s, &points, i, has_slope);
        }
        s.ws.remember_denoised();
        s.end_step(i)?;
    }
    Ok(())
}

/// One step; returns whether `history[1]` now holds a slope of the denoised latent.
fn step(s: &mut Sampling<'_>, points: &[Point], i: usize, has_slope: bool) -> bool {
    let (from, to) = (points[i], points[i + 1]);
    let ratio = |to: f32, from: f32| if from > 0.0 { to / from } else { 0.0 };
    let r_alpha = ratio(to.alpha, from.alpha);
    let r = ratio(to.scaled, from.scaled);
    let (keep, take) = (r_alpha * r, to.alpha * (1.0 - r));
    s.update(|x, denoised| keep * x + take * denoised);

    let mut slope_now = has_slope;
    if i >= 1 {
        let dt = to.lambda - from.lambda;
        let integral = Integral::new(from, to, dt);
        let span = from.lambda - points[i - 1].lambda;
        if span.abs() > 1e-12 {
            let order2 = to.alpha * (dt + integral.first * to.scaled);
            let ws = &mut *s.ws;
            ops::write(&mut ws.d.data, &ws.out.pred.data, &ws.history[0].data, |now, old| (now - old) / span);
            ops::each(&mut s.x.data, &ws.d.data, |x, d| x + order2 * d);
            if i >= 2 && has_slope {
                let span = (from.lambda - points[i - 2].lambda) * 0.5;
                if span.abs() > 1e-12 {
                    let order3 = to.alpha * (0.5 * dt * dt + integral.second * to.scaled);
                    ops::each2(&mut s.x.data, &ws.d.data, &ws.history[1].data, |x, d, old| {
                        x + order3 * ((d - old) / span)
                    });
                }
            }
            std::mem::swap(&mut ws.d, &mut ws.history[1]);
            slope_now = true;
        }
    }
    let variance = to.lambda * to.lambda - from.lambda * from.lambda * r * r;
    if s.request.eta > 0.0 && variance > 0.0 {
        s.add_noise(to.alpha * variance.sqrt());
    }
    slope_now
}

/// Keeps a flow's sigma off its singular ends.
fn inside(sigma: f32) -> f32 {
    sigma.clamp(1e-6, 1.0 - 1e-4)
}

/// A point of the schedule.
#[derive(Clone, Copy)]
struct Point {
    /// Noise relative to signal.
    lambda: f32,
    /// Share of the signal.
    alpha: f32,
    /// The noise scaling function at `lambda`.
    scaled: f32,
}

impl Point {
    fn new(sigma: f32, flow: bool) -> Self {
        let (lambda, alpha) = if flow {
            let sigma = inside(sigma);
            (sigma / (1.0 - sigma).max(1e-6), 1.0 - sigma)
        } else {
            (sigma.max(1e-6), 1.0)
        };
        Self { lambda, alpha, scaled: noise_scaling(lambda) }
    }
}

/// The paper's best noise scaling function, number 5.
fn noise_scaling(x: f32) -> f32 {
    let x = x.max(0.0);
    x * (x.powf(0.3).exp() + 10.0)
}

/// Integrals over lambda of 1 / scaling and of (lambda - from) / scaling.
struct Integral {
    first: f32,
    second: f32,
}

impl Integral {
    fn new(from: Point, to: Point, dt: f32) -> Self {
        let width = -dt / POINTS as f32;
        let (mut first, mut second) = (0.0, 0.0);
        for p in 0..POINTS {
            let lambda = to.lambda + p as f32 * width;
            let scaled = noise_scaling(lambda);
            if scaled > 0.0 {
                first += 1.0 / scaled;
                second += (lambda - from.lambda) / scaled;
            }
        }
        Self { first: first * width, second: second * width }
    }
}
