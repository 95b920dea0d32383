//! A loaded upscaling network.
#![forbid(unsafe_code)]

use super::request::{UpscaleRequest, UpscalerOptions};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::report::Callbacks;

/// A loaded upscaling network. Calls from several threads are done one after the other.
pub struct Upscaler {
    factor: u32,
}

impl Upscaler {
    /// Loads the network.
    pub fn new(_options: UpscalerOptions, _callbacks: &Callbacks) -> Result<Self> {
        Err(Error::invalid("upscaling networks are not available in this build"))
    }

    /// Factor of the network.
    pub fn factor(&self) -> u32 {
        self.factor
    }

    /// Enlarges a picture.
    pub fn upscale(&self, _request: &UpscaleRequest, _callbacks: &Callbacks) -> Result<Image> {
        Err(Error::invalid("upscaling networks are not available in this build"))
    }
}
