//! The index of tensors over all files, names, types, and how weights get into memory.
//!
//! Files are opened into an [`Index`]; a network asks a [`Loader`] for its weights by name and shape, which gives
//! one [`Part`] that is loaded, unloaded and merged into as a piece.
#![forbid(unsafe_code)]

mod fill;
pub mod importance;
mod index;
pub mod names;
mod part;
mod policy;

pub use fill::{Merge, decode, values_f32, write_as};
pub use index::{Index, Place};
pub use part::{LoadOptions, Loader, Part, Scope};
pub use policy::{Role, TypePolicy, parse_type, plain_type};
