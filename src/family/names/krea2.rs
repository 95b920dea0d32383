//! The transformer of Krea 2 in diffusers' layout.
#![forbid(unsafe_code)]

use crate::weights::names::{Stage, every, first, head, part};

/// diffusers' names to those of the original code.
pub const DIFFUSERS: &[Stage] = &[
    first(&[
        head("img_in.", "first."),
        head("time_embed.linear_1.", "tmlp.0."),
        head("time_embed.linear_2.", "tmlp.2."),
        head("time_mod_proj.", "tproj.1."),
        head("txt_in.linear_1.", "txtmlp.1."),
        head("txt_in.linear_2.", "txtmlp.3."),
        head("txt_in.norm.", "txtmlp.0."),
        head("text_fusion.", "txtfusion."),
        head("transformer_blocks.", "blocks."),
        head("final_layer.", "last."),
    ]),
    every(&[
        part("attn.to_out.0.", "attn.wo."),
        part("attn.to_out.", "attn.wo."),
        part("attn.to_gate.", "attn.gate."),
        part("attn.to_q.", "attn.wq."),
        part("attn.to_k.", "attn.wk."),
        part("attn.to_v.", "attn.wv."),
        part("ff.gate.", "mlp.gate."),
        part("ff.up.", "mlp.up."),
        part("ff.down.", "mlp.down."),
        part("last.norm.weight", "last.norm.scale"),
        part("last.modulation.weight", "last.modulation.lin"),
    ]),
];
