//! DPM-Solver++(2M) SDE with noise from a Brownian tree: more steps refine the same picture.
#![forbid(unsafe_code)]

use super::brownian::BrownianTree;
use super::{Sampling, dpmpp_2m_sde};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    let positive = s.request.sigmas.iter().copied().filter(|&sigma| sigma > 0.0);
    let (low, high) = positive.fold((f32::INFINITY, 0f32), |(low, high), s| (low.min(s), high.max(s)));
    // The tree's seed is one draw of two values, read as 64 bits.
    let mut seed = [0f32; 2];
    let mut tree = None;
    if high > low {
        s.rng.normal(&mut seed);
        let seed = u64::from(seed[0].to_bits()) | u64::from(seed[1].to_bits()) << 32;
        tree = Some(BrownianTree::new(s.x.len(), f64::from(low), f64::from(high), seed));
    }
    dpmpp_2m_sde::run_with(s, |s, (from, to), scale| {
        if let Some(tree) = &mut tree {
            tree.noise(f64::from(from), f64::from(to), &mut s.ws.noise.data);
            super::ops::each(&mut s.x.data, &s.ws.noise.data, |x, noise| x + noise * scale);
        }
    })
}
