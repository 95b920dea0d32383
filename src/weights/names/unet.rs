//! Names of convolutional denoisers and their control nets: diffusers' layout to the original one.
#![forbid(unsafe_code)]

use super::rules::{Rename, Stage, Take, every, every_when, first, first_and_end, head, part, whole};

/// diffusers' UNet of four levels with two residual blocks each.
pub const FOUR_LEVELS: &[Stage] = &[
    first_and_end(ENDS),
    every_when("resnets", RESNET),
    first(&[
        head("down_blocks.#.resnets.#.", "input_blocks.{3a+b+1}.0."),
        head("down_blocks.#.attentions.#.", "input_blocks.{3a+b+1}.1."),
        head("down_blocks.#.downsamplers.0.conv.", "input_blocks.{3a+3}.0.op."),
        head("mid_block.attentions.0.", "middle_block.1."),
        head("mid_block.resnets.#.", "middle_block.{2a}."),
        head("up_blocks.#.resnets.#.", "output_blocks.{3a+b}.0."),
        head("up_blocks.#.attentions.#.", "output_blocks.{3a+b}.1."),
        // the first up block has no attention before its upsampler
        head("up_blocks.0.upsamplers.0.", "output_blocks.2.1."),
        head("up_blocks.#.upsamplers.0.", "output_blocks.{3a+2}.2."),
    ]),
];

/// diffusers' UNet of three levels whose deeper two have attention, with an embedding of sizes and pooled text.
pub const THREE_LEVELS: &[Stage] = &[
    first_and_end(ENDS),
    first_and_end(&[
        whole("add_embedding.linear_1.weight", "label_emb.0.0.weight"),
        whole("add_embedding.linear_1.bias", "label_emb.0.0.bias"),
        whole("add_embedding.linear_2.weight", "label_emb.0.2.weight"),
        whole("add_embedding.linear_2.bias", "label_emb.0.2.bias"),
    ]),
    every_when("resnets", RESNET),
    first(&[
        head("down_blocks.#.resnets.#.", "input_blocks.{3a+b+1}.0."),
        head("down_blocks.1.attentions.#.", "input_blocks.{a+4}.1."),
        head("down_blocks.2.attentions.#.", "input_blocks.{a+7}.1."),
        head("down_blocks.#.downsamplers.0.conv.", "input_blocks.{3a+3}.0.op."),
        head("mid_block.attentions.0.", "middle_block.1."),
        head("mid_block.resnets.#.", "middle_block.{2a}."),
        head("up_blocks.#.resnets.#.", "output_blocks.{3a+b}.0."),
        head("up_blocks.0.attentions.#.", "output_blocks.{a}.1."),
        head("up_blocks.1.attentions.#.", "output_blocks.{a+3}.1."),
        head("up_blocks.0.upsamplers.0.", "output_blocks.2.1."),
        head("up_blocks.#.upsamplers.0.", "output_blocks.{3a+2}.2."),
    ]),
    every(&[
        // the cut-down networks without attention there keep the upsampler at 1; all are addressed at 2
        part("output_blocks.2.1.conv.", "output_blocks.2.2.conv."),
        part("to_out.weight", "to_out.0.weight"),
        part("to_out.bias", "to_out.0.bias"),
    ]),
];

/// What a diffusers control net has beside its UNet encoder.
pub const CONTROL: &[Stage] = &[first(&[
    head("controlnet_cond_embedding.conv_in.", "input_hint_block.0."),
    head("controlnet_cond_embedding.blocks.#.", "input_hint_block.{2a+2}."),
    head("controlnet_cond_embedding.conv_out.", "input_hint_block.14."),
    head("controlnet_mid_block.", "middle_block_out.0."),
    head("controlnet_down_blocks.#.", "zero_convs.{a}.0."),
])];

/// Beginnings of the names in a diffusers control net.
pub const CONTROL_HEADS: &[&str] = &[
    "controlnet_cond_embedding.",
    "controlnet_down_blocks.",
    "controlnet_mid_block.",
    "down_blocks.",
    "mid_block.",
    "time_embedding.",
    "add_embedding.",
    "conv_in.",
];

/// Upscaler of residual-in-residual dense blocks: the older layout, where everything lies in one sequence.
pub const RRDB: &[Stage] = &[Stage {
    when: Some("model."),
    take: Take::First,
    rules: &[
        head("model.0.", "conv_first."),
        head("model.1.sub.#.RDB#.conv#.0.", "body.{a}.rdb{b}.conv{c}."),
        head("model.1.sub.#.weight", "conv_body.weight"),
        head("model.1.sub.#.bias", "conv_body.bias"),
        // positions of x1, x2 and x4 networks
        head("model.2.", "conv_hr."),
        head("model.3.", "conv_up1."),
        head("model.4.", "conv_last."),
        head("model.5.", "conv_hr."),
        head("model.6.", "conv_up2."),
        head("model.7.", "conv_last."),
        head("model.8.", "conv_hr."),
        head("model.10.", "conv_last."),
    ],
}];

const ENDS: &[Rename] = &[
    whole("time_embedding.linear_1.weight", "time_embed.0.weight"),
    whole("time_embedding.linear_1.bias", "time_embed.0.bias"),
    whole("time_embedding.linear_2.weight", "time_embed.2.weight"),
    whole("time_embedding.linear_2.bias", "time_embed.2.bias"),
    whole("conv_in.weight", "input_blocks.0.0.weight"),
    whole("conv_in.bias", "input_blocks.0.0.bias"),
    whole("conv_norm_out.weight", "out.0.weight"),
    whole("conv_norm_out.bias", "out.0.bias"),
    whole("conv_out.weight", "out.2.weight"),
    whole("conv_out.bias", "out.2.bias"),
];

const RESNET: &[Rename] = &[
    part("norm1", "in_layers.0"),
    part("conv1", "in_layers.2"),
    part("norm2", "out_layers.0"),
    part("conv2", "out_layers.3"),
    part("time_emb_proj", "emb_layers.1"),
    part("conv_shortcut", "skip_connection"),
];
