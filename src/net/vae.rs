//! The variational autoencoder of latent diffusion (KL regularised), for images.
#![forbid(unsafe_code)]

use super::unet_blocks::pointwise;
use crate::error::{Error, Result};
use crate::graph::{Act, Tensor};
use crate::layer::{Conv2d, Ctx, Env, GroupNorm, Linear, Map, Runner, attention};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Part, Scope, TypePolicy};

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VaeConfig {
    /// Convolutions divide their input and multiply their output by this; 1 changes nothing. Networks whose
    /// values exceed half precision want 32.
    pub range: f32,
    /// The latent outside has squares of `pack` x `pack` pixels of the network's latent in its channels
    /// (channel = c * pack^2 + row * pack + column).
    pub pack: usize,
}

impl Default for VaeConfig {
    fn default() -> Self {
        Self { range: 1.0, pack: 1 }
    }
}

/// Loads layers with the network's range.
#[derive(Clone, Copy)]
struct Builder {
    range: f32,
}

impl Builder {
    fn conv(self, scope: &Scope<'_>, input: usize, output: usize, kernel: usize) -> Result<Conv2d> {
        Ok(Conv2d::load(scope, input, output, kernel)?.with_range(self.range))
    }

    /// A convolution whose sizes come from its weight.
    fn conv_of(self, scope: &Scope<'_>) -> Result<Conv2d> {
        let [kernel, _, input, output] = scope.need_shape("weight")?;
        self.conv(scope, input, output, kernel)
    }

    fn point(self, scope: &Scope<'_>, channels: usize) -> Result<Linear> {
        Ok(pointwise(scope, channels, channels)?.with_range(self.range))
    }

    fn norm(self, scope: &Scope<'_>, channels: usize) -> Result<GroupNorm> {
        GroupNorm::load(scope, channels)
    }
}

#[derive(Debug)]
struct ResnetBlock {
    norms: [GroupNorm; 2],
    convs: [Conv2d; 2],
    shortcut: Option<Conv2d>,
}

impl ResnetBlock {
    fn load(build: Builder, scope: &Scope<'_>, channels: &mut usize) -> Result<Self> {
        let input = *channels;
        let output = scope.need_shape("conv1.weight")?[3];
        *channels = output;
        let shortcut =
            (input != output).then(|| build.conv(&scope.at("nin_shortcut"), input, output, 1)).transpose()?;
        Ok(Self {
            norms: [build.norm(&scope.at("norm1"), input)?, build.norm(&scope.at("norm2"), output)?],
            convs: [
                build.conv(&scope.at("conv1"), input, output, 3)?,
                build.conv(&scope.at("conv2"), output, output, 3)?,
            ],
            shortcut,
        })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        let mut h = x;
        for (norm, conv) in self.norms.iter().zip(&self.convs) {
            h = conv.forward(ctx, norm.forward(ctx, h, Act::Silu)?)?;
        }
        match &self.shortcut {
            Some(shortcut) => h.add(shortcut.forward(ctx, x)?),
            None => h.add(x),
        }
    }
}

/// Attention of one head over all pixels.
#[derive(Debug)]
struct AttnBlock {
    norm: GroupNorm,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
}

impl AttnBlock {
    fn load(build: Builder, scope: &Scope<'_>, channels: usize) -> Result<Self> {
        let point = |name: &str| build.point(&scope.at(name), channels);
        Ok(Self {
            norm: build.norm(&scope.at("norm"), channels)?,
            q: point("q")?,
            k: point("k")?,
            v: point("v")?,
            out: point("proj_out")?,
        })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        let h = self.norm.forward(ctx, x, Act::None)?.tokens()?;
        let (q, k, v) = (self.q.forward(ctx, h)?, self.k.forward(ctx, h)?, self.v.forward(ctx, h)?);
        let h = self.out.forward(ctx, attention(q, k, v, 1, None)?)?;
        Map::from_tokens(h, x.width(), x.height())?.add(x)
    }
}

#[derive(Debug)]
struct Middle {
    first: ResnetBlock,
    attn: Option<AttnBlock>,
    second: ResnetBlock,
}

impl Middle {
    fn load(build: Builder, scope: &Scope<'_>, channels: &mut usize) -> Result<Self> {
        let first = ResnetBlock::load(build, &scope.at("block_1"), channels)?;
        let attn = scope
            .has_below("attn_1")
            .then(|| AttnBlock::load(build, &scope.at("attn_1"), *channels))
            .transpose()?;
        Ok(Self { first, attn, second: ResnetBlock::load(build, &scope.at("block_2"), channels)? })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        let mut h = self.first.forward(ctx, x)?;
        if let Some(attn) = &self.attn {
            h = attn.forward(ctx, h)?;
        }
        self.second.forward(ctx, h)
    }
}

/// Blocks of one resolution and the convolution that leads to the next.
#[derive(Debug)]
struct Level {
    blocks: Vec<ResnetBlock>,
    resize: Option<Conv2d>,
}

impl Level {
    fn load(build: Builder, scope: &Scope<'_>, resize: &str, channels: &mut usize) -> Result<Self> {
        let blocks = (0..scope.count("block"))
            .map(|i| ResnetBlock::load(build, &scope.at(format!("block.{i}")), channels))
            .collect::<Result<_>>()?;
        let resize = scope
            .has_below(resize)
            .then(|| build.conv(&scope.at(resize).at("conv"), *channels, *channels, 3))
            .transpose()?;
        Ok(Self { blocks, resize })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        self.blocks.iter().try_fold(x, |x, block| block.forward(ctx, x))
    }
}

/// Pixels to the moments of a latent.
#[derive(Debug)]
pub struct VaeEncoder {
    conv_in: Conv2d,
    levels: Vec<Level>,
    middle: Middle,
    norm: GroupNorm,
    conv_out: Conv2d,
    quant: Option<Conv2d>,
    pack: usize,
}

impl VaeEncoder {
    /// The network below `scope` (`first_stage_model`), in `encoder` and `quant_conv`.
    pub fn load(scope: &Scope<'_>, config: &VaeConfig) -> Result<Self> {
        let build = Builder { range: config.range };
        let encoder = scope.at("encoder");
        let conv_in = build.conv_of(&encoder.at("conv_in"))?;
        let mut channels = conv_in.output();
        let mut levels = Vec::new();
        for i in 0..encoder.count("down") {
            let mut level =
                Level::load(build, &encoder.at(format!("down.{i}")), "downsample", &mut channels)?;
            // Zeros at the right and the bottom only.
            level.resize = level.resize.map(|conv| conv.with_stride(2).with_pad([0, 1, 0, 1]));
            levels.push(level);
        }
        let middle = Middle::load(build, &encoder.at("mid"), &mut channels)?;
        let output = encoder.need_shape("conv_out.weight")?[3];
        let quant =
            scope.has_below("quant_conv").then(|| build.conv_of(&scope.at("quant_conv"))).transpose()?;
        Ok(Self {
            conv_in,
            levels,
            middle,
            norm: build.norm(&encoder.at("norm_out"), channels)?,
            conv_out: build.conv(&encoder.at("conv_out"), channels, output, 3)?,
            quant,
            pack: config.pack,
        })
    }

    /// Pixels per pixel of the latent that goes out, along one axis.
    pub fn factor(&self) -> usize {
        self.pack << self.levels.iter().filter(|level| level.resize.is_some()).count()
    }

    /// `[W, H, 3, N]` to the moments `[W / f, H / f, 2 Z, N]`: means, then log variances. When packed, the means
    /// alone.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let mut h = self.conv_in.forward(ctx, Map::from_planes(x)?)?;
        for (i, level) in self.levels.iter().enumerate() {
            h = level.forward(ctx, h)?;
            if let Some(conv) = &level.resize {
                h = conv.forward(ctx, h)?;
            }
            ctx.graph.cut(&format!("encoder.down.{i}"), h.tensor());
        }
        h = self.middle.forward(ctx, h)?;
        h = self.conv_out.forward(ctx, self.norm.forward(ctx, h, Act::Silu)?)?;
        if let Some(quant) = &self.quant {
            h = quant.forward(ctx, h)?;
        }
        let moments = h.planes()?;
        if self.pack == 1 { Ok(moments) } else { pack(moments.chunks(2, 2)?[0], self.pack) }
    }
}

/// A latent to pixels.
#[derive(Debug)]
pub struct VaeDecoder {
    quant: Option<Conv2d>,
    conv_in: Conv2d,
    middle: Middle,
    /// In the order they are applied: smallest maps first.
    levels: Vec<Level>,
    norm: GroupNorm,
    conv_out: Conv2d,
    pack: usize,
}

impl VaeDecoder {
    /// The network below `scope` (`first_stage_model`), in `decoder` and `post_quant_conv`.
    pub fn load(scope: &Scope<'_>, config: &VaeConfig) -> Result<Self> {
        let build = Builder { range: config.range };
        let decoder = scope.at("decoder");
        let conv_in = build.conv_of(&decoder.at("conv_in"))?;
        let mut channels = conv_in.output();
        let middle = Middle::load(build, &decoder.at("mid"), &mut channels)?;
        let levels = (0..decoder.count("up"))
            .rev()
            .map(|i| Level::load(build, &decoder.at(format!("up.{i}")), "upsample", &mut channels))
            .collect::<Result<_>>()?;
        let output = decoder.need_shape("conv_out.weight")?[3];
        let quant = scope
            .has_below("post_quant_conv")
            .then(|| build.conv_of(&scope.at("post_quant_conv")))
            .transpose()?;
        Ok(Self {
            quant,
            conv_in,
            middle,
            levels,
            norm: build.norm(&decoder.at("norm_out"), channels)?,
            conv_out: build.conv(&decoder.at("conv_out"), channels, output, 3)?,
            pack: config.pack,
        })
    }

    /// Channels of the latent that comes in.
    pub fn latent_channels(&self) -> usize {
        self.quant.as_ref().map_or(self.conv_in.input(), Conv2d::input) * self.pack * self.pack
    }

    /// Pixels per pixel of the latent that comes in, along one axis.
    pub fn factor(&self) -> usize {
        self.pack << self.levels.iter().filter(|level| level.resize.is_some()).count()
    }

    /// `[W, H, Z, N]` to `[W f, H f, 3, N]`, about -1 to 1, not clamped.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, z: Tensor<'g>) -> Result<Tensor<'g>> {
        let z = if self.pack == 1 { z } else { unpack(z, self.pack)? };
        let mut h = Map::from_planes(z)?;
        if let Some(quant) = &self.quant {
            h = quant.forward(ctx, h)?;
        }
        h = self.middle.forward(ctx, self.conv_in.forward(ctx, h)?)?;
        ctx.graph.cut("decoder.mid", h.tensor());
        for (i, level) in self.levels.iter().enumerate() {
            h = level.forward(ctx, h)?;
            if let Some(conv) = &level.resize {
                h = conv.forward(ctx, h.upsample(2)?)?;
            }
            ctx.graph.cut(&format!("decoder.up.{}", self.levels.len() - 1 - i), h.tensor());
        }
        self.conv_out.forward(ctx, self.norm.forward(ctx, h, Act::Silu)?)?.planes()
    }
}

/// Channels of `p` x `p` squares to squares: `[w, h, C p^2, N]` to `[w p, h p, C, N]`.
pub(super) fn unpack(z: Tensor<'_>, p: usize) -> Result<Tensor<'_>> {
    let [w, h, c, n] = z.shape();
    let c = c / (p * p);
    let squares = z.reshape([w * h, p * p, c, n])?.permute([1, 0, 2, 3])?.cont()?;
    squares.reshape([p, p, w, h * c * n])?.permute([0, 2, 1, 3])?.cont()?.reshape([w * p, h * p, c, n])
}

/// The inverse of [`unpack`].
pub(super) fn pack(z: Tensor<'_>, p: usize) -> Result<Tensor<'_>> {
    let [w, h, c, n] = z.shape();
    let (w, h) = (w / p, h / p);
    let squares = z.reshape([p, w, p, h * c * n])?.permute([0, 2, 1, 3])?.cont()?;
    squares.reshape([p * p, w * h, c, n])?.permute([1, 0, 2, 3])?.cont()?.reshape([w, h, c * p * p, n])
}

/// An autoencoder with its weights; both halves are loaded when they are needed.
pub struct VaeModel {
    encoder: Option<(Runner, VaeEncoder)>,
    decoder: (Runner, VaeDecoder),
}

impl VaeModel {
    /// The network below `prefix`, without an encoder when the files have none; `fields` names the parameters that
    /// could supply it, for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: &VaeConfig,
        fields: &str,
    ) -> Result<Self> {
        let finish = |loader: Loader<'_>, name: &str| -> Result<Part> { loader.finish(name, fields) };
        let loader = Loader::new(index, policy)?;
        let has_encoder = loader.scope(prefix).has_below("encoder");
        let decoder = VaeDecoder::load(&loader.scope(prefix), config)?;
        let decoder = (super::runner(finish(loader, "VAE decoder")?), decoder);
        let encoder = has_encoder
            .then(|| {
                let loader = Loader::new(index, policy)?;
                let encoder = VaeEncoder::load(&loader.scope(prefix), config)?;
                Ok::<_, Error>((super::runner(finish(loader, "VAE encoder")?), encoder))
            })
            .transpose()?;
        Ok(Self { encoder, decoder })
    }

    /// The encoder, if there is one.
    pub fn encoder(&self) -> Option<&VaeEncoder> {
        self.encoder.as_ref().map(|(_, encoder)| encoder)
    }

    /// The decoder.
    pub fn decoder(&self) -> &VaeDecoder {
        &self.decoder.1
    }

    /// Weights and graphs of both halves.
    pub fn runners(&mut self) -> impl Iterator<Item = &mut Runner> {
        std::iter::once(&mut self.decoder.0).chain(self.encoder.as_mut().map(|(runner, _)| runner))
    }

    /// Moments of the latent of `pixels`, see [`VaeEncoder::forward`].
    pub fn encode(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        let (runner, encoder) = self.encoder.as_mut().ok_or_else(|| {
            Error::invalid("the VAE has no encoder, which an input image needs: give one by vae_path")
        })?;
        super::run_one(runner, env, pixels, |ctx, x| encoder.forward(ctx, x))
    }

    /// Pixels of a latent, see [`VaeDecoder::forward`].
    pub fn decode(&mut self, env: &Env<'_>, latent: &HostTensor) -> Result<HostTensor> {
        let (runner, decoder) = &mut self.decoder;
        super::run_one(runner, env, latent, |ctx, z| decoder.forward(ctx, z))
    }
}
