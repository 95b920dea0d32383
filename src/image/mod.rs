//! Pixels: resize, masks, edges, colour, conversion to tensors.
#![forbid(unsafe_code)]

mod canny;
mod clip;
mod picture;
mod pixels;
mod resize;

pub use canny::{CannyOptions, canny};
pub use clip::clip_preprocess;
pub use picture::Image;
pub use pixels::{from_tensor, latent_mask, mask, to_tensor, with_channels};
pub use resize::{Resize, resize};
