//! Custom nodes on machines without kernels of this library: ggml's own nodes are used.

use super::description::Graph;
use super::ops_linear::Conv2d;
use super::ops_math::Act;
use super::tensor::Tensor;
use crate::error::{Error, Result};

#[derive(Default)]
pub(super) struct Shared;

impl Shared {
    pub(super) fn allocate(&self) -> Result<()> {
        Ok(())
    }

    pub(super) fn take_failure(&self) -> bool {
        false
    }
}

pub(super) struct NodeData;

impl Graph {
    /// Whether kernels stand in for ggml's nodes, so that feature maps keep their channels fastest.
    pub fn has_kernels(&self) -> bool {
        false
    }
}

pub(super) fn linear<'g>(
    _: Tensor<'g>,
    _: Tensor<'g>,
    _: Option<Tensor<'g>>,
    _: Act,
) -> Result<Option<Tensor<'g>>> {
    Ok(None)
}

pub(super) fn attention<'g>(
    _: Tensor<'g>,
    _: Tensor<'g>,
    _: Tensor<'g>,
    _: Option<Tensor<'g>>,
    _: f32,
) -> Result<Option<Tensor<'g>>> {
    Ok(None)
}

fn absent<'g>(op: &'static str) -> Result<Tensor<'g>> {
    Err(Error::shape(op, "there are no kernels for this machine"))
}

pub(super) fn conv2d_last<'g>(
    _: Tensor<'g>,
    _: Tensor<'g>,
    _: Option<Tensor<'g>>,
    _: &Conv2d,
) -> Result<Tensor<'g>> {
    absent("conv2d")
}

pub(super) fn group_norm_last<'g>(
    _: Tensor<'g>,
    _: Tensor<'g>,
    _: Tensor<'g>,
    _: (usize, f32, Act),
) -> Result<Tensor<'g>> {
    absent("group_norm")
}

pub(super) fn norm<'g>(
    _: Tensor<'g>,
    _: bool,
    _: (Option<Tensor<'g>>, Option<Tensor<'g>>),
    _: f32,
) -> Result<Option<Tensor<'g>>> {
    Ok(None)
}

pub(super) fn glu(_: Tensor<'_>, _: Act, _: bool) -> Result<Option<Tensor<'_>>> {
    Ok(None)
}

pub(super) fn activate(_: Tensor<'_>, _: Act) -> Result<Option<Tensor<'_>>> {
    Ok(None)
}

pub(super) fn upsample_last(_: Tensor<'_>, _: usize) -> Result<Tensor<'_>> {
    absent("upsample")
}
