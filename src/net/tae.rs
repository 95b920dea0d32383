//! Tiny autoencoders (TAESD): latents to small-cost pictures and back, in the diffusion network's own scale.
#![forbid(unsafe_code)]

use super::vae::{pack, unpack};
use crate::error::{Error, Result};
use crate::graph::{Act, Tensor};
use crate::layer::{Conv2d, Ctx, Env, GroupNorm, Map, Runner};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Scope, TypePolicy};

/// Layers are numbered below this.
const MAX_LAYERS: usize = 64;

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaeConfig {
    /// As [`super::vae::VaeConfig::pack`].
    pub pack: usize,
}

impl Default for TaeConfig {
    fn default() -> Self {
        Self { pack: 1 }
    }
}

/// A convolution of the sizes of its weight.
fn conv(scope: &Scope<'_>) -> Result<Conv2d> {
    let [kernel, _, input, output] = scope.need_shape("weight")?;
    Conv2d::load(scope, input, output, kernel)
}

/// Group norm between two 1x1 convolutions, added to its input.
#[derive(Debug)]
struct Pool {
    up: Conv2d,
    norm: GroupNorm,
    down: Conv2d,
}

/// Three convolutions with ReLU, added to their input.
#[derive(Debug)]
struct Block {
    pool: Option<Pool>,
    convs: [Conv2d; 3],
    skip: Option<Conv2d>,
}

impl Block {
    fn load(scope: &Scope<'_>) -> Result<Self> {
        let load_pool = || -> Result<Pool> {
            let up = conv(&scope.at("pool.0"))?;
            // Four groups and PyTorch's usual epsilon.
            let norm = GroupNorm::load(&scope.at("pool.1"), up.output())?.with_groups(4).with_eps(1e-5);
            Ok(Pool { up, norm, down: conv(&scope.at("pool.3"))? })
        };
        let at = |i: usize| conv(&scope.at(format!("conv.{i}")));
        Ok(Self {
            pool: scope.has_below("pool").then(load_pool).transpose()?,
            convs: [at(0)?, at(2)?, at(4)?],
            skip: scope.has_below("skip").then(|| conv(&scope.at("skip"))).transpose()?,
        })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, mut x: Map<'g>) -> Result<Map<'g>> {
        if let Some(pool) = &self.pool {
            let h = pool.norm.forward(ctx, pool.up.forward(ctx, x)?, Act::Relu)?;
            x = x.add(pool.down.forward(ctx, h)?)?;
        }
        let h = self.convs[0].forward(ctx, x)?.act(Act::Relu)?;
        let h = self.convs[1].forward(ctx, h)?.act(Act::Relu)?;
        let h = self.convs[2].forward(ctx, h)?;
        if let Some(skip) = &self.skip {
            x = skip.forward(ctx, x)?;
        }
        h.add(x)?.act(Act::Relu)
    }
}

// A few values, made once: boxes would gain nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Layer {
    Conv(Box<Conv2d>),
    Block(Box<Block>),
    Relu,
    Upsample,
}

impl Layer {
    fn load(scope: &Scope<'_>) -> Result<Option<Self>> {
        if scope.has("weight") {
            Ok(Some(Self::Conv(Box::new(conv(scope)?))))
        } else if scope.has_below("conv") {
            Ok(Some(Self::Block(Box::new(Block::load(scope)?))))
        } else {
            Ok(None)
        }
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        match self {
            Self::Conv(conv) => conv.forward(ctx, x),
            Self::Block(block) => block.forward(ctx, x),
            Self::Relu => x.act(Act::Relu),
            Self::Upsample => x.upsample(2),
        }
    }
}

/// The layers at `scope.0`, `scope.1`, ... up to the last one; `None` where a number has no weights.
fn layers(scope: &Scope<'_>) -> Result<Vec<Option<Layer>>> {
    let mut layers = (0..MAX_LAYERS).map(|i| Layer::load(&scope.at(i))).collect::<Result<Vec<_>>>()?;
    while layers.last().is_some_and(Option::is_none) {
        layers.pop();
    }
    if layers.is_empty() {
        return Err(Error::Weights(format!("{}: no tensors of a tiny autoencoder", scope.prefix())));
    }
    Ok(layers)
}

/// Half of a tiny autoencoder.
#[derive(Debug)]
pub struct TaeHalf {
    layers: Vec<Layer>,
    pack: usize,
}

impl TaeHalf {
    /// The encoder below `scope` (`tae`), in `encoder.layers`.
    pub fn encoder(scope: &Scope<'_>, config: &TaeConfig) -> Result<Self> {
        let scope = scope.at("encoder.layers");
        let layers = layers(&scope)?;
        let last = layers.len() - 1;
        let layers = layers.into_iter().enumerate().filter_map(|(i, layer)| match layer {
            // All convolutions but the first and the last halve the picture.
            Some(Layer::Conv(conv)) if i > 0 && i < last => Some(Layer::Conv(Box::new(conv.with_stride(2)))),
            other => other,
        });
        Ok(Self { layers: layers.collect(), pack: config.pack })
    }

    /// The decoder below `scope` (`tae`), in `decoder.layers`.
    pub fn decoder(scope: &Scope<'_>, config: &TaeConfig) -> Result<Self> {
        let layers = layers(&scope.at("decoder.layers"))?;
        // Numbers without weights: the activation after the first convolution, then enlargements.
        let fill = |i: usize| if i == 1 { Layer::Relu } else { Layer::Upsample };
        let layers = layers.into_iter().enumerate().map(|(i, layer)| layer.unwrap_or_else(|| fill(i)));
        Ok(Self { layers: layers.collect(), pack: config.pack })
    }

    /// Channels of the latent of a decoder.
    pub fn latent_channels(&self) -> Option<usize> {
        match self.layers.first() {
            Some(Layer::Conv(conv)) => Some(conv.input() * self.pack * self.pack),
            _ => None,
        }
    }

    /// Pixels `[W, H, 3, N]`, 0 to 1, to a latent `[W / 8, H / 8, Z, N]`.
    pub fn encode<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let h = self.layers.iter().try_fold(Map::from_planes(x)?, |h, layer| layer.forward(ctx, h))?;
        let z = h.planes()?;
        if self.pack == 1 { Ok(z) } else { pack(z, self.pack) }
    }

    /// A latent `[W, H, Z, N]` to pixels `[8 W, 8 H, 3, N]`, 0 to 1, not clamped.
    pub fn decode<'g>(&self, ctx: &Ctx<'g>, z: Tensor<'g>) -> Result<Tensor<'g>> {
        let z = if self.pack == 1 { z } else { unpack(z, self.pack)? };
        // Values beyond 3 are pressed together.
        let z = z.scale(1.0 / 3.0)?.tanh()?.scale(3.0)?;
        let h = self.layers.iter().try_fold(Map::from_planes(z)?, |h, layer| layer.forward(ctx, h))?;
        h.planes()
    }
}

/// A tiny autoencoder with its weights.
pub struct TaeModel {
    encoder: Option<(Runner, TaeHalf)>,
    decoder: (Runner, TaeHalf),
}

impl TaeModel {
    /// The network below `prefix`, without an encoder when the files have none; `fields` names the parameters that
    /// could supply it, for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: &TaeConfig,
        fields: &str,
    ) -> Result<Self> {
        let half = |name: &str, load: fn(&Scope<'_>, &TaeConfig) -> Result<TaeHalf>| {
            let loader = Loader::new(index, policy)?;
            let half = load(&loader.scope(prefix), config)?;
            Ok::<_, Error>((super::runner(loader.finish(name, fields)?), half))
        };
        let has_encoder = Loader::new(index, policy)?.scope(prefix).has_below("encoder.layers");
        let encoder =
            has_encoder.then(|| half("tiny autoencoder's encoder", TaeHalf::encoder)).transpose()?;
        Ok(Self { encoder, decoder: half("tiny autoencoder's decoder", TaeHalf::decoder)? })
    }

    /// Whether it can encode.
    pub fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    /// The decoder.
    pub fn decoder(&self) -> &TaeHalf {
        &self.decoder.1
    }

    /// Weights and graphs of both halves.
    pub fn runners(&mut self) -> impl Iterator<Item = &mut Runner> {
        std::iter::once(&mut self.decoder.0).chain(self.encoder.as_mut().map(|(runner, _)| runner))
    }

    /// The latent of pixels in 0 to 1, see [`TaeHalf::encode`].
    pub fn encode(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        let (runner, half) = self.encoder.as_mut().ok_or_else(|| {
            Error::invalid("the tiny autoencoder has no encoder, which an input image needs: see taesd_path")
        })?;
        super::run_one(runner, env, pixels, |ctx, x| half.encode(ctx, x))
    }

    /// Pixels of a latent, see [`TaeHalf::decode`].
    pub fn decode(&mut self, env: &Env<'_>, latent: &HostTensor) -> Result<HostTensor> {
        let (runner, half) = &mut self.decoder;
        super::run_one(runner, env, latent, |ctx, z| half.decode(ctx, z))
    }
}
