//! Chroma: the tree of Flux.1 with T5 alone and a guidance network that makes all modulations; Chroma Radiance makes
//! pixels without an autoencoder.
#![forbid(unsafe_code)]

use super::coders::{self, PixelCoder};
use super::encoders::{T5Text, check_t5};
use super::{
    Concat, Conditioning, Family, ImageGuidance, Loaded, Loading, Model, Prompt, Surroundings, Traits, flux,
    names, take_output,
};
use crate::error::{Error, Result};
use crate::layer::{Env, Runner};
use crate::log_warn;
use crate::net::flux::{FluxInput, FluxModel};
use crate::sample::args::{key_values, strict_bool, strict_int};
use crate::sample::cache::NetworkKind;
use crate::sample::run::Evaluation;
use crate::sample::{Method, Scheduler};
use crate::tensor::HostTensor;
use crate::weights::Index;
use crate::weights::names::Dialect;

/// The family.
pub struct Chroma;

/// Whose tensors mark the family, beside the tree of Flux.1.
const MARK: &str = "model.diffusion_model.distilled_guidance_layer.";
/// Whose tensors mark the model without an autoencoder.
const PIXELS: &str = "model.diffusion_model.nerf_final_layer_conv.";
/// Tokens of a chunk of text.
const CHUNK: usize = 512;
/// Tokens where there is no text encoder.
const EMPTY: usize = 256;

/// Keys of `model_args`.
const USE_DIT_MASK: &str = "chroma_use_dit_mask";
const USE_T5_MASK: &str = "chroma_use_t5_mask";
const T5_MASK_PAD: &str = "chroma_t5_mask_pad";

impl Family for Chroma {
    fn name(&self) -> &'static str {
        "Chroma"
    }

    fn detect(&self, index: &Index) -> Option<u32> {
        (index.has_prefix(flux::TREE) && index.has_prefix(MARK)).then_some(50)
    }

    fn dialect(&self, _index: &Index) -> Dialect {
        names::FLUX
    }

    fn model_args(&self) -> &'static [&'static str] {
        &[USE_DIT_MASK, USE_T5_MASK, T5_MASK_PAD]
    }

    fn build(&self, loading: &Loading<'_>) -> Result<Loaded> {
        let fields = "model_path or diffusion_model_path";
        let (index, policy) = (loading.index, loading.policy);
        let net = FluxModel::load(index, policy, "model.diffusion_model", flux::CONFIG, fields)?;
        let t5 = T5Text::load(loading)?;
        check_t5(t5.as_ref(), net.net().context_width())?;
        if t5.is_none() {
            log_warn!(loading.report, "no text encoder of t5xxl_path: prompts have no effect");
        }
        let pixels = index.has_prefix(PIXELS);
        let channels = net.net().channels();
        let traits = Traits {
            latent_channels: channels,
            multiple: if pixels { 1 } else { 8 },
            denoiser: flux::denoiser(loading, false),
            method: Method::Euler,
            scheduler: Scheduler::ResolutionShift,
            ays: None,
            image_guidance: if pixels { ImageGuidance::Never } else { ImageGuidance::WithReferences },
            concat: Concat::Nothing,
            can_skip_layers: true,
            can_shift_time: false,
            zero_empty_negative: false,
            network: NetworkKind::Transformer,
            projection: flux::projection(channels),
            images: true,
            videos: false,
        };
        let (autoencoder, preview) = if pixels {
            (Box::new(PixelCoder) as _, None)
        } else {
            coders::load(loading, flux::SCALING, channels)?
        };
        let model =
            ChromaModel { traits, net, t5, pixels, masks: Masks::parse(loading), outputs: Vec::new() };
        Ok(Loaded { model: Box::new(model), autoencoder, preview })
    }
}

/// How padding of the text is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Masks {
    /// From the transformer's attention.
    transformer: bool,
    /// From the text encoder's attention.
    encoder: bool,
    /// Tokens of padding that the transformer sees nevertheless.
    visible_padding: usize,
}

impl Masks {
    fn parse(loading: &Loading<'_>) -> Self {
        let mut masks = Self { transformer: true, encoder: false, visible_padding: 1 };
        let (pairs, _) = key_values(loading.options.model_args.as_deref().unwrap_or_default());
        for (key, value) in pairs {
            let read = match key {
                USE_DIT_MASK => strict_bool(value).map(|v| masks.transformer = v),
                USE_T5_MASK => strict_bool(value).map(|v| masks.encoder = v),
                T5_MASK_PAD => {
                    strict_int(value).map(|v| masks.visible_padding = usize::try_from(v).unwrap_or(0))
                }
                _ => continue,
            };
            if read.is_none() {
                log_warn!(loading.report, "model_args: {key}={value} is ignored, it cannot be read");
            }
        }
        masks
    }
}

struct ChromaModel {
    traits: Traits,
    net: FluxModel,
    t5: Option<T5Text>,
    pixels: bool,
    masks: Masks,
    outputs: Vec<HostTensor>,
}

impl Model for ChromaModel {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    /// States of all chunks; the mask of their tokens is the only entry of `more`.
    fn condition(&mut self, env: &Env<'_>, prompt: &Prompt<'_>) -> Result<Conditioning> {
        let width = self.net.net().context_width();
        let Some(t5) = &mut self.t5 else {
            let context = HostTensor::zeros([width, EMPTY]);
            let more = vec![HostTensor::full([EMPTY], f32::NEG_INFINITY)];
            return Ok(Conditioning { context, more, ..Conditioning::default() });
        };
        let (mut data, mut mask) = (Vec::new(), Vec::new());
        for chunk in T5Text::tokens(prompt.text, CHUNK)? {
            let mut states = t5.encode(env, &chunk, self.masks.encoder)?;
            if prompt.zero {
                let rows = states.data.chunks_exact_mut(width);
                rows.zip(&chunk.mask).filter(|(_, real)| !**real).for_each(|(row, _)| row.fill(0.0));
            }
            data.append(&mut states.data);
            mask.extend(chunk.additive_mask());
        }
        let hidden = mask.iter_mut().filter(|value| value.is_infinite());
        hidden.take(self.masks.visible_padding).for_each(|value| *value = 0.0);
        let context = HostTensor::new([width, mask.len()], data)?;
        let more = vec![HostTensor::new([mask.len()], mask)?];
        Ok(Conditioning { context, more, ..Conditioning::default() })
    }

    fn predict(
        &mut self,
        env: &Env<'_>,
        evaluation: &Evaluation<'_>,
        conditioning: &Conditioning,
        surroundings: &Surroundings<'_>,
        out: &mut HostTensor,
    ) -> Result<()> {
        if self.pixels && !surroundings.references.is_empty() {
            return Err(Error::invalid("ref_images: this model takes no reference pictures"));
        }
        let mask = conditioning.more.first().filter(|_| self.masks.transformer);
        let text = conditioning.context.dim(1);
        let input = FluxInput {
            x: evaluation.x,
            t: evaluation.t,
            context: &conditioning.context,
            vector: None,
            guidance: 0.0,
            concat: None,
            references: surroundings.references,
            mask: mask.map(|m| m.data.as_slice()),
            identity: None,
            skip_layers: evaluation.skip_layers,
            layout: flux::layout(&self.net, env, text, evaluation.x, surroundings),
        };
        self.net.run(env, &input, &mut self.outputs)?;
        take_output(&mut self.outputs, out)
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        self.t5.as_mut().map(T5Text::runner).into_iter().chain([self.net.runner()]).collect()
    }
}
