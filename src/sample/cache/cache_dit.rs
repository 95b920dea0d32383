//! DBCache decides which steps are skipped, TaylorSeer gives their outputs.
#![forbid(unsafe_code)]

use super::super::run::Branch;
use super::dbcache::{Limits, Rule};
use super::taylorseer::Expansions;
use super::{CacheParams, OutputCache, Window};

pub(super) struct CacheDit {
    rule: Rule,
    expansions: Expansions,
}

impl CacheDit {
    pub(super) fn new(params: &CacheParams, window: Window, limits: Limits) -> Self {
        Self { rule: Rule::new(params, window, limits), expansions: Expansions::new(params) }
    }
}

impl OutputCache for CacheDit {
    fn begin(&mut self, index: usize, sigma: f32) {
        self.rule.begin(index, sigma);
    }

    fn reuse(&mut self, branch: Branch, input: &[f32], out: &mut [f32]) -> bool {
        if branch == Branch::Positive {
            self.rule.decide(input);
        }
        self.rule.skipping() && self.expansions.extrapolate(branch, self.rule.index(), out)
    }

    fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]) {
        if !self.rule.active() {
            return;
        }
        self.expansions.update(branch, output, self.rule.index());
        if branch == Branch::Positive {
            self.rule.computed(input);
        }
    }

    fn skipping(&self) -> bool {
        self.rule.skipping()
    }

    fn skipped(&self) -> usize {
        self.rule.skipped()
    }
}
