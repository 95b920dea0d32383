//! The transformer of SD3 and SD3.5 in diffusers' layout.
#![forbid(unsafe_code)]

use crate::weights::names::{Stage, first, head, module, rows};

/// diffusers' names to those of the original code; `attn2` is the second attention of MMDiT-X.
pub const DIFFUSERS: &[Stage] = &[first(&[
    module("time_text_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"),
    module("time_text_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"),
    module("time_text_embed.text_embedder.linear_1", "y_embedder.mlp.0"),
    module("time_text_embed.text_embedder.linear_2", "y_embedder.mlp.2"),
    head("pos_embed.pos_embed", "pos_embed"),
    module("pos_embed.proj", "x_embedder.proj"),
    module("proj_out", "final_layer.linear"),
    module("norm_out.linear", "final_layer.adaLN_modulation.1"),
    module("transformer_blocks.#.norm1.linear", "joint_blocks.{a}.x_block.adaLN_modulation.1"),
    module("transformer_blocks.#.norm1_context.linear", "joint_blocks.{a}.context_block.adaLN_modulation.1"),
    module("transformer_blocks.#.attn.to_q", "joint_blocks.{a}.x_block.attn.qkv"),
    rows("transformer_blocks.#.attn.to_k", "joint_blocks.{a}.x_block.attn.qkv", 1),
    rows("transformer_blocks.#.attn.to_v", "joint_blocks.{a}.x_block.attn.qkv", 2),
    module("transformer_blocks.#.attn.add_q_proj", "joint_blocks.{a}.context_block.attn.qkv"),
    rows("transformer_blocks.#.attn.add_k_proj", "joint_blocks.{a}.context_block.attn.qkv", 1),
    rows("transformer_blocks.#.attn.add_v_proj", "joint_blocks.{a}.context_block.attn.qkv", 2),
    module("transformer_blocks.#.attn2.to_q", "joint_blocks.{a}.x_block.attn2.qkv"),
    rows("transformer_blocks.#.attn2.to_k", "joint_blocks.{a}.x_block.attn2.qkv", 1),
    rows("transformer_blocks.#.attn2.to_v", "joint_blocks.{a}.x_block.attn2.qkv", 2),
    module("transformer_blocks.#.attn2.add_q_proj", "joint_blocks.{a}.context_block.attn2.qkv"),
    rows("transformer_blocks.#.attn2.add_k_proj", "joint_blocks.{a}.context_block.attn2.qkv", 1),
    rows("transformer_blocks.#.attn2.add_v_proj", "joint_blocks.{a}.context_block.attn2.qkv", 2),
    module("transformer_blocks.#.attn.norm_q", "joint_blocks.{a}.x_block.attn.ln_q"),
    module("transformer_blocks.#.attn.norm_k", "joint_blocks.{a}.x_block.attn.ln_k"),
    module("transformer_blocks.#.attn.norm_added_q", "joint_blocks.{a}.context_block.attn.ln_q"),
    module("transformer_blocks.#.attn.norm_added_k", "joint_blocks.{a}.context_block.attn.ln_k"),
    module("transformer_blocks.#.attn2.norm_q", "joint_blocks.{a}.x_block.attn2.ln_q"),
    module("transformer_blocks.#.attn2.norm_k", "joint_blocks.{a}.x_block.attn2.ln_k"),
    module("transformer_blocks.#.ff.net.0.proj", "joint_blocks.{a}.x_block.mlp.fc1"),
    module("transformer_blocks.#.ff.net.2", "joint_blocks.{a}.x_block.mlp.fc2"),
    module("transformer_blocks.#.ff_context.net.0.proj", "joint_blocks.{a}.context_block.mlp.fc1"),
    module("transformer_blocks.#.ff_context.net.2", "joint_blocks.{a}.context_block.mlp.fc2"),
    module("transformer_blocks.#.attn.to_out.0", "joint_blocks.{a}.x_block.attn.proj"),
    module("transformer_blocks.#.attn.to_add_out", "joint_blocks.{a}.context_block.attn.proj"),
    module("transformer_blocks.#.attn2.to_out.0", "joint_blocks.{a}.x_block.attn2.proj"),
    module("transformer_blocks.#.attn2.to_add_out", "joint_blocks.{a}.context_block.attn2.proj"),
])];
