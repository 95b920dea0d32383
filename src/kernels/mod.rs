//! CPU kernels that replace ggml nodes where they are faster.
//!
//! # How a caller uses them
//!
//! A *plan* (such as [`MatMul`]) is made from shapes and types alone, `None` meaning "use ggml's node". It tells
//! the scratch memory it needs (`scratch_bytes(nth)`). Inside the node all `nth` threads call `run` with the same
//! plan, arguments, [`Barrier`] and scratch memory and their own `ith` ([`Team`]). Nothing is allocated and
//! no thread is started there. Results do not depend on `nth`.
//!
//! ```text
//! let plan = MatMul::new(m, n, k, WeightType::F16, Precision::Accurate)?.with_activation(Activation::Silu);
//! let scratch = vec![0u8; plan.scratch_bytes(nth)];
//! // in every thread of the node:
//! unsafe { plan.run(&args, &Team { ith, nth, barrier: &barrier, scratch, scratch_len }) };
//! ```
//!
//! The instruction set is chosen once per process ([`cpu_path`], environment variable [`PATH_VARIABLE`]).

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod attention;
#[cfg(target_arch = "x86_64")]
mod attention_job;
#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
mod conv;
#[cfg(target_arch = "x86_64")]
mod conv_pack;
#[cfg(target_arch = "x86_64")]
mod conv_shape;
mod cpu;
#[cfg(target_arch = "x86_64")]
mod epilogue;
#[cfg(target_arch = "x86_64")]
mod fma;
#[cfg(target_arch = "x86_64")]
mod gemv;
#[cfg(target_arch = "x86_64")]
mod group_norm;
mod isa;
mod math;
#[cfg(target_arch = "x86_64")]
mod matmul;
#[cfg(target_arch = "x86_64")]
mod matmul_area;
#[cfg(target_arch = "x86_64")]
mod matmul_outputs;
#[cfg(target_arch = "x86_64")]
mod matmul_pack;
#[cfg(target_arch = "x86_64")]
mod matmul_rows;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(target_arch = "x86_64")]
mod pack_map;
#[cfg(target_arch = "x86_64")]
mod probe;
#[cfg(target_arch = "x86_64")]
mod rows;
#[cfg(target_arch = "x86_64")]
mod softmax;
#[cfg(target_arch = "x86_64")]
mod sums;
mod team;
#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;
#[cfg(target_arch = "x86_64")]
mod weight;

#[cfg(target_arch = "x86_64")]
pub use attention::{Attention, AttentionArgs, AttentionShape, Heads};
#[cfg(target_arch = "x86_64")]
pub use conv::{Conv, ConvArgs};
#[cfg(target_arch = "x86_64")]
pub use conv_shape::{ConvShape, MapLayout};
pub use cpu::{CpuPath, PATH_VARIABLE, available_paths, cpu_path, supported};
#[cfg(target_arch = "x86_64")]
pub use group_norm::{GroupNorm, GroupNormArgs};
pub use isa::Precision;
pub use math::Activation;
#[cfg(target_arch = "x86_64")]
pub use matmul::{MatMul, MatMulArgs};
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub use probe::inner_product;
#[cfg(target_arch = "x86_64")]
pub use rows::{GluArgs, NormArgs, RopeArgs, RowKernels, RowNorm};
pub use team::{Barrier, Team, run_team, run_team_in};
#[cfg(target_arch = "x86_64")]
pub use weight::{ToFloat, WeightType};
