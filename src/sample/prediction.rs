//! What a network predicts, and the noise scale (sigma) and time that go with it.
//!
//! A network output becomes an estimate of the clean latent by `denoised = c_skip * x + c_out * output(c_in *
//! x, t)`; noise of level sigma is added by [`Denoiser::add_noise`].
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::schedule::DualSchedule;
use crate::error::{Error, Result};

/// Number of training time steps of all schedules.
pub const TIMESTEPS: usize = 1000;

/// What the network was trained to predict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prediction {
    /// The noise (Ho et al. 2020); variance-exploding sigmas of the 1000-step table.
    #[default]
    Epsilon,
    /// The velocity (Salimans & Ho 2022) on the same table.
    Velocity,
    /// The velocity with log-uniform sigmas of 0.002 to 120 (Karras et al. 2022).
    EdmVelocity,
    /// A straight flow; time 0..1000, shifted by a factor.
    Flow,
    /// A straight flow; time 0..1, shifted by an exponent.
    FlowExponential,
    /// As before, with one time for semantic and another for texture channels.
    FlowDual,
    /// The clean picture itself along a straight flow; time runs from 0 to 1 and starts at twice the noise.
    FlowClean,
}

impl Prediction {
    /// All kinds in the order of the C enum.
    pub const ALL: [Self; 7] = [
        Self::Epsilon,
        Self::Velocity,
        Self::EdmVelocity,
        Self::Flow,
        Self::FlowExponential,
        Self::FlowDual,
        Self::FlowClean,
    ];
}

/// Sigmas of the 1000 training steps of a variance-exploding model.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseTable {
    sigmas: Vec<f32>,
    log_sigmas: Vec<f32>,
}

impl NoiseTable {
    /// The scaled-linear betas 0.00085 to 0.012 that these models were trained with.
    pub fn scaled_linear() -> Self {
        let start = 0.00085f32.sqrt();
        let amount = 0.012f32.sqrt() - start;
        let mut product = 1.0f32;
        let alphas: Vec<f32> = (0..TIMESTEPS)
            .map(|i| {
                let beta = start + amount * (i as f32 / (TIMESTEPS - 1) as f32);
                product *= 1.0 - beta.powf(2.0);
                product
            })
            .collect();
        Self::build(&alphas)
    }

    /// A table from a checkpoint's `alphas_cumprod` (1000 values between 0 and 1). Callers log the error and
    /// keep the common table.
    pub fn from_alphas_cumprod(alphas: &[f32]) -> Result<Self> {
        if alphas.len() != TIMESTEPS || !alphas.iter().all(|&a| a > 0.0 && a < 1.0) {
            return Err(Error::Weights(format!(
                "alphas_cumprod: found {} values, expected {TIMESTEPS} between 0 and 1",
                alphas.len()
            )));
        }
        Ok(Self::build(alphas))
    }

    fn build(alphas: &[f32]) -> Self {
        let sigmas: Vec<f32> = alphas.iter().map(|&a| ((1.0 - a) / a).sqrt()).collect();
        let log_sigmas = sigmas.iter().map(|s| s.ln()).collect();
        Self { sigmas, log_sigmas }
    }

    /// The sigmas, ascending.
    pub fn sigmas(&self) -> &[f32] {
        &self.sigmas
    }

    /// Time of `sigma`, log-linear between the entries, clamped to 0..=999.
    fn t(&self, sigma: f32) -> f32 {
        let log_sigma = sigma.ln();
        let below = self.log_sigmas.iter().filter(|&&entry| log_sigma - entry >= 0.0).count();
        let low = below.saturating_sub(1).min(TIMESTEPS - 2);
        let (log_low, log_high) = (self.log_sigmas[low], self.log_sigmas[low + 1]);
        let w = ((log_low - log_sigma) / (log_low - log_high)).clamp(0.0, 1.0);
        (1.0 - w) * low as f32 + w * (low + 1) as f32
    }

    /// Sigma of time `t`, which is clamped to 0..=999.
    fn sigma(&self, t: f32) -> f32 {
        let t = t.clamp(0.0, (TIMESTEPS - 1) as f32);
        let (low, high) = (t.floor() as usize, t.ceil() as usize);
        let w = t - low as f32;
        ((1.0 - w) * self.log_sigmas[low] + w * self.log_sigmas[high]).exp()
    }
}

/// Factors of network input and output at one sigma.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalings {
    /// Share of the noisy latent in the estimate.
    pub c_skip: f32,
    /// Factor of the network's output.
    pub c_out: f32,
    /// Factor of the network's input.
    pub c_in: f32,
}

/// Relation of sigma, time, latent and noise for one kind of prediction.
#[derive(Clone, Debug)]
pub struct Denoiser {
    prediction: Prediction,
    shift: f32,
    table: Option<Arc<NoiseTable>>,
    dual: DualSchedule,
}

/// Range of sigmas of the EDM velocity prediction.
const EDM_SIGMA_RANGE: [f32; 2] = [0.002, 120.0];

impl Denoiser {
    /// A denoiser with the common noise table and flow shift 3.
    pub fn new(prediction: Prediction) -> Self {
        let discrete = matches!(prediction, Prediction::Epsilon | Prediction::Velocity);
        let table = discrete.then(|| Arc::new(NoiseTable::scaled_linear()));
        Self { prediction, shift: 3.0, table, dual: DualSchedule::default() }
    }

    /// The same with another noise table; of no effect on flows.
    pub fn with_table(mut self, table: Arc<NoiseTable>) -> Self {
        if self.table.is_some() {
            self.table = Some(table);
        }
        self
    }

    /// The same with another flow shift; of no effect outside flows that shift time.
    pub fn with_shift(mut self, shift: f32) -> Self {
        self.shift = shift;
        self
    }

    /// What the network predicts.
    pub fn prediction(&self) -> Prediction {
        self.prediction
    }

    /// Flow shift.
    pub fn shift(&self) -> f32 {
        self.shift
    }

    /// Whether samplers use the formulas for flows, where latent and noise are mixed linearly. The
    /// clean-picture prediction counts as no flow here.
    pub fn is_flow(&self) -> bool {
        matches!(self.prediction, Prediction::Flow | Prediction::FlowExponential | Prediction::FlowDual)
    }

    /// The two schedules of [`Prediction::FlowDual`], empty before `schedule::sigmas` made them.
    pub fn dual(&self) -> &DualSchedule {
        &self.dual
    }

    pub(super) fn set_dual(&mut self, dual: DualSchedule) {
        self.dual = dual;
    }

    /// Smallest sigma of the training range.
    pub fn sigma_min(&self) -> f32 {
        match (self.prediction, &self.table) {
            (_, Some(table)) => table.sigmas[0],
            (Prediction::EdmVelocity, _) => EDM_SIGMA_RANGE[0],
            (Prediction::FlowClean, _) => 0.0,
            _ => self.t_to_sigma(0.0),
        }
    }

    /// Largest sigma of the training range.
    pub fn sigma_max(&self) -> f32 {
        match (self.prediction, &self.table) {
            (_, Some(table)) => table.sigmas[TIMESTEPS - 1],
            (Prediction::EdmVelocity, _) => EDM_SIGMA_RANGE[1],
            (Prediction::FlowClean, _) => 1.0,
            _ => self.t_to_sigma((TIMESTEPS - 1) as f32),
        }
    }

    /// Time that the network is told for `sigma`.
    pub fn sigma_to_t(&self, sigma: f32) -> f32 {
        match (self.prediction, &self.table) {
            (_, Some(table)) => table.t(sigma),
            (Prediction::EdmVelocity, _) => 0.25 * sigma.ln(),
            (Prediction::Flow, _) => sigma * 1000.0,
            (Prediction::FlowClean, _) => 1.0 - sigma,
            _ => sigma,
        }
    }

    /// Sigma of the schedule position `t` in 0..=999 (for [`Prediction::FlowClean`]: of time 0..1).
    pub fn t_to_sigma(&self, t: f32) -> f32 {
        match (self.prediction, &self.table) {
            (_, Some(table)) => table.sigma(t),
            (Prediction::EdmVelocity, _) => (t * 4.0 / TIMESTEPS as f32).exp(),
            (Prediction::Flow, _) => factor_shift(self.shift, (t + 1.0) / TIMESTEPS as f32),
            (Prediction::FlowClean, _) => 1.0 - t,
            _ => exponential_shift(self.shift, (t + 1.0) / TIMESTEPS as f32),
        }
    }

    /// Factors at `sigma`, for data of standard deviation 1.
    pub fn scalings(&self, sigma: f32) -> Scalings {
        let variance = sigma * sigma + 1.0;
        match self.prediction {
            Prediction::Epsilon => Scalings { c_skip: 1.0, c_out: -sigma, c_in: 1.0 / variance.sqrt() },
            Prediction::Velocity | Prediction::EdmVelocity => Scalings {
                c_skip: 1.0 / variance,
                c_out: -sigma / variance.sqrt(),
                c_in: 1.0 / variance.sqrt(),
            },
            Prediction::FlowClean => Scalings { c_skip: 0.0, c_out: 1.0, c_in: 1.0 },
            _ => Scalings { c_skip: 1.0, c_out: -sigma, c_in: 1.0 },
        }
    }

    /// Turns `latent` into the start of sampling at `sigma`; both slices have the same length.
    pub fn add_noise(&self, sigma: f32, noise: &[f32], latent: &mut [f32]) {
        for (x, n) in latent.iter_mut().zip(noise) {
            *x = match self.prediction {
                Prediction::Epsilon | Prediction::Velocity | Prediction::EdmVelocity => *x + n * sigma,
                Prediction::FlowClean => n * 2.0,
                _ => *x * (1.0 - sigma) + n * sigma,
            };
        }
    }

    /// Undoes the shrinking of the latent at the last `sigma` of a schedule; of no effect outside flows. A
    /// sigma of 1 is pure noise and left as it is.
    pub fn remove_noise_scale(&self, sigma: f32, latent: &mut [f32]) {
        if self.is_flow() && sigma != 1.0 {
            let factor = 1.0 / (1.0 - sigma);
            latent.iter_mut().for_each(|x| *x *= factor);
        }
    }

    /// Sigma at which the share of noise in the latent is `level` (0..1).
    pub fn noise_level_to_sigma(&self, level: f32) -> f32 {
        match self.prediction {
            Prediction::Epsilon | Prediction::Velocity | Prediction::EdmVelocity => level / (1.0 - level),
            Prediction::FlowClean => 1.0,
            _ => level,
        }
    }

    /// Time after `shifted_timestep`, which maps 0..1000 onto 0..shifted steps (a distilled model's own
    /// range); the scalings change with it. `0` leaves both as they are.
    pub fn time_and_scalings(&self, sigma: f32, shifted_timestep: i32) -> (f32, Scalings) {
        let t = self.sigma_to_t(sigma);
        let scalings = self.scalings(sigma);
        if shifted_timestep <= 0 {
            return (t, scalings);
        }
        let factor = shifted_timestep as f32 / TIMESTEPS as f32;
        let shifted_t = (t * factor).round().clamp(0.0, (TIMESTEPS - 1) as f32);
        let shifted = self.scalings(self.t_to_sigma(shifted_t));
        let c_skip = shifted.c_skip * scalings.c_in / shifted.c_in;
        (shifted_t, Scalings { c_skip, c_out: shifted.c_out, c_in: scalings.c_in })
    }
}

/// Time shift of a straight flow by a factor: the larger, the more steps at high noise (Esser et al. 2024).
fn factor_shift(alpha: f32, t: f32) -> f32 {
    if alpha == 1.0 { t } else { alpha * t / (1.0 + (alpha - 1.0) * t) }
}

/// Time shift by an exponent `mu`; the same as a factor of `exp(mu)`.
pub(super) fn exponential_shift(mu: f32, t: f32) -> f32 {
    mu.exp() / (mu.exp() + (1.0 / t - 1.0).powf(1.0))
}
