//! Which sigmas a generation visits: schedule or custom sigmas, the start of img2img, the second pass of
//! hires, the change between two networks.
#![forbid(unsafe_code)]

use super::args::SampleArgs;
use super::prediction::Denoiser;
use super::samplers::Method;
use super::schedule::{self, MAX_STEPS, ScheduleRequest, Scheduler};
use crate::error::{Error, Result};

/// Amount of added noise: the request's, or the sampler's own where that is left open (`None`).
pub fn eta(requested: Option<f32>, method: Method) -> f32 {
    requested.unwrap_or_else(|| method.default_eta())
}

/// The schedule that a sampler was made for, `None` where the model's own is better.
pub fn scheduler_of(method: Method) -> Option<Scheduler> {
    match method {
        Method::Lcm | Method::Tcd => Some(Scheduler::Lcm),
        Method::DdimTrailing => Some(Scheduler::Simple),
        _ => None,
    }
}

/// Sigmas of a generation and the number of steps that shares refer to.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Sigmas, the largest first.
    pub sigmas: Vec<f32>,
    /// Steps of the request, cut to the custom sigmas.
    pub steps: usize,
}

impl Plan {
    /// The plan for `steps` steps. Two or more custom sigmas replace the schedule; a single one is no
    /// interval and is ignored.
    pub fn new(denoiser: &mut Denoiser, request: &ScheduleRequest<'_>, custom: &[f32]) -> Result<Self> {
        if custom.len() < 2 {
            let sigmas = schedule::sigmas(denoiser, request)?;
            return Ok(Self { sigmas, steps: request.steps });
        }
        check_custom(custom, "custom_sigmas")?;
        Ok(Self { sigmas: custom.to_vec(), steps: request.steps.min(custom.len() - 1) })
    }

    /// Cuts the plan to what img2img with `strength` runs; 1 or more runs all of it.
    pub fn start_from_image(&mut self, strength: f32, denoiser: &Denoiser, args: &SampleArgs) -> Result<()> {
        if strength.is_nan() || strength < 0.0 {
            return Err(Error::invalid(format!("strength is {strength}, expected 0 to 1")));
        }
        if strength >= 1.0 {
            return Ok(());
        }
        if args.strength_as_noise_level {
            let level = denoiser.noise_level_to_sigma(strength);
            let first_below = self.sigmas.iter().position(|&sigma| sigma <= level).unwrap_or(0);
            self.cut(first_below);
            if args.force_first_sigma && level > 0.0 {
                self.sigmas[0] = level;
            }
        } else {
            self.cut(skipped_steps(self.steps, strength));
        }
        Ok(())
    }

    /// Drops the first steps, never the last one.
    fn cut(&mut self, steps: usize) {
        let steps = steps.min(self.sigmas.len() - 2);
        self.sigmas.drain(..steps);
        self.steps = self.sigmas.len() - 1;
    }

    /// Splits between two networks: the first gets `first_steps` steps, the second starts at the sigma where
    /// the first ends. `None` for either that has no step.
    pub fn split(self, first_steps: usize) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
        let at = first_steps.min(self.sigmas.len() - 1);
        let first = self.sigmas[..=at].to_vec();
        let second = self.sigmas[at..].to_vec();
        ((first.len() > 1).then_some(first), (second.len() > 1).then_some(second))
    }

    /// Steps above `boundary`, which the network for high noise does when a request leaves their number open.
    pub fn steps_above(&self, boundary: f32) -> usize {
        self.sigmas.iter().position(|&sigma| sigma < boundary).unwrap_or(0)
    }
}

/// Steps that img2img leaves out of `steps`: at least one is run.
fn skipped_steps(steps: usize, strength: f32) -> usize {
    let run = ((steps as f32 * strength) as usize).min(steps.saturating_sub(1));
    steps.saturating_sub(run + 1)
}

/// Sigmas of the second pass of hires: `steps` (0 for `default_steps`) are scaled up so that about as many
/// remain after cutting to `strength`, which is clamped to 0.0001..=1.
pub fn hires_sigmas(
    denoiser: &mut Denoiser,
    request: &ScheduleRequest<'_>,
    (steps, default_steps): (usize, usize),
    strength: f32,
    custom: &[f32],
) -> Result<Vec<f32>> {
    if custom.len() > 1 {
        check_custom(custom, "hires.custom_sigmas")?;
        return Ok(custom.to_vec());
    }
    let strength = if strength.is_nan() { 1.0 } else { strength.clamp(0.0001, 1.0) };
    let wanted = if steps > 0 { steps } else { default_steps }.max(1);
    let scheduled = ((wanted as f32 / strength) as usize).clamp(1, MAX_STEPS);
    let sigmas = schedule::sigmas(denoiser, &ScheduleRequest { steps: scheduled, ..*request })?;
    let mut plan = Plan { sigmas, steps: scheduled };
    plan.cut(skipped_steps(scheduled, strength));
    Ok(plan.sigmas)
}

fn check_custom(sigmas: &[f32], field: &str) -> Result<()> {
    if sigmas.len() > MAX_STEPS + 1 {
        return Err(Error::invalid(format!(
            "{field}: found {} values, expected at most {MAX_STEPS}",
            sigmas.len()
        )));
    }
    let last = sigmas.len() - 1;
    let bad = |i: usize, sigma: f32| !sigma.is_finite() || sigma < 0.0 || (sigma == 0.0 && i != last);
    match sigmas.iter().enumerate().find(|&(i, &sigma)| bad(i, sigma)) {
        Some((i, sigma)) => Err(Error::invalid(format!(
            "{field}[{i}] is {sigma}, expected a finite number above 0 (0 only at the end)"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
