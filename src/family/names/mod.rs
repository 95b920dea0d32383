//! What the files of each family call their tensors: the dialects handed to `weights::names`.
#![forbid(unsafe_code)]

mod flux;
mod krea2;
mod sd3;
mod z_image;

use crate::weights::names::{Dialect, every, head, text, unet, vae};

/// SD 1.x and 2.x.
pub const SD1: Dialect = Dialect { denoiser: unet::FOUR_LEVELS, underscored_lora: true, ..Dialect::PLAIN };

/// SDXS: an SD 1.x network whose file holds a tiny autoencoder under the VAE's names.
pub const SDXS: Dialect = Dialect { vae_root: "tae.", ..SD1 };

/// SDXL and its smaller relatives.
pub const SDXL: Dialect =
    Dialect { denoiser: unet::THREE_LEVELS, underscored_lora: true, bare_control: true, ..Dialect::PLAIN };

/// SD3 and SD3.5.
pub const SD3: Dialect = Dialect { denoiser: sd3::DIFFUSERS, ..Dialect::PLAIN };

/// Flux.1 and what shares its names (Fill, Controls, Flex.2, Chroma, Radiance, Ovis-Image).
pub const FLUX: Dialect = Dialect {
    denoiser: flux::DIFFUSERS,
    roots: &[head("te1.", "text_encoders.clip_l.transformer.")],
    ..Dialect::PLAIN
};

/// Flux.2, LongCat-Image and SeFi-Image: Flux's transformer without CLIP.
pub const FLUX2: Dialect = Dialect { denoiser: flux::DIFFUSERS, ..Dialect::PLAIN };

/// Z-Image.
pub const Z_IMAGE: Dialect = Dialect { denoiser: z_image::DIFFUSERS, ..Dialect::PLAIN };

/// Wan and Qwen-Image: the causal video VAE.
pub const WAN: Dialect = Dialect { vae: vae::CAUSAL_VIDEO, ..Dialect::PLAIN };

/// Anima: every tensor lies below `net.`, which not every file writes.
pub const ANIMA: Dialect =
    Dialect { denoiser: &[every(&[head("", "net."), head("net.net.", "net.")])], ..WAN };

/// Krea 2.
pub const KREA2: Dialect = Dialect { denoiser: krea2::DIFFUSERS, vision: text::VISION_FUSED_GGUF, ..WAN };

/// Boogu-Image: its language model's picture tower has fused weights.
pub const BOOGU: Dialect = Dialect { vision: text::VISION_FUSED_GGUF, ..Dialect::PLAIN };
