//! Pixels to tensors and back, and masks.
#![forbid(unsafe_code)]

use super::picture::Image;
use super::resize::{Resize, resize};
use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// Values in 0..=1 as a tensor [width, height, channels, 1], resized to `size` by nearest sample when given.
pub fn to_tensor(image: &Image, size: Option<[usize; 2]>) -> Result<HostTensor> {
    let pixels = image.width * image.height;
    let mut data = vec![0.0; pixels * image.channels];
    for (i, pixel) in image.data.chunks_exact(image.channels).enumerate() {
        for (c, byte) in pixel.iter().enumerate() {
            data[c * pixels + i] = f32::from(*byte) / 255.0;
        }
    }
    let tensor = HostTensor::new([image.width, image.height, image.channels, 1], data)?;
    match size {
        Some(size) => resize(&tensor, size, Resize::Nearest, false),
        None => Ok(tensor),
    }
}

/// The frame `frame` of [width, height, channels, frames] or [width, height, frames, channels, 1], values in 0..=1
/// rounded to bytes.
pub fn from_tensor(tensor: &HostTensor, frame: usize) -> Result<Image> {
    let [width, height] = [tensor.dim(0), tensor.dim(1)];
    let pixels = width * height;
    let (channels, frames, channel_stride, frame_stride) = match *tensor.shape {
        [_, _, channels, frames] => (channels, frames, pixels, pixels * channels),
        [_, _, frames, channels, 1] => (channels, frames, pixels * frames, pixels),
        _ => {
            return Err(Error::shape(
                "pixels",
                format!(
                    "{:?}, expected [w, h, channels, frames] or [w, h, frames, channels, 1]",
                    tensor.shape
                ),
            ));
        }
    };
    if frame >= frames {
        return Err(Error::shape("pixels", format!("frame {frame} of {frames}")));
    }
    let bytes = Image::byte_count(width, height, channels)?;
    let mut data = vec![0; bytes];
    for c in 0..channels {
        let plane = &tensor.data[frame * frame_stride + c * channel_stride..][..pixels];
        for (i, value) in plane.iter().enumerate() {
            data[i * channels + c] = to_byte(*value);
        }
    }
    Image::new(width, height, channels, data)
}

/// The nearest of 256 levels; what is no number is black.
pub fn to_byte(value: f32) -> u8 {
    if value >= 1.0 {
        255
    } else if value > 0.0 {
        // Truncation of a value below 255.5.
        (value * 255.0 + 0.5) as u8
    } else {
        0
    }
}

/// [width, height, n, 1] with `channels` channels: grey is repeated, a missing alpha is opaque, surplus is dropped.
pub fn with_channels(tensor: &HostTensor, channels: usize) -> Result<HostTensor> {
    let given = tensor.dim(2);
    if given == channels {
        return Ok(tensor.clone());
    }
    let pixels = tensor.dim(0) * tensor.dim(1);
    if given == 0 || tensor.dim(3) != 1 || tensor.len() != pixels * given {
        return Err(Error::shape("channels", format!("{:?}, expected [w, h, channels, 1]", tensor.shape)));
    }
    // Grey with alpha has two channels, of which the first is the colour.
    let colours = if given < 3 { 1 } else { 3 };
    let mut data = Vec::with_capacity(pixels * channels);
    for c in 0..channels {
        let plane = match c {
            0..3 => Some(c.min(colours - 1)),
            _ => (given == 2 || given == 4).then_some(given - 1),
        };
        match plane {
            Some(plane) => data.extend_from_slice(&tensor.data[plane * pixels..][..pixels]),
            None => data.resize(data.len() + pixels, 1.0),
        }
    }
    HostTensor::new([tensor.dim(0), tensor.dim(1), channels, 1], data)
}

/// A mask [width, height, 1, 1] of the given size: 1 where the image's first channel is bright (paint), 0 elsewhere.
pub fn mask(image: &Image, size: [usize; 2]) -> Result<HostTensor> {
    let mut tensor = with_channels(&to_tensor(image, Some(size))?, 1)?;
    tensor.data.iter_mut().for_each(|value| *value = value.round());
    Ok(tensor)
}

/// A mask in latent size: a latent pixel is painted when any of its pixels is.
pub fn latent_mask(mask: &HostTensor, size: [usize; 2]) -> Result<HostTensor> {
    resize(mask, size, Resize::NearestMax, false)
}
