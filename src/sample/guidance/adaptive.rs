//! Adaptive projected guidance (Sadat et al. 2024): momentum, a bound on the norm, and less of the part
//! parallel to the prediction.
#![forbid(unsafe_code)]

use super::{Outputs, Scales, combine};

/// Parameters; the defaults turn it off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApgParams {
    /// Share of the part parallel to the prediction that is kept.
    pub eta: f32,
    /// Share of the last step's difference that is added, often negative.
    pub momentum: f32,
    /// Bound on the norm of the difference, scaled to a picture of 1024 x 1024; 0 for none.
    pub norm_threshold: f32,
    /// How softly the bound is approached; 0 for a hard bound.
    pub norm_threshold_smoothing: f32,
}

impl Default for ApgParams {
    fn default() -> Self {
        Self { eta: 1.0, momentum: 0.0, norm_threshold: 0.0, norm_threshold_smoothing: 0.0 }
    }
}

impl ApgParams {
    /// Whether any of it takes effect.
    pub fn enabled(&self) -> bool {
        self.eta != 1.0 || self.momentum != 0.0 || self.norm_threshold > 0.0
    }
}

/// Square root of the values in the latent of a picture of 1024 x 1024 with 4 channels: the norm's unit.
const STANDARD_NORM: f32 = 256.0;

/// The guidance with its running difference; one object per generation.
#[derive(Clone, Debug)]
pub struct AdaptiveGuidance {
    params: ApgParams,
    momentum: Vec<f32>,
    delta: Vec<f32>,
}

impl AdaptiveGuidance {
    /// Without history.
    pub fn new(params: ApgParams) -> Self {
        Self { params, momentum: Vec::new(), delta: Vec::new() }
    }

    /// Writes the guided prediction to `out`. `text_override` replaces the text scale in the difference only,
    /// as recorded: the difference is then weighted with the request's own scale.
    pub fn combine(
        &mut self,
        outputs: Outputs<'_>,
        scales: Scales,
        text_override: Option<f32>,
        out: &mut [f32],
    ) {
        if outputs.negative.is_none() && outputs.image_negative.is_none() {
            combine(outputs, scales, out);
            return;
        }
        let text = text_override.unwrap_or(scales.text);
        difference(outputs, Scales { text, ..scales }, &mut self.delta);
        self.add_momentum();
        self.limit();
        self.project(outputs.positive);
        let (base, weight) = match (outputs.negative, outputs.image_negative) {
            (Some(_), _) if scales.text != 1.0 => (outputs.positive, scales.text - 1.0),
            (Some(_), Some(_)) => (outputs.positive, scales.image - 1.0),
            (None, Some(image)) => (image, scales.text),
            _ => (outputs.positive, 0.0),
        };
        if weight == 0.0 {
            out.copy_from_slice(base);
            return;
        }
        for ((o, &b), &d) in out.iter_mut().zip(base).zip(&self.delta) {
            *o = b + weight * d;
        }
    }

    fn add_momentum(&mut self) {
        let share = self.params.momentum;
        if share == 0.0 {
            return;
        }
        if self.momentum.len() != self.delta.len() {
            self.momentum.clear();
            self.momentum.resize(self.delta.len(), 0.0);
        }
        for (d, m) in self.delta.iter_mut().zip(&mut self.momentum) {
            *d += share * *m;
            *m = *d;
        }
    }

    fn limit(&mut self) {
        let threshold = self.params.norm_threshold;
        if threshold <= 0.0 {
            return;
        }
        let norm = dot(&self.delta, &self.delta).sqrt() * STANDARD_NORM / (self.delta.len() as f32).sqrt();
        if norm <= 0.0 {
            return;
        }
        let ratio = threshold / norm;
        let smoothing = self.params.norm_threshold_smoothing;
        let factor = if smoothing <= 0.0 {
            ratio.min(1.0)
        } else {
            ratio / (1.0 + ratio.powf(1.0 / smoothing)).powf(smoothing)
        };
        self.delta.iter_mut().for_each(|d| *d *= factor);
    }

    fn project(&mut self, cond: &[f32]) {
        if self.params.eta == 1.0 {
            return;
        }
        let norm = dot(cond, cond);
        if norm == 0.0 {
            return;
        }
        let parallel = dot(cond, &self.delta) / norm;
        let change = self.params.eta - 1.0;
        for (d, &c) in self.delta.iter_mut().zip(cond) {
            *d += change * (parallel * c);
        }
    }
}

/// Direction of guidance, such that `positive + (scale - 1) * difference` is classifier-free guidance.
fn difference(outputs: Outputs<'_>, scales: Scales, delta: &mut Vec<f32>) {
    let cond = outputs.positive;
    delta.resize(cond.len(), 0.0);
    match (outputs.negative, outputs.image_negative) {
        (Some(negative), Some(image)) if scales.text == 1.0 => {
            for ((d, &u), &i) in delta.iter_mut().zip(negative).zip(image) {
                *d = u - i;
            }
        }
        (Some(negative), Some(image)) => {
            let (from_negative, from_image) = (scales.image - scales.text, 1.0 - scales.image);
            for (((d, &c), &u), &i) in delta.iter_mut().zip(cond).zip(negative).zip(image) {
                *d = c + (u * from_negative + i * from_image) / (scales.text - 1.0);
            }
        }
        (Some(base), None) | (None, Some(base)) => {
            for ((d, &c), &u) in delta.iter_mut().zip(cond).zip(base) {
                *d = c - u;
            }
        }
        (None, None) => delta.fill(0.0),
    }
}

/// Sum of products, products in single and sum in double precision.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a * b)).sum::<f64>() as f32
}
