//! UCache: EasyCache for UNets, with an error that decays, a threshold that loosens towards the end, and a
//! scale that follows the recent changes.
#![forbid(unsafe_code)]

use super::super::run::Branch;
use super::change::{ChangeTracker, Differences};
use super::{CacheParams, OutputCache, Window};

/// Factor of the threshold in the first fifth of the steps, and in the last.
const EARLY: f32 = 0.5;
const LATE: f32 = 1.5;
/// How much larger than the recent change the output is taken to be.
const NORM_GAIN: f32 = 1.6;
/// Share of the newest change in the running mean.
const NEWEST: f32 = 0.2;
/// Extra error per step skipped in a row.
const STREAK: f32 = 0.5;

pub(super) struct UCache {
    threshold: f32,
    decay: f32,
    relative: bool,
    reset: bool,
    window: Window,
    steps: usize,
    active: bool,
    skipping: bool,
    /// Steps computed inside the window.
    computed: usize,
    /// Steps skipped since.
    streak: usize,
    error: f32,
    /// Running mean of the output's changes.
    recent_change: Option<f32>,
    tracker: ChangeTracker,
    differences: Differences,
    skipped: usize,
}

impl UCache {
    /// For a generation of `sigmas` values.
    pub(super) fn new(params: &CacheParams, window: Window, sigmas: usize) -> Self {
        Self {
            threshold: params.reuse_threshold.unwrap_or(1.0).max(0.0),
            decay: params.error_decay_rate.clamp(0.0, 1.0),
            relative: params.use_relative_threshold,
            reset: params.reset_error_on_compute,
            window,
            steps: sigmas.saturating_sub(1),
            active: false,
            skipping: false,
            computed: 0,
            streak: 0,
            error: 0.0,
            recent_change: None,
            tracker: ChangeTracker::default(),
            differences: Differences::default(),
            skipped: 0,
        }
    }

    fn decide(&mut self, input: &[f32]) -> bool {
        if !self.differences.has(Branch::Positive, input.len()) {
            return false;
        }
        let Some(mut change) = self.tracker.estimate(input) else { return false };
        let norm = self.tracker.output_norm();
        if self.relative {
            let base = norm.max(1e-6);
            let dynamic = self.recent_change.map_or(base, |recent| (recent * NORM_GAIN).max(1e-6));
            change /= (base * dynamic).sqrt();
        }
        change *= 1.0 + STREAK * self.streak as f32;
        self.error = self.error * self.decay + change;
        let mut threshold = self.adaptive_threshold();
        if !self.relative {
            threshold *= norm;
        }
        if self.error < threshold {
            return true;
        }
        if self.reset {
            self.error = 0.0;
        }
        false
    }

    fn adaptive_threshold(&self) -> f32 {
        let progress = self.computed as f32 / self.steps.max(1) as f32;
        let factor = if progress < 0.2 {
            EARLY
        } else if progress > 0.8 {
            LATE
        } else {
            1.0
        };
        self.threshold * factor
    }
}

impl OutputCache for UCache {
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
            self.streak += 1;
        }
        self.skipping && self.differences.apply(branch, input, out)
    }

    fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]) {
        if !self.active {
            return;
        }
        self.differences.store(branch, input, output);
        if branch != Branch::Positive {
            return;
        }
        self.computed += 1;
        self.streak = 0;
        let change = self.tracker.update(input, output);
        if change.is_finite() && change > 0.0 {
            let mean = self.recent_change.map_or(change, |recent| (1.0 - NEWEST) * recent + NEWEST * change);
            self.recent_change = Some(mean);
        }
    }

    fn skipping(&self) -> bool {
        self.active && self.skipping
    }

    fn skipped(&self) -> usize {
        self.skipped
    }
}
