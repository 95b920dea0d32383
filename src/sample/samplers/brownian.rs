//! A Brownian motion over sigma, fixed by a seed (as torchsde's `BrownianTree`): the noise of an interval is
//! its increment, so that it does not depend on how the whole is cut into steps.
#![forbid(unsafe_code)]

use super::super::rng::StdDefault;

/// Bisections before the motion is taken to be straight.
const MAX_DEPTH: usize = 24;
const SHORTEST: f64 = 1e-9;

/// The motion on `[low, high]`, 0 at `low`.
pub(super) struct BrownianTree {
    low: f64,
    high: f64,
    root: u64,
    /// Value at `high`.
    end: Vec<f32>,
    /// The two values of the last increment: their sigma and the motion there.
    points: [(f64, Vec<f32>); 2],
    /// Ends of the interval that the bisection is in, and its middle.
    scratch: [Vec<f32>; 3],
}

impl BrownianTree {
    /// A motion of `len` values.
    pub(super) fn new(len: usize, low: f64, high: f64, seed: u64) -> Self {
        let mut end = vec![0.0; len];
        StdDefault::new(mix(seed, 0xBF58_476D_1CE4_E5B9)).normal(&mut end);
        let scale = ((high - low) as f32).sqrt();
        end.iter_mut().for_each(|value| *value *= scale);
        let empty = || vec![0.0; len];
        Self {
            low,
            high,
            root: mix(seed, 0x9E37_79B9_7F4A_7C15),
            end,
            points: [(f64::NAN, empty()), (f64::NAN, empty())],
            scratch: [empty(), empty(), empty()],
        }
    }

    /// Noise of unit variance for the interval between two sigmas.
    pub(super) fn noise(&mut self, from: f64, to: f64, out: &mut [f32]) {
        let span = ((to - from).abs().max(1e-12)) as f32;
        let scale = 1.0 / span.sqrt();
        let upper = self.point(from.max(to));
        let lower = self.point_beside(from.min(to), upper);
        super::ops::write(out, &self.points[upper].1, &self.points[lower].1, |b, a| (b - a) * scale);
    }

    /// Index in `points` of the motion at `t`, computed unless the last increment ended there.
    fn point(&mut self, t: f64) -> usize {
        self.points.iter().position(|point| point.0 == t).unwrap_or_else(|| self.fill(0, t))
    }

    /// The same, without touching point `other`.
    fn point_beside(&mut self, t: f64, other: usize) -> usize {
        let slot = 1 - other;
        if self.points[slot].0 == t { slot } else { self.fill(slot, t) }
    }

    fn fill(&mut self, slot: usize, t: f64) -> usize {
        self.points[slot].0 = t;
        let mut values = std::mem::take(&mut self.points[slot].1);
        self.walk(t.clamp(self.low, self.high), &mut values);
        self.points[slot].1 = values;
        slot
    }

    /// Bisects down to `t`: the middle of an interval is the mean of its ends plus noise of the node's own
    /// seed.
    fn walk(&mut self, t: f64, out: &mut [f32]) {
        if t == self.high {
            out.copy_from_slice(&self.end);
            return;
        }
        if t == self.low {
            out.fill(0.0);
            return;
        }
        let (mut a, mut c, mut node) = (self.low, self.high, self.root);
        let [left, right, middle] = &mut self.scratch;
        left.fill(0.0);
        right.copy_from_slice(&self.end);
        for _ in 0..MAX_DEPTH {
            if c - a < SHORTEST {
                break;
            }
            let m = 0.5 * (a + c);
            let deviation = ((c - m) * (m - a) / (c - a)).sqrt() as f32;
            StdDefault::new(node).normal(middle);
            super::ops::each2(middle, left, right, |z, l, r| 0.5 * (l + r) + deviation * z);
            if t == m {
                out.copy_from_slice(middle);
                return;
            }
            if t < m {
                std::mem::swap(right, middle);
                (c, node) = (m, mix(node, 1));
            } else {
                std::mem::swap(left, middle);
                (a, node) = (m, mix(node, 2));
            }
        }
        let share = if c > a { ((t - a) / (c - a)) as f32 } else { 0.5 };
        super::ops::write(out, left, right, |l, r| (1.0 - share) * l + share * r);
    }
}

/// SplitMix64's finaliser.
fn mix(value: u64, salt: u64) -> u64 {
    let mut z = value.wrapping_add(salt);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
