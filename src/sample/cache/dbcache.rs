//! DBCache on whole outputs: skip while the input has changed little since the last computed step.
#![forbid(unsafe_code)]

use super::super::run::Branch;
use super::change::{Differences, copy, relative_difference};
use super::{CacheParams, OutputCache, Window};

/// The rule by which DBCache skips, shared with the combined mode.
pub(super) struct Rule {
    threshold: f32,
    window: Window,
    limits: Limits,
    verdict: Verdict,
    index: usize,
    input: Vec<f32>,
    skipping: bool,
    skipped: usize,
}

impl Rule {
    pub(super) fn new(params: &CacheParams, window: Window, limits: Limits) -> Self {
        Self {
            threshold: threshold(params),
            window,
            limits,
            verdict: Verdict::Outside,
            index: 0,
            input: Vec::new(),
            skipping: false,
            skipped: 0,
        }
    }

    pub(super) fn begin(&mut self, index: usize, sigma: f32) {
        self.index = index;
        self.skipping = false;
        self.verdict = if self.window.contains(sigma) {
            self.limits.verdict(index, self.skipped)
        } else {
            Verdict::Outside
        };
    }

    /// Whether outputs of this step are to be kept.
    pub(super) fn active(&self) -> bool {
        self.verdict != Verdict::Outside
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn skipping(&self) -> bool {
        self.skipping
    }

    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// Decides on the first branch's input.
    pub(super) fn decide(&mut self, input: &[f32]) {
        if self.input.len() != input.len() {
            return;
        }
        self.skipping = match self.verdict {
            Verdict::Outside | Verdict::Compute => false,
            Verdict::MustSkip => true,
            Verdict::MaySkip => relative_difference(&self.input, input) < self.threshold,
        };
        if self.skipping {
            self.skipped += 1;
            self.limits.row += 1;
        }
    }

    /// Takes note of the first branch's input at a computed step.
    pub(super) fn computed(&mut self, input: &[f32]) {
        copy(&mut self.input, input);
        self.limits.row = 0;
    }
}

/// More blocks computed in front make the decision surer, blocks computed at the back leave less to gain.
fn threshold(params: &CacheParams) -> f32 {
    let mut threshold = params.residual_diff_threshold;
    if params.front_compute_blocks > 0 {
        threshold *= (1.0 + 0.02 * (params.front_compute_blocks as f32 - 8.0)).clamp(0.5, 2.0);
    }
    if params.back_compute_blocks > 0 {
        threshold *= (1.0 - 0.03 * params.back_compute_blocks as f32).clamp(0.5, 1.0);
    }
    threshold
}

/// What the limits say about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The cache does not work at this sigma.
    Outside,
    /// Compute it.
    Compute,
    /// Skip it if it has changed little.
    MaySkip,
    /// Skip it.
    MustSkip,
}

/// Warm-up, counts and mask.
pub(super) struct Limits {
    warmup: usize,
    most: Option<usize>,
    most_in_a_row: Option<usize>,
    /// Per step, whether it is to be computed.
    mask: Vec<bool>,
    dynamic: bool,
    /// Steps skipped since the last computed one.
    pub(super) row: usize,
    /// Steps seen.
    seen: usize,
}

impl Limits {
    /// No limits: every step may be skipped.
    pub(super) fn none() -> Self {
        Self { warmup: 0, most: None, most_in_a_row: None, mask: Vec::new(), dynamic: true, row: 0, seen: 0 }
    }

    /// The limits of a request; a mask that cannot be read is left out with a warning.
    pub(super) fn new(params: &CacheParams, warnings: &mut Vec<String>) -> Self {
        let mask = params.scm_mask.as_deref().unwrap_or("");
        let mut parsed = Vec::new();
        for member in mask.split(',').map(str::trim).filter(|member| !member.is_empty()) {
            match member {
                "0" => parsed.push(false),
                "1" => parsed.push(true),
                other => {
                    warnings.push(format!(
                        "scm_mask is ignored: found '{other}', expected 0 and 1 between commas"
                    ));
                    parsed.clear();
                    break;
                }
            }
        }
        Self {
            warmup: usize::try_from(params.max_warmup_steps).unwrap_or(0),
            most: usize::try_from(params.max_cached_steps).ok(),
            most_in_a_row: usize::try_from(params.max_continuous_cached_steps).ok(),
            mask: parsed,
            dynamic: params.scm_policy_dynamic,
            ..Self::none()
        }
    }

    /// The verdict on step `index` after `skipped` skipped ones.
    pub(super) fn verdict(&mut self, index: usize, skipped: usize) -> Verdict {
        self.seen += 1;
        let compute = self.mask.get(index).copied();
        let full = |most: Option<usize>, count: usize| most.is_some_and(|most| count >= most);
        if self.seen <= self.warmup
            || compute == Some(true)
            || full(self.most, skipped)
            || full(self.most_in_a_row, self.row)
        {
            return Verdict::Compute;
        }
        if compute == Some(false) && !self.dynamic { Verdict::MustSkip } else { Verdict::MaySkip }
    }
}

/// The cache: the last difference stands in for the network.
pub(super) struct DbCache {
    rule: Rule,
    differences: Differences,
}

impl DbCache {
    pub(super) fn new(params: &CacheParams, window: Window, limits: Limits) -> Self {
        Self { rule: Rule::new(params, window, limits), differences: Differences::default() }
    }
}

impl OutputCache for DbCache {
    fn begin(&mut self, index: usize, sigma: f32) {
        self.rule.begin(index, sigma);
    }

    fn reuse(&mut self, branch: Branch, input: &[f32], out: &mut [f32]) -> bool {
        if branch == Branch::Positive && self.differences.has(branch, input.len()) {
            self.rule.decide(input);
        }
        self.rule.skipping() && self.differences.apply(branch, input, out)
    }

    fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]) {
        if !self.rule.active() {
            return;
        }
        self.differences.store(branch, input, output);
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
