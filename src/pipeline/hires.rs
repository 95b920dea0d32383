//! The second pass at a higher resolution.
#![forbid(unsafe_code)]

use super::autoencode::Coding;
use super::{PixelUpscaler, Stage};
use crate::engine::request::{Hires, HiresUpscaler};
use crate::error::{Error, Result};
use crate::image::{Resize, resize};
use crate::log_warn;
use crate::report::Callbacks;
use crate::sample::Rng;
use crate::tensor::HostTensor;

/// Size of the second pass, or `None` when there is none; what is not usable is said and leaves it out.
pub(super) fn target(
    hires: &Hires,
    size: [usize; 2],
    multiple: usize,
    report: &Callbacks,
) -> Result<Option<[usize; 2]>> {
    if !hires.enabled || hires.upscaler == HiresUpscaler::None {
        return Ok(None);
    }
    let refuse = |why: &str| {
        log_warn!(report, "hires is left out: {why}");
        Ok(None)
    };
    if hires.upscaler == HiresUpscaler::Model && hires.model.is_none() {
        return refuse("upscaler Model needs hires.model_path");
    }
    let wanted = match hires.target.map(|side| usize::try_from(side).unwrap_or(0)) {
        [0, 0] if hires.scale.is_finite() && hires.scale > 0.0 => {
            size.map(|side| (side as f32 * hires.scale).round() as usize)
        }
        [0, 0] => {
            return refuse(
                "hires.scale must be above 0 where hires.target_width and target_height are not given",
            );
        }
        [side, 0] | [0, side] => [side, side],
        both => both,
    };
    if wanted.contains(&0) {
        return refuse("the target has no pixels");
    }
    if wanted.iter().any(|&side| side > super::image::MAX_SIDE) {
        return Err(Error::invalid(format!(
            "hires: the target of {} x {} pixels is larger than {} on a side",
            wanted[0],
            wanted[1],
            super::image::MAX_SIDE
        )));
    }
    Ok(Some(wanted.map(|side| side.next_multiple_of(multiple))))
}

/// The latent of the first pass at the size of the second, `size` in pixels.
pub(super) fn enlarge(
    stage: &mut Stage<'_>,
    hires: &Hires,
    latent: &HostTensor,
    size: [usize; 2],
    upscaler: Option<&mut Box<dyn PixelUpscaler + '_>>,
    (coding, rng): (&Coding<'_>, &mut Rng),
) -> Result<HostTensor> {
    let factor = stage.autoencoder.factor();
    let latent_size = size.map(|side| side / factor);
    let (mode, antialias) = match hires.upscaler {
        HiresUpscaler::Latent => (Resize::Bilinear, false),
        HiresUpscaler::LatentNearest => (Resize::Nearest, false),
        HiresUpscaler::LatentNearestExact => (Resize::NearestExact, false),
        HiresUpscaler::LatentAntialiased => (Resize::Bilinear, true),
        HiresUpscaler::LatentBicubic => (Resize::Bicubic, false),
        HiresUpscaler::LatentBicubicAntialiased => (Resize::Bicubic, true),
        HiresUpscaler::Lanczos | HiresUpscaler::Nearest | HiresUpscaler::Model | HiresUpscaler::None => {
            let pixels = coding.decode(stage.autoencoder, &stage.env, latent)?;
            stage.cancel.check()?;
            let enlarged = enlarge_pixels(hires, &pixels, size, upscaler)?;
            stage.cancel.check()?;
            return coding.encode(stage.autoencoder, &stage.env, &enlarged, rng);
        }
    };
    resize(latent, latent_size, mode, antialias)
}

fn enlarge_pixels(
    hires: &Hires,
    pixels: &HostTensor,
    size: [usize; 2],
    upscaler: Option<&mut Box<dyn PixelUpscaler + '_>>,
) -> Result<HostTensor> {
    if let Some(upscaler) = upscaler {
        return resize(&upscaler.upscale(pixels)?, size, Resize::Nearest, false);
    }
    let mode = if hires.upscaler == HiresUpscaler::Lanczos { Resize::Lanczos } else { Resize::Nearest };
    let mut enlarged = resize(pixels, size, mode, false)?;
    enlarged.data.iter_mut().for_each(|v| *v = v.clamp(0.0, 1.0));
    Ok(enlarged)
}
