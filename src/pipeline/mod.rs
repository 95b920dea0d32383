//! How a picture or a video is made; no model family is named here.
#![forbid(unsafe_code)]

mod autoencode;
pub mod convert;
mod hires;
mod image;
mod inputs;
mod preview;
mod sampling;
pub mod tiling;
pub mod upscale;

use std::path::Path;

use crate::cancel::CancelToken;
use crate::engine::request::Rng as RngChoice;
use crate::error::Result;
use crate::family::{Autoencoder, Model};
use crate::layer::Env;
use crate::report::Callbacks;
use crate::sample::run::Sampler;

pub use image::generate as generate_image;
pub use upscale::PixelUpscaler;

/// Loads an upscaling network: path and tile side in pixels.
pub type LoadUpscaler<'a> = dyn Fn(&Path, i32) -> Result<Box<dyn PixelUpscaler + 'a>> + 'a;

/// Everything a generation works with.
pub struct Stage<'a> {
    /// Text encoders and denoiser.
    pub model: &'a mut dyn Model,
    /// From pixels to latents and back.
    pub autoencoder: &'a mut dyn Autoencoder,
    /// The autoencoder of previews, where it is another one.
    pub preview: Option<&'a mut Box<dyn Autoencoder>>,
    /// Device and switches.
    pub env: Env<'a>,
    /// Whom to tell.
    pub report: &'a Callbacks,
    /// Whether to go on.
    pub cancel: &'a CancelToken,
    /// Buffers that outlive a generation.
    pub sampler: &'a mut Sampler,
    /// Loads an upscaling network, for hires: path and tile side in pixels.
    pub upscaler: &'a LoadUpscaler<'a>,
    /// Generator of start noise and encoder noise.
    pub rng: RngChoice,
    /// Generator of the sampler's noise; `None`: the one of the start noise goes on.
    pub sampler_rng: Option<RngChoice>,
}
