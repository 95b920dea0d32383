//! Stable Diffusion XL: CLIP-L and OpenCLIP-G side by side, picture size as a vector. Also its inpainting and editing
//! variants, SSD-1B and Vega, told by the shapes of their tensors.
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
pub struct Sdxl;

const RECIPE: Recipe = Recipe {
    heads: Heads::Width(64),
    encoders: &[
        Encoder {
            prefix: "cond_stage_model.transformer.text_model",
            activation: Act::GeluQuick,
            final_norm: false,
            zero_padded: false,
        },
        Encoder {
            prefix: "cond_stage_model.1.transformer.text_model",
            activation: Act::Gelu,
            final_norm: false,
            zero_padded: true,
        },
    ],
    pad: ClipTokenizer::END,
    clip_skip: 2,
    size_vector: true,
    scale: 0.13025,
    prediction: Guess::Marks,
    ays: AysLevels::Image1024,
    projection: &Projection {
        factors: &[
            [0.258303, 0.277640, 0.329699],
            [-0.299701, 0.105446, 0.014194],
            [0.050522, 0.186163, -0.143257],
            [-0.211938, -0.149892, -0.080036],
        ],
        bias: [0.144381, -0.033313, 0.007061],
        patch: 1,
    },
    can_shift_time: true,
    names: &names::SDXL,
};

impl Family for Sdxl {
    fn name(&self) -> &'static str {
        "Stable Diffusion XL"
    }

    fn detect(&self, index: &Index) -> Option<u32> {
        signs(index)?.two_encoders.then_some(30)
    }

    fn dialect(&self, _index: &Index) -> Dialect {
        names::SDXL
    }

    fn is_unet(&self) -> bool {
        true
    }

    fn build(&self, loading: &Loading<'_>) -> Result<Loaded> {
        latent_unet::build(loading, &RECIPE)
    }
}
