//! 2-D convolutions.
#![forbid(unsafe_code)]

use super::ctx::{Ctx, Delta, DeltaKind};
use super::linear::add_rows;
use super::map::Map;
use crate::error::Result;
use crate::graph::{Conv2d as Geometry, Tensor, Weight};
use crate::weights::{Role, Scope};

/// A 2-D convolution with bias.
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Weight,
    bias: Option<Weight>,
    geometry: Geometry,
    /// Input is divided and output multiplied by this, for values beyond half precision.
    range: f32,
}

impl Conv2d {
    /// `weight` `[kernel, kernel, input, output]` and `bias` `[output]`: stride 1, size kept.
    pub fn load(scope: &Scope<'_>, input: usize, output: usize, kernel: usize) -> Result<Self> {
        let weight = scope.weight("weight", &[kernel, kernel, input, output], Role::Kernel)?;
        let bias = scope.optional("bias", &[output], Role::Vector)?;
        let pad = [kernel / 2; 4];
        Ok(Self { weight, bias, geometry: Geometry { pad, ..Geometry::default() }, range: 1.0 })
    }

    /// Another stride on both axes.
    #[must_use]
    pub fn with_stride(mut self, stride: usize) -> Self {
        self.geometry.stride = [stride; 2];
        self
    }

    /// Other padding: `[left, right, top, bottom]`.
    #[must_use]
    pub fn with_pad(mut self, pad: [usize; 4]) -> Self {
        self.geometry.pad = pad;
        self
    }

    /// Keeps sums in the range of half precision: the input is divided by `range`, the output multiplied.
    #[must_use]
    pub fn with_range(mut self, range: f32) -> Self {
        self.range = range;
        self
    }

    /// Channels of the input.
    pub fn input(&self) -> usize {
        self.weight.shape()[2]
    }

    /// Channels of the output.
    pub fn output(&self) -> usize {
        self.weight.shape()[3]
    }

    /// Applies the convolution.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>) -> Result<Map<'g>> {
        let geometry = Geometry { circular: ctx.circular, ..self.geometry };
        let bias = self.bias.as_ref().map(|b| ctx.weight(b));
        let mut y = if self.range == 1.0 {
            x.conv2d(ctx.weight(&self.weight), bias, geometry)?
        } else {
            let y = x
                .scale(1.0 / self.range)?
                .conv2d(ctx.weight(&self.weight), None, geometry)?
                .scale(self.range)?;
            bias.map_or(Ok(y), |b| y.add_channels(b))?
        };
        for delta in ctx.deltas(&self.weight) {
            let change = self.delta(ctx, x, delta, geometry)?;
            let axis = y.channel_axis();
            y = y.with(add_rows(y.tensor(), change.scale(delta.scale)?, delta, axis)?);
        }
        Ok(y)
    }

    /// D applied to `x`.
    fn delta<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>, delta: &Delta, geometry: Geometry) -> Result<Tensor<'g>> {
        let [kw, kh, input, _] = self.weight.shape();
        let point = Geometry::default();
        let map = match &delta.kind {
            DeltaKind::LowRank { down, mid, up } => {
                let (up, down) = (ctx.weight(up), ctx.weight(down));
                let up = up.reshape([1, 1, up.count() / delta.rows, delta.rows])?;
                let rank = up.dim(2);
                let down_taps = down.count() / (input * rank);
                let spatial = down_taps == kw * kh && mid.is_none();
                let (dw, dh) = if spatial { (kw, kh) } else { (1, 1) };
                let down = down.reshape([dw, dh, input, rank])?;
                let mut h = x.conv2d(down, None, if spatial { geometry } else { point })?;
                if let Some(mid) = mid {
                    h = h.conv2d(ctx.weight(mid).reshape([kw, kh, rank, rank])?, None, geometry)?;
                }
                h.conv2d(up, None, point)?
            }
            DeltaKind::Dense(values) => {
                x.conv2d(ctx.weight(values).reshape([kw, kh, input, delta.rows])?, None, geometry)?
            }
            DeltaKind::Bias(values) => {
                let values = ctx.weight(values);
                let mut shape = [1; 4];
                shape[x.channel_axis()] = delta.rows;
                return values.reshape(shape);
            }
        };
        Ok(map.tensor())
    }
}
