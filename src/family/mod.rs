//! One file per model family, and the registry.
//!
//! A family says how its files are told, how their names are spelled, which networks it is made of and how they are
//! used. Everything that is not particular to one family lives elsewhere; [`latent_unet`] is what the UNet families
//! share.
#![forbid(unsafe_code)]

mod chroma;
mod coders;
mod encoders;
mod flux;
mod latent_unet;
pub mod names;
mod sd1;
mod sd2;
mod sd3;
mod sdxl;

use std::sync::Arc;

use crate::adapt::lora::{LoraFile, Targets};
use crate::engine::request::{ContextOptions, PhotoMaker};
use crate::error::{Error, Result};
use crate::layer::{Env, Runner};
use crate::report::Callbacks;
use crate::sample::cache::NetworkKind;
use crate::sample::run::Evaluation;
use crate::sample::{AysLevels, Denoiser, Method, Rng, Scheduler};
use crate::tensor::HostTensor;
use crate::weights::names::Dialect;
use crate::weights::{Index, TypePolicy};

/// All families. The order does not matter: ranks decide, and no two may tie.
pub const REGISTRY: &[&dyn Family] =
    &[&sd1::Sd1, &sd2::Sd2, &sdxl::Sdxl, &sd3::Sd3, &flux::Flux, &chroma::Chroma];

/// What is known about a kind of model.
pub trait Family: Sync {
    /// Name for messages.
    fn name(&self) -> &'static str;

    /// How surely the tensors (under the names of their files, prefixes put on) are of this family; `None` if not.
    fn detect(&self, index: &Index) -> Option<u32>;

    /// How names are spelled in its files.
    fn dialect(&self, index: &Index) -> Dialect;

    /// Whether separate CLIP files keep the names of whole checkpoints.
    fn is_unet(&self) -> bool {
        false
    }

    /// Keys of `model_args` that it understands.
    fn model_args(&self) -> &'static [&'static str] {
        &[]
    }

    /// Puts the networks together; their weights are not read yet.
    fn build(&self, loading: &Loading<'_>) -> Result<Loaded>;
}

/// What building needs.
pub struct Loading<'a> {
    /// Tensors under their canonical names.
    pub index: &'a Index,
    /// Types of weights in memory.
    pub policy: &'a TypePolicy,
    /// The caller's wishes.
    pub options: &'a ContextOptions,
    /// Whom to tell.
    pub report: &'a Callbacks,
}

/// The networks of a context.
pub struct Loaded {
    /// Text encoders and denoiser.
    pub model: Box<dyn Model>,
    /// From pixels to latents and back.
    pub autoencoder: Box<dyn Autoencoder>,
    /// The autoencoder for previews, where it is another one.
    pub preview: Option<Box<dyn Autoencoder>>,
}

/// What the conditioning latent is made of, besides the noisy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Concat {
    /// Nothing.
    #[default]
    Nothing,
    /// Mask, then the latent of the picture without the masked part.
    MaskAndMasked,
    /// The latent of the first reference picture.
    Reference,
    /// The latent of the control picture.
    Control,
    /// The latent of the picture without the masked part, then the mask, its pixels folded into channels.
    MaskedAndPixelMask,
    /// The masked latent of the picture, the mask, the latent of the control picture.
    MaskedMaskControl,
}

impl Concat {
    /// Whether the model paints a masked part.
    pub fn inpaints(self) -> bool {
        matches!(self, Self::MaskAndMasked | Self::MaskedAndPixelMask | Self::MaskedMaskControl)
    }

    /// Whether the latent of the control picture is a part of it.
    pub fn wants_control(self) -> bool {
        matches!(self, Self::Control | Self::MaskedMaskControl)
    }
}

/// When guidance by a picture is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ImageGuidance {
    /// Never.
    #[default]
    Never,
    /// Always.
    Always,
    /// With reference pictures.
    WithReferences,
}

/// Facts of a loaded model that pipelines go by.
#[derive(Clone, Debug)]
pub struct Traits {
    /// Channels of the latent.
    pub latent_channels: usize,
    /// Sides of pictures are multiples of this.
    pub multiple: usize,
    /// Prediction, noise table, default shift.
    pub denoiser: Denoiser,
    /// Sampler when a request names none.
    pub method: Method,
    /// Schedule when neither request nor sampler names one.
    pub scheduler: Scheduler,
    /// Table of the Align-Your-Steps schedule.
    pub ays: Option<AysLevels>,
    /// Guidance by pictures.
    pub image_guidance: ImageGuidance,
    /// What is put beside the noisy latent.
    pub concat: Concat,
    /// Whether blocks can be skipped (skip-layer guidance).
    pub can_skip_layers: bool,
    /// Whether the time can be shifted (`shifted_timestep`).
    pub can_shift_time: bool,
    /// Whether an empty negative prompt means zeros.
    pub zero_empty_negative: bool,
    /// Kind of the denoiser, which step caches go by.
    pub network: NetworkKind,
    /// Colours of the latent's channels, for previews.
    pub projection: Option<&'static Projection>,
    /// It makes images.
    pub images: bool,
    /// It makes videos.
    pub videos: bool,
}

/// A linear guess of the colours of latent pixels.
#[derive(Debug)]
pub struct Projection {
    /// Red, green and blue share of each channel.
    pub factors: &'static [[f32; 3]],
    /// Red, green and blue of a latent of zeros.
    pub bias: [f32; 3],
    /// Pixels along each side that one latent pixel holds.
    pub patch: usize,
}

/// A prompt to be turned into conditioning.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// Any bytes.
    pub text: &'a [u8],
    /// 0 or less: the model's default.
    pub clip_skip: i32,
    /// Size of the picture in pixels.
    pub size: [usize; 2],
    /// Whether the text states are replaced by zeros.
    pub zero: bool,
    /// Reference pictures `[W, H, C]`, values 0 to 1, for encoders that see them.
    pub references: &'a [HostTensor],
    /// A person whom the prompt speaks of.
    pub person: Option<PersonWish<'a>>,
}

/// A wish that pictures show a person.
#[derive(Clone, Copy)]
pub struct PersonWish<'a> {
    /// Pictures, face embeddings, strength of the style.
    pub given: &'a PhotoMaker,
    /// Steps of the generation.
    pub steps: usize,
    /// Whom to tell why it cannot be followed.
    pub report: &'a Callbacks,
}

impl std::fmt::Debug for PersonWish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PersonWish").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// What a denoiser is told by one prompt.
#[derive(Clone, Debug, Default)]
pub struct Conditioning {
    /// Text states `[C, L]`.
    pub context: HostTensor,
    /// One vector for the whole picture.
    pub vector: Option<HostTensor>,
    /// Channels put beside the noisy latent `[W, H, C]`.
    pub concat: Option<Arc<HostTensor>>,
    /// Whatever else the family's denoiser takes.
    pub more: Vec<HostTensor>,
    /// What takes its place after a number of steps.
    pub later: Option<(i32, Arc<Conditioning>)>,
}

impl Conditioning {
    /// The conditioning for step `step` (from 1; negative in the first half of a step).
    pub fn at(&self, step: i32) -> &Self {
        match &self.later {
            Some((after, other)) if step > *after => other,
            _ => self,
        }
    }
}

/// What an evaluation depends on besides the prompt.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Latents of reference pictures.
    pub references: &'a [HostTensor],
    /// Whether each reference gets an index of its own.
    pub increase_ref_index: bool,
    /// Guidance input of distilled models.
    pub distilled_guidance: f32,
    /// Picture `[W, H, 3]` for the control net, and its strength.
    pub control: Option<(&'a HostTensor, f32)>,
    /// Vectors of a person's identity `[C, L]`, and their strength.
    pub identity: Option<(&'a HostTensor, f32)>,
}

/// What a loaded family does.
pub trait Model: Send {
    /// Facts.
    fn traits(&self) -> &Traits;

    /// Finds out what only the weights can tell.
    fn settle(&mut self, _env: &Env<'_>) -> Result<()> {
        Ok(())
    }

    /// Encodes a prompt.
    fn condition(&mut self, env: &Env<'_>, prompt: &Prompt<'_>) -> Result<Conditioning>;

    /// Evaluates the denoiser; `out` gets the shape of the latent.
    fn predict(
        &mut self,
        env: &Env<'_>,
        evaluation: &Evaluation<'_>,
        conditioning: &Conditioning,
        surroundings: &Surroundings<'_>,
        out: &mut HostTensor,
    ) -> Result<()>;

    /// All networks, by the canonical prefix of their weights.
    fn runners(&mut self) -> Vec<&mut Runner>;

    /// A LoRA that belongs to the model's own files and always counts.
    fn companion(&self, _targets: &Targets, _dialect: &Dialect) -> Option<LoraFile> {
        None
    }
}

/// From pixels to latents and back. Pixels are `[W, H, C, N]`, values 0 to 1.
pub trait Autoencoder: Send {
    /// Pixels along each side of a latent pixel.
    fn factor(&self) -> usize;

    /// Channels of pictures.
    fn channels(&self) -> usize {
        3
    }

    /// What the encoder gives for pixels: a latent or moments, on the autoencoder's own scale.
    fn encode(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor>;

    /// The denoiser's latent from what `encode` gave; `rng` draws where a distribution is encoded.
    fn to_latent(&self, encoded: HostTensor, rng: &mut Rng) -> Result<HostTensor>;

    /// The autoencoder's latent from the denoiser's.
    fn to_coder_latent(&self, latent: &HostTensor) -> Result<HostTensor>;

    /// Pixels from the autoencoder's latent, before they are clamped to 0..1.
    fn decode(&mut self, env: &Env<'_>, latent: &HostTensor) -> Result<HostTensor>;

    /// Networks, for loading and freeing.
    fn runners(&mut self) -> Vec<&mut Runner>;
}

/// Exchanges `out` for the only result of a network, whose memory is used again.
fn take_output(outputs: &mut [HostTensor], out: &mut HostTensor) -> Result<()> {
    let result = outputs.first_mut().ok_or_else(|| Error::Internal("the network gave nothing".into()))?;
    std::mem::swap(out, result);
    Ok(())
}

/// The family whose rank is highest.
pub fn detect(index: &Index) -> Result<&'static dyn Family> {
    let ranked = REGISTRY.iter().filter_map(|f| f.detect(index).map(|rank| (rank, *f)));
    ranked.max_by_key(|(rank, _)| *rank).map(|(_, family)| family).ok_or_else(|| unknown(index))
}

/// Why no family took the files.
fn unknown(index: &Index) -> Error {
    if index.is_empty() {
        return Error::Weights("no model file was given: set model_path or diffusion_model_path".into());
    }
    let sample: Vec<&str> = index.iter().map(|(name, _)| name).step_by(1 + index.len() / 4).take(4).collect();
    let advice = if index.has_prefix("model.diffusion_model.") {
        "the text encoder that tells the family is missing, or the family is not known: give the whole checkpoint \
         as model_path or the parts as clip_l_path, t5xxl_path, llm_path"
    } else {
        "no diffusion network was found under model_path: a file that holds only the network belongs in \
         diffusion_model_path, a text encoder in clip_l_path, clip_g_path, t5xxl_path or llm_path, a VAE in vae_path"
    };
    Error::Weights(format!(
        "the files are of no known model family: {} tensors such as {}; {advice}",
        index.len(),
        sample.join(", ")
    ))
}

#[cfg(test)]
mod tests;
