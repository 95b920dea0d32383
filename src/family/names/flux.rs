//! Flux transformers in diffusers' layout.
#![forbid(unsafe_code)]

use crate::weights::names::{Stage, first, head, module, rows};

/// diffusers' names to those of the original code. q, k, v (and the feed-forward part of the single blocks) are
/// parts of one weight there.
pub const DIFFUSERS: &[Stage] = &[first(&[
    module("time_embed.timestep_embedder.linear_1", "time_in.in_layer"),
    module("time_embed.timestep_embedder.linear_2", "time_in.out_layer"),
    module("time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"),
    module("time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"),
    module("time_text_embed.text_embedder.linear_1", "vector_in.in_layer"),
    module("time_text_embed.text_embedder.linear_2", "vector_in.out_layer"),
    module("time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"),
    module("time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"),
    module("context_embedder", "txt_in"),
    module("x_embedder", "img_in"),
    module("proj_out", "final_layer.linear"),
    module("norm_out.linear", "final_layer.adaLN_modulation.1"),
    module("transformer_blocks.#.norm1.linear", "double_blocks.{a}.img_mod.lin"),
    module("transformer_blocks.#.norm1_context.linear", "double_blocks.{a}.txt_mod.lin"),
    module("transformer_blocks.#.attn.to_q", "double_blocks.{a}.img_attn.qkv"),
    rows("transformer_blocks.#.attn.to_k", "double_blocks.{a}.img_attn.qkv", 1),
    rows("transformer_blocks.#.attn.to_v", "double_blocks.{a}.img_attn.qkv", 2),
    module("transformer_blocks.#.attn.add_q_proj", "double_blocks.{a}.txt_attn.qkv"),
    rows("transformer_blocks.#.attn.add_k_proj", "double_blocks.{a}.txt_attn.qkv", 1),
    rows("transformer_blocks.#.attn.add_v_proj", "double_blocks.{a}.txt_attn.qkv", 2),
    head("transformer_blocks.#.attn.norm_q.weight", "double_blocks.{a}.img_attn.norm.query_norm.scale"),
    head("transformer_blocks.#.attn.norm_k.weight", "double_blocks.{a}.img_attn.norm.key_norm.scale"),
    head("transformer_blocks.#.attn.norm_added_q.weight", "double_blocks.{a}.txt_attn.norm.query_norm.scale"),
    head("transformer_blocks.#.attn.norm_added_k.weight", "double_blocks.{a}.txt_attn.norm.key_norm.scale"),
    module("transformer_blocks.#.attn.to_out.0", "double_blocks.{a}.img_attn.proj"),
    module("transformer_blocks.#.attn.to_add_out", "double_blocks.{a}.txt_attn.proj"),
    module("transformer_blocks.#.ff.net.0.proj", "double_blocks.{a}.img_mlp.0"),
    module("transformer_blocks.#.ff.net.2", "double_blocks.{a}.img_mlp.2"),
    module("transformer_blocks.#.ff_context.net.0.proj", "double_blocks.{a}.txt_mlp.0"),
    module("transformer_blocks.#.ff_context.net.2", "double_blocks.{a}.txt_mlp.2"),
    module("single_transformer_blocks.#.norm.linear", "single_blocks.{a}.modulation.lin"),
    module("single_transformer_blocks.#.attn.to_q", "single_blocks.{a}.linear1"),
    rows("single_transformer_blocks.#.attn.to_k", "single_blocks.{a}.linear1", 1),
    rows("single_transformer_blocks.#.attn.to_v", "single_blocks.{a}.linear1", 2),
    rows("single_transformer_blocks.#.proj_mlp", "single_blocks.{a}.linear1", 3),
    head("single_transformer_blocks.#.attn.norm_q.weight", "single_blocks.{a}.norm.query_norm.scale"),
    head("single_transformer_blocks.#.attn.norm_k.weight", "single_blocks.{a}.norm.key_norm.scale"),
    module("single_transformer_blocks.#.proj_out", "single_blocks.{a}.linear2"),
    // original layout whose norms are called weights
    head(
        "double_blocks.#.img_attn.norm.query_norm.weight",
        "double_blocks.{a}.img_attn.norm.query_norm.scale",
    ),
    head("double_blocks.#.img_attn.norm.key_norm.weight", "double_blocks.{a}.img_attn.norm.key_norm.scale"),
    head(
        "double_blocks.#.txt_attn.norm.query_norm.weight",
        "double_blocks.{a}.txt_attn.norm.query_norm.scale",
    ),
    head("double_blocks.#.txt_attn.norm.key_norm.weight", "double_blocks.{a}.txt_attn.norm.key_norm.scale"),
    head("single_blocks.#.norm.query_norm.weight", "single_blocks.{a}.norm.query_norm.scale"),
    head("single_blocks.#.norm.key_norm.weight", "single_blocks.{a}.norm.key_norm.scale"),
])];
