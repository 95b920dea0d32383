//! Readers and writers of model files, on files built here.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "files/build.rs"]
mod build;
#[path = "files/gguf.rs"]
mod gguf;
#[path = "files/imatrix.rs"]
mod imatrix;
#[path = "files/paths.rs"]
mod paths;
#[path = "files/safetensors.rs"]
mod safetensors;
#[path = "files/torch.rs"]
mod torch;
#[path = "files/values.rs"]
mod values;
#[path = "files/writers.rs"]
mod writers;
