//! Pixels: resize, masks, edges, colour, conversion to tensors.
#![forbid(unsafe_code)]

mod picture;

pub use picture::Image;
