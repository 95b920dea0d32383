//! T5 and UMT5 text encoders: relative positions as biases of the scores, gated feed-forward.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::graph::{Act, Input, Tensor};
use crate::layer::{Ctx, Embedding, Env, Linear, RmsNorm, Runner, split_heads};
use crate::tensor::HostTensor;
use crate::weights::{Index, Loader, Part, Scope, TypePolicy};

/// Width of a head in all published encoders.
const HEAD: usize = 64;
/// Distances from here on share the last bucket.
const FAR: f32 = 128.0;
/// Keeps the sums of the wide products in the range of half precision.
const RANGE: f32 = 32.0;

#[derive(Debug)]
struct Block {
    norms: [RmsNorm; 2],
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    /// Biases of the scores; a block without uses those of the last one that has them.
    bias: Option<Embedding>,
    gate: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
}

impl Block {
    fn load(scope: &Scope<'_>, width: usize) -> Result<Self> {
        let (own, dense) = (scope.at("layer.0.SelfAttention"), scope.at("layer.1.DenseReluDense"));
        let inner = own.need_shape("q.weight")?[1];
        let wide = dense.need_shape("wi_0.weight")?[1];
        let bias = own.shape("relative_attention_bias.weight");
        let heads = bias.map_or(inner / HEAD, |s| s[0]).max(1);
        let bias =
            bias.map(|s| Embedding::load(&own.at("relative_attention_bias"), s[1], heads)).transpose()?;
        let linear = |scope: Scope<'_>, input, output| Linear::load_no_bias(&scope, input, output);
        let norm = |i: usize| RmsNorm::load(&scope.at(format!("layer.{i}.layer_norm")), "weight", width);
        Ok(Self {
            norms: [norm(0)?, norm(1)?],
            q: linear(own.at("q"), width, inner)?,
            k: linear(own.at("k"), width, inner)?,
            v: linear(own.at("v"), width, inner)?,
            out: linear(own.at("o"), inner, width)?,
            bias,
            gate: linear(dense.at("wi_0"), width, wide)?,
            up: linear(dense.at("wi_1"), width, wide)?,
            down: linear(dense.at("wo"), wide, width)?.with_range(RANGE),
            heads,
        })
    }

    /// `mask` is the sum of biases and mask `[L, L, heads]`.
    fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, mask: Option<Tensor<'g>>) -> Result<Tensor<'g>> {
        let h = self.norms[0].forward(ctx, x)?;
        let split = |layer: &Linear| split_heads(layer.forward(ctx, h)?, self.heads);
        // The scores are not scaled.
        let h = split(&self.q)?.attention(split(&self.k)?, split(&self.v)?, mask, 1.0)?;
        let x = x.add(self.out.forward(ctx, h)?)?;
        let h = self.norms[1].forward(ctx, x)?;
        let gated = self.gate.forward_act(ctx, h, Act::Gelu)?.mul(self.up.forward(ctx, h)?)?;
        x.add(self.down.forward(ctx, gated)?)
    }
}

/// A T5 encoder.
#[derive(Debug)]
pub struct T5 {
    tokens: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
}

impl T5 {
    /// The network below `scope` (`text_encoders.t5xxl.transformer`).
    pub fn load(scope: &Scope<'_>) -> Result<Self> {
        let table = ["shared", "encoder.embed_tokens"].into_iter().find(|name| scope.has_below(name));
        let table = scope.at(table.unwrap_or("shared"));
        let [width, rows, ..] = table.need_shape("weight")?;
        let blocks = (0..scope.count("encoder.block"))
            .map(|i| Block::load(&scope.at(format!("encoder.block.{i}")), width))
            .collect::<Result<Vec<_>>>()?;
        if let Some(bad) = blocks.iter().find(|b| !b.q.output().is_multiple_of(b.heads)) {
            return Err(Error::Weights(format!(
                "{}: {} heads do not divide {} channels",
                scope.prefix(),
                bad.heads,
                bad.q.output()
            )));
        }
        Ok(Self {
            tokens: Embedding::load(&table, rows, width)?,
            blocks,
            norm: RmsNorm::load(&scope.at("encoder.final_layer_norm"), "weight", width)?,
        })
    }

    /// Width of the hidden states.
    pub fn width(&self) -> usize {
        self.tokens.width()
    }

    /// Number of rows of the token table.
    pub fn vocabulary(&self) -> usize {
        self.tokens.rows()
    }

    /// Number of buckets of distances.
    fn buckets(&self) -> usize {
        self.blocks.iter().find_map(|b| b.bias.as_ref()).map_or(0, Embedding::rows)
    }

    /// ids `[L]`, buckets `[L * L]` and a mask `[L]` that is added to the scores; gives `[width, L]`.
    fn forward<'g>(
        &self,
        ctx: &Ctx<'g>,
        ids: Tensor<'g>,
        buckets: Tensor<'g>,
        mask: Option<Tensor<'g>>,
    ) -> Result<Tensor<'g>> {
        let n = ids.dim(0);
        let mut x = self.tokens.forward(ctx, ids)?;
        let mut scores = mask;
        for (i, block) in self.blocks.iter().enumerate() {
            if let Some(bias) = &block.bias {
                let bias = bias.forward(ctx, buckets)?.reshape([block.heads, n, n, 1])?;
                let bias = bias.permute([2, 0, 1, 3])?.cont()?; // [key, query, heads]
                scores = Some(mask.map_or(Ok(bias), |mask| bias.add(mask))?);
            }
            x = block.forward(ctx, x, scores)?;
            ctx.graph.cut(&format!("block.{i}"), x);
        }
        self.norm.forward(ctx, x)
    }
}

/// A T5 encoder with its weights.
pub struct T5Model {
    runner: Runner,
    t5: T5,
}

impl T5Model {
    /// The network below `prefix`; `fields` names the parameters that could supply it, for the message.
    pub fn load(index: &Index, policy: &TypePolicy, prefix: &str, fields: &str) -> Result<Self> {
        let loader = Loader::new(index, policy)?;
        let t5 = T5::load(&loader.scope(prefix))?;
        Ok(Self::new(loader.finish("T5 text encoder", fields)?, t5))
    }

    /// Around a network and its weights.
    pub fn new(part: Part, t5: T5) -> Self {
        Self { runner: super::runner(part), t5 }
    }

    /// The network.
    pub fn t5(&self) -> &T5 {
        &self.t5
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// Hidden states `[width, L]` of `ids`. `mask` has one value for each token that is added to its scores as a key:
    /// 0, or minus infinity for padding.
    pub fn run(&mut self, env: &Env<'_>, ids: &[i32], mask: Option<&[f32]>) -> Result<HostTensor> {
        let rows = self.t5.vocabulary();
        if let Some(bad) = ids.iter().find(|&&id| usize::try_from(id).map_or(true, |id| id >= rows)) {
            return Err(Error::shape("T5", format!("token {bad} is none of {rows}")));
        }
        if ids.is_empty() || mask.is_some_and(|m| m.len() != ids.len()) {
            return Err(Error::shape(
                "T5",
                format!("{} tokens with a mask of {:?}", ids.len(), mask.map(<[f32]>::len)),
            ));
        }
        let buckets = relative_buckets(ids.len(), self.t5.buckets());
        let mask = mask.map(|m| HostTensor::new([m.len()], m.to_vec())).transpose()?;
        let mut inputs = vec![("ids", Input::I32(ids)), ("buckets", Input::I32(&buckets))];
        inputs.extend(mask.as_ref().map(|m| ("mask", Input::F32(m))));
        let t5 = &self.t5;
        let outputs = self
            .runner
            .run(env, (), &inputs, |ctx, t| Ok(vec![t5.forward(ctx, t[0], t[1], t.get(2).copied())?]))?;
        outputs.into_iter().next().ok_or_else(|| Error::Internal("T5 gave nothing".into()))
    }
}

/// Bucket of the distance from each query to each key, `[n keys, n queries]`: half of the buckets for keys that come
/// later; in each half the near distances one by one and the far ones by logarithm.
fn relative_buckets(n: usize, buckets: usize) -> Vec<i32> {
    let half = (buckets / 2).max(1);
    let exact = (half / 2).max(1);
    let bucket = |distance: usize| {
        if distance < exact {
            return distance;
        }
        let log = (distance as f32 / exact as f32).ln() / (FAR / exact as f32).ln();
        (exact + (log * (half - exact) as f32) as usize).min(half - 1)
    };
    let of = |query: usize, key: usize| {
        bucket(query.abs_diff(key)) + if key > query && buckets > 1 { half } else { 0 }
    };
    (0..n).flat_map(|query| (0..n).map(move |key| of(query, key) as i32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_fall_into_the_buckets_of_the_paper() {
        let row: Vec<i32> = relative_buckets(200, 32)[..200].to_vec();
        assert_eq!(row[..10], [0, 17, 18, 19, 20, 21, 22, 23, 24, 24]);
        assert_eq!((row[15], row[16], row[127], row[128], row[199]), (25, 26, 31, 31, 31));
        let last: Vec<i32> = relative_buckets(200, 32)[199 * 200..].to_vec();
        assert_eq!((last[199], last[198], last[192], last[191], last[0]), (0, 1, 7, 8, 15));
    }
}
