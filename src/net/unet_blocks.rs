//! Blocks of UNets: residual blocks and transformers over feature maps (latent diffusion's `openaimodel.py`).
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::graph::{Act, Tensor};
use crate::layer::{Conv2d, Ctx, GroupNorm, LayerNorm, Linear, Map, attention};
use crate::weights::{Role, Scope};

/// How the width of an attention is split into heads, which no shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// So many heads at every level.
    Count(usize),
    /// Heads of this width.
    Width(usize),
}

impl Heads {
    /// Number of heads for `width` channels.
    pub fn of(self, width: usize) -> usize {
        match self {
            Self::Count(n) => n.max(1),
            Self::Width(w) => (width / w.max(1)).max(1),
        }
    }
}

/// What all blocks of a forward pass share.
#[derive(Clone, Copy)]
pub(super) struct Conditions<'g> {
    /// Activated embedding of time and labels `[E, N]`.
    pub time: Tensor<'g>,
    /// Text `[C, L, N]`.
    pub context: Tensor<'g>,
}

/// A map that is normalised, activated and convolved twice, with the time added in between.
#[derive(Debug)]
pub(super) struct ResBlock {
    norm_in: GroupNorm,
    conv_in: Conv2d,
    time: Linear,
    norm_out: GroupNorm,
    conv_out: Conv2d,
    skip: Option<Conv2d>,
}

impl ResBlock {
    pub fn load(scope: &Scope<'_>, input: usize, time: usize) -> Result<Self> {
        let output = scope.need_shape("in_layers.2.weight")?[3];
        let skip = (input != output || scope.has("skip_connection.weight"))
            .then(|| Conv2d::load(&scope.at("skip_connection"), input, output, 1))
            .transpose()?;
        Ok(Self {
            norm_in: GroupNorm::load(&scope.at("in_layers.0"), input)?,
            conv_in: Conv2d::load(&scope.at("in_layers.2"), input, output, 3)?,
            time: Linear::load(&scope.at("emb_layers.1"), time, output)?,
            norm_out: GroupNorm::load(&scope.at("out_layers.0"), output)?,
            conv_out: Conv2d::load(&scope.at("out_layers.3"), output, output, 3)?,
            skip,
        })
    }

    pub fn output(&self) -> usize {
        self.conv_in.output()
    }

    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>, time: Tensor<'g>) -> Result<Map<'g>> {
        let h = self.conv_in.forward(ctx, self.norm_in.forward(ctx, x, Act::Silu)?)?;
        let h = h.add_channels(self.time.forward(ctx, time)?)?;
        let h = self.conv_out.forward(ctx, self.norm_out.forward(ctx, h, Act::Silu)?)?;
        let x = match &self.skip {
            Some(skip) => skip.forward(ctx, x)?,
            None => x,
        };
        h.add(x)
    }
}

/// A matrix stored as such or as a 1x1 convolution, applied to tokens.
pub(super) fn pointwise(scope: &Scope<'_>, input: usize, output: usize) -> Result<Linear> {
    let convolution = scope.shape("weight").is_some_and(|s| s[0] == 1 && s[1] == 1 && s[2] == input);
    // Kernels keep a plain type, as the recorded library does when it converts.
    let role = if convolution { Role::Kernel } else { Role::Matrix };
    let weight = scope.weight("weight", &[input, output], role)?;
    Ok(Linear::new(weight, Some(scope.weight("bias", &[output], Role::Vector)?)))
}

/// Queries from `x`, keys and values from a context or from `x` itself.
#[derive(Debug)]
struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    heads: usize,
}

impl Attention {
    /// Keys of width `source`, from the shape of `to_k`, or `width` when it is missing.
    fn load(scope: &Scope<'_>, width: usize, heads: Heads) -> Result<Self> {
        let source = scope.shape("to_k.weight").map_or(width, |s| s[0]);
        let heads = heads.of(width);
        if !width.is_multiple_of(heads) {
            return Err(Error::Weights(format!(
                "{}: {heads} heads do not divide its width of {width}",
                scope.prefix()
            )));
        }
        Ok(Self {
            q: Linear::load_no_bias(&scope.at("to_q"), width, width)?,
            k: Linear::load_no_bias(&scope.at("to_k"), source, width)?,
            v: Linear::load_no_bias(&scope.at("to_v"), source, width)?,
            out: Linear::load(&scope.at("to_out.0"), width, width)?,
            heads,
        })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, source: Tensor<'g>) -> Result<Tensor<'g>> {
        let q = self.q.forward(ctx, x)?;
        let (k, v) = (self.k.forward(ctx, source)?, self.v.forward(ctx, source)?);
        self.out.forward(ctx, attention(q, k, v, self.heads, None)?)
    }
}

/// Attention to itself, attention to the text, gated feed-forward.
#[derive(Debug)]
struct Layer {
    norms: [LayerNorm; 3],
    own: Attention,
    cross: Attention,
    gate: Linear,
    down: Linear,
}

impl Layer {
    fn load(scope: &Scope<'_>, width: usize, heads: Heads) -> Result<Self> {
        let norm = |i: usize| LayerNorm::load(&scope.at(format!("norm{i}")), width);
        let inner = scope.shape("ff.net.2.weight").map_or(4 * width, |s| s[0]);
        Ok(Self {
            norms: [norm(1)?, norm(2)?, norm(3)?],
            own: Attention::load(&scope.at("attn1"), width, heads)?,
            cross: Attention::load(&scope.at("attn2"), width, heads)?,
            gate: Linear::load(&scope.at("ff.net.0.proj"), width, 2 * inner)?,
            down: Linear::load(&scope.at("ff.net.2"), inner, width)?,
        })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, context: Tensor<'g>) -> Result<Tensor<'g>> {
        let h = self.norms[0].forward(ctx, x)?;
        // In models trained with `only_cross_attention` the first attention looks at the text too.
        let source = if self.own.k.input() == self.own.q.input() { h } else { context };
        let x = x.add(self.own.forward(ctx, h, source)?)?;
        let x = x.add(self.cross.forward(ctx, self.norms[1].forward(ctx, x)?, context)?)?;
        let h = self.gate.forward(ctx, self.norms[2].forward(ctx, x)?)?.glu(Act::GeluErf, false)?;
        x.add(self.down.forward(ctx, h)?)
    }
}

/// Transformer layers over the pixels of a map.
#[derive(Debug)]
pub(super) struct SpatialTransformer {
    norm: GroupNorm,
    proj_in: Linear,
    layers: Vec<Layer>,
    proj_out: Linear,
}

impl SpatialTransformer {
    pub fn load(scope: &Scope<'_>, channels: usize, heads: Heads) -> Result<Self> {
        let layers = (0..scope.count("transformer_blocks"))
            .map(|i| Layer::load(&scope.at(format!("transformer_blocks.{i}")), channels, heads))
            .collect::<Result<_>>()?;
        Ok(Self {
            norm: GroupNorm::load(&scope.at("norm"), channels)?,
            proj_in: pointwise(&scope.at("proj_in"), channels, channels)?,
            layers,
            proj_out: pointwise(&scope.at("proj_out"), channels, channels)?,
        })
    }

    /// Width of the text it attends to.
    pub fn context(&self) -> Option<usize> {
        self.layers.first().map(|layer| layer.cross.k.input())
    }

    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>, context: Tensor<'g>) -> Result<Map<'g>> {
        let tokens = self.norm.forward(ctx, x, Act::None)?.tokens()?;
        let mut h = self.proj_in.forward(ctx, tokens)?;
        for layer in &self.layers {
            h = layer.forward(ctx, h, context)?;
        }
        let h = self.proj_out.forward(ctx, h)?;
        Map::from_tokens(h, x.width(), x.height())?.add(x)
    }
}

/// One module of a block, told by the names below it.
#[derive(Debug)]
pub(super) enum Module {
    Conv(Conv2d),
    Res(Box<ResBlock>),
    Transformer(Box<SpatialTransformer>),
    /// Halves the map.
    Down(Conv2d),
    /// Doubles the map.
    Up(Conv2d),
}

impl Module {
    /// The module at `scope`, if there is one; `channels` is what it gets.
    pub fn load(scope: &Scope<'_>, channels: usize, time: usize, heads: Heads) -> Result<Option<Self>> {
        let same = |name: &str| Conv2d::load(&scope.at(name), channels, channels, 3);
        Ok(if scope.has_below("in_layers") {
            Some(Self::Res(Box::new(ResBlock::load(scope, channels, time)?)))
        } else if scope.has_below("transformer_blocks") {
            Some(Self::Transformer(Box::new(SpatialTransformer::load(scope, channels, heads)?)))
        } else if scope.has_below("op") {
            Some(Self::Down(same("op")?.with_stride(2)))
        } else if scope.has_below("conv") {
            Some(Self::Up(same("conv")?))
        } else if scope.has("weight") {
            let output = scope.need_shape("weight")?[3];
            Some(Self::Conv(Conv2d::load(scope, channels, output, 3)?))
        } else {
            None
        })
    }

    /// Channels it gives for `channels`.
    pub fn output(&self, channels: usize) -> usize {
        match self {
            Self::Conv(conv) => conv.output(),
            Self::Res(block) => block.output(),
            Self::Transformer(_) | Self::Down(_) | Self::Up(_) => channels,
        }
    }

    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>, given: Conditions<'g>) -> Result<Map<'g>> {
        match self {
            Self::Conv(conv) | Self::Down(conv) => conv.forward(ctx, x),
            Self::Res(block) => block.forward(ctx, x, given.time),
            Self::Transformer(block) => block.forward(ctx, x, given.context),
            Self::Up(conv) => conv.forward(ctx, x.upsample(2)?),
        }
    }
}

/// Modules one after the other.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub modules: Vec<Module>,
}

impl Block {
    /// The modules at `scope.0`, `scope.1`, ... (gaps are allowed), for a map of `channels`; sets `channels` to
    /// what comes out.
    pub fn load(scope: &Scope<'_>, channels: &mut usize, time: usize, heads: Heads) -> Result<Self> {
        let mut modules = Vec::new();
        for i in 0..4 {
            if let Some(module) = Module::load(&scope.at(i), *channels, time, heads)? {
                *channels = module.output(*channels);
                modules.push(module);
            }
        }
        Ok(Self { modules })
    }

    /// Whether it begins with a residual block, which in the second half of a UNet takes a map of the first.
    pub fn takes_skip(scope: &Scope<'_>) -> bool {
        scope.has_below("0.in_layers")
    }

    pub fn context(&self) -> Option<usize> {
        self.modules.iter().find_map(|module| match module {
            Module::Transformer(block) => block.context(),
            _ => None,
        })
    }

    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>, given: Conditions<'g>) -> Result<Map<'g>> {
        self.modules.iter().try_fold(x, |x, module| module.forward(ctx, x, given))
    }
}
