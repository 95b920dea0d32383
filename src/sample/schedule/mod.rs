//! Noise schedules: the sigmas that a sampler visits, from the largest down to 0.
#![forbid(unsafe_code)]

mod curves;
mod discrete;
mod dual;
mod flow;
mod tables;

pub use dual::{DUAL_CHANNELS, DUAL_SEMANTIC_CHANNELS, DualSchedule};
pub use tables::AysLevels;

use super::args::SampleArgs;
use super::prediction::{Denoiser, Prediction};
use crate::error::{Error, Result};

/// More steps than any schedule is asked for; guards memory against nonsense.
pub const MAX_STEPS: usize = 100_000;

/// Shape of a noise schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// Equal steps of time, first and last included.
    #[default]
    Discrete,
    /// Karras et al. 2022, rho 7.
    Karras,
    /// Equal steps of log sigma.
    Exponential,
    /// Align Your Steps (Sabour et al. 2024): optimised tables.
    AlignYourSteps,
    /// GITS (Chen et al. 2024), coefficient 1.20.
    Gits,
    /// Equal steps of time, the last one left out.
    SgmUniform,
    /// Equal strides through the training steps, from the end.
    Simple,
    /// Smooth step through time.
    SmoothStep,
    /// Equal steps of atan(sigma) (Sabour et al. 2024).
    KlOptimal,
    /// The 50 steps that latent consistency models were distilled on.
    Lcm,
    /// Two arcs of atan that meet in the middle.
    BongTangent,
    /// Flow shifted by the number of tokens, stretched to a last sigma (C name `ltx2`).
    TokenShift,
    /// Quantiles of a logit-normal distribution.
    LogitNormal,
    /// Flow shifted by a fit over tokens and steps (C name `flux2`).
    EmpiricalShift,
    /// Flow shifted by the number of tokens (C name `flux`).
    ResolutionShift,
    /// Quantiles of a beta distribution (Lee et al. 2024), both parameters 0.6.
    Beta,
}

impl Scheduler {
    /// All schedules in the order of the C enum.
    pub const ALL: [Self; 16] = [
        Self::Discrete,
        Self::Karras,
        Self::Exponential,
        Self::AlignYourSteps,
        Self::Gits,
        Self::SgmUniform,
        Self::Simple,
        Self::SmoothStep,
        Self::KlOptimal,
        Self::Lcm,
        Self::BongTangent,
        Self::TokenShift,
        Self::LogitNormal,
        Self::EmpiricalShift,
        Self::ResolutionShift,
        Self::Beta,
    ];
}

/// What a schedule depends on besides the denoiser.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleRequest<'a> {
    /// Shape.
    pub scheduler: Scheduler,
    /// Number of steps N; the result has N + 1 sigmas (fewer where `Beta` merges equal steps).
    pub steps: usize,
    /// Image tokens of the network, for the schedules that depend on the resolution.
    pub image_seq_len: usize,
    /// Which Align-Your-Steps table fits the model; `None` where none was published.
    pub ays: Option<AysLevels>,
    /// Parsed `extra_sample_args`.
    pub args: &'a SampleArgs,
}

/// The sigmas of a schedule, descending; the last is 0 except with the dual schedule, which ends at 0.001.
/// All values are finite for any number of steps above 0.
///
/// Predictions with a schedule of their own ignore `scheduler`; the dual one is kept in `denoiser`.
pub fn sigmas(denoiser: &mut Denoiser, request: &ScheduleRequest<'_>) -> Result<Vec<f32>> {
    let n = request.steps;
    if n == 0 || n > MAX_STEPS {
        return Err(Error::invalid(format!("sample_steps is {n}, expected 1 to {MAX_STEPS}")));
    }
    match denoiser.prediction() {
        Prediction::FlowDual => {
            let dual = DualSchedule::new(n, request.args.dual_alpha, request.args.dual_delta);
            denoiser.set_dual(dual.clone());
            return Ok(dual.texture_sigmas);
        }
        Prediction::FlowClean => return Ok(flow::linear(n)),
        _ => {}
    }
    let range = curves::Range { min: denoiser.sigma_min(), max: denoiser.sigma_max() };
    let t_to_sigma = |t: f32| denoiser.t_to_sigma(t);
    let args = request.args;
    let mut sigmas = match request.scheduler {
        Scheduler::Discrete => discrete::uniform(n, t_to_sigma),
        Scheduler::Karras => curves::karras(n, range),
        Scheduler::Exponential => curves::exponential(n, range),
        Scheduler::AlignYourSteps => match request.ays {
            Some(levels) => tables::align_your_steps(n, levels),
            None => discrete::uniform(n, t_to_sigma),
        },
        Scheduler::Gits => tables::gits(n),
        Scheduler::SgmUniform => discrete::sgm_uniform(n, t_to_sigma),
        Scheduler::Simple => discrete::simple(n, t_to_sigma),
        Scheduler::SmoothStep => discrete::smooth_step(n, t_to_sigma),
        Scheduler::KlOptimal => curves::kl_optimal(n, range),
        Scheduler::Lcm => discrete::lcm(n, t_to_sigma),
        Scheduler::BongTangent => curves::bong_tangent(n, range),
        Scheduler::TokenShift => flow::token_shift(n, request.image_seq_len, args),
        Scheduler::LogitNormal => flow::logit_normal(n, request.image_seq_len, args.logit_normal),
        Scheduler::EmpiricalShift => flow::empirical_shift(n, request.image_seq_len),
        Scheduler::ResolutionShift => flow::resolution_shift(n, request.image_seq_len, args),
        Scheduler::Beta => discrete::beta(n, t_to_sigma),
    };
    sigmas.push(0.0);
    if let Some(bad) = sigmas.iter().find(|sigma| !sigma.is_finite()) {
        return Err(Error::invalid(format!(
            "the schedule {:?} gives a sigma of {bad}: check flow_shift ({}) and extra_sample_args",
            request.scheduler,
            denoiser.shift()
        )));
    }
    Ok(sigmas)
}
