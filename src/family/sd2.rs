//! Stable Diffusion 2.x: one OpenCLIP-H text encoder, heads 64 wide, often trained on velocity.
#![forbid(unsafe_code)]

use super::latent_unet::{self, Encoder, Guess, Recipe, signs};
use super::names;
use super::sd1::PROJECTION;
use super::{Family, Loaded, Loading};
use crate::error::Result;
use crate::graph::Act;
use crate::net::unet::Heads;
use crate::sample::AysLevels;
use crate::weights::Index;
use crate::weights::names::Dialect;

/// The family.
pub struct Sd2;

/// Width of the text encoder's tokens.
const TEXT_WIDTH: usize = 1024;

const RECIPE: Recipe = Recipe {
    heads: Heads::Width(64),
    encoders: &[Encoder {
        prefix: "cond_stage_model.transformer.text_model",
        activation: Act::Gelu,
        final_norm: true,
        zero_padded: false,
    }],
    pad: 0,
    clip_skip: 2,
    size_vector: false,
    scale: 0.18215,
    prediction: Guess::Trial,
    ays: AysLevels::Image512,
    projection: &PROJECTION,
    can_shift_time: false,
    names: &names::SD1,
};

impl Family for Sd2 {
    fn name(&self) -> &'static str {
        "Stable Diffusion 2.x"
    }

    fn detect(&self, index: &Index) -> Option<u32> {
        let signs = signs(index)?;
        (signs.open_clip || signs.text_width == TEXT_WIDTH).then_some(20)
    }

    fn dialect(&self, _index: &Index) -> Dialect {
        names::SD1
    }

    fn is_unet(&self) -> bool {
        true
    }

    fn build(&self, loading: &Loading<'_>) -> Result<Loaded> {
        latent_unet::build(loading, &RECIPE)
    }
}
