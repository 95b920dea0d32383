//! Blocks of the double- and single-stream transformers of Black Forest Labs and their descendants.
#![forbid(unsafe_code)]

use super::dit::{Modulation, heads_of};
use crate::error::{Error, Result};
use crate::graph::{Act, Tensor};
use crate::layer::{Ctx, LayerNorm, Linear, Pairs, RmsNorm, rope};
use crate::weights::Scope;

/// What all blocks of a forward pass share.
#[derive(Clone, Copy)]
pub(super) struct Shared<'g> {
    /// Rotary tables `[D, 1, L]`: cosines and sines, text first.
    pub rope: [Tensor<'g>; 2],
    /// Added to the scores of the keys `[L]`.
    pub mask: Option<Tensor<'g>>,
    /// Embedding of time and vectors `[C]`, its activation applied; of no use where modulations are given.
    pub vector: Option<Tensor<'g>>,
}

impl<'g> Shared<'g> {
    /// Attention over heads `[D, heads, L]` with rotary positions: `[C, L]`.
    fn attend(&self, [q, k, v]: [Tensor<'g>; 3]) -> Result<Tensor<'g>> {
        let [cos, sin] = self.rope;
        let scale = 1.0 / (q.dim(0) as f32).sqrt();
        let turn = |x: Tensor<'g>| rope(x, cos, sin, Pairs::Neighbours)?.permute([0, 2, 1, 3]);
        turn(q)?.attention(turn(k)?, v.permute([0, 2, 1, 3])?, self.mask, scale)
    }
}

/// Norms of queries and keys; files call their scales `scale` or `weight`.
#[derive(Debug)]
struct HeadNorms {
    query: RmsNorm,
    key: RmsNorm,
}

impl HeadNorms {
    fn load(scope: &Scope<'_>, head: usize) -> Result<Self> {
        let norm = |name: &str| {
            let scope = scope.at(name);
            let scale = if scope.has("weight") { "weight" } else { "scale" };
            RmsNorm::load(&scope, scale, head)
        };
        Ok(Self { query: norm("query_norm")?, key: norm("key_norm")? })
    }
}

/// Makes shift, scale and gate of the sublayers out of the vector.
#[derive(Debug)]
pub(super) struct Modulator {
    linear: Linear,
}

impl Modulator {
    /// For `sublayers` sublayers below `scope.lin`, if it is there.
    pub fn load(scope: &Scope<'_>, width: usize, sublayers: usize) -> Result<Option<Self>> {
        if !scope.has("lin.weight") {
            return Ok(None);
        }
        let linear = Linear::load_any_bias(&scope.at("lin"), width, 3 * sublayers * width)?;
        Ok(Some(Self { linear }))
    }

    /// One modulation for each sublayer; `vector` has its activation applied.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, vector: Tensor<'g>) -> Result<Vec<Modulation<'g>>> {
        let vectors = self.linear.forward(ctx, vector)?;
        let vectors = vectors.chunks(0, vectors.dim(0) / vector.dim(0))?;
        vectors.chunks(3).map(Modulation::of).collect()
    }
}

/// The modulations of a block: given from outside, or its own.
fn modulations<'g>(
    ctx: &Ctx<'g>,
    own: &Option<Modulator>,
    given: Option<&[Modulation<'g>]>,
    shared: &Shared<'g>,
) -> Result<Vec<Modulation<'g>>> {
    match (given, own, shared.vector) {
        (Some(given), ..) => Ok(given.to_vec()),
        (None, Some(own), Some(vector)) => own.forward(ctx, vector),
        _ => Err(Error::Internal("a block without modulation".into())),
    }
}

/// The feed-forward part of a double block, told by names and shapes.
#[derive(Debug)]
enum Feed {
    /// GELU between two layers.
    Plain([Linear; 2]),
    /// As before; the first layer gives gate and value, gate first.
    Gated([Linear; 2]),
    /// Gate and value from a layer each.
    Apart([Linear; 3]),
}

impl Feed {
    fn load(scope: &Scope<'_>, width: usize) -> Result<Self> {
        let linear = |name: &str, input, output| Linear::load_any_bias(&scope.at(name), input, output);
        if scope.has("gate_proj.weight") {
            let inner = scope.need_shape("gate_proj.weight")?[1];
            return Ok(Self::Apart([
                linear("gate_proj", width, inner)?,
                linear("up_proj", width, inner)?,
                linear("down_proj", inner, width)?,
            ]));
        }
        let outer = scope.need_shape("0.weight")?[1];
        let inner = scope.need_shape("2.weight")?[0];
        let layers = [linear("0", width, outer)?, linear("2", inner, width)?];
        Ok(if outer == 2 * inner { Self::Gated(layers) } else { Self::Plain(layers) })
    }

    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        match self {
            Self::Plain([up, down]) => down.forward(ctx, up.forward_act(ctx, x, Act::Gelu)?),
            Self::Gated([up, down]) => {
                let halves = up.forward(ctx, x)?.chunks(0, 2)?;
                down.forward(ctx, halves[0].act(Act::Silu)?.mul(halves[1])?)
            }
            Self::Apart([gate, up, down]) => {
                let gate = gate.forward_act(ctx, x, Act::Silu)?;
                down.forward(ctx, up.forward(ctx, x)?.mul(gate)?)
            }
        }
    }
}

/// Text or image stream of a double block.
#[derive(Debug)]
struct Stream {
    modulator: Option<Modulator>,
    qkv: Linear,
    norms: HeadNorms,
    out: Linear,
    feed: Feed,
    heads: usize,
}

impl Stream {
    fn load(scope: &Scope<'_>, name: &str, width: usize, head: usize) -> Result<Self> {
        let attention = scope.at(format!("{name}_attn"));
        Ok(Self {
            modulator: Modulator::load(&scope.at(format!("{name}_mod")), width, 2)?,
            qkv: Linear::load_any_bias(&attention.at("qkv"), width, 3 * width)?,
            norms: HeadNorms::load(&attention.at("norm"), head)?,
            out: Linear::load_any_bias(&attention.at("proj"), width, width)?,
            feed: Feed::load(&scope.at(format!("{name}_mlp")), width)?,
            heads: width / head,
        })
    }

    fn project<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, by: &Modulation<'g>) -> Result<[Tensor<'g>; 3]> {
        let qkv = self.qkv.forward(ctx, by.apply(ctx, x)?)?;
        let width = x.dim(0);
        let part = |i: usize| heads_of(qkv, i * width, self.heads, width / self.heads);
        Ok([self.norms.query.forward(ctx, part(0)?)?, self.norms.key.forward(ctx, part(1)?)?, part(2)?])
    }

    fn finish<'g>(
        &self,
        ctx: &Ctx<'g>,
        x: Tensor<'g>,
        attended: Tensor<'g>,
        by: &[Modulation<'g>],
    ) -> Result<Tensor<'g>> {
        let x = by[0].join(x, self.out.forward(ctx, attended)?)?;
        by[1].join(x, self.feed.forward(ctx, by[1].apply(ctx, x)?)?)
    }
}

/// A block with separate weights for text and image.
#[derive(Debug)]
pub(super) struct DoubleBlock {
    text: Stream,
    image: Stream,
}

impl DoubleBlock {
    pub fn load(scope: &Scope<'_>, width: usize, head: usize) -> Result<Self> {
        Ok(Self {
            text: Stream::load(scope, "txt", width, head)?,
            image: Stream::load(scope, "img", width, head)?,
        })
    }

    /// `[text, image]`, each `[C, L]`; `given` are modulations of text and image from outside.
    pub fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        [text, image]: [Tensor<'g>; 2],
        given: Option<[&[Modulation<'g>]; 2]>,
        shared: &Shared<'g>,
    ) -> Result<[Tensor<'g>; 2]> {
        let by_text = modulations(ctx, &self.text.modulator, given.map(|g| g[0]), shared)?;
        let by_image = modulations(ctx, &self.image.modulator, given.map(|g| g[1]), shared)?;
        let of_text = self.text.project(ctx, text, &by_text[0])?;
        let of_image = self.image.project(ctx, image, &by_image[0])?;
        let join = |i: usize| of_text[i].concat(of_image[i], 2);
        let attended = shared.attend([join(0)?, join(1)?, join(2)?])?;
        let length = text.dim(1);
        let for_image = attended.narrow(1, length, image.dim(1))?;
        let image = self.image.finish(ctx, image, for_image, &by_image)?;
        let text = self.text.finish(ctx, text, attended.narrow(1, 0, length)?, &by_text)?;
        Ok([text, image])
    }
}

/// What the wide part of a single block's first layer becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SingleFeed {
    /// GELU.
    Plain,
    /// Gate and value.
    GateFirst,
    /// Value and gate.
    GateLast,
}

/// A block in which text and image share all weights; attention and feed-forward side by side.
#[derive(Debug)]
pub(super) struct SingleBlock {
    modulator: Option<Modulator>,
    first: Linear,
    second: Linear,
    norms: HeadNorms,
    heads: usize,
    feed: SingleFeed,
}

impl SingleBlock {
    pub fn load(scope: &Scope<'_>, width: usize, head: usize, gate_last: bool) -> Result<Self> {
        let outer = scope.need_shape("linear1.weight")?[1].saturating_sub(3 * width);
        let inner = scope.need_shape("linear2.weight")?[0].saturating_sub(width);
        let feed = match (outer == 2 * inner, gate_last) {
            (false, _) => SingleFeed::Plain,
            (true, false) => SingleFeed::GateFirst,
            (true, true) => SingleFeed::GateLast,
        };
        Ok(Self {
            modulator: Modulator::load(&scope.at("modulation"), width, 1)?,
            first: Linear::load_any_bias(&scope.at("linear1"), width, 3 * width + outer)?,
            second: Linear::load_any_bias(&scope.at("linear2"), width + inner, width)?,
            norms: HeadNorms::load(&scope.at("norm"), head)?,
            heads: width / head,
            feed,
        })
    }

    /// `x` `[C, L]`, text first; `given` is a modulation from outside.
    pub fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        x: Tensor<'g>,
        given: Option<&[Modulation<'g>]>,
        shared: &Shared<'g>,
    ) -> Result<Tensor<'g>> {
        let by = modulations(ctx, &self.modulator, given, shared)?;
        let width = x.dim(0);
        let h = self.first.forward(ctx, by[0].apply(ctx, x)?)?;
        let part = |i: usize| heads_of(h, i * width, self.heads, width / self.heads);
        let q = self.norms.query.forward(ctx, part(0)?)?;
        let k = self.norms.key.forward(ctx, part(1)?)?;
        let attended = shared.attend([q, k, part(2)?])?;
        let wide = h.narrow(0, 3 * width, h.dim(0) - 3 * width)?;
        let wide = match self.feed {
            SingleFeed::Plain => wide.act(Act::Gelu)?,
            gated => {
                let halves = wide.chunks(0, 2)?;
                let (gate, value) = if gated == SingleFeed::GateFirst { (0, 1) } else { (1, 0) };
                halves[gate].act(Act::Silu)?.mul(halves[value])?
            }
        };
        by[0].join(x, self.second.forward(ctx, attended.concat(wide, 0)?)?)
    }
}

/// Cross attention of the image tokens to an identity (Guo et al. 2024, PuLID).
#[derive(Debug)]
pub(super) struct IdentityAttention {
    norms: [LayerNorm; 2],
    q: Linear,
    kv: Linear,
    out: Linear,
    heads: usize,
}

impl IdentityAttention {
    /// `width` of the image tokens; heads are `head` wide.
    pub fn load(scope: &Scope<'_>, width: usize, head: usize) -> Result<Self> {
        let inner = scope.need_shape("to_q.weight")?[1];
        let identity = scope.need_shape("to_kv.weight")?[0];
        Ok(Self {
            norms: [
                LayerNorm::load(&scope.at("norm1"), identity)?,
                LayerNorm::load(&scope.at("norm2"), width)?,
            ],
            q: Linear::load_no_bias(&scope.at("to_q"), width, inner)?,
            kv: Linear::load_no_bias(&scope.at("to_kv"), identity, 2 * inner)?,
            out: Linear::load_no_bias(&scope.at("to_out"), inner, width)?,
            heads: (inner / head).max(1),
        })
    }

    /// Width of the identity's vectors.
    pub fn identity_width(&self) -> usize {
        self.kv.input()
    }

    /// `image` `[C, L]` and `weight` (one value) times what it attends to in `identity` `[I, M]`.
    pub fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        image: Tensor<'g>,
        identity: Tensor<'g>,
        weight: Tensor<'g>,
    ) -> Result<Tensor<'g>> {
        let q = self.q.forward(ctx, self.norms[1].forward(ctx, image)?)?;
        let kv = self.kv.forward(ctx, self.norms[0].forward(ctx, identity)?)?.chunks(0, 2)?;
        let attended = crate::layer::attention(q, kv[0], kv[1], self.heads, None)?;
        image.add(self.out.forward(ctx, attended)?.mul(weight)?)
    }
}
