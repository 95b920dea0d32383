//! Names of variational autoencoders: diffusers' layouts to the original ones.
#![forbid(unsafe_code)]

use super::rules::{Stage, every, every_when, first, head, part};

/// diffusers' AutoencoderKL.
pub const KL: &[Stage] = &[
    first(&[
        head("decoder.post_quant_conv.", "post_quant_conv."),
        head("encoder.quant_conv.", "quant_conv."),
    ]),
    every(&[
        part("conv_shortcut", "nin_shortcut"),
        part("conv_norm_out", "norm_out"),
        part("mid_block.attentions.0.", "mid.attn_1."),
        part("mid_block.resnets.#.", "mid.block_{a+1}."),
        part("encoder.down_blocks.#.resnets.#.", "encoder.down.{a}.block.{b}."),
        part("down_blocks.#.downsamplers.0.", "down.{a}.downsample."),
        // diffusers counts the decoder's levels from the coarsest, the original from the finest
        part("decoder.up_blocks.#.resnets.#.", "decoder.up.{3-a}.block.{b}."),
        part("up_blocks.#.upsamplers.0.", "up.{3-a}.upsample."),
    ]),
    every_when(
        "mid.attn_1.",
        &[
            part("group_norm.", "norm."),
            part("query.", "q."),
            part("key.", "k."),
            part("value.", "v."),
            part("proj_attn.", "proj_out."),
            part("to_q", "q"),
            part("to_k", "k"),
            part("to_v", "v"),
            part("to_out.0", "proj_out"),
        ],
    ),
];

/// diffusers' causal video autoencoder (three residual blocks a level in the decoder, two in the encoder).
pub const CAUSAL_VIDEO: &[Stage] = &[
    every(&[
        part(".conv_in.", ".conv1."),
        part(".norm_out.", ".head.0."),
        part(".conv_out.", ".head.2."),
        part(".mid_block.attentions.0.", ".middle.1."),
        part(".mid_block.resnets.0.", ".middle.0.residual."),
        part(".mid_block.resnets.1.", ".middle.2.residual."),
    ]),
    first(&[
        head("quant_conv.", "conv1."),
        head("post_quant_conv.", "conv2."),
        head("decoder.up_blocks.1.resnets.0.conv_shortcut.", "decoder.upsamples.4.shortcut."),
        head("decoder.up_blocks.#.resnets.#.", "decoder.upsamples.{4a+b}.residual."),
        head("decoder.up_blocks.#.upsamplers.0.", "decoder.upsamples.{4a+3}."),
        // every third block of the encoder resamples
        head("encoder.down_blocks.2.", "encoder.downsamples.2."),
        head("encoder.down_blocks.5.", "encoder.downsamples.5."),
        head("encoder.down_blocks.8.", "encoder.downsamples.8."),
        // where the width changes
        head("encoder.down_blocks.3.conv_shortcut.", "encoder.downsamples.3.shortcut."),
        head("encoder.down_blocks.6.conv_shortcut.", "encoder.downsamples.6.shortcut."),
        head("encoder.down_blocks.#.", "encoder.downsamples.{a}.residual."),
    ]),
    every_when(
        ".residual.",
        &[part(".norm1.", ".0."), part(".conv1.", ".2."), part(".norm2.", ".3."), part(".conv2.", ".6.")],
    ),
];
