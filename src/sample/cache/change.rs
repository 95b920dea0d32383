//! Differences between outputs and inputs, and how fast outputs change.
#![forbid(unsafe_code)]

use super::super::run::Branch;

/// The last difference of each branch. It stands in for the network as long as that hardly changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Differences {
    values: [Vec<f32>; Branch::COUNT],
}

impl Differences {
    /// Whether the branch has a difference of this length.
    pub(super) fn has(&self, branch: Branch, len: usize) -> bool {
        len > 0 && self.values[branch.index()].len() == len
    }

    /// Keeps `output - input`.
    pub(super) fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]) {
        let values = &mut self.values[branch.index()];
        values.clear();
        values.extend(output.iter().zip(input).map(|(o, i)| o - i));
    }

    /// Writes `input + difference`; false without one.
    pub(super) fn apply(&self, branch: Branch, input: &[f32], out: &mut [f32]) -> bool {
        if !self.has(branch, input.len()) {
            return false;
        }
        for ((o, &i), &d) in out.iter_mut().zip(input).zip(&self.values[branch.index()]) {
            *o = i + d;
        }
        true
    }
}

/// Estimates how much the output changes from how much the input has changed.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeTracker {
    input: Vec<f32>,
    output: Vec<f32>,
    /// Mean magnitude of the last output.
    output_norm: f32,
    /// Change of the output per change of the input, at the last computed step.
    rate: Option<f32>,
    /// Mean change of the input since the last computed step, where the present step measured it.
    input_change: f32,
}

impl ChangeTracker {
    /// Starts a step.
    pub(super) fn begin(&mut self) {
        self.input_change = 0.0;
    }

    /// Mean magnitude of the last output.
    pub(super) fn output_norm(&self) -> f32 {
        self.output_norm
    }

    /// Estimated mean change of the output on `input`, `None` before enough is known.
    pub(super) fn estimate(&mut self, input: &[f32]) -> Option<f32> {
        if self.input.len() != input.len() {
            return None;
        }
        self.input_change = mean_difference(&self.input, input);
        let known = self.output_norm > 0.0 && self.input_change > 0.0;
        self.rate.filter(|_| known).map(|rate| rate * self.input_change)
    }

    /// Takes note of a computed step and returns the mean change of the output, 0 for the first.
    pub(super) fn update(&mut self, input: &[f32], output: &[f32]) -> f32 {
        let change =
            if self.output.len() == output.len() { mean_difference(&self.output, output) } else { 0.0 };
        copy(&mut self.input, input);
        copy(&mut self.output, output);
        self.output_norm = mean(output.iter().map(|v| v.abs()));
        let rate = change / self.input_change;
        if self.input_change > 0.0 && change > 0.0 && rate.is_finite() {
            self.rate = Some(rate);
        }
        self.input_change = 0.0;
        change
    }
}

/// Makes `to` equal to `from` without allocating once it is large enough.
pub(super) fn copy(to: &mut Vec<f32>, from: &[f32]) {
    to.clear();
    to.extend_from_slice(from);
}

fn mean_difference(a: &[f32], b: &[f32]) -> f32 {
    mean(a.iter().zip(b).map(|(a, b)| (a - b).abs()))
}

fn mean(values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let count = values.len().max(1);
    (values.map(f64::from).sum::<f64>() / count as f64) as f32
}

/// Sum of differences relative to the sum of magnitudes of `former`.
pub(super) fn relative_difference(former: &[f32], now: &[f32]) -> f32 {
    let (mut difference, mut magnitude) = (0f64, 0f64);
    for (&f, &n) in former.iter().zip(now) {
        difference += f64::from((f - n).abs());
        magnitude += f64::from(f.abs());
    }
    (difference / (magnitude + 1e-6)) as f32
}
