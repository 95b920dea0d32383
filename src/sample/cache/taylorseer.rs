//! TaylorSeer (Liu et al. 2025) on whole outputs: between computed steps the output is extrapolated from its
//! finite differences.
#![forbid(unsafe_code)]

use super::super::run::Branch;
use super::change::copy;
use super::dbcache::{Limits, Verdict};
use super::{CacheParams, OutputCache};

/// Highest order that is kept.
const MAX_ORDER: usize = 8;

/// Taylor expansions of the outputs of each branch over the step number.
pub(super) struct Expansions {
    order: usize,
    series: [Series; Branch::COUNT],
}

#[derive(Default)]
struct Series {
    /// Derivatives 0, 1, ... as far as known.
    terms: Vec<Vec<f32>>,
    /// Step of the last output.
    index: usize,
    scratch: Vec<f32>,
}

impl Expansions {
    /// Of order `taylorseer_n_derivatives`.
    pub(super) fn new(params: &CacheParams) -> Self {
        let order = usize::try_from(params.taylorseer_n_derivatives).unwrap_or(0).min(MAX_ORDER);
        Self { order, series: Default::default() }
    }

    /// Adds the output of step `index`.
    pub(super) fn update(&mut self, branch: Branch, output: &[f32], index: usize) {
        let series = &mut self.series[branch.index()];
        if series.terms.first().is_some_and(|term| term.len() != output.len()) {
            series.terms.clear();
        }
        let distance = index.saturating_sub(series.index).max(1) as f32;
        series.index = index;
        copy(&mut series.scratch, output);
        for term in &mut series.terms {
            // `term` becomes the new derivative, `scratch` the next one: the difference to the old.
            for (new, old) in series.scratch.iter_mut().zip(term) {
                let difference = (*new - *old) / distance;
                *old = *new;
                *new = difference;
            }
        }
        if series.terms.len() <= self.order {
            series.terms.push(std::mem::take(&mut series.scratch));
        }
    }

    /// Writes the expansion at step `index`; false before the first output.
    pub(super) fn extrapolate(&self, branch: Branch, index: usize, out: &mut [f32]) -> bool {
        let series = &self.series[branch.index()];
        if series.terms.first().is_none_or(|term| term.len() != out.len()) {
            return false;
        }
        let distance = index.saturating_sub(series.index) as f32;
        let mut factor = 1.0;
        out.fill(0.0);
        for (k, term) in series.terms.iter().enumerate() {
            if k > 0 {
                factor *= distance / k as f32;
            }
            for (o, t) in out.iter_mut().zip(term) {
                *o += factor * t;
            }
        }
        true
    }
}

/// The cache: computes every `skip_interval + 1`th step and extrapolates the others.
pub(super) struct TaylorSeer {
    interval: usize,
    limits: Limits,
    expansions: Expansions,
    index: usize,
    /// Whether the limits allow to skip the present step.
    allowed: bool,
    skipping: bool,
    skipped: usize,
}

impl TaylorSeer {
    pub(super) fn new(params: &CacheParams, limits: Limits) -> Self {
        Self {
            interval: usize::try_from(params.taylorseer_skip_interval).unwrap_or(1).max(1),
            limits,
            expansions: Expansions::new(params),
            index: 0,
            allowed: false,
            skipping: false,
            skipped: 0,
        }
    }
}

impl OutputCache for TaylorSeer {
    fn begin(&mut self, index: usize, _sigma: f32) {
        self.index = index;
        self.skipping = false;
        self.allowed = match self.limits.verdict(index, self.skipped) {
            Verdict::MustSkip => true,
            Verdict::MaySkip => !index.is_multiple_of(self.interval + 1),
            _ => false,
        };
    }

    fn reuse(&mut self, branch: Branch, _input: &[f32], out: &mut [f32]) -> bool {
        let known = self.allowed && self.expansions.extrapolate(branch, self.index, out);
        if known && branch == Branch::Positive {
            self.skipping = true;
            self.skipped += 1;
            self.limits.row += 1;
        }
        known && self.skipping
    }

    fn store(&mut self, branch: Branch, _input: &[f32], output: &[f32]) {
        self.expansions.update(branch, output, self.index);
        if branch == Branch::Positive {
            self.limits.row = 0;
        }
    }

    fn skipping(&self) -> bool {
        self.skipping
    }

    fn skipped(&self) -> usize {
        self.skipped
    }
}
