//! Pictures of a request as tensors and latents.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::Stage;
use super::autoencode::Coding;
use crate::engine::request::ImageRequest;
use crate::error::{Error, Result};
use crate::family::Concat;
use crate::files::ModelFile;
use crate::image::{Resize, latent_mask, mask, resize, to_tensor, with_channels};
use crate::log_warn;
use crate::report::Callbacks;
use crate::sample::Rng;
use crate::tensor::HostTensor;
use crate::weights::values_f32;

/// What pictures a generation starts from.
pub(super) struct Inputs {
    /// Latent of the start picture, or zeros.
    pub start: HostTensor,
    /// 1 where the latent is to change.
    pub mask: HostTensor,
    /// Channels beside the noisy latent, with the pictures and without.
    pub concat: [Option<Arc<HostTensor>>; 2],
    /// Picture for the control net.
    pub control: Option<HostTensor>,
    /// Reference pictures as pixels and as latents.
    pub references: Vec<HostTensor>,
    pub reference_latents: Vec<HostTensor>,
    /// The model edits a reference picture and none was given.
    pub missing_reference: bool,
    /// Vectors of a person's identity, and their strength.
    pub identity: Option<(HostTensor, f32)>,
}

/// Most pixels of a reference picture that is scaled by itself.
const REFERENCE_AREA: usize = 1024 * 1024;
/// Sides of such a picture are multiples of this.
const REFERENCE_MULTIPLE: f64 = 16.0;

/// Encodes the request's pictures. `size` is that of the result, in pixels.
pub(super) fn prepare(
    stage: &mut Stage<'_>,
    request: &ImageRequest,
    coding: &Coding<'_>,
    size: [usize; 2],
    rng: &mut Rng,
) -> Result<Inputs> {
    let traits = stage.model.traits().clone();
    let channels = stage.autoencoder.channels();
    let picture =
        |image: &Option<crate::image::Image>, channels: Option<usize>| -> Result<Option<HostTensor>> {
            let Some(image) = image else { return Ok(None) };
            let tensor = to_tensor(image, Some(size))?;
            channels.map_or(Ok(tensor.clone()), |n| with_channels(&tensor, n)).map(Some)
        };
    let init = picture(&request.init_image, Some(channels))?;
    let control = picture(&request.control_image, Some(3))?;
    let pixel_mask = match &request.mask_image {
        Some(image) => mask(image, size)?,
        None => HostTensor::full([size[0], size[1], 1, 1], 1.0),
    };
    if traits.concat.inpaints() && (request.init_image.is_none() || request.mask_image.is_none()) {
        log_warn!(
            stage.report,
            "this inpainting model needs init_image and mask_image; without them all is painted"
        );
    }
    let latent_size = [size[0] / stage.autoencoder.factor(), size[1] / stage.autoencoder.factor()];
    let mut small_mask = latent_mask(&pixel_mask, latent_size)?;
    let start = match &init {
        Some(pixels) => coding.encode(stage.autoencoder, &stage.env, pixels, rng)?,
        None => HostTensor::zeros([latent_size[0], latent_size[1], traits.latent_channels, 1]),
    };
    let control_latent = match &control {
        Some(pixels) if traits.concat.wants_control() => {
            let pixels = with_channels(pixels, channels)?;
            Some(coding.encode(stage.autoencoder, &stage.env, &pixels, rng)?)
        }
        _ => None,
    };
    let (references, missing_reference) = references(request, traits.concat, channels, size)?;
    if missing_reference {
        log_warn!(stage.report, "this model edits a picture: without ref_images an empty one is used");
    }
    let mut reference_latents = Vec::with_capacity(references.len());
    for reference in &references {
        let scaled = scaled_reference(reference, request.auto_resize_ref_image, size)?;
        reference_latents.push(coding.encode(stage.autoencoder, &stage.env, &scaled, rng)?);
    }
    let concat = concat(
        stage,
        coding,
        traits.concat,
        (&init, &pixel_mask),
        (&start, &small_mask),
        (&reference_latents, control_latent),
        rng,
    )?;
    if traits.concat.inpaints() {
        small_mask = dilate(&small_mask);
    }
    let identity = identity(request, stage.report);
    Ok(Inputs {
        start,
        mask: small_mask,
        concat,
        control,
        references,
        reference_latents,
        missing_reference,
        identity,
    })
}

/// Name of the tensor that holds a person's identity.
const IDENTITY: &str = "pulid_id";

/// The request's identity; one that cannot be read is said and left out, as the recorded library does.
fn identity(request: &ImageRequest, report: &Callbacks) -> Option<(HostTensor, f32)> {
    let path = request.pulid.embedding.as_deref()?;
    let read = || {
        let file = ModelFile::open(path)?;
        let entry = file.tensors().iter().find(|t| t.name == IDENTITY);
        let entry = entry.ok_or_else(|| Error::file(path, format!("holds no tensor {IDENTITY}")))?;
        let values = values_f32(&file, entry)?;
        let width = entry.shape4()[0].max(1);
        HostTensor::new([width, values.len() / width], values)
    };
    match read() {
        Ok(values) => Some((values, request.pulid.weight)),
        Err(error) => {
            log_warn!(report, "pulid_params.id_embedding_path is left out: {error}");
            None
        }
    }
}

/// Reference pictures; an empty one for a model that cannot do without.
fn references(
    request: &ImageRequest,
    concat: Concat,
    channels: usize,
    size: [usize; 2],
) -> Result<(Vec<HostTensor>, bool)> {
    let given: Result<Vec<_>> =
        request.ref_images.iter().map(|image| with_channels(&to_tensor(image, None)?, channels)).collect();
    let given = given?;
    if given.is_empty() && concat == Concat::Reference {
        return Ok((vec![HostTensor::zeros([size[0], size[1], channels, 1])], true));
    }
    Ok((given, false))
}

/// A reference picture scaled to the area of the result, if wished.
fn scaled_reference(pixels: &HostTensor, auto: bool, size: [usize; 2]) -> Result<HostTensor> {
    if !auto {
        return Ok(pixels.clone());
    }
    let area = REFERENCE_AREA.min(size[0] * size[1]);
    let (w, h) = (pixels.dim(0), pixels.dim(1));
    let width = ((area * w / h.max(1)) as f64).sqrt();
    let height = width * h as f64 / w as f64;
    let side =
        |s: f64| ((s / REFERENCE_MULTIPLE).round() * REFERENCE_MULTIPLE).max(REFERENCE_MULTIPLE) as usize;
    resize(pixels, [side(width), side(height)], Resize::Nearest, false)
}

/// The channels beside the noisy latent: with the request's pictures, and without for image guidance.
fn concat(
    stage: &mut Stage<'_>,
    coding: &Coding<'_>,
    kind: Concat,
    (init, pixel_mask): (&Option<HostTensor>, &HostTensor),
    (start, small_mask): (&HostTensor, &HostTensor),
    (references, control): (&[HostTensor], Option<HostTensor>),
    rng: &mut Rng,
) -> Result<[Option<Arc<HostTensor>>; 2]> {
    let pair = |a, b| Ok([Some(Arc::new(a)), Some(Arc::new(b))]);
    let nothing = HostTensor::zeros(start.shape.clone());
    let mut masked = || match init {
        Some(pixels) => coding.encode(stage.autoencoder, &stage.env, &grey_out(pixels, pixel_mask), rng),
        None => Ok(nothing.clone()),
    };
    match kind {
        Concat::Nothing => Ok([None, None]),
        Concat::MaskAndMasked => pair(stack(small_mask, &masked()?)?, stack(small_mask, &nothing)?),
        Concat::MaskedAndPixelMask => {
            let folded = fold(pixel_mask, [start.dim(0), start.dim(1)])?;
            pair(stack(&masked()?, &folded)?, stack(&nothing, &folded)?)
        }
        Concat::MaskedMaskControl => {
            let mut kept = start.clone();
            for plane in kept.data.chunks_exact_mut(small_mask.len()) {
                plane.iter_mut().zip(&small_mask.data).for_each(|(value, m)| *value *= 1.0 - m);
            }
            let control = control.unwrap_or_else(|| nothing.clone());
            let without = stack(&stack(&nothing, small_mask)?, &nothing)?;
            pair(stack(&stack(&kept, small_mask)?, &control)?, without)
        }
        Concat::Control => pair(control.unwrap_or_else(|| nothing.clone()), nothing),
        Concat::Reference => {
            let first = references.first().ok_or_else(|| Error::Internal("no reference latent".into()))?;
            let fitted = resize(first, [start.dim(0), start.dim(1)], Resize::Nearest, false)?;
            let nothing = HostTensor::zeros(fitted.shape.clone());
            pair(fitted, nothing)
        }
    }
}

/// Grey where the mask is 1.
fn grey_out(pixels: &HostTensor, mask: &HostTensor) -> HostTensor {
    let mut out = pixels.clone();
    for plane in out.data.chunks_exact_mut(mask.len()) {
        for (value, m) in plane.iter_mut().zip(&mask.data) {
            *value = (1.0 - m) * (*value - 0.5) + 0.5;
        }
    }
    out
}

/// The pixels `[W, H]` below each latent pixel as its channels, rows slowest.
fn fold(mask: &HostTensor, [w, h]: [usize; 2]) -> Result<HostTensor> {
    let (columns, rows) = (mask.dim(0) / w.max(1), mask.dim(1) / h.max(1));
    let mut data = Vec::with_capacity(mask.len());
    for row in 0..rows {
        for column in 0..columns {
            for y in 0..h {
                let line = &mask.data[(y * rows + row) * mask.dim(0)..][..mask.dim(0)];
                data.extend(line.iter().skip(column).step_by(columns).take(w));
            }
        }
    }
    HostTensor::new([w, h, columns * rows, 1], data)
}

/// `a` and then `b` along the channels of `[W, H, C, 1]`.
fn stack(a: &HostTensor, b: &HostTensor) -> Result<HostTensor> {
    let shape = [a.dim(0), a.dim(1), a.dim(2) + b.dim(2), 1];
    HostTensor::new(shape, [a.data.as_slice(), b.data.as_slice()].concat())
}

/// The largest value among each pixel and its eight neighbours.
fn dilate(mask: &HostTensor) -> HostTensor {
    let (w, h) = (mask.dim(0), mask.dim(1));
    let mut out = mask.clone();
    for y in 0..h {
        for x in 0..w {
            let rows = y.saturating_sub(1)..(y + 2).min(h);
            let largest = rows
                .flat_map(|r| &mask.data[r * w + x.saturating_sub(1)..r * w + (x + 2).min(w)])
                .fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            out.data[y * w + x] = largest;
        }
    }
    out
}
