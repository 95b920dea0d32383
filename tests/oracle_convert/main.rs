//! Conversion against recorded results: bytes of every type, which tensors change, sources, containers; what is
//! written is read by ggml's own reader; failures leave nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod failures;
mod readers;
mod recorded;
mod support;
