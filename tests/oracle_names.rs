//! Recorded tensor names: each spelling in a file and its canonical name, by family.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::time::Instant;

use serde_json::Value;
use stable_diffusion::family::names as dialects;
use stable_diffusion::weights::names::{Dialect, Source, canonical, control};

/// The dialect of a recorded group.
fn dialect(group: &str) -> Dialect {
    match group {
        "SD1" | "SD2" => dialects::SD1,
        "SDXS_512_DS" => dialects::SDXS,
        "SDXL" => dialects::SDXL,
        "SD3" => dialects::SD3,
        "FLUX" | "CHROMA_RADIANCE" | "OVIS_IMAGE" => dialects::FLUX,
        "FLUX2" | "FLUX2_KLEIN" | "LONGCAT" | "SEFI_IMAGE" => dialects::FLUX2,
        "Z_IMAGE" => dialects::Z_IMAGE,
        "WAN2" | "WAN2_2_I2V" | "WAN2_2_TI2V" | "QWEN_IMAGE" => dialects::WAN,
        "ANIMA" => dialects::ANIMA,
        "KREA2" => dialects::KREA2,
        "BOOGU_IMAGE" => dialects::BOOGU,
        "ESRGAN" => Dialect::UPSCALER,
        "MINIT2I" | "LENS" | "PID" | "ERNIE_IMAGE" | "IDEOGRAM4" | "LTXAV" | "HIDREAM_O1" | "COUNT" => {
            Dialect::PLAIN
        }
        other => panic!("no dialect for {other}"),
    }
}

/// (group, name in the file, canonical name)
fn recorded() -> Vec<(String, String, String)> {
    let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/units/names.json.gz")).unwrap();
    let json: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
    let mut names = Vec::new();
    for (group, pairs) in json["versions"].as_object().unwrap() {
        for pair in pairs.as_array().unwrap() {
            let name = pair[0].as_str().unwrap();
            let canonical = pair.get(1).map_or(name, |second| second.as_str().unwrap());
            names.push((group.clone(), name.to_string(), canonical.to_string()));
        }
    }
    names
}

/// The recorded library stops translating diffusers' single blocks at the 38th, though the deepest network with these
/// names has 48: its last ten blocks got no LoRA. We translate them like the others.
fn is_deep_single_block(name: &str) -> bool {
    let separator = |c: char| c == '.' || c == '_';
    name.split_once("single_transformer_blocks")
        .and_then(|(_, rest)| rest.split(separator).nth(1)?.parse::<u32>().ok())
        .is_some_and(|block| block >= 38)
}

#[test]
fn every_recorded_name_is_translated_as_recorded() {
    let names = recorded();
    assert_eq!(names.len(), 48_723);
    let (deep, names): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|(group, name, _)| group == "FLUX2" && is_deep_single_block(name));
    let wrong: Vec<String> = names
        .iter()
        .filter_map(|(group, name, expected)| {
            let found = canonical(name, &dialect(group));
            (found != expected.as_str())
                .then(|| format!("{group}: {name}\n  found    {found}\n  recorded {expected}"))
        })
        .collect();
    let shown: Vec<&String> = wrong.iter().step_by((wrong.len() / 40).max(1)).collect();
    assert!(wrong.is_empty(), "{} of {} names differ, among them\n{shown:#?}", wrong.len(), names.len());
    let changed = |(group, name, expected): &&(String, String, String)| {
        let found = canonical(name, &dialect(group));
        found != expected.as_str()
            && found.contains(".single_blocks.")
            && !expected.contains(".single_blocks.")
    };
    assert_eq!((deep.iter().filter(changed).count(), deep.len()), (291, 390));
}

#[test]
fn canonical_names_stay_and_translation_is_quick() {
    let names = recorded();
    let start = Instant::now();
    let total: usize = names.iter().map(|(group, name, _)| canonical(name, &dialect(group)).len()).sum();
    let took = start.elapsed();
    assert!(total > 0);
    // 50,000 names take well below 0.2 s in a release build; the bound leaves room for debug builds and busy machines
    assert!(took.as_secs_f64() < if cfg!(debug_assertions) { 10.0 } else { 1.0 }, "{took:?}");
}

#[test]
fn control_nets_are_read_in_both_layouts() {
    let pairs = [
        ("control_model.zero_convs.0.0.bias", "zero_convs.0.0.bias"),
        ("input_blocks.1.0.in_layers.0.weight", "input_blocks.1.0.in_layers.0.weight"),
        ("controlnet_down_blocks.11.weight", "zero_convs.11.0.weight"),
        ("controlnet_mid_block.bias", "middle_block_out.0.bias"),
        ("controlnet_cond_embedding.conv_in.weight", "input_hint_block.0.weight"),
        ("controlnet_cond_embedding.blocks.5.weight", "input_hint_block.12.weight"),
        ("controlnet_cond_embedding.conv_out.bias", "input_hint_block.14.bias"),
        ("down_blocks.1.attentions.0.proj_in.weight", "input_blocks.4.1.proj_in.weight"),
        ("down_blocks.2.downsamplers.0.conv.bias", "input_blocks.9.0.op.bias"),
        ("mid_block.resnets.1.conv1.weight", "middle_block.2.in_layers.2.weight"),
        ("time_embedding.linear_2.bias", "time_embed.2.bias"),
        ("conv_in.weight", "input_blocks.0.0.weight"),
    ];
    for (name, expected) in pairs {
        assert_eq!(control(name, &dialects::SD1), expected);
    }
}

#[test]
fn sources_put_their_prefix_before_names_once() {
    assert_eq!(Source::Vae.place("decoder.conv_in.bias", false), "vae.decoder.conv_in.bias");
    assert_eq!(Source::Taesd.place("tae.decoder.layers.0.bias", false), "tae.decoder.layers.0.bias");
    assert_eq!(Source::ClipL.place("text_model.x", true), "cond_stage_model.transformer.text_model.x");
    assert_eq!(Source::ClipL.place("text_model.x", false), "text_encoders.clip_l.transformer.text_model.x");
    assert_eq!(Source::Model.place("x", false), "x");
    // a second network keeps to the same names
    let name =
        Source::HighNoiseDiffusionModel.place("time_text_embed.timestep_embedder.linear_1.bias", false);
    let expected = "model.high_noise_diffusion_model.time_in.in_layer.bias";
    assert_eq!(canonical(&name, &dialects::FLUX), expected);
}
