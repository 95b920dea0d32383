//! The network that makes the modulations of all blocks out of time and guidance.
#![forbid(unsafe_code)]

use super::super::dit::Embedder;
use super::super::flux::{MAX_PERIOD, TIME_FACTOR};
use crate::error::Result;
use crate::graph::Tensor;
use crate::layer::{Ctx, Linear, RmsNorm, timestep_embedding};
use crate::tensor::HostTensor;
use crate::weights::Scope;

/// Residual layers on one input for each vector.
#[derive(Debug)]
pub(in super::super) struct Approximator {
    first: Linear,
    layers: Vec<(RmsNorm, Embedder)>,
    last: Linear,
    vectors: usize,
}

impl Approximator {
    /// For `vectors` vectors of `width`.
    pub fn load(scope: &Scope<'_>, width: usize, vectors: usize) -> Result<Self> {
        let [input, inner, ..] = scope.need_shape("in_proj.weight")?;
        let layers = (0..scope.count("layers"))
            .map(|i| {
                let norm = RmsNorm::load(&scope.at(format!("norms.{i}")), "scale", inner)?;
                let names = ["in_layer", "out_layer"];
                Ok((norm, Embedder::load(&scope.at(format!("layers.{i}")), names, inner)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            first: Linear::load(&scope.at("in_proj"), input, inner)?,
            layers,
            last: Linear::load(&scope.at("out_proj"), inner, width)?,
            vectors,
        })
    }

    /// `[input, vectors]`: a quarter each for time and guidance (always 0), half for the number of the vector.
    pub fn input(&self, t: f32) -> Result<HostTensor> {
        let width = self.first.input();
        let quarter = width / 4;
        let time = timestep_embedding(&[t * TIME_FACTOR], quarter, MAX_PERIOD);
        let guidance = timestep_embedding(&[0.0], quarter, MAX_PERIOD);
        let mut data = Vec::with_capacity(width * self.vectors);
        for i in 0..self.vectors {
            data.extend_from_slice(&time);
            data.extend_from_slice(&guidance);
            data.extend(timestep_embedding(&[i as f32 * TIME_FACTOR], width - 2 * quarter, MAX_PERIOD));
        }
        HostTensor::new([width, self.vectors], data)
    }

    /// `[input, vectors]` to `[C, vectors]`.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let mut x = self.first.forward(ctx, x)?;
        for (norm, layer) in &self.layers {
            x = x.add(layer.forward(ctx, norm.forward(ctx, x)?)?)?;
        }
        self.last.forward(ctx, x)
    }
}
