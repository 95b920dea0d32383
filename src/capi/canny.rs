//! Edge detection.

use super::boundary;
use super::read::{flag, image as read_image};
use super::types::sd_image_t;
use crate::error::Error;
use crate::image::{CannyOptions, canny};
use std::mem::MaybeUninit;

/// Replaces a picture by its edges, in place, for use as a control image. Returns false when there is no picture.
///
/// `high_threshold`: share of the strongest edge that counts as an edge. `low_threshold`: share of that above which an
/// edge counts next to another. `weak`, `strong`: brightness of the two, 0..1. `inverse`: dark edges on white.
/// Pictures of 1 to 4 channels are taken; all channels get the same value.
///
/// # Safety
/// `image.data` is NULL or holds `width * height * channel` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preprocess_canny(
    image: sd_image_t,
    high_threshold: f32,
    low_threshold: f32,
    weak: f32,
    strong: f32,
    inverse: MaybeUninit<bool>,
) -> bool {
    boundary::call(false, || {
        // SAFETY: as promised by the caller.
        let picture =
            unsafe { read_image(&image, "image") }?.ok_or_else(|| Error::invalid("image.data is NULL"))?;
        let options = CannyOptions { high_threshold, low_threshold, weak, strong, inverse: flag(inverse) };
        let edges = canny(&picture, &options);
        // SAFETY: as many bytes as were read; the caller vouches that they may be written.
        unsafe { std::ptr::copy_nonoverlapping(edges.data.as_ptr(), image.data, edges.data.len()) };
        Ok(true)
    })
}
