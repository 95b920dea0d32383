//! Names of text encoders: open_clip, llama.cpp's GGUF, and the identity encoder of PhotoMaker files.
#![forbid(unsafe_code)]

use super::rules::{Stage, every, every_when, first, first_and_end, head, part, whole};

/// open_clip's names and small variants of transformers' CLIP names, below the encoder's prefix.
pub const CLIP: &[Stage] = &[
    first(&[
        whole("model.ln_final.bias", "transformer.text_model.final_layer_norm.bias"),
        whole("model.ln_final.weight", "transformer.text_model.final_layer_norm.weight"),
        whole("model.positional_embedding", "transformer.text_model.embeddings.position_embedding.weight"),
        whole("model.token_embedding.weight", "transformer.text_model.embeddings.token_embedding.weight"),
        whole("model.text_projection", "transformer.text_model.text_projection"),
        whole("model.visual.class_embedding", "transformer.vision_model.embeddings.class_embedding"),
        whole("model.visual.conv1.weight", "transformer.vision_model.embeddings.patch_embedding.weight"),
        whole("model.visual.ln_post.bias", "transformer.vision_model.post_layernorm.bias"),
        whole("model.visual.ln_post.weight", "transformer.vision_model.post_layernorm.weight"),
        whole("model.visual.ln_pre.bias", "transformer.vision_model.pre_layernorm.bias"),
        whole("model.visual.ln_pre.weight", "transformer.vision_model.pre_layernorm.weight"),
        whole(
            "model.visual.positional_embedding",
            "transformer.vision_model.embeddings.position_embedding.weight",
        ),
        whole("model.visual.proj", "transformer.visual_projection.weight"),
        whole(
            "transformer.vision_model.pre_layrnorm.weight",
            "transformer.vision_model.pre_layernorm.weight",
        ),
        whole("transformer.vision_model.pre_layrnorm.bias", "transformer.vision_model.pre_layernorm.bias"),
    ]),
    first(&[
        head("model.transformer.resblocks.#.", "transformer.text_model.encoder.layers.{a}."),
        head("model.visual.transformer.resblocks.#.", "transformer.vision_model.encoder.layers.{a}."),
    ]),
    every_when(
        ".encoder.layers.",
        &[
            part(".attn.in_proj_bias", ".self_attn.in_proj.bias"),
            part(".attn.in_proj_weight", ".self_attn.in_proj.weight"),
            part(".attn.out_proj.", ".self_attn.out_proj."),
            part(".ln_1.", ".layer_norm1."),
            part(".ln_2.", ".layer_norm2."),
            part(".mlp.c_fc.", ".mlp.fc1."),
            part(".mlp.c_proj.", ".mlp.fc2."),
        ],
    ),
    every(CLIP_PROJECTIONS),
];

/// The projections of CLIP, which sit at several places; for encoders whose other names are already canonical.
pub const CLIP_PARTS: &[Stage] = &[every(CLIP_PROJECTIONS)];

const CLIP_PROJECTIONS: &[super::rules::Rename] = &[
    part("transformer.text_projection.weight", "transformer.text_model.text_projection"),
    part("model.text_projection.weight", "transformer.text_model.text_projection"),
    part("vision_model.visual_projection.weight", "visual_projection.weight"),
];

/// llama.cpp's names of a T5 encoder.
pub const T5_GGUF: &[Stage] = &[every(&[
    part("enc.blk.#.", "encoder.block.{a}."),
    part("enc.output_norm.", "encoder.final_layer_norm."),
    part("attn_q.", "layer.0.SelfAttention.q."),
    part("attn_k.", "layer.0.SelfAttention.k."),
    part("attn_v.", "layer.0.SelfAttention.v."),
    part("attn_o.", "layer.0.SelfAttention.o."),
    part("attn_norm.", "layer.0.layer_norm."),
    part("attn_rel_b.", "layer.0.SelfAttention.relative_attention_bias."),
    part("ffn_norm.", "layer.1.layer_norm."),
    part("ffn_gate.", "layer.1.DenseReluDense.wi_0."),
    part("ffn_up.", "layer.1.DenseReluDense.wi_1."),
    part("ffn_down.", "layer.1.DenseReluDense.wo."),
    part("token_embd.", "shared."),
])];

/// llama.cpp's names of a decoder-only language model.
pub const LLM_GGUF: &[Stage] = &[
    first(&[
        head("blk.#.", "model.layers.{a}."),
        head("token_embd.", "model.embed_tokens."),
        head("output_norm.", "model.norm."),
    ]),
    every_when(
        "layers.",
        &[
            part(".attn_sinks.weight", ".self_attn.sinks"),
            part(".attn_q.", ".self_attn.q_proj."),
            part(".attn_k.", ".self_attn.k_proj."),
            part(".attn_v.", ".self_attn.v_proj."),
            part(".attn_q_norm.", ".self_attn.q_norm."),
            part(".attn_k_norm.", ".self_attn.k_norm."),
            part(".attn_output.", ".self_attn.o_proj."),
            part(".attn_norm.", ".input_layernorm."),
            part(".attn_post_norm.", ".post_attention_norm."),
            part(".ffn_gate_inp.", ".mlp.router."),
            part(".ffn_gate_exps.", ".mlp.experts.gate_proj."),
            part(".ffn_up_exps.", ".mlp.experts.up_proj."),
            part(".ffn_down_exps.", ".mlp.experts.down_proj."),
            part(".ffn_down.", ".mlp.down_proj."),
            part(".ffn_gate.", ".mlp.gate_proj."),
            part(".ffn_up.", ".mlp.up_proj."),
            part(".ffn_post_norm.", ".post_ffw_norm."),
            part(".ffn_norm.", ".post_attention_layernorm."),
        ],
    ),
];

/// llama.cpp's names (mmproj files) of a picture tower with gated feed-forward layers and an MLP merger.
pub const VISION_GGUF: &[Stage] = &[
    first(&[
        head("mm.", "merger.mlp."),
        head("v.post_ln.", "merger.ln_q."),
        head("v.patch_embd.weight.1", "patch_embed.proj.1.weight"),
        head("v.patch_embd.weight", "patch_embed.proj.0.weight"),
        head("v.blk.#.", "blocks.{a}."),
    ]),
    every_when(
        "blocks.",
        &[
            part(".attn_q.", ".attn.q_proj."),
            part(".attn_k.", ".attn.k_proj."),
            part(".attn_v.", ".attn.v_proj."),
            part(".attn_out.", ".attn.proj."),
            part(".ffn_down.", ".mlp.down_proj."),
            part(".ffn_gate.", ".mlp.gate_proj."),
            part(".ffn_up.", ".mlp.up_proj."),
            part(".ln1.", ".norm1."),
            part(".ln2.", ".norm2."),
        ],
    ),
];

/// llama.cpp's names of a picture tower with fused q, k, v, plain feed-forward layers and a learned position table;
/// what it does not know is left to [`VISION_GGUF`].
pub const VISION_FUSED_GGUF: &[Stage] = &[
    first(&[
        head("mm.0.", "merger.linear_fc1."),
        head("mm.2.", "merger.linear_fc2."),
        head("v.post_ln.", "merger.norm."),
        head("v.position_embd.weight", "pos_embed.weight"),
        head("v.patch_embd.weight.1", "patch_embed.proj.1.weight"),
        head("v.patch_embd.weight", "patch_embed.proj.0.weight"),
        head("v.patch_embd.bias", "patch_embed.bias"),
        head("v.blk.#.", "blocks.{a}."),
    ]),
    every_when(
        "blocks.",
        &[
            part(".attn_qkv.", ".attn.qkv."),
            part(".attn_out.", ".attn.proj."),
            part(".ffn_up.", ".mlp.linear_fc1."),
            part(".ffn_down.", ".mlp.linear_fc2."),
            part(".ln1.", ".norm1."),
            part(".ln2.", ".norm2."),
        ],
    ),
];

/// The identity encoder of PhotoMaker files (both versions).
pub const IDENTITY: &[Stage] = &[first_and_end(&[
    whole("pmid.vision_model.visual_projection.weight", "pmid.visual_projection.weight"),
    whole(
        "pmid.qformer_perceiver.perceiver_resampler.layers.#.1.1.weight",
        "pmid.qformer_perceiver.perceiver_resampler.layers.{a}.1.1.fc1.weight",
    ),
    whole(
        "pmid.qformer_perceiver.perceiver_resampler.layers.#.1.3.weight",
        "pmid.qformer_perceiver.perceiver_resampler.layers.{a}.1.1.fc2.weight",
    ),
    head("pmid.qformer_perceiver.token_proj.0.", "pmid.qformer_perceiver.token_proj.fc1."),
    head("pmid.qformer_perceiver.token_proj.2.", "pmid.qformer_perceiver.token_proj.fc2."),
])];
