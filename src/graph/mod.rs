//! ggml made safe: tensors, graphs, checked operations, devices.
//!
//! A [`Graph`] is described once and becomes a [`Program`], which owns its memory and runs many times. Every
//! operation checks ggml's preconditions first and answers with the operation's name and the shapes, so that
//! no input can reach an assertion of ggml; `ggml_sys::guard` is the net below. Shapes are in ggml order,
//! fastest axis first. Weights live in [`Storage`], outside graphs.

#[cfg(target_arch = "x86_64")]
mod custom;
#[cfg(not(target_arch = "x86_64"))]
#[path = "custom_none.rs"]
mod custom;
mod description;
mod device;
mod ops_linear;
mod ops_math;
mod ops_shape;
mod products;
mod program;
mod quant;
mod storage;
mod tensor;
mod types;

#[cfg(test)]
mod tests;

pub use description::{Graph, Math};
pub use device::{Device, device_memory, devices};
pub use ops_linear::Conv2d;
pub use ops_math::Act;
pub use ops_shape::Interpolation;
pub use products::ProductSink;
pub use program::{EvalNode, Input, NoWatch, Program, Watch};
pub use quant::{dequantize, needs_importance, quantize};
pub use storage::{Storage, Weight};
pub use tensor::Tensor;
pub use types::Type;
