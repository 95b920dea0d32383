//! Image and video generation with diffusion models, behind the C interface of `stable-diffusion.h`.
//!
//! The public face is the C header; the Rust items are the library's own rooms, described in
//! `docs/architecture.md`. Calls go down only.

pub mod adapt;
pub mod cancel;
pub mod capi;
pub mod engine;
pub mod error;
pub mod family;
pub mod files;
pub mod graph;
pub mod image;
pub mod kernels;
pub mod layer;
pub mod net;
pub mod pipeline;
pub mod report;
pub mod sample;
pub mod tensor;
pub mod text;
pub mod weights;

pub use error::{Error, Result};
pub use tensor::HostTensor;
