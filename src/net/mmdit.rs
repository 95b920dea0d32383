//! The multimodal diffusion transformer (Esser et al. 2024) and its variant with a second image attention.
#![forbid(unsafe_code)]

use super::dit::{EPS, Embedder, Modulation, PatchOrder, heads_of, unpatchify};
use crate::error::{Error, Result};
use crate::graph::{Act, Input, Tensor, Weight};
use crate::layer::{Conv2d, Ctx, Env, LayerNorm, Linear, Map, RmsNorm, Runner, timestep_embedding};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Role, Scope, TypePolicy};

/// Width of the sinusoids of time.
const TIME_WIDTH: usize = 256;
/// Longest period of the sinusoids.
const MAX_PERIOD: f32 = 10000.0;

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmditConfig {
    /// Models of at least so many blocks have as many heads as blocks.
    pub full_depth: usize,
    /// Width of a head in models of fewer blocks.
    pub head: usize,
}

impl MmditConfig {
    fn heads(self, depth: usize, width: usize) -> usize {
        if depth >= self.full_depth { depth } else { (width / self.head.max(1)).max(1) }
    }
}

/// Norm of queries and keys.
#[derive(Debug)]
enum HeadNorm {
    Rms(RmsNorm),
    Layer(LayerNorm),
}

impl HeadNorm {
    fn load(scope: &Scope<'_>, name: &str, width: usize) -> Result<Option<Self>> {
        if !scope.has(format!("{name}.weight")) {
            return Ok(None);
        }
        let scope = scope.at(name);
        Ok(Some(if scope.has("bias") {
            Self::Layer(LayerNorm::load(&scope, width)?.with_eps(EPS))
        } else {
            Self::Rms(RmsNorm::load(&scope, "weight", width)?)
        }))
    }

    fn forward<'g>(norm: &Option<Self>, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        match norm {
            None => Ok(x),
            Some(Self::Rms(norm)) => norm.forward(ctx, x),
            Some(Self::Layer(norm)) => norm.forward(ctx, x),
        }
    }
}

/// Projections of one attention.
#[derive(Debug)]
struct Attention {
    qkv: Linear,
    norms: [Option<HeadNorm>; 2],
    /// Absent where nothing follows.
    out: Option<Linear>,
    heads: usize,
}

impl Attention {
    fn load(scope: &Scope<'_>, width: usize, heads: usize) -> Result<Self> {
        if !width.is_multiple_of(heads) {
            let message = format!("{}: {heads} heads do not divide the width {width}", scope.prefix());
            return Err(Error::Weights(message));
        }
        let head = width / heads;
        let out = scope.has("proj.weight").then(|| Linear::load(&scope.at("proj"), width, width));
        Ok(Self {
            qkv: Linear::load_any_bias(&scope.at("qkv"), width, 3 * width)?,
            norms: [HeadNorm::load(scope, "ln_q", head)?, HeadNorm::load(scope, "ln_k", head)?],
            out: out.transpose()?,
            heads,
        })
    }

    /// Queries, keys and values `[D, heads, L]` of `x` `[C, L]`.
    fn project<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<[Tensor<'g>; 3]> {
        let qkv = self.qkv.forward(ctx, x)?;
        let width = qkv.dim(0) / 3;
        let part = |i: usize| heads_of(qkv, i * width, self.heads, width / self.heads);
        Ok([
            HeadNorm::forward(&self.norms[0], ctx, part(0)?)?,
            HeadNorm::forward(&self.norms[1], ctx, part(1)?)?,
            part(2)?,
        ])
    }

    fn output<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        self.out.as_ref().map_or(Ok(x), |out| out.forward(ctx, x))
    }
}

/// Attention over q, k and v of `[D, heads, L]`: `[C, L]`.
fn attend<'g>([q, k, v]: [Tensor<'g>; 3]) -> Result<Tensor<'g>> {
    let scale = 1.0 / (q.dim(0) as f32).sqrt();
    let [q, k, v] = [q.permute([0, 2, 1, 3])?, k.permute([0, 2, 1, 3])?, v.permute([0, 2, 1, 3])?];
    q.attention(k, v, None, scale)
}

/// One of the two streams of a block.
#[derive(Debug)]
struct Stream {
    modulation: Linear,
    attention: Attention,
    /// Attention of the stream to itself alone.
    second: Option<Attention>,
    /// Absent in the text stream of the last block, whose result is not used.
    feed: Option<[Linear; 2]>,
}

/// What a stream hands to the joint attention.
struct Prepared<'g> {
    mods: Vec<Modulation<'g>>,
    qkv: [Tensor<'g>; 3],
    second: Option<[Tensor<'g>; 3]>,
}

impl Stream {
    fn load(scope: &Scope<'_>, width: usize, heads: usize) -> Result<Self> {
        let has_second = scope.has_below("attn2");
        let has_feed = scope.has_below("mlp");
        let second = has_second.then(|| Attention::load(&scope.at("attn2"), width, heads)).transpose()?;
        let vectors = if !has_feed {
            2
        } else if has_second {
            9
        } else {
            6
        };
        let feed = if has_feed {
            let inner = scope.shape("mlp.fc1.weight").map_or(4 * width, |s| s[1]);
            Some([
                Linear::load(&scope.at("mlp.fc1"), width, inner)?,
                Linear::load(&scope.at("mlp.fc2"), inner, width)?,
            ])
        } else {
            None
        };
        Ok(Self {
            modulation: Linear::load(&scope.at("adaLN_modulation.1"), width, vectors * width)?,
            attention: Attention::load(&scope.at("attn"), width, heads)?,
            second,
            feed,
        })
    }

    /// `x` `[C, L]`, `c` `[C]` with its activation applied.
    fn prepare<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, c: Tensor<'g>) -> Result<Prepared<'g>> {
        let vectors = self.modulation.forward(ctx, c)?;
        let vectors = vectors.chunks(0, vectors.dim(0) / c.dim(0))?;
        let mods = vectors.chunks(3).map(Modulation::of).collect::<Result<Vec<_>>>()?;
        let normed = LayerNorm::plain(EPS).forward(ctx, x)?;
        let qkv = self.attention.project(ctx, mods[0].modulate(normed)?)?;
        let second = match &self.second {
            Some(second) => Some(second.project(ctx, mods[2].modulate(normed)?)?),
            None => None,
        };
        Ok(Prepared { mods, qkv, second })
    }

    fn finish<'g>(
        &self,
        ctx: &Ctx<'g>,
        x: Tensor<'g>,
        prepared: Prepared<'g>,
        attended: Tensor<'g>,
    ) -> Result<Tensor<'g>> {
        let Some([up, down]) = &self.feed else { return Ok(x) };
        let mods = &prepared.mods;
        let mut x = mods[0].join(x, self.attention.output(ctx, attended)?)?;
        if let (Some(second), Some(qkv)) = (&self.second, prepared.second) {
            x = mods[2].join(x, second.output(ctx, attend(qkv)?)?)?;
        }
        let h = up.forward_act(ctx, mods[1].apply(ctx, x)?, Act::Gelu)?;
        mods[1].join(x, down.forward(ctx, h)?)
    }
}

/// Text and image streams with their joint attention.
#[derive(Debug)]
struct JointBlock {
    text: Stream,
    image: Stream,
}

impl JointBlock {
    /// `[text, image]`, each `[C, L]`.
    fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        [text, image]: [Tensor<'g>; 2],
        c: Tensor<'g>,
    ) -> Result<[Tensor<'g>; 2]> {
        let of_text = self.text.prepare(ctx, text, c)?;
        let of_image = self.image.prepare(ctx, image, c)?;
        let join = |i: usize| of_text.qkv[i].concat(of_image.qkv[i], 2);
        let attended = attend([join(0)?, join(1)?, join(2)?])?;
        let length = text.dim(1);
        let for_text = attended.narrow(1, 0, length)?;
        let for_image = attended.narrow(1, length, image.dim(1))?;
        let text = self.text.finish(ctx, text, of_text, for_text)?;
        Ok([text, self.image.finish(ctx, image, of_image, for_image)?])
    }
}

/// The transformer.
#[derive(Debug)]
pub struct Mmdit {
    patches: Conv2d,
    patch: usize,
    /// `[C, side * side]`.
    positions: Weight,
    side: usize,
    time: Embedder,
    label: Option<Embedder>,
    context: Linear,
    blocks: Vec<JointBlock>,
    last_modulation: Linear,
    last: Linear,
}

/// What one evaluation takes.
#[derive(Clone, Copy, Debug)]
pub struct MmditInput<'a> {
    /// Latent `[W, H, C, 1]`.
    pub x: &'a HostTensor,
    /// Time, 0 to 1000.
    pub t: f32,
    /// Text states `[C, L]`.
    pub context: &'a HostTensor,
    /// Pooled text.
    pub y: Option<&'a HostTensor>,
    /// Blocks to leave out.
    pub skip_layers: &'a [i32],
}

impl Mmdit {
    /// The network below `scope` (`model.diffusion_model`).
    pub fn load(scope: &Scope<'_>, config: MmditConfig) -> Result<Self> {
        let [patch, _, channels, width] = scope.need_shape("x_embedder.proj.weight")?;
        let depth = scope.count("joint_blocks");
        let heads = config.heads(depth, width);
        let blocks = (0..depth)
            .map(|i| {
                let block = scope.at(format!("joint_blocks.{i}"));
                Ok(JointBlock {
                    text: Stream::load(&block.at("context_block"), width, heads)?,
                    image: Stream::load(&block.at("x_block"), width, heads)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let places = scope.need_shape("pos_embed")?[1];
        let side = places.isqrt();
        if side * side != places {
            return Err(Error::Weights(format!("pos_embed has {places} positions, which is no square")));
        }
        let mlp = ["mlp.0", "mlp.2"];
        let label = scope.shape("y_embedder.mlp.0.weight");
        let output = scope.need_shape("final_layer.linear.weight")?[1];
        let context = scope.need_shape("context_embedder.weight")?[0];
        Ok(Self {
            patches: Conv2d::load(&scope.at("x_embedder.proj"), channels, width, patch)?
                .with_stride(patch)
                .with_pad([0; 4]),
            patch,
            positions: scope.weight("pos_embed", &[width, places], Role::Vector)?,
            side,
            time: Embedder::load(&scope.at("t_embedder"), mlp, TIME_WIDTH)?,
            label: label.map(|s| Embedder::load(&scope.at("y_embedder"), mlp, s[0])).transpose()?,
            context: Linear::load(&scope.at("context_embedder"), context, width)?,
            blocks,
            last_modulation: Linear::load(&scope.at("final_layer.adaLN_modulation.1"), width, 2 * width)?,
            last: Linear::load(&scope.at("final_layer.linear"), width, output)?,
        })
    }

    /// Channels of the latent.
    pub fn channels(&self) -> usize {
        self.last.output() / (self.patch * self.patch)
    }

    /// Width of the text states.
    pub fn context_width(&self) -> usize {
        self.context.input()
    }

    /// Width of the pooled text.
    pub fn label_width(&self) -> Option<usize> {
        self.label.as_ref().map(Embedder::input)
    }

    /// The middle of the position table for `w` x `h` patches: `[C, w * h]`.
    fn crop<'g>(&self, ctx: &Ctx<'g>, w: usize, h: usize) -> Result<Tensor<'g>> {
        let side = self.side;
        if w > side || h > side {
            let largest = side * self.patch;
            return Err(Error::invalid(format!(
                "width, height: the position table of the model ends at latents of {largest} x {largest}"
            )));
        }
        let table = ctx.weight(&self.positions);
        let width = table.dim(0);
        let table = table.reshape([width, side, side, 1])?;
        let part = table.narrow(2, (side - h) / 2, h)?.narrow(1, (side - w) / 2, w)?;
        part.reshape([width, w * h, 1, 1])
    }

    fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        (x, time, context, y): (Tensor<'g>, Tensor<'g>, Tensor<'g>, Option<Tensor<'g>>),
        skip: &[i32],
    ) -> Result<Tensor<'g>> {
        let size = [x.dim(0), x.dim(1)];
        let extra = size.map(|side| side.next_multiple_of(self.patch) - side);
        let padded = x.pad([0; 4], [extra[0], extra[1], 0, 0])?;
        let patches = self.patches.forward(ctx, Map::from_planes(padded)?)?;
        let positions = self.crop(ctx, patches.width(), patches.height())?;
        let mut image = patches.tokens()?.add(positions)?;
        let mut c = self.time.forward(ctx, time)?;
        if let (Some(label), Some(y)) = (&self.label, y) {
            c = c.add(label.forward(ctx, y)?)?;
        }
        let c = c.act(Act::Silu)?;
        let mut text = self.context.forward(ctx, context)?;
        ctx.graph.cut("prelude", image);
        for (i, block) in self.blocks.iter().enumerate() {
            if skip.contains(&(i as i32)) {
                continue;
            }
            [text, image] = block.forward(ctx, [text, image], c)?;
            ctx.graph.cut(&format!("joint_blocks.{i}"), image);
        }
        let last = Modulation::of(&self.last_modulation.forward(ctx, c)?.chunks(0, 2)?)?;
        let out = self.last.forward(ctx, last.apply(ctx, image)?)?;
        unpatchify(out, size, self.patch, PatchOrder::ChannelsFastest)
    }
}

/// The transformer with its weights.
pub struct MmditModel {
    runner: Runner,
    net: Mmdit,
}

impl MmditModel {
    /// The network below `prefix`; `fields` names the parameters that could supply it, for the message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: MmditConfig,
        fields: &str,
    ) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let net = Mmdit::load(&loader.scope(prefix), config)?;
        Ok(Self { runner: super::runner(loader.finish("diffusion transformer", fields)?), net })
    }

    /// The network.
    pub fn net(&self) -> &Mmdit {
        &self.net
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Evaluates the network; the result has the shape of the latent.
    pub fn run(&mut self, env: &Env<'_>, input: &MmditInput<'_>, out: &mut Vec<HostTensor>) -> Result<()> {
        let net = &self.net;
        let (found, wanted) = (input.context.dim(0), net.context_width());
        if found != wanted {
            return Err(Error::shape("transformer", format!("text states of {found}, {wanted} are wanted")));
        }
        let time = HostTensor::new([TIME_WIDTH], timestep_embedding(&[input.t], TIME_WIDTH, MAX_PERIOD))?;
        let mut inputs = vec![
            ("x", Input::F32(input.x)),
            ("time", Input::F32(&time)),
            ("context", Input::F32(input.context)),
        ];
        inputs.extend(input.y.map(|y| ("y", Input::F32(y))));
        self.runner.run_into(env, input.skip_layers, &inputs, out, |ctx, t| {
            Ok(vec![net.forward(ctx, (t[0], t[1], t[2], t.get(3).copied()), input.skip_layers)?])
        })
    }
}
