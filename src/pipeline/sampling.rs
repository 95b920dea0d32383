//! The bridge from a request to the sampler: one denoised latent.
#![forbid(unsafe_code)]

use std::time::Instant;

use super::Stage;
use super::autoencode::{Coding, count};
use super::preview::Previewer;
use crate::engine::request;
use crate::error::{Error, Result};
use crate::family::{Conditioning, Model, Surroundings, Traits};
use crate::layer::Env;
use crate::log_warn;
use crate::report::{Callbacks, PreviewMode};
use crate::sample::cache::{CacheMode, CacheParams, CacheSetup, SpectrumParams, StepCache};
use crate::sample::guidance::{Scales, SkipLayers};
use crate::sample::run::{Branch, Evaluation, Generation, Network, Observer, sample};
use crate::sample::{Denoiser, Method, Rng, SampleArgs};
use crate::tensor::HostTensor;

/// What all latents of a generation share.
pub(super) struct Sampling<'a> {
    pub denoiser: &'a Denoiser,
    pub method: Method,
    pub eta: f32,
    pub scales: Scales,
    pub skip_layers: SkipLayers,
    pub shifted_timestep: i32,
    pub args: &'a SampleArgs,
    /// Conditioning of the prompt, the negative prompt and the negative prompt without pictures.
    pub conditions: [Option<Conditioning>; Branch::COUNT],
    pub references: &'a [HostTensor],
    pub increase_ref_index: bool,
    pub distilled_guidance: f32,
    pub control: Option<(&'a HostTensor, f32)>,
    pub identity: Option<(&'a HostTensor, f32)>,
    pub cache: &'a request::CacheOptions,
    pub coding: Coding<'a>,
}

/// One latent from `start` and `noise`.
pub(super) fn latent(
    stage: &mut Stage<'_>,
    sampling: &Sampling<'_>,
    sigmas: &[f32],
    (start, noise, mask): (&HostTensor, &HostTensor, Option<&HostTensor>),
    rng: &mut Rng,
) -> Result<HostTensor> {
    let generation = Generation {
        denoiser: sampling.denoiser,
        method: sampling.method,
        sigmas,
        eta: sampling.eta,
        scales: sampling.scales,
        skip_layers: &sampling.skip_layers,
        shifted_timestep: sampling.shifted_timestep,
        args: sampling.args,
        mask,
        mask_input: false,
        finish: true,
    };
    let traits = stage.model.traits().clone();
    let mut cache = step_cache(sampling, &traits, sigmas, stage.report);
    let mut network = Denoising { model: stage.model, env: stage.env, sampling };
    let mut observer = Watcher {
        report: stage.report,
        cancel: stage.cancel,
        last: Instant::now(),
        previewer: Previewer {
            coder: stage.preview.as_mut().map_or(&mut *stage.autoencoder, |p| p.as_mut()),
            projection: traits.projection,
            env: stage.env,
            coding: Coding { report: None, ..sampling.coding.clone() },
        },
    };
    sample(stage.sampler, &generation, start, Some(noise), (&mut network, &mut observer), (rng, &mut cache))
}

/// The step cache that the request wants and the model allows.
fn step_cache(sampling: &Sampling<'_>, traits: &Traits, sigmas: &[f32], report: &Callbacks) -> StepCache {
    let wish = sampling.cache;
    let params = CacheParams {
        mode: CacheMode::ALL[wish.mode.index()],
        reuse_threshold: wish.reuse_threshold,
        start_percent: wish.start_percent,
        end_percent: wish.end_percent,
        error_decay_rate: wish.error_decay_rate,
        use_relative_threshold: wish.use_relative_threshold,
        reset_error_on_compute: wish.reset_error_on_compute,
        front_compute_blocks: wish.front_compute_blocks,
        back_compute_blocks: wish.back_compute_blocks,
        residual_diff_threshold: wish.residual_diff_threshold,
        max_warmup_steps: wish.max_warmup_steps,
        max_cached_steps: wish.max_cached_steps,
        max_continuous_cached_steps: wish.max_continuous_cached_steps,
        taylorseer_n_derivatives: wish.taylorseer_n_derivatives,
        taylorseer_skip_interval: wish.taylorseer_skip_interval,
        scm_mask: wish.scm_mask.clone(),
        scm_policy_dynamic: wish.scm_policy_dynamic,
        spectrum: SpectrumParams {
            w: wish.spectrum_w,
            m: wish.spectrum_m,
            lam: wish.spectrum_lam,
            window_size: wish.spectrum_window_size,
            flex_window: wish.spectrum_flex_window,
            warmup_steps: wish.spectrum_warmup_steps,
            stop_percent: wish.spectrum_stop_percent,
        },
        limits: sampling.args.cache_limits,
    };
    let setup = CacheSetup {
        network: traits.network,
        denoiser: sampling.denoiser,
        sigmas,
        needs_uncond: sampling.method.needs_uncond(),
    };
    let (cache, warnings) = StepCache::new(&params, &setup);
    warnings.iter().for_each(|warning| log_warn!(report, "{warning}"));
    cache
}

/// The model with its conditionings, as samplers see it.
struct Denoising<'a, 'b> {
    model: &'a mut dyn Model,
    env: Env<'b>,
    sampling: &'a Sampling<'a>,
}

impl Network for Denoising<'_, '_> {
    fn predict(&mut self, evaluation: &Evaluation<'_>, out: &mut HostTensor) -> Result<()> {
        let sampling = self.sampling;
        let conditioning = sampling.conditions[evaluation.branch.index()]
            .as_ref()
            .ok_or_else(|| Error::Internal(format!("no conditioning for {:?}", evaluation.branch)))?
            .at(evaluation.step);
        let alone = evaluation.branch == Branch::ImageNegative;
        let surroundings = Surroundings {
            references: if alone { &[] } else { sampling.references },
            increase_ref_index: sampling.increase_ref_index,
            distilled_guidance: sampling.distilled_guidance,
            control: sampling.control,
            identity: sampling.identity,
        };
        self.model.predict(&self.env, evaluation, conditioning, &surroundings, out)
    }
}

/// Passes on what the caller wants to see.
struct Watcher<'a> {
    report: &'a Callbacks,
    cancel: &'a crate::cancel::CancelToken,
    last: Instant,
    previewer: Previewer<'a>,
}

impl Observer for Watcher<'_> {
    fn check(&mut self) -> Result<()> {
        self.cancel.check()
    }

    fn progress(&mut self, done: usize, steps: usize) {
        let seconds = if done == 0 { 0.0 } else { self.last.elapsed().as_secs_f32() };
        self.last = Instant::now();
        self.report.progress(count(done), count(steps), seconds);
    }

    fn preview(&mut self, step: usize, latent: &HostTensor, noisy: bool) -> Result<()> {
        let Some(preview) = &self.report.preview else { return Ok(()) };
        // Every step, whatever the interval, as recorded.
        if !(if noisy { preview.noisy } else { preview.denoised }) {
            return Ok(());
        }
        let frames = self.previewer.frames(latent, preview.mode)?;
        if frames.is_empty() && preview.mode == PreviewMode::Projection {
            return Ok(());
        }
        (preview.show)(count(step), &frames, noisy);
        Ok(())
    }
}
