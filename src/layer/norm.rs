//! Normalisations with their affine parameters.
#![forbid(unsafe_code)]

use super::ctx::Ctx;
use super::map::Map;
use crate::error::Result;
use crate::graph::{Act, Tensor, Weight};
use crate::weights::{Role, Scope};

/// Group normalisation of a feature map.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    weight: Weight,
    bias: Weight,
    groups: usize,
    eps: f32,
}

impl GroupNorm {
    /// `weight` and `bias` `[channels]`; 32 groups and 1e-6, as the recorded library has everywhere.
    pub fn load(scope: &Scope<'_>, channels: usize) -> Result<Self> {
        let weight = scope.weight("weight", &[channels], Role::Vector)?;
        let bias = scope.weight("bias", &[channels], Role::Vector)?;
        Ok(Self { weight, bias, groups: 32.min(channels), eps: 1e-6 })
    }

    /// Another number of groups.
    #[must_use]
    pub fn with_groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Another epsilon.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// Normalises, then scales and shifts each channel, then applies `act`.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Map<'g>, act: Act) -> Result<Map<'g>> {
        x.group_norm(ctx.weight(&self.weight), ctx.weight(&self.bias), self.groups, self.eps, act)
    }
}

/// Layer normalisation over axis 0.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Option<Weight>,
    bias: Option<Weight>,
    eps: f32,
}

impl LayerNorm {
    /// `weight` and `bias` `[width]`, epsilon 1e-5.
    pub fn load(scope: &Scope<'_>, width: usize) -> Result<Self> {
        let weight = scope.weight("weight", &[width], Role::Vector)?;
        let bias = scope.optional("bias", &[width], Role::Vector)?;
        Ok(Self { weight: Some(weight), bias, eps: 1e-5 })
    }

    /// Without parameters.
    pub fn plain(eps: f32) -> Self {
        Self { weight: None, bias: None, eps }
    }

    /// Another epsilon.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// `[width, ...]` normalised.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let [weight, bias] = [&self.weight, &self.bias].map(|w| w.as_ref().map(|w| ctx.weight(w)));
        x.affine_norm(true, weight, bias, self.eps)
    }
}

/// Root mean square normalisation over axis 0.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    weight: Weight,
    eps: f32,
}

impl RmsNorm {
    /// The tensor `name` `[width]` as scale; epsilon 1e-6.
    pub fn load(scope: &Scope<'_>, name: &str, width: usize) -> Result<Self> {
        Ok(Self { weight: scope.weight(name, &[width], Role::Vector)?, eps: 1e-6 })
    }

    /// Another epsilon.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// `[width, ...]` normalised.
    pub fn forward<'g>(&self, ctx: &Ctx<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        x.affine_norm(false, Some(ctx.weight(&self.weight)), None, self.eps)
    }
}
