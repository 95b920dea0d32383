//! One file per model family and the registry.
#![forbid(unsafe_code)]
pub mod names;
