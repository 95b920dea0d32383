//! One generation: the network with its guidance, masks, caches and callbacks, driven by a sampler.
#![forbid(unsafe_code)]

mod guided;

use super::args::SampleArgs;
use super::cache::StepCache;
use super::guidance::{Scales, SkipLayers};
use super::prediction::{Denoiser, Prediction};
use super::rng::Rng;
use super::samplers::{self, Method, SamplerRequest, Workspace};
use crate::error::{Error, Result};
use crate::tensor::HostTensor;
use guided::{Buffers, GuidedModel};

/// Which conditioning an evaluation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// The prompt.
    Positive,
    /// The negative prompt with the request's images.
    Negative,
    /// The negative prompt without them.
    ImageNegative,
}

impl Branch {
    /// Number of branches.
    pub const COUNT: usize = 3;

    /// 0, 1 or 2.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One evaluation of the network.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    /// Latent, scaled for the network.
    pub x: &'a HostTensor,
    /// Time as the prediction defines it; a family may map it further.
    pub t: f32,
    /// Times of semantic and texture channels, for predictions with two schedules.
    pub dual_t: Option<[f32; 2]>,
    /// Sigma.
    pub sigma: f32,
    /// Number of the step, from 1; negative in the first half of a step with two evaluations.
    pub step: i32,
    /// Conditioning.
    pub branch: Branch,
    /// Blocks to leave out.
    pub skip_layers: &'a [i32],
}

/// The network of a generation with all its conditionings.
pub trait Network {
    /// Writes the network's output to `out`, which has the shape of the latent.
    fn predict(&mut self, evaluation: &Evaluation<'_>, out: &mut HostTensor) -> Result<()>;
}

/// Who watches a generation. The default does nothing.
pub trait Observer {
    /// An error ends the generation; asked before each evaluation and after each step.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// `done` of `steps` steps, each number once, from 0 on.
    fn progress(&mut self, _done: usize, _steps: usize) {}

    /// The latent at step 1 to N: once noisy, scaled for the network, before its first evaluation; once
    /// denoised, after its last. Steps that a cache predicts have no noisy one.
    fn preview(&mut self, _step: usize, _latent: &HostTensor, _noisy: bool) -> Result<()> {
        Ok(())
    }
}

/// An observer that watches nothing.
impl Observer for () {}

/// What a generation depends on besides the network.
#[derive(Clone, Copy, Debug)]
pub struct Generation<'a> {
    /// Prediction; for two schedules, the one that `schedule::sigmas` has filled.
    pub denoiser: &'a Denoiser,
    /// Sampler.
    pub method: Method,
    /// Sigmas of the N + 1 points.
    pub sigmas: &'a [f32],
    /// Amount of added noise.
    pub eta: f32,
    /// Guidance scales; branches that they do not need are not evaluated.
    pub scales: Scales,
    /// Skip-layer guidance; empty layers turn it off (also for networks that cannot skip).
    pub skip_layers: &'a SkipLayers,
    /// `shifted_timestep`, 0 for none.
    pub shifted_timestep: i32,
    /// Parsed `extra_sample_args`.
    pub args: &'a SampleArgs,
    /// 1 where the picture is to change, 0 where the start latent stays; axes of extent 1 are repeated.
    pub mask: Option<&'a HostTensor>,
    /// Whether the network's input is masked too (models that see the kept frames free of noise).
    pub mask_input: bool,
    /// Whether the result is the latent of the picture; false when another network goes on from the last
    /// sigma.
    pub finish: bool,
}

/// Buffers that live as long as a context: nothing is allocated while the latent's shape stays the same.
#[derive(Debug, Default)]
pub struct Sampler {
    workspace: Workspace,
    buffers: Buffers,
}

/// Samples from `latent`, to which `noise` is added first where given (without, it is taken to be noisy
/// already).
///
/// `rng` gives the noise of stochastic samplers. Cancelling is an error from `observer` or `network`.
pub fn sample(
    sampler: &mut Sampler,
    generation: &Generation<'_>,
    latent: &HostTensor,
    noise: Option<&HostTensor>,
    (network, observer): (&mut dyn Network, &mut dyn Observer),
    (rng, cache): (&mut Rng, &mut StepCache),
) -> Result<HostTensor> {
    let denoiser = generation.denoiser;
    let (Some(&first), Some(&last)) = (generation.sigmas.first(), generation.sigmas.last()) else {
        return Err(Error::invalid("sampling needs at least two sigmas, found none"));
    };
    let mut x = latent.clone();
    if let Some(noise) = noise {
        if noise.shape != latent.shape {
            let message = format!("noise {:?} for a latent {:?}", noise.shape, latent.shape);
            return Err(Error::shape("sample", message));
        }
        denoiser.add_noise(first, &noise.data, &mut x.data);
    }
    let dual = (denoiser.prediction() == Prediction::FlowDual).then(|| denoiser.dual());
    let request = SamplerRequest {
        method: generation.method,
        sigmas: generation.sigmas,
        eta: generation.eta,
        flow: denoiser.is_flow(),
        dual,
        args: generation.args,
    };
    let mut model = GuidedModel::new(generation, latent, network, observer, cache, &mut sampler.buffers)?;
    samplers::run(&request, &mut model, &mut x, rng, &mut sampler.workspace)?;
    if generation.finish {
        denoiser.remove_noise_scale(last, &mut x.data);
    }
    Ok(x)
}
