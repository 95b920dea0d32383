//! Writes the C headers from `src/capi`.
fn main() {}
