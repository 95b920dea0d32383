//! Enlarging pictures by a network.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::tensor::HostTensor;

/// A network that enlarges pixels `[W, H, 3, N]` (0 to 1) by its own factor.
pub trait PixelUpscaler {
    /// The enlarged pixels.
    fn upscale(&mut self, pixels: &HostTensor) -> Result<HostTensor>;
}
