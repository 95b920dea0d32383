//! Stable Diffusion 1.x: one CLIP-L text encoder, 8 heads at every level. Also its inpainting and editing variants,
//! the tiny UNets and SDXS, all told by the shapes of their tensors.
#![forbid(unsafe_code)]

use super::latent_unet::{self, Encoder, Guess, Recipe, signs};
use super::names;
use super::{Family, Loaded, Loading, Projection};
use crate::error::Result;
use crate::graph::Act;
use crate::net::unet::Heads;
use crate::sample::AysLevels;
use crate::text::ClipTokenizer;
use crate::weights::Index;
use crate::weights::names::Dialect;

/// The family.
pub struct Sd1;

const RECIPE: Recipe = Recipe {
    heads: Heads::Count(8),
    encoders: &[Encoder {
        prefix: "cond_stage_model.transformer.text_model",
        activation: Act::GeluQuick,
        final_norm: true,
        zero_padded: false,
    }],
    pad: ClipTokenizer::END,
    clip_skip: 1,
    size_vector: false,
    scale: 0.18215,
    prediction: Guess::Noise,
    ays: AysLevels::Image512,
    projection: &PROJECTION,
    can_shift_time: false,
    names: &names::SD1,
};

/// Measured by regression on decoded pictures; shared with [`super::sd2`].
pub(super) const PROJECTION: Projection = Projection {
    factors: &[
        [0.337366, 0.216344, 0.257386],
        [0.165636, 0.386828, 0.046994],
        [-0.267803, 0.237036, 0.223517],
        [-0.178022, -0.200862, -0.678514],
    ],
    bias: [-0.017478, -0.055834, -0.105825],
    patch: 1,
};

impl Family for Sd1 {
    fn name(&self) -> &'static str {
        "Stable Diffusion 1.x"
    }

    fn detect(&self, index: &Index) -> Option<u32> {
        signs(index).map(|_| 10)
    }

    fn dialect(&self, index: &Index) -> Dialect {
        // SDXS puts a tiny autoencoder under the names of the VAE.
        let sdxs = signs(index).is_some_and(|s| !s.middle_attention)
            && !index.has_prefix("model.diffusion_model.output_blocks.7.1")
            && !index.has_prefix("unet.up_blocks.2.attentions.1");
        if sdxs { names::SDXS } else { names::SD1 }
    }

    fn is_unet(&self) -> bool {
        true
    }

    fn build(&self, loading: &Loading<'_>) -> Result<Loaded> {
        latent_unet::build(loading, &RECIPE)
    }
}
