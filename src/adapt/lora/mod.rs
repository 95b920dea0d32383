//! LoRA and its relatives: what a file changes ([`parse`]) and by how much ([`math`]).
#![forbid(unsafe_code)]

pub mod apply;
pub mod math;
pub mod parse;
mod resolve;
mod shapes;

pub use apply::{LoraFile, LoraSet, RunTime};
pub use math::{Fetch, add_to, dense, strength};
pub use parse::{Adapter, Delta, Entry, Factor, Matrix, Outer, Parsed, Strength, parse};
pub use resolve::Targets;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
