//! Step caches: reuse of network outputs between steps.
//!
//! EasyCache, UCache and the block-cache modes decide per step, on the first evaluation, whether the network
//! may be left out, and then give every evaluation of the step its last difference between output and input.
//! Spectrum predicts the denoised latent itself. The policies are those of the recorded library, where the
//! block caches work on whole outputs too; `cache_limits` turns on the parameters that it reads but ignores.
#![forbid(unsafe_code)]

mod cache_dit;
mod change;
mod dbcache;
mod easycache;
mod spectrum;
mod taylorseer;
mod ucache;

use super::prediction::{Denoiser, TIMESTEPS};
use super::run::Branch;
use cache_dit::CacheDit;
use dbcache::{DbCache, Limits};
use easycache::EasyCache;
use spectrum::Spectrum;
use taylorseer::TaylorSeer;
use ucache::UCache;

pub use spectrum::SpectrumParams;

/// Which cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// None.
    #[default]
    Disabled,
    /// EasyCache, transformers only.
    EasyCache,
    /// UCache, UNets only.
    UCache,
    /// DBCache, transformers only.
    DbCache,
    /// TaylorSeer, transformers only.
    TaylorSeer,
    /// DBCache with TaylorSeer, transformers only.
    CacheDit,
    /// Spectrum, UNets and transformers.
    Spectrum,
}

impl CacheMode {
    /// All modes in the order of the C enum.
    pub const ALL: [Self; 7] = [
        Self::Disabled,
        Self::EasyCache,
        Self::UCache,
        Self::DbCache,
        Self::TaylorSeer,
        Self::CacheDit,
        Self::Spectrum,
    ];
}

/// Kind of a network, for what depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    /// A UNet.
    UNet,
    /// A transformer.
    Transformer,
    /// Neither.
    Other,
}

/// Parameters, named as in `sd_cache_params_t`.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheParams {
    /// Which cache.
    pub mode: CacheMode,
    /// Change up to which a step may be skipped; `None`: 0.2 for EasyCache, 1 for UCache.
    pub reuse_threshold: Option<f32>,
    /// Share of the steps after which EasyCache and UCache start.
    pub start_percent: f32,
    /// Share of the steps after which they end.
    pub end_percent: f32,
    /// UCache: how much of the error of former steps stays.
    pub error_decay_rate: f32,
    /// UCache: measure change relative to the output.
    pub use_relative_threshold: bool,
    /// UCache: forget the error when a step is computed for exceeding the threshold.
    pub reset_error_on_compute: bool,
    /// `Fn_compute_blocks`: each one above 8 raises the threshold of the block caches by 2 %.
    pub front_compute_blocks: i32,
    /// `Bn_compute_blocks`: each one lowers it by 3 %.
    pub back_compute_blocks: i32,
    /// Relative change of the input up to which the block caches skip a step.
    pub residual_diff_threshold: f32,
    /// With `limits`: steps that are always computed first.
    pub max_warmup_steps: i32,
    /// With `limits`: skipped steps in all, -1 for any number.
    pub max_cached_steps: i32,
    /// With `limits`: skipped steps in a row, -1 for any number.
    pub max_continuous_cached_steps: i32,
    /// With `limits`: order of the Taylor expansion.
    pub taylorseer_n_derivatives: i32,
    /// With `limits`: steps between two that TaylorSeer computes.
    pub taylorseer_skip_interval: i32,
    /// With `limits`: `1,1,0,1`: steps to compute (1) and steps that may be skipped (0).
    pub scm_mask: Option<String>,
    /// With `limits`: whether a 0 in the mask allows skipping (true) or orders it.
    pub scm_policy_dynamic: bool,
    /// Spectrum.
    pub spectrum: SpectrumParams,
    /// Key `cache_limits` of `extra_sample_args`: honour the limits above and extrapolate in the TaylorSeer
    /// modes.
    pub limits: bool,
}

impl Default for CacheParams {
    fn default() -> Self {
        Self {
            mode: CacheMode::Disabled,
            reuse_threshold: None,
            start_percent: 0.15,
            end_percent: 0.95,
            error_decay_rate: 1.0,
            use_relative_threshold: true,
            reset_error_on_compute: true,
            front_compute_blocks: 8,
            back_compute_blocks: 0,
            residual_diff_threshold: 0.08,
            max_warmup_steps: 8,
            max_cached_steps: -1,
            max_continuous_cached_steps: -1,
            taylorseer_n_derivatives: 1,
            taylorseer_skip_interval: 1,
            scm_mask: None,
            scm_policy_dynamic: true,
            spectrum: SpectrumParams::default(),
            limits: false,
        }
    }
}

/// A cache of network outputs. Outputs of one step come as one call of `begin`, then `reuse` and, where that
/// says no, `store` for each branch, [`Branch::Positive`] first.
trait OutputCache {
    /// Starts step `index` (from 0).
    fn begin(&mut self, index: usize, sigma: f32);
    /// Writes a stand-in for the output of the network on `input` and returns true, or returns false.
    fn reuse(&mut self, branch: Branch, input: &[f32], out: &mut [f32]) -> bool;
    /// Takes note of an output of the network.
    fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]);
    /// Whether the present step does without the network.
    fn skipping(&self) -> bool;
    /// Steps skipped so far.
    fn skipped(&self) -> usize;
}

/// The cache of one generation.
#[derive(Default)]
pub struct StepCache {
    outputs: Option<Box<dyn OutputCache>>,
    spectrum: Option<Spectrum>,
    in_step: bool,
    name: &'static str,
}

/// What a cache depends on besides its parameters.
#[derive(Clone, Copy, Debug)]
pub struct CacheSetup<'a> {
    /// Kind of the network.
    pub network: NetworkKind,
    /// For the sigmas of the start and end shares.
    pub denoiser: &'a Denoiser,
    /// Sigmas of the generation.
    pub sigmas: &'a [f32],
    /// Whether the sampler needs the denoised latent without the prompt, which Spectrum cannot give.
    pub needs_uncond: bool,
}

impl StepCache {
    /// The cache for a generation. What cannot be had is left out; the second part says so, for the log.
    pub fn new(params: &CacheParams, setup: &CacheSetup<'_>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let name = name(params.mode);
        if params.mode == CacheMode::Disabled {
            return (Self::default(), warnings);
        }
        if let Err(reason) = usable(params, setup) {
            warnings.push(format!("cache: {name} is ignored: {reason}"));
            return (Self::default(), warnings);
        }
        let mut cache = Self { name, ..Self::default() };
        match params.mode {
            CacheMode::Spectrum => {
                cache.spectrum = Some(Spectrum::new(params.spectrum, setup.sigmas.len().saturating_sub(1)));
            }
            CacheMode::EasyCache => {
                let window = Window::of_training(params, setup.denoiser);
                cache.outputs = Some(Box::new(EasyCache::new(params, window)));
            }
            CacheMode::UCache => {
                let window = Window::of_steps(params.start_percent, params.end_percent, setup.sigmas);
                cache.outputs = Some(Box::new(UCache::new(params, window, setup.sigmas.len())));
            }
            _ => cache.outputs = Some(block_cache(params, setup, &mut warnings)),
        }
        (cache, warnings)
    }

    /// Starts an evaluation. Only the evaluation that ends a step (a positive number) uses the cache.
    pub fn begin(&mut self, step: i32, sigma: f32) {
        self.in_step = step > 0;
        if let (Some(cache), Ok(index)) = (&mut self.outputs, usize::try_from(step - 1)) {
            cache.begin(index, sigma);
        }
    }

    /// See [`OutputCache::reuse`].
    pub fn reuse(&mut self, branch: Branch, input: &[f32], out: &mut [f32]) -> bool {
        self.in_step && self.outputs.as_mut().is_some_and(|cache| cache.reuse(branch, input, out))
    }

    /// See [`OutputCache::store`].
    pub fn store(&mut self, branch: Branch, input: &[f32], output: &[f32]) {
        if let (true, Some(cache)) = (self.in_step, &mut self.outputs) {
            cache.store(branch, input, output);
        }
    }

    /// Whether the present step does without the network.
    pub fn skipping(&self) -> bool {
        self.outputs.as_ref().is_some_and(|cache| cache.skipping())
    }

    /// Predicts the denoised latent of this evaluation into `denoised` and returns true, or returns false.
    pub fn predict(&mut self, denoised: &mut [f32]) -> bool {
        self.spectrum.as_mut().is_some_and(|spectrum| spectrum.predict(denoised))
    }

    /// Takes note of a computed denoised latent.
    pub fn record(&mut self, denoised: &[f32]) {
        if let Some(spectrum) = &mut self.spectrum {
            spectrum.record(denoised);
        }
    }

    /// Steps (with Spectrum: evaluations) done without the network.
    pub fn skipped(&self) -> usize {
        let outputs = self.outputs.as_ref().map_or(0, |cache| cache.skipped());
        outputs + self.spectrum.as_ref().map_or(0, Spectrum::skipped)
    }

    /// A sentence for the log, `None` without a cache.
    pub fn summary(&self, steps: usize) -> Option<String> {
        (!self.name.is_empty()).then(|| format!("{} skipped {}/{steps} steps", self.name, self.skipped()))
    }
}

fn name(mode: CacheMode) -> &'static str {
    match mode {
        CacheMode::Disabled => "",
        CacheMode::EasyCache => "EasyCache",
        CacheMode::UCache => "UCache",
        CacheMode::DbCache => "DBCache",
        CacheMode::TaylorSeer => "TaylorSeer",
        CacheMode::CacheDit => "CacheDIT",
        CacheMode::Spectrum => "Spectrum",
    }
}

/// Whether the mode works with these parameters and this network.
fn usable(params: &CacheParams, setup: &CacheSetup<'_>) -> Result<(), String> {
    let (start, end) = (params.start_percent, params.end_percent);
    let has_window = matches!(params.mode, CacheMode::EasyCache | CacheMode::UCache);
    if has_window && !(0.0 <= start && start < end && end <= 1.0) {
        return Err(format!(
            "found start_percent {start} and end_percent {end}, expected 0 <= start < end <= 1"
        ));
    }
    let fits = match params.mode {
        CacheMode::UCache => setup.network == NetworkKind::UNet,
        CacheMode::Spectrum => setup.network != NetworkKind::Other,
        _ => setup.network == NetworkKind::Transformer,
    };
    if !fits {
        return Err("it does not work with this kind of network".into());
    }
    if params.mode == CacheMode::Spectrum && setup.needs_uncond {
        return Err("it does not work with CFG++ samplers".into());
    }
    Ok(())
}

/// DBCache, TaylorSeer or both. Without `limits` the recorded library makes no difference between them.
fn block_cache(
    params: &CacheParams,
    setup: &CacheSetup<'_>,
    warnings: &mut Vec<String>,
) -> Box<dyn OutputCache> {
    // The window of these modes is fixed in the recorded library.
    let window = Window::of_steps(0.15, 0.95, setup.sigmas);
    if !params.limits {
        let given = params.scm_mask.as_deref().is_some_and(|mask| !mask.is_empty());
        if given || params.max_cached_steps >= 0 || params.max_continuous_cached_steps >= 0 {
            warnings.push(
                "cache: mask and limits have no effect without cache_limits=true in extra_sample_args".into(),
            );
        }
        return Box::new(DbCache::new(params, window, Limits::none()));
    }
    let limits = Limits::new(params, warnings);
    match params.mode {
        CacheMode::TaylorSeer => Box::new(TaylorSeer::new(params, limits)),
        CacheMode::CacheDit => Box::new(CacheDit::new(params, window, limits)),
        _ => Box::new(DbCache::new(params, window, limits)),
    }
}

/// Sigmas between which a cache works.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    start: f32,
    end: f32,
}

impl Window {
    /// Shares of the training time.
    fn of_training(params: &CacheParams, denoiser: &Denoiser) -> Self {
        let sigma = |share: f32| denoiser.t_to_sigma((1.0 - share) * (TIMESTEPS - 1) as f32);
        let start = if params.start_percent <= 0.0 { f32::MAX } else { sigma(params.start_percent) };
        let end = if params.end_percent >= 1.0 { 0.0 } else { sigma(params.end_percent) };
        Self { start, end }
    }

    /// Shares of the generation's own steps.
    fn of_steps(start: f32, end: f32, sigmas: &[f32]) -> Self {
        let Some(steps) = sigmas.len().checked_sub(1).filter(|&steps| steps > 0) else {
            return Self { start: f32::MAX, end: 0.0 };
        };
        let sigma = |share: f32| sigmas[((share * steps as f32) as usize).min(steps - 1)];
        let (start, end) = (sigma(start), sigma(end));
        Self { start: start.max(end), end: start.min(end) }
    }

    fn contains(self, sigma: f32) -> bool {
        sigma <= self.start && sigma > self.end
    }
}

#[cfg(test)]
mod tests;
