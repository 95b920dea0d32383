//! What model files are, told from their headers: no weight is read.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::open::{open, open_one, placed};
use super::request::ContextOptions;
use crate::error::{Error, Result};
use crate::family::{self, Concat, Loaded, Loading};
use crate::files::ModelFile;
use crate::graph::Type;
use crate::report::Callbacks;
use crate::weights::TypePolicy;
use crate::weights::names::Source;

/// Describes the files at `paths` and the model that they make up together, as a JSON text.
///
/// `files`: for each path its format, tensors, bytes by type, what it holds and the field that takes it. `family`,
/// `variant`, `parts` (networks with their bytes in memory), `missing` (what would have to be there) and `memory` are
/// about all files together; `family` is null where they make up no known model.
pub fn inspect(paths: &[PathBuf]) -> Result<String> {
    if paths.is_empty() {
        return Err(Error::invalid("paths: no file is given"));
    }
    let mut options = ContextOptions::default();
    let mut files = Vec::new();
    let mut fields = Map::new();
    for path in paths {
        let mut opened = Vec::new();
        open_one(Source::Model, "paths", Some(path), &mut opened)?;
        let kind = if path.is_dir() { Kind::FOLDER } else { kind(&opened) };
        if let Some(field) = kind.field {
            fields.insert(field.into(), json!(path.to_string_lossy()));
        }
        if let Some(slot) = kind.slot {
            *slot(&mut options) = Some(path.clone());
        }
        files.push(file_report(path, &opened, &kind));
    }
    let mut report = json!({ "files": files, "fields": fields });
    model_report(&options, &mut report);
    let text = serde_json::to_string_pretty(&report);
    text.map_err(|e| Error::Internal(format!("a report could not be written: {e}")))
}

type Slot = fn(&mut ContextOptions) -> &mut Option<PathBuf>;

/// What a file holds and where it belongs.
#[derive(Clone, Copy)]
struct Kind {
    content: &'static str,
    field: Option<&'static str>,
    slot: Option<Slot>,
}

impl Kind {
    const FOLDER: Self = Self::part("model in the folders of diffusers", "model_path", |o| &mut o.model);
    const WHOLE: Self = Self::part("whole model", "model_path", |o| &mut o.model);
    const DENOISER: Self =
        Self::part("diffusion network", "diffusion_model_path", |o| &mut o.diffusion_model);
    const CLIP_L: Self = Self::part("CLIP-L text encoder", "clip_l_path", |o| &mut o.clip_l);
    const CLIP_G: Self = Self::part("CLIP-G text encoder", "clip_g_path", |o| &mut o.clip_g);
    const CLIP_VISION: Self = Self::part("CLIP vision encoder", "clip_vision_path", |o| &mut o.clip_vision);
    const T5: Self = Self::part("T5 text encoder", "t5xxl_path", |o| &mut o.t5xxl);
    const LLM: Self = Self::part("language model", "llm_path", |o| &mut o.llm);
    const LLM_VISION: Self =
        Self::part("picture tower of a language model", "llm_vision_path", |o| &mut o.llm_vision);
    const VAE: Self = Self::part("VAE", "vae_path", |o| &mut o.vae);
    const AUDIO_VAE: Self = Self::part("VAE of sound", "audio_vae_path", |o| &mut o.audio_vae);
    const TAE: Self = Self::part("tiny autoencoder", "taesd_path", |o| &mut o.taesd);
    const CONTROL: Self = Self::other("control net", "control_net_path");
    const PULID: Self = Self::other("PuLID identity encoder", "pulid_weights_path");
    const PHOTO_MAKER: Self = Self::other("PhotoMaker identity encoder", "photo_maker_path");
    const LORA: Self = Self::other("LoRA", "loras");
    const EMBEDDING: Self = Self::other("textual inversion", "embeddings");
    const UPSCALER: Self = Self::other("upscaler", "esrgan_path");
    const UNKNOWN: Self = Self { content: "unknown", field: None, slot: None };

    const fn part(content: &'static str, field: &'static str, slot: Slot) -> Self {
        Self { content, field: Some(field), slot: Some(slot) }
    }

    /// Takes no part in finding the family.
    const fn other(content: &'static str, field: &'static str) -> Self {
        Self { content, field: Some(field), slot: None }
    }
}

/// Marks of what is no part of a model: pieces of names, any of which tells.
const ADDITIONS: &[(&[&str], Kind)] = &[
    (
        &[
            ".lora_up.",
            ".lora_down.",
            ".lora_A.",
            ".lora_B.",
            ".lora.up.",
            "lora_unet_",
            ".hada_w1",
            ".lokr_w1",
        ],
        Kind::LORA,
    ),
    (&["emb_params", "string_to_param"], Kind::EMBEDDING),
    (
        &["control_model.", "controlnet_cond_embedding.", "input_hint_block.", "controlnet_down_blocks."],
        Kind::CONTROL,
    ),
    (&["pulid_encoder.", "pulid_ca."], Kind::PULID),
    (&["qformer_perceiver.", "id_encoder.", "pmid."], Kind::PHOTO_MAKER),
    (&["conv_first.", ".sub.0.RDB1.", "RRDB_trunk."], Kind::UPSCALER),
];

/// Marks of single parts of a model, the surer ones first.
const PARTS: &[(&[&str], Kind)] = &[
    (&["audio_vae."], Kind::AUDIO_VAE),
    (&["SelfAttention.relative_attention_bias.", "enc.blk.0.", "encoder.block.0.layer.0."], Kind::T5),
    (&["vision_model.encoder."], Kind::CLIP_VISION),
    (&["decoder.conv_in.", "decoder.mid.", "decoder.mid_block.", "decoder.middle."], Kind::VAE),
    (&["decoder.layers.", "decoder.1.weight", "decoder.2.conv.0."], Kind::TAE),
];

/// Beginnings of the names of diffusion networks within whole models.
const DENOISERS: &[&str] = &["model.diffusion_model.", "unet.", "diffusion_model."];
/// Beginnings of the names of everything else there.
const COMPANIONS: &[&str] = &[
    "cond_stage_model.",
    "conditioner.",
    "first_stage_model.",
    "text_encoders.",
    "text_encoder.",
    "vae.",
    "te.",
];

fn kind(opened: &[(Source, Arc<ModelFile>)]) -> Kind {
    let names = || opened.iter().flat_map(|(_, file)| file.tensors()).map(|t| t.name.as_str());
    let starts = |list: &[&str]| names().any(|n| list.iter().any(|s| n.starts_with(s)));
    let holds = |list: &[&str]| names().any(|n| list.iter().any(|s| n.contains(s)));
    if let Some((_, kind)) = ADDITIONS.iter().find(|(marks, _)| holds(marks)) {
        return *kind;
    }
    if names().count() <= 2 && names().all(|n| n == "clip_l" || n == "clip_g") {
        return Kind::EMBEDDING;
    }
    if starts(DENOISERS) {
        return if starts(COMPANIONS) { Kind::WHOLE } else { Kind::DENOISER };
    }
    let files: Vec<_> = opened.iter().map(|(_, file)| (Source::DiffusionModel, file.clone())).collect();
    if family::detect(&placed(&files, false)).is_ok() {
        return Kind::DENOISER;
    }
    if family::detect(&placed(opened, true)).is_ok() {
        return Kind::WHOLE;
    }
    if let Some((_, kind)) = PARTS.iter().find(|(marks, _)| holds(marks)) {
        return *kind;
    }
    if holds(&["text_model.encoder.", "transformer.resblocks."]) {
        return clip(opened);
    }
    if holds(&["v.blk.0.", "visual.blocks.0."]) && !holds(&["model.layers.0.", "token_embd."]) {
        return Kind::LLM_VISION;
    }
    if holds(&["model.layers.0.", "token_embd.", "language_model."]) {
        return Kind::LLM;
    }
    Kind::UNKNOWN
}

/// Width of CLIP-G; the other text encoders are narrower.
const CLIP_G_WIDTH: usize = 1280;

fn clip(opened: &[(Source, Arc<ModelFile>)]) -> Kind {
    let tensors = opened.iter().flat_map(|(_, file)| file.tensors());
    let width = tensors.filter(|t| t.name.ends_with("token_embedding.weight")).find_map(|t| t.shape.first());
    if width == Some(&CLIP_G_WIDTH) { Kind::CLIP_G } else { Kind::CLIP_L }
}

fn file_report(path: &Path, opened: &[(Source, Arc<ModelFile>)], kind: &Kind) -> Value {
    let mut types: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for tensor in opened.iter().flat_map(|(_, file)| file.tensors()) {
        let sum = types.entry(tensor.dtype.name()).or_default();
        *sum = (sum.0 + 1, sum.1 + tensor.nbytes);
    }
    let types: Map<String, Value> = types
        .into_iter()
        .map(|(name, (tensors, bytes))| (name.into(), json!({ "tensors": tensors, "bytes": bytes })))
        .collect();
    json!({
        "path": path.to_string_lossy(),
        "format": opened.first().map(|(_, file)| file.format().to_string()),
        "tensors": opened.iter().map(|(_, file)| file.tensors().len()).sum::<usize>(),
        "bytes": opened.iter().map(|(_, file)| file.file_bytes()).sum::<u64>(),
        "types": types,
        "content": kind.content,
        "field": kind.field,
    })
}

/// Adds what the files make up together.
fn model_report(options: &ContextOptions, report: &mut Value) {
    let silent = Callbacks::default();
    report["family"] = Value::Null;
    report["parts"] = json!([]);
    report["missing"] = json!([]);
    let opened = match open(options, &silent) {
        Ok(opened) => opened,
        Err(error) => {
            report["missing"] = json!([error.to_string()]);
            return;
        }
    };
    report["family"] = json!(opened.family.name());
    let policy = match TypePolicy::new(None::<Type>, None) {
        Ok(policy) => policy,
        Err(error) => {
            report["missing"] = json!([error.to_string()]);
            return;
        }
    };
    let loading = Loading { index: &opened.index, policy: &policy, options, report: &silent };
    match opened.family.build(&loading) {
        Ok(loaded) => parts_report(loaded, report),
        Err(error) => {
            let text = error.to_string();
            report["missing"] = text.lines().collect();
        }
    }
}

fn parts_report(mut loaded: Loaded, report: &mut Value) {
    let traits = loaded.model.traits();
    report["variant"] = json!({
        "makes": match (traits.images, traits.videos) {
            (true, true) => "images and videos",
            (false, true) => "videos",
            _ => "images",
        },
        "conditioned_on": match traits.concat {
            Concat::Nothing => "text",
            Concat::MaskAndMasked | Concat::MaskedAndPixelMask => "text, mask and picture (inpainting)",
            Concat::Reference => "text and picture (editing)",
            Concat::Control => "text and control picture",
            Concat::MaskedMaskControl => "text, mask, picture and control picture",
        },
        "latent_channels": traits.latent_channels,
    });
    let mut parts = Vec::new();
    let mut weights = Vec::new();
    let coders = std::iter::once(&mut loaded.autoencoder).chain(&mut loaded.preview);
    let runners: Vec<_> =
        loaded.model.runners().into_iter().chain(coders.flat_map(|c| c.runners())).collect();
    for runner in runners {
        let part = runner.part();
        weights.push(part.bytes());
        parts.push(json!({ "name": part.name(), "tensors": part.tensors(), "bytes": part.bytes() }));
    }
    report["parts"] = json!(parts);
    report["memory"] = json!({
        "weights": weights.iter().sum::<usize>(),
        "largest_part": weights.iter().max().copied().unwrap_or(0),
    });
}
