//! CLIP text encoders: OpenAI's and open_clip's, of any depth and width.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::graph::{Act, Input, Tensor, Weight};
use crate::layer::{Ctx, Embedding, Env, LayerNorm, Linear, Runner, attention};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Part, Role, Scope, TypePolicy};

/// Width of a head in all published text encoders.
const HEAD: usize = 64;

/// What no shape tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipConfig {
    /// Activation of the feed-forward layers: quick GELU (OpenAI) or GELU (open_clip).
    pub act: Act,
    /// Whether the hidden states that are given out pass the final norm.
    pub final_norm: bool,
    /// Whether the pooled output is projected by `text_projection`.
    pub projection: bool,
}

impl ClipConfig {
    /// OpenAI's encoder.
    pub const OPENAI: Self = Self { act: Act::GeluQuick, final_norm: true, projection: false };
    /// open_clip's encoders.
    pub const OPEN_CLIP: Self = Self { act: Act::Gelu, final_norm: true, projection: false };
}

/// Self-attention whose three projections are apart or joined (open_clip).
// A few values, made once: boxes would gain nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Projections {
    Apart(Box<[Linear; 3]>),
    Joined(Linear),
}

/// One transformer layer; text and vision encoders have the same.
#[derive(Debug)]
pub(super) struct ClipLayer {
    norms: [LayerNorm; 2],
    qkv: Projections,
    out: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
    act: Act,
}

impl ClipLayer {
    pub fn load(scope: &Scope<'_>, width: usize, heads: usize, act: Act) -> Result<Self> {
        let own = scope.at("self_attn");
        let inner = scope.shape("mlp.fc1.weight").map_or(4 * width, |s| s[1]);
        let part = |name: &str| Linear::load(&own.at(name), width, width);
        let qkv = if own.has_below("in_proj") {
            Projections::Joined(Linear::load(&own.at("in_proj"), width, 3 * width)?)
        } else {
            Projections::Apart(Box::new([part("q_proj")?, part("k_proj")?, part("v_proj")?]))
        };
        let norm = |i: usize| LayerNorm::load(&scope.at(format!("layer_norm{i}")), width);
        Ok(Self {
            norms: [norm(1)?, norm(2)?],
            qkv,
            out: part("out_proj")?,
            up: Linear::load(&scope.at("mlp.fc1"), width, inner)?,
            down: Linear::load(&scope.at("mlp.fc2"), inner, width)?,
            heads,
            act,
        })
    }

    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, mask: Option<Tensor<'g>>) -> Result<Tensor<'g>> {
        let h = self.norms[0].forward(ctx, x)?;
        let [q, k, v] = match &self.qkv {
            Projections::Apart(parts) => {
                let [q, k, v] = &**parts;
                [q.forward(ctx, h)?, k.forward(ctx, h)?, v.forward(ctx, h)?]
            }
            Projections::Joined(qkv) => {
                let parts = qkv.forward(ctx, h)?.chunks(0, 3)?;
                [parts[0], parts[1], parts[2]]
            }
        };
        let x = x.add(self.out.forward(ctx, attention(q, k, v, self.heads, mask)?)?)?;
        let h = self.norms[1].forward(ctx, x)?;
        x.add(self.down.forward(ctx, self.up.forward_act(ctx, h, self.act)?)?)
    }
}

/// The layers below `encoder.layers`.
pub(super) fn layers(scope: &Scope<'_>, width: usize, heads: usize, act: Act) -> Result<Vec<ClipLayer>> {
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(Error::Weights(format!(
            "{}: {heads} heads do not divide its width of {width}",
            scope.prefix()
        )));
    }
    (0..scope.count("encoder.layers"))
        .map(|i| ClipLayer::load(&scope.at(format!("encoder.layers.{i}")), width, heads, act))
        .collect()
}

/// How many of `n` layers run for a `clip_skip` of 1 (all), 2 (all but the last) and so on; values without a
/// sense mean all.
pub(super) fn layers_used(n: usize, clip_skip: usize) -> usize {
    if (1..=n).contains(&clip_skip) { n + 1 - clip_skip } else { n }
}

/// A CLIP text encoder.
#[derive(Debug)]
pub struct ClipText {
    tokens: Embedding,
    positions: Weight,
    layers: Vec<ClipLayer>,
    norm: LayerNorm,
    /// `[width, projected]` in ggml order.
    projection: Option<Weight>,
    config: ClipConfig,
}

/// Factors `[1, L]` and vectors `[width, L]` of learned words, see [`Ids`].
type Learned = (HostTensor, HostTensor);

/// Token ids as the graph wants them.
struct Ids<'g> {
    ids: Tensor<'g>,
    /// 1 for ids of the table and 0 for vectors from outside `[1, L]`, and these vectors `[width, L]`.
    custom: Option<(Tensor<'g>, Tensor<'g>)>,
}

impl ClipText {
    /// The network below `scope` (`....transformer.text_model`).
    pub fn load(scope: &Scope<'_>, config: &ClipConfig) -> Result<Self> {
        let [width, rows, ..] = scope.need_shape("embeddings.token_embedding.weight")?;
        let positions = scope.need_shape("embeddings.position_embedding.weight")?[1];
        // Used in the orientation it has in memory, whatever file it comes from, as the recorded library does.
        let projection = match scope.shape("text_projection") {
            Some(shape) if config.projection => {
                Some(scope.weight("text_projection", &[width, shape[1]], Role::Vector)?)
            }
            _ => None,
        };
        Ok(Self {
            tokens: Embedding::load(&scope.at("embeddings.token_embedding"), rows, width)?,
            positions: scope.weight(
                "embeddings.position_embedding.weight",
                &[width, positions],
                Role::Vector,
            )?,
            layers: layers(scope, width, (width / HEAD).max(1), config.act)?,
            norm: LayerNorm::load(&scope.at("final_layer_norm"), width)?,
            projection,
            config: *config,
        })
    }

    /// Width of the hidden states.
    pub fn width(&self) -> usize {
        self.tokens.width()
    }

    /// Width of the pooled output.
    pub fn pooled_width(&self) -> usize {
        self.projection.as_ref().map_or(self.width(), |w| w.shape()[1])
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.positions.shape()[1]
    }

    /// Number of rows of the token table.
    pub fn vocabulary(&self) -> usize {
        self.tokens.rows()
    }

    /// Number of layers.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    fn embed<'g>(&self, ctx: &Ctx<'g>, ids: &Ids<'g>) -> Result<Tensor<'g>> {
        let mut x = self.tokens.forward(ctx, ids.ids)?;
        if let Some((keep, vectors)) = ids.custom {
            x = x.mul(keep)?.add(vectors)?;
        }
        x.add(ctx.weight(&self.positions).narrow(1, 0, x.dim(1))?)
    }

    /// Hidden states `[width, L]`, and with `end` the pooled output `[width]` at that position.
    fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        ids: &Ids<'g>,
        mask: Tensor<'g>,
        clip_skip: usize,
        end: Option<usize>,
    ) -> Result<Vec<Tensor<'g>>> {
        let used = layers_used(self.layers.len(), clip_skip);
        let depth = if end.is_some() { self.layers.len() } else { used };
        let mut x = self.embed(ctx, ids)?;
        let mut hidden = x;
        for (i, layer) in self.layers.iter().enumerate().take(depth) {
            x = layer.forward(ctx, x, Some(mask))?;
            ctx.graph.cut(&format!("layers.{i}"), x);
            if i + 1 == used {
                hidden = x;
            }
        }
        let mut outputs = vec![if self.config.final_norm { self.norm.forward(ctx, hidden)? } else { hidden }];
        if let Some(end) = end {
            let mut pooled = self.norm.forward(ctx, x.narrow(1, end, 1)?.cont()?)?;
            if let Some(projection) = &self.projection {
                pooled = pooled.linear(ctx.weight(projection), None, Act::None)?;
            }
            outputs.push(pooled);
        }
        Ok(outputs)
    }
}

/// What to compute from a piece of text.
#[derive(Clone, Copy, Debug)]
pub struct ClipInput<'a> {
    /// Token ids, at most as many as there are positions. Ids from the vocabulary's size on mean `custom`.
    pub ids: &'a [i32],
    /// Vectors of learned words, as wide as the encoder.
    pub custom: &'a [Vec<f32>],
    /// 1 for the last layer, 2 for the one before, and so on.
    pub clip_skip: usize,
    /// Position whose final state is pooled (the first end token), if that is wanted.
    pub pool_at: Option<usize>,
}

/// What a text encoder gives.
#[derive(Clone, Debug)]
pub struct ClipOutput {
    /// `[width, L]`.
    pub hidden: HostTensor,
    /// `[projected width]`.
    pub pooled: Option<HostTensor>,
}

/// A CLIP text encoder with its weights.
pub struct ClipModel {
    runner: Runner,
    clip: ClipText,
}

impl ClipModel {
    /// The network below `prefix`; `part` and `fields` name it and the parameters that could supply it, for the
    /// message.
    pub fn load(
        index: &Index,
        policy: &TypePolicy,
        prefix: &str,
        config: &ClipConfig,
        part: &str,
        fields: &str,
    ) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let clip = ClipText::load(&loader.scope(prefix), config)?;
        Ok(Self::new(loader.finish(part, fields)?, clip))
    }

    /// Around a network and its weights.
    pub fn new(part: Part, clip: ClipText) -> Self {
        Self { runner: super::runner(part), clip }
    }

    /// The network.
    pub fn clip(&self) -> &ClipText {
        &self.clip
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Computes hidden states and, if wanted, the pooled output.
    pub fn run(&mut self, env: &Env<'_>, input: &ClipInput<'_>) -> Result<ClipOutput> {
        let clip = &self.clip;
        let (ids, custom) = clip.resolve(input)?;
        let mask = causal_mask(ids.len());
        let mut inputs = vec![("ids", Input::I32(&ids)), ("mask", Input::F32(&mask))];
        if let Some((keep, vectors)) = &custom {
            inputs.extend([("keep", Input::F32(keep)), ("custom", Input::F32(vectors))]);
        }
        let variant = (input.clip_skip, input.pool_at);
        let mut outputs = self.runner.run(env, variant, &inputs, |ctx, t| {
            let ids = Ids { ids: t[0], custom: t.get(2).copied().zip(t.get(3).copied()) };
            clip.forward(ctx, &ids, t[1], input.clip_skip, input.pool_at)
        })?;
        let pooled = if input.pool_at.is_some() { outputs.pop() } else { None };
        let hidden = outputs.pop().ok_or_else(|| Error::Internal("the text encoder gave nothing".into()))?;
        Ok(ClipOutput { hidden, pooled })
    }
}

impl ClipText {
    /// Ids of the table, and what replaces those of learned words: see [`Ids`].
    fn resolve(&self, input: &ClipInput<'_>) -> Result<(Vec<i32>, Option<Learned>)> {
        let (rows, width, n) = (self.vocabulary(), self.width(), input.ids.len());
        if n == 0 || n > self.positions() || input.pool_at.is_some_and(|at| at >= n) {
            return Err(Error::shape(
                "text encoder",
                format!("{n} tokens (pooled at {:?}) for {} positions", input.pool_at, self.positions()),
            ));
        }
        let mut ids = Vec::with_capacity(n);
        let (mut keep, mut vectors) = (HostTensor::full([1, n], 1.0), HostTensor::zeros([width, n]));
        let mut any = false;
        for (i, &id) in input.ids.iter().enumerate() {
            let id = usize::try_from(id).ok();
            match id.filter(|&id| id < rows) {
                Some(id) => ids.push(id as i32),
                None => {
                    let vector = id.and_then(|id| input.custom.get(id - rows)).filter(|v| v.len() == width);
                    let vector = vector.ok_or_else(|| {
                        Error::shape(
                            "text encoder",
                            format!("token {:?} is neither one of {rows} nor a learned word", input.ids[i]),
                        )
                    })?;
                    ids.push(0);
                    keep.data[i] = 0.0;
                    vectors.data[i * width..(i + 1) * width].copy_from_slice(vector);
                    any = true;
                }
            }
        }
        Ok((ids, any.then_some((keep, vectors))))
    }
}

/// `[L, L]`: each token sees itself and those before it.
fn causal_mask(n: usize) -> HostTensor {
    let mut mask = HostTensor::zeros([n, n]);
    for (query, row) in mask.data.chunks_exact_mut(n).enumerate() {
        row[query + 1..].fill(f32::NEG_INFINITY);
    }
    mask
}
