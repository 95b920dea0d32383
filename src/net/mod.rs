//! Networks that several families share.
//!
//! Each takes its sizes from the shapes of its weights and walks the tree of canonical tensor names; what no shape
//! tells is a small config that the family gives. A `...Model` is a network with its weights and its latest graph.
#![forbid(unsafe_code)]

pub mod clip;
pub mod clip_vision;
pub mod controlnet;
pub mod dit;
pub mod esrgan;
pub mod flux;
mod flux_blocks;
mod flux_pixels;
mod flux_positions;
pub mod mmdit;
pub mod t5;
pub mod tae;
pub mod unet;
mod unet_blocks;
pub mod vae;

use crate::error::{Error, Result};
use crate::graph::{Input, Tensor};
use crate::layer::{Ctx, Env, Runner};
use crate::tensor::HostTensor;
use crate::weights::Part;

/// A runner whose graphs have room for the network and for adapters on every layer.
fn runner(part: Part) -> Runner {
    let capacity = part.tensors() * 64 + 4096;
    Runner::new(part, capacity)
}

/// Runs a network of one input and one output.
fn run_one(
    runner: &mut Runner,
    env: &Env<'_>,
    x: &HostTensor,
    describe: impl for<'g> FnOnce(&Ctx<'g>, Tensor<'g>) -> Result<Tensor<'g>>,
) -> Result<HostTensor> {
    let outputs = runner.run(env, (), &[("x", Input::F32(x))], |ctx, t| Ok(vec![describe(ctx, t[0])?]))?;
    outputs.into_iter().next().ok_or_else(|| Error::Internal("a network gave nothing".into()))
}
