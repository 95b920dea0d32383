//! Pieces that diffusion transformers share (Peebles & Xie 2023): patches, modulation, embedders.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::graph::{Act, Tensor};
use crate::layer::{Ctx, LayerNorm, Linear};
use crate::weights::Scope;

/// Epsilon of the norms without parameters.
pub const EPS: f32 = 1e-6;

/// `x` `[W, H, C]` with columns and rows added until `patch` divides both; zeros, or the other side on circular
/// axes.
pub fn pad_to_patch<'g>(ctx: &Ctx<'g>, x: Tensor<'g>, patch: usize) -> Result<Tensor<'g>> {
    let extra = [0, 1].map(|axis| x.dim(axis).next_multiple_of(patch) - x.dim(axis));
    let (mut wrap, mut zero) = ([0; 4], [0; 4]);
    for axis in 0..2 {
        if ctx.circular[axis] { wrap[axis] = extra[axis] } else { zero[axis] = extra[axis] }
    }
    x.pad_circular([0; 4], wrap)?.pad([0; 4], zero)
}

/// Squares of `[W, H, C]` as tokens `[patch * patch * C, W / patch * H / patch]`, channels slowest.
pub fn patchify<'g>(x: Tensor<'g>, patch: usize) -> Result<Tensor<'g>> {
    let [w, h, c, n] = x.shape();
    if patch == 0 || !w.is_multiple_of(patch) || !h.is_multiple_of(patch) || n != 1 {
        return Err(Error::shape("patchify", format!("{x:?} into squares of {patch}")));
    }
    let tokens = w / patch * (h / patch);
    let rows = x.reshape([patch, w / patch, patch, h / patch * c])?.permute([0, 2, 1, 3])?;
    let squares = rows.reshape([patch * patch, tokens, c, 1])?.permute([0, 2, 1, 3])?;
    squares.reshape([patch * patch * c, tokens, 1, 1])
}

/// How values of a token are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchOrder {
    /// Pixels of a channel together, as [`patchify`] puts them.
    ChannelsSlowest,
    /// Channels of a pixel together.
    ChannelsFastest,
}

/// Undoes [`patchify`] and cuts off what padding added: `[W, H, C]` with `size` = `[W, H]`.
pub fn unpatchify<'g>(
    x: Tensor<'g>,
    size: [usize; 2],
    patch: usize,
    order: PatchOrder,
) -> Result<Tensor<'g>> {
    let [w, h] = size.map(|side| side.div_ceil(patch.max(1)));
    let area = patch * patch;
    if patch == 0 || x.dim(1) != w * h || !x.dim(0).is_multiple_of(area) {
        return Err(Error::shape("unpatchify", format!("{x:?} to {size:?} in squares of {patch}")));
    }
    let c = x.dim(0) / area;
    let squares = match order {
        PatchOrder::ChannelsSlowest => x.reshape([area, c, w * h, 1])?.permute([0, 2, 1, 3])?,
        PatchOrder::ChannelsFastest => x.reshape([c, area, w * h, 1])?.permute([2, 0, 1, 3])?,
    };
    let rows = squares.reshape([patch, patch, w, h * c])?.permute([0, 2, 1, 3])?;
    let planes = rows.reshape([w * patch, h * patch, c, 1])?;
    planes.narrow(0, 0, size[0])?.narrow(1, 0, size[1])?.cont()
}

/// Shift, scale and gate of one sublayer, each `[C]`.
#[derive(Clone, Copy)]
pub struct Modulation<'g> {
    /// Added.
    pub shift: Tensor<'g>,
    /// One less than the factor.
    pub scale: Tensor<'g>,
    /// Factor of the sublayer's result; absent in last layers.
    pub gate: Option<Tensor<'g>>,
}

impl<'g> Modulation<'g> {
    /// From a run of vectors `[C]`: shift, scale, gate.
    pub fn of(vectors: &[Tensor<'g>]) -> Result<Self> {
        match vectors {
            [shift, scale] => Ok(Self { shift: *shift, scale: *scale, gate: None }),
            [shift, scale, gate] => Ok(Self { shift: *shift, scale: *scale, gate: Some(*gate) }),
            other => Err(Error::Internal(format!("a modulation of {} vectors", other.len()))),
        }
    }

    /// `x` `[C, L]` normalised, then scaled and shifted.
    pub fn apply(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let normed = LayerNorm::plain(EPS).forward(ctx, x)?;
        self.modulate(normed)
    }

    /// `x` `[C, L]`, normalised already, scaled and shifted.
    pub fn modulate(&self, x: Tensor<'g>) -> Result<Tensor<'g>> {
        x.mul(self.scale.cont()?.scale_bias(1.0, 1.0)?)?.add(self.shift)
    }

    /// `x + gate * y`.
    pub fn join(&self, x: Tensor<'g>, y: Tensor<'g>) -> Result<Tensor<'g>> {
        x.add(self.gate.map_or(Ok(y), |gate| y.mul(gate))?)
    }
}

/// Two layers with SiLU between them, for times and vectors.
#[derive(Debug)]
pub struct Embedder {
    layers: [Linear; 2],
}

impl Embedder {
    /// Layers `names[0]` and `names[1]` below `scope`; biases are used where there are any.
    pub fn load(scope: &Scope<'_>, names: [&str; 2], input: usize) -> Result<Self> {
        let hidden = scope.need_shape(format!("{}.weight", names[0]))?[1];
        let output = scope.need_shape(format!("{}.weight", names[1]))?[1];
        Ok(Self {
            layers: [
                Linear::load_any_bias(&scope.at(names[0]), input, hidden)?,
                Linear::load_any_bias(&scope.at(names[1]), hidden, output)?,
            ],
        })
    }

    /// Width of the input.
    pub fn input(&self) -> usize {
        self.layers[0].input()
    }

    /// `[input, ...]` to `[output, ...]`.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        self.layers[1].forward(ctx, self.layers[0].forward_act(ctx, x, Act::Silu)?)
    }
}

/// The parts of a fused projection `[k C, L]` at `start` (in values) as heads `[D, heads, L]`; nothing moves.
pub fn heads_of<'g>(x: Tensor<'g>, start: usize, heads: usize, head: usize) -> Result<Tensor<'g>> {
    let [_, row, plane, _] = x.strides();
    let size = x.ty().bytes();
    x.view([head, heads, x.dim(1), x.dim(2)], [head * size, row, plane], start * size)
}
