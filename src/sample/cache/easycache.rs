//! EasyCache (Zhou et al. 2025): skip while the accumulated estimate of the relative change stays small.
#![forbid(unsafe_code)]

use super::super::run::Branch;
use super::change::{ChangeTracker, Differences};
use super::{CacheParams, OutputCache, Window};

pub(super) struct EasyCache {
    threshold: f32,
    window: Window,
    active: bool,
    skipping: bool,
    accumulated: f32,
    tracker: ChangeTracker,
    differences: Differences,
    skipped: usize,
}

impl EasyCache {
    pub(super) fn new(params: &CacheParams, window: Window) -> Self {
        Self {
            threshold: params.reuse_threshold.unwrap_or(0.2).max(0.0),
            window,
            active: false,
            skipping: false,
            accumulated: 0.0,
            tracker: ChangeTracker::default(),
            differences: Differences::default(),
            skipped: 0,
        }
    }

    /// Decides, on the first branch, whether the step may be skipped.
    fn decide(&mut self, input: &[f32]) -> bool {
        if !self.differences.has(Branch::Positive, input.len()) {
            return false;
        }
        let Some(change) = self.tracker.estimate(input) else { return false };
        self.accumulated += change / self.tracker.output_norm();
        if self.accumulated < self.threshold {
            return true;
        }
        self.accumulated = 0.0;
        false
    }
}

impl OutputCache for EasyCache {
    fn begin(&mut self, _index: usize, sigma: f32) {
        self.active = self.window.contains(sigma);
        self.skipping = false;
        self.tracker.begin();
    }

    fn reuse(&mut self, branch: Branch, input: &[f32], out: &mut [f32]) -> bool {
        if !self.active {
            return false;
        }
        if branch == Branch::Positive && self.decide(input) {
            self.skipping = true;
            self.skipped += 1;
        }
        self.skipping && self.differences.apply(branch, input, out)
    }

    fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]) {
        if !self.active {
            return;
        }
        self.differences.store(branch, input, output);
        if branch == Branch::Positive {
            self.tracker.update(input, output);
            self.accumulated = 0.0;
        }
    }

    fn skipping(&self) -> bool {
        self.active && self.skipping
    }

    fn skipped(&self) -> usize {
        self.skipped
    }
}
