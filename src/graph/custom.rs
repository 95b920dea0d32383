//! Custom nodes: CPU kernels in the place of ggml's nodes.

use super::ops_math::Act;
use super::tensor::Tensor;
use crate::error::Result;

/// Parameters of one custom node; ggml keeps the address as the node's user data.
pub(super) struct NodeData;

/// A kernel for `x` times `weight`, or `None` for ggml's own path.
pub(super) fn linear<'g>(
    _x: Tensor<'g>,
    _weight: Tensor<'g>,
    _bias: Option<Tensor<'g>>,
    _act: Act,
) -> Result<Option<Tensor<'g>>> {
    Ok(None)
}

/// A kernel for attention, or `None` for ggml's own path.
pub(super) fn attention<'g>(
    _q: Tensor<'g>,
    _k: Tensor<'g>,
    _v: Tensor<'g>,
    _mask: Option<Tensor<'g>>,
    _scale: f32,
) -> Result<Option<Tensor<'g>>> {
    Ok(None)
}
