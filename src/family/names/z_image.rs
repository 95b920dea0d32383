//! The transformer of Z-Image in diffusers' layout.
#![forbid(unsafe_code)]

use crate::weights::names::{Stage, first, head, module, rows};

/// diffusers' names to those of the original code, in the main blocks and both kinds of refiners.
pub const DIFFUSERS: &[Stage] = &[first(&[
    head("all_x_embedder.2-1.", "x_embedder."),
    head("all_final_layer.2-1.", "final_layer."),
    module("layers.#.attention.norm_q", "layers.{a}.attention.q_norm"),
    module("layers.#.attention.norm_k", "layers.{a}.attention.k_norm"),
    module("layers.#.attention.to_out.0", "layers.{a}.attention.out"),
    module("layers.#.attention.to_q", "layers.{a}.attention.qkv"),
    rows("layers.#.attention.to_k", "layers.{a}.attention.qkv", 1),
    rows("layers.#.attention.to_v", "layers.{a}.attention.qkv", 2),
    module("noise_refiner.#.attention.norm_q", "noise_refiner.{a}.attention.q_norm"),
    module("noise_refiner.#.attention.norm_k", "noise_refiner.{a}.attention.k_norm"),
    module("noise_refiner.#.attention.to_out.0", "noise_refiner.{a}.attention.out"),
    module("noise_refiner.#.attention.to_q", "noise_refiner.{a}.attention.qkv"),
    rows("noise_refiner.#.attention.to_k", "noise_refiner.{a}.attention.qkv", 1),
    rows("noise_refiner.#.attention.to_v", "noise_refiner.{a}.attention.qkv", 2),
    module("context_refiner.#.attention.norm_q", "context_refiner.{a}.attention.q_norm"),
    module("context_refiner.#.attention.norm_k", "context_refiner.{a}.attention.k_norm"),
    module("context_refiner.#.attention.to_out.0", "context_refiner.{a}.attention.out"),
    module("context_refiner.#.attention.to_q", "context_refiner.{a}.attention.qkv"),
    rows("context_refiner.#.attention.to_k", "context_refiner.{a}.attention.qkv", 1),
    rows("context_refiner.#.attention.to_v", "context_refiner.{a}.attention.qkv", 2),
])];
