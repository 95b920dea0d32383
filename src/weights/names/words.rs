//! Underscored LoRA names: which underscores separate segments and which belong to a segment's own name.
#![forbid(unsafe_code)]

/// Identifiers that contain underscores themselves, in alphabetical order.
const COMPOUND: &[&str] = &[
    "add_k_proj",
    "add_out_proj",
    "add_q_proj",
    "add_v_proj",
    "cond_stage_model",
    "conv_in",
    "conv_norm_out",
    "conv_out",
    "conv_shortcut",
    "diff_b",
    "diffusion_model",
    "double_blocks",
    "down_blocks",
    "emb_layers",
    "ff_context",
    "first_stage_model",
    "hada_t1",
    "hada_t2",
    "hada_w1_a",
    "hada_w1_b",
    "hada_w2_a",
    "hada_w2_b",
    "img_attn",
    "img_mlp",
    "img_mod",
    "in_layers",
    "input_blocks",
    "k_proj",
    "lokr_w1",
    "lokr_w1_a",
    "lokr_w1_b",
    "lokr_w2",
    "lokr_w2_a",
    "lokr_w2_b",
    "lora_down",
    "lora_mid",
    "lora_up",
    "mid_block",
    "middle_block",
    "norm1_context",
    "norm_added_q",
    "norm_added_v",
    "out_layers",
    "out_proj",
    "output_blocks",
    "proj_in",
    "proj_mlp",
    "proj_out",
    "q_proj",
    "self_attn",
    "single_blocks",
    "single_transformer_blocks",
    "skip_connection",
    "text_model",
    "time_emb_proj",
    "time_embedding",
    "to_add_out",
    "to_k",
    "to_out",
    "to_q",
    "to_v",
    "transformer_blocks",
    "txt_attn",
    "txt_mlp",
    "txt_mod",
    "up_block",
    "v_proj",
    "wi_0",
    "wi_1",
    "x_embedder",
];

/// Further ones, which the recorded spellings take apart.
pub const MORE_COMPOUND: &[&str] = &[
    "add_embedding",
    "all_final_layer",
    "all_x_embedder",
    "cap_embedder",
    "context_embedder",
    "context_refiner",
    "cross_attn",
    "feed_forward",
    "final_layer",
    "final_layer_norm",
    "guidance_embedder",
    "img_in",
    "label_emb",
    "layer_norm1",
    "layer_norm2",
    "linear_1",
    "linear_2",
    "noise_refiner",
    "norm_added_k",
    "norm_k",
    "norm_out",
    "norm_q",
    "pos_embed",
    "position_embedding",
    "text_embedder",
    "text_fusion",
    "time_embed",
    "time_mod_proj",
    "time_text_embed",
    "timestep_embedder",
    "to_gate",
    "token_embedding",
    "txt_in",
];

/// Turns separating underscores into dots: `down_blocks_0_attn1_to_k` -> `down_blocks.0.attn1.to_k`. `more` are
/// identifiers, in alphabetical order, which stay whole beside [`COMPOUND`].
pub fn dotted(name: &str, more: &[&str]) -> String {
    let bytes = name.as_bytes();
    let mut keep = vec![false; bytes.len()];
    let starts = (0..bytes.len()).filter(|&at| at == 0 || matches!(bytes[at - 1], b'_' | b'.'));
    for start in starts {
        let rest = &bytes[start..];
        let Some(&letter) = rest.first() else { continue };
        for words in [COMPOUND, more] {
            let from = words.partition_point(|word| word.as_bytes().first() < Some(&letter));
            for word in words[from..].iter().take_while(|word| word.as_bytes().first() == Some(&letter)) {
                if rest.starts_with(word.as_bytes()) {
                    for (offset, _) in word.match_indices('_') {
                        keep[start + offset] = true;
                    }
                }
            }
        }
    }
    name.char_indices().map(|(at, c)| if c == '_' && !keep[at] { '.' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::dotted;

    #[test]
    fn compounds_are_sorted() {
        assert!(super::COMPOUND.is_sorted() && super::MORE_COMPOUND.is_sorted());
    }

    #[test]
    fn separators_become_dots_and_compounds_stay() {
        assert_eq!(dotted("unet_down_blocks_0_attn1_to_out_0", &[]), "unet.down_blocks.0.attn1.to_out.0");
        assert_eq!(
            dotted("te_text_model_encoder_layers_0_self_attn_q_proj", &[]),
            "te.text_model.encoder.layers.0.self_attn.q_proj"
        );
        assert_eq!(dotted("é_x_ü", &[]), "é.x.ü");
        assert_eq!(dotted("", &[]), "");
    }
}
