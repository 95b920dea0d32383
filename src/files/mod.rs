//! File formats: readers and streaming writers.
//!
//! [`ModelFile::open`] tells the format by content, reads and checks the headers, and gives a list of
//! [`TensorEntry`]; bytes are then read at positions from any thread or taken from the mapped file.
//! Nothing here knows what the tensors mean. Every claim of a file is checked before it is believed,
//! against the file's size and [`limits`].
#![deny(unsafe_code)]

mod check;
mod convert;
pub mod diffusers;
mod dtype;
mod gguf;
mod gguf_layout;
pub mod imatrix;
mod index;
pub mod limits;
mod metadata;
mod model;
mod packed;
mod pickle;
mod pickle_calls;
mod safetensors;
mod safetensors_layout;
pub mod scaled;
mod source;
mod strided;
mod torch;
mod torch_legacy;
mod torch_zip;
mod writer;
mod zip;

#[allow(unsafe_code)]
mod mmap;

pub use convert::{apply_scale, convert_source, e4m3_to_f16, e4m3_to_f32, e5m2_to_f32, i64_to_i32};
pub use dtype::Dtype;
pub use metadata::{Array, Metadata, Value};
pub use model::{Format, ModelFile, TensorEntry};
pub use source::Source;
pub use writer::{Container, Planned, Writer, same_file};
