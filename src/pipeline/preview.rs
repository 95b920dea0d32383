//! Pictures of a generation under way.
#![forbid(unsafe_code)]

use super::autoencode::Coding;
use crate::error::Result;
use crate::family::{Autoencoder, Projection};
use crate::image::{Image, from_tensor};
use crate::layer::Env;
use crate::report::PreviewMode;
use crate::tensor::HostTensor;

/// What a preview needs besides the latent.
pub(super) struct Previewer<'a> {
    pub coder: &'a mut dyn Autoencoder,
    pub projection: Option<&'static Projection>,
    pub env: Env<'a>,
    pub coding: Coding<'a>,
}

impl Previewer<'_> {
    /// The frames of a preview; none where the mode is not possible with this model.
    pub(super) fn frames(&mut self, latent: &HostTensor, mode: PreviewMode) -> Result<Vec<Image>> {
        match mode {
            PreviewMode::Projection => {
                Ok(self.projection.map(|p| project(latent, p)).transpose()?.into_iter().collect())
            }
            PreviewMode::Tiny | PreviewMode::Vae => {
                let pixels = self.coding.decode(self.coder, &self.env, latent)?;
                Ok(vec![from_tensor(&pixels, 0)?])
            }
        }
    }
}

/// Colours straight from the channels of the latent `[W, H, C]`.
fn project(latent: &HostTensor, projection: &Projection) -> Result<Image> {
    let (w, h, patch) = (latent.dim(0), latent.dim(1), projection.patch);
    let plane = w * h;
    let mut bytes = Vec::with_capacity(plane * patch * patch * 3);
    for y in 0..h * patch {
        for x in 0..w * patch {
            let at = y / patch * w + x / patch;
            let channel = y % patch * patch + x % patch;
            for colour in 0..3 {
                let sum: f32 = projection
                    .factors
                    .iter()
                    .enumerate()
                    .map(|(c, factor)| {
                        latent.data.get((c * patch * patch + channel) * plane + at).copied().unwrap_or(0.0)
                            * factor[colour]
                    })
                    .sum();
                let value = ((sum + projection.bias[colour]) * 0.5 + 0.5).clamp(0.0, 1.0);
                bytes.push((value * 255.0) as u8);
            }
        }
    }
    Image::new(w * patch, h * patch, 3, bytes)
}
