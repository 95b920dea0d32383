//! Tables of vectors and sinusoids of time.
#![forbid(unsafe_code)]

use super::ctx::Ctx;
use crate::error::Result;
use crate::graph::{Tensor, Weight};
use crate::weights::{Role, Scope};

/// A table whose rows are looked up.
#[derive(Clone, Debug)]
pub struct Embedding {
    weight: Weight,
}

impl Embedding {
    /// `weight` `[width, rows]`.
    pub fn load(scope: &Scope<'_>, rows: usize, width: usize) -> Result<Self> {
        Ok(Self { weight: scope.weight("weight", &[width, rows], Role::Table)? })
    }

    /// Number of rows; ids must stay below it.
    pub fn rows(&self) -> usize {
        self.weight.shape()[1]
    }

    /// Width of a row.
    pub fn width(&self) -> usize {
        self.weight.shape()[0]
    }

    /// The table's tensor.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// ids `[n]` i32 to `[width, n]`.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, ids: Tensor<'g>) -> Result<Tensor<'g>> {
        ctx.weight(&self.weight).rows(ids)
    }
}

/// Sinusoids of `times`: cosines, then sines, of `time * max_period^(-i / half)`; `[width, n]`, fastest axis first.
pub fn timestep_embedding(times: &[f32], width: usize, max_period: f32) -> Vec<f32> {
    let half = width / 2;
    let mut out = vec![0.0; width * times.len()];
    for (row, &time) in out.chunks_exact_mut(width.max(1)).zip(times) {
        for i in 0..half {
            let angle = time * (-max_period.ln() * i as f32 / half as f32).exp();
            row[i] = angle.cos();
            row[i + half] = angle.sin();
        }
    }
    out
}
