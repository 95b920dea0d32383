//! Matrix products with a weight, and where run-time adapters join them.
#![forbid(unsafe_code)]

use super::ctx::{Ctx, Delta, DeltaKind};
use crate::error::Result;
use crate::graph::{Act, Tensor, Weight};
use crate::weights::{Role, Scope};

/// y = W x + b.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Weight>,
    /// Input is divided and output multiplied by this, for half-precision devices whose sums would overflow.
    range: f32,
}

impl Linear {
    /// `weight` `[input, output]` and `bias` `[output]`, which must be there.
    pub fn load(scope: &Scope<'_>, input: usize, output: usize) -> Result<Self> {
        let bias = scope.weight("bias", &[output], Role::Vector)?;
        Ok(Self { bias: Some(bias), ..Self::load_no_bias(scope, input, output)? })
    }

    /// `weight` `[input, output]`; a bias is used if there is one.
    pub fn load_any_bias(scope: &Scope<'_>, input: usize, output: usize) -> Result<Self> {
        let bias = scope.optional("bias", &[output], Role::Vector)?;
        Ok(Self { bias, ..Self::load_no_bias(scope, input, output)? })
    }

    /// `weight` `[input, output]` alone.
    pub fn load_no_bias(scope: &Scope<'_>, input: usize, output: usize) -> Result<Self> {
        let weight = scope.weight("weight", &[input, output], Role::Matrix)?;
        Ok(Self { weight, bias: None, range: 1.0 })
    }

    /// Around tensors asked for elsewhere: `weight` `[input, output]`.
    pub fn new(weight: Weight, bias: Option<Weight>) -> Self {
        Self { weight, bias, range: 1.0 }
    }

    /// Keeps sums in the range of half precision: the input is divided by `range`, the output multiplied.
    #[must_use]
    pub fn with_range(self, range: f32) -> Self {
        Self { range, ..self }
    }

    /// Width of the input.
    pub fn input(&self) -> usize {
        self.weight.shape()[0]
    }

    /// Width of the output.
    pub fn output(&self) -> usize {
        self.weight.shape()[1]
    }

    /// `[input, ...]` to `[output, ...]`.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        self.forward_act(ctx, x, Act::None)
    }

    /// As [`Linear::forward`], then an activation.
    pub fn forward_act<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>, act: Act) -> Result<Tensor<'g>> {
        let deltas = ctx.deltas(&self.weight);
        let bias = self.bias.as_ref().map(|b| ctx.weight(b));
        if deltas.is_empty() && self.range == 1.0 {
            return x.linear(ctx.weight(&self.weight), bias, act);
        }
        let mut y = if self.range == 1.0 {
            x.linear(ctx.weight(&self.weight), bias, Act::None)?
        } else {
            let y = x.scale(1.0 / self.range)?.linear(ctx.weight(&self.weight), None, Act::None)?;
            let y = y.scale(self.range)?;
            bias.map_or(Ok(y), |b| y.add(b))?
        };
        for delta in deltas {
            y = add_delta(ctx, x, y, delta)?;
        }
        y.act(act)
    }
}

/// y + scale * D x.
fn add_delta<'g>(ctx: &Ctx<'g>, x: Tensor<'g>, y: Tensor<'g>, delta: &Delta) -> Result<Tensor<'g>> {
    let matrix = |w: &Weight, rows: usize| {
        let t = ctx.weight(w);
        t.reshape([t.count() / rows, rows, 1, 1])
    };
    let change = match &delta.kind {
        DeltaKind::LowRank { down, mid, up } => {
            let rank = up.shape().iter().product::<usize>() / delta.rows;
            let mut h = x.linear(matrix(down, rank)?, None, Act::None)?;
            if let Some(mid) = mid {
                h = h.linear(matrix(mid, rank)?, None, Act::None)?;
            }
            h.linear(matrix(up, delta.rows)?, None, Act::None)?
        }
        DeltaKind::Dense(values) => x.linear(matrix(values, delta.rows)?, None, Act::None)?,
        DeltaKind::Bias(values) => ctx.weight(values).reshape([delta.rows, 1, 1, 1])?,
    };
    add_rows(y, change.scale(delta.scale)?, delta, 0)
}

/// Adds `change` to the rows `first_row ..` of `y` along `axis`.
pub(super) fn add_rows<'g>(
    y: Tensor<'g>,
    change: Tensor<'g>,
    delta: &Delta,
    axis: usize,
) -> Result<Tensor<'g>> {
    let (first, rows, all) = (delta.first_row, delta.rows, y.dim(axis));
    if first == 0 && rows == all {
        return y.add(change);
    }
    let mut shape = [1; 4];
    shape[..].copy_from_slice(&y.shape());
    shape[axis] = rows;
    let (mut before, mut after) = ([0; 4], [0; 4]);
    before[axis] = first;
    after[axis] = all.saturating_sub(first + rows);
    y.add(change.repeat(shape)?.pad(before, after)?)
}
