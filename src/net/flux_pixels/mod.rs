//! What transformers without an autoencoder have instead of first and last layer: a convolution that makes tokens
//! of pixels, and a small network per token that makes pixels of it.
#![forbid(unsafe_code)]

pub(super) mod approximator;

use super::dit::{PatchOrder, patchify, unpatchify};
use crate::error::{Error, Result};
use crate::graph::{Act, Interpolation, Tensor};
use crate::layer::{Conv2d, Ctx, Linear, Map, RmsNorm};
use crate::tensor::HostTensor;
use crate::weights::Scope;

/// Avoids dividing by zero.
const L2_EPS: f32 = 1e-12;

/// Layers of the pixels' network; each token makes their weights.
#[derive(Debug)]
struct PixelBlock {
    weights: Linear,
    norm: RmsNorm,
    width: usize,
}

impl PixelBlock {
    fn load(scope: &Scope<'_>, tokens: usize, width: usize) -> Result<Self> {
        let output = scope.need_shape("param_generator.weight")?[1];
        Ok(Self {
            weights: Linear::load(&scope.at("param_generator"), tokens, output)?,
            norm: RmsNorm::load(&scope.at("norm"), "scale", width)?,
            width,
        })
    }

    /// `x` `[width, pixels, T]`, `tokens` `[C, T]`.
    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, tokens: Tensor<'g>) -> Result<Tensor<'g>> {
        let (width, count) = (self.width, x.dim(2));
        let parts = self.weights.forward(ctx, tokens)?.chunks(0, 3)?;
        let inner = parts[0].dim(0) / width;
        let matrix = |part: Tensor<'g>, rows: usize, columns: usize| {
            part.cont()?.reshape([rows, columns, count, 1])?.transpose()?.cont()?.l2_norm(L2_EPS)
        };
        let gate = matrix(parts[0], inner, width)?; // [width, inner, T]
        let value = matrix(parts[1], inner, width)?;
        let down = matrix(parts[2], width, inner)?; // [inner, width, T]
        let h = self.norm.forward(ctx, x)?;
        let h = gate.mul_mat(h)?.act(Act::Silu)?.mul(value.mul_mat(h)?)?;
        down.mul_mat(h)?.add(x)
    }
}

/// Both ends.
#[derive(Debug)]
pub(super) struct Pixels {
    conv: Conv2d,
    kernel: usize,
    patch: usize,
    embedder: Linear,
    blocks: Vec<PixelBlock>,
    norm: RmsNorm,
    last: Conv2d,
    /// The network gives the picture and not the velocity.
    clean: bool,
}

impl Pixels {
    /// Below `scope`, for tokens of `width`.
    pub fn load(scope: &Scope<'_>, width: usize) -> Result<Self> {
        let [kernel, _, channels, _] = scope.need_shape("img_in_patch.weight")?;
        let [input, hidden, ..] = scope.need_shape("nerf_image_embedder.embedder.0.weight")?;
        let patch = if scope.has("__32x32__") { 32 } else { kernel };
        if patch != kernel && patch != 2 * kernel || input <= channels {
            return Err(Error::Weights(format!(
                "{}: tokens of {patch} pixels from a convolution of {kernel}, {input} inputs per pixel",
                scope.prefix()
            )));
        }
        let blocks = (0..scope.count("nerf_blocks"))
            .map(|i| PixelBlock::load(&scope.at(format!("nerf_blocks.{i}")), width, hidden))
            .collect::<Result<_>>()?;
        let end = scope.at("nerf_final_layer_conv");
        Ok(Self {
            conv: Conv2d::load(&scope.at("img_in_patch"), channels, width, kernel)?
                .with_stride(kernel)
                .with_pad([0; 4]),
            kernel,
            patch,
            embedder: Linear::load(&scope.at("nerf_image_embedder.embedder.0"), input, hidden)?,
            blocks,
            norm: RmsNorm::load(&end.at("norm"), "scale", hidden)?,
            last: Conv2d::load(&end.at("conv"), hidden, channels, 3)?,
            clean: scope.has("__x0__"),
        })
    }

    /// Channels of the picture.
    pub fn channels(&self) -> usize {
        self.conv.input()
    }

    /// Pixels along the sides of a token.
    pub fn patch(&self) -> usize {
        self.patch
    }

    /// `x` `[W, H, C]`, padded, as tokens `[C, T]`.
    pub fn tokens<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let small = if self.patch == self.kernel {
            x
        } else {
            x.interpolate(x.dim(0) / 2, x.dim(1) / 2, Interpolation::Bilinear)?
        };
        self.conv.forward(ctx, Map::from_planes(small)?)?.tokens()
    }

    /// Products of cosines over the pixels of a token, damped at high frequencies: `[f * f, pixels]`.
    pub fn cosines(&self) -> Result<HostTensor> {
        let features = self.embedder.input() - self.channels();
        let (n, patch) = (features.isqrt(), self.patch);
        if n * n != features {
            return Err(Error::Weights(format!("{features} cosines per pixel, which is no square")));
        }
        let place = |i: usize| i as f32 / (patch - 1).max(1) as f32;
        let wave = |at: f32, f: usize| (at * f as f32 * std::f32::consts::PI).cos();
        let mut data = Vec::with_capacity(features * patch * patch);
        for pixel in 0..patch * patch {
            let (x, y) = (place(pixel % patch), place(pixel / patch));
            for fx in 0..n {
                for fy in 0..n {
                    data.push(wave(x, fx) * wave(y, fy) / (1.0 + (fx * fy) as f32));
                }
            }
        }
        HostTensor::new([features, patch * patch], data)
    }

    /// `tokens` `[C, T]` and the noisy picture (padded, and as it came) to the network's output; `t` is the time.
    pub fn decode<'g>(
        &self,
        ctx: &Ctx<'g>,
        (tokens, padded, x): (Tensor<'g>, Tensor<'g>, Tensor<'g>),
        cosines: Tensor<'g>,
        t: Tensor<'g>,
    ) -> Result<Tensor<'g>> {
        let (area, channels, count) = (self.patch * self.patch, self.channels(), tokens.dim(1));
        let pixels = patchify(padded, self.patch)?.reshape([area, channels, count, 1])?;
        let pixels = pixels.transpose()?.cont()?; // [C, pixels, T]
        let waves = cosines.repeat([cosines.dim(0), area, count, 1])?;
        let mut h = self.embedder.forward(ctx, pixels.concat(waves, 0)?)?;
        for block in &self.blocks {
            h = block.forward(ctx, h, tokens)?;
        }
        let width = h.dim(0);
        let flat = h.transpose()?.cont()?.reshape([area * width, count, 1, 1])?;
        let size = [padded.dim(0), padded.dim(1)];
        let planes = unpatchify(flat, size, self.patch, PatchOrder::ChannelsSlowest)?;
        let map = Map::from_planes(planes)?;
        let normed = self.norm.forward(ctx, map.tokens()?)?;
        let map = self.last.forward(ctx, Map::from_tokens(normed, size[0], size[1])?)?;
        let out = map.planes()?.narrow(0, 0, x.dim(0))?.narrow(1, 0, x.dim(1))?.cont()?;
        if self.clean { x.sub(out)?.div(t) } else { Ok(out) }
    }
}
