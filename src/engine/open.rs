//! From the paths of a context to an index of tensors and the family that takes them.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::request::ContextOptions;
use crate::error::{Error, Result};
use crate::family::{self, Family};
use crate::files::{self, ModelFile};
use crate::report::Callbacks;
use crate::weights::Index;
use crate::weights::names::{Dialect, Source, canonical};
use crate::{log_debug, log_info};

/// The files of a context under canonical names.
pub(super) struct Opened {
    pub family: &'static dyn Family,
    pub index: Index,
    pub dialect: Dialect,
}

/// Opens every file that `options` names and finds the family.
pub(super) fn open(options: &ContextOptions, report: &Callbacks) -> Result<Opened> {
    let networks = [
        (Source::Model, "model_path", &options.model),
        (Source::DiffusionModel, "diffusion_model_path", &options.diffusion_model),
        (
            Source::HighNoiseDiffusionModel,
            "high_noise_diffusion_model_path",
            &options.high_noise_diffusion_model,
        ),
        (Source::UncondDiffusionModel, "uncond_diffusion_model_path", &options.uncond_diffusion_model),
    ];
    let parts = [
        (Source::ClipL, "clip_l_path", &options.clip_l),
        (Source::ClipG, "clip_g_path", &options.clip_g),
        (Source::ClipVision, "clip_vision_path", &options.clip_vision),
        (Source::T5xxl, "t5xxl_path", &options.t5xxl),
        (Source::Llm, "llm_path", &options.llm),
        (Source::LlmVision, "llm_vision_path", &options.llm_vision),
        (Source::EmbeddingsConnectors, "embeddings_connectors_path", &options.embeddings_connectors),
        (Source::Vae, "vae_path", &options.vae),
        (Source::AudioVae, "audio_vae_path", &options.audio_vae),
        (Source::Taesd, "taesd_path", &options.taesd),
        (Source::Pulid, "pulid_weights_path", &options.pulid_weights),
    ];
    let mut opened = Vec::new();
    for (source, field, path) in networks {
        open_one(source, field, path.as_deref(), &mut opened)?;
    }
    // The family of the networks alone decides how CLIP files are placed beside them.
    let unet = family::detect(&placed(&opened, false)).is_ok_and(Family::is_unet);
    for (source, field, path) in parts {
        open_one(source, field, path.as_deref(), &mut opened)?;
    }
    for (_, file) in &opened {
        log_info!(report, "{} ({}): {} tensors", file.path().display(), file.format(), file.tensors().len());
    }
    let raw = placed(&opened, unet);
    let family = family::detect(&raw)?;
    log_info!(report, "model family: {}", family.name());
    let dialect = family.dialect(&raw);
    let mut index = Index::default();
    for (source, file) in &opened {
        index.add(file.clone(), |name| {
            Some(canonical(&source.place(name, family.is_unet()), &dialect).into_owned())
        });
    }
    log_debug!(report, "{} tensors in all", index.len());
    Ok(Opened { family, index, dialect })
}

/// Tensors under the names of their files with the prefixes of their fields.
pub(super) fn placed(opened: &[(Source, Arc<ModelFile>)], unet: bool) -> Index {
    let mut index = Index::default();
    for (source, file) in opened {
        index.add(file.clone(), |name| Some(source.place(name, unet).into_owned()));
    }
    index
}

/// Opens the file or diffusers folder of one field.
pub(super) fn open_one(
    source: Source,
    field: &str,
    path: Option<&Path>,
    opened: &mut Vec<(Source, Arc<ModelFile>)>,
) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let named = |error: Error| Error::Invalid(format!("{field}: {error}"));
    if source == Source::Model && path.is_dir() {
        for component in files::diffusers::layout(path).map_err(named)?.components {
            let Some(source) = folder_source(&component.name) else { continue };
            opened.push((source, Arc::new(ModelFile::open(&component.file).map_err(named)?)));
        }
        return Ok(());
    }
    opened.push((source, Arc::new(ModelFile::open(path).map_err(named)?)));
    Ok(())
}

/// Where the component of a diffusers folder belongs.
fn folder_source(component: &str) -> Option<Source> {
    Some(match component {
        "unet" => Source::FolderUnet,
        "transformer" => Source::DiffusionModel,
        "vae" => Source::FolderVae,
        "text_encoder" => Source::FolderTextEncoder,
        "text_encoder_2" => Source::FolderTextEncoder2,
        "text_encoder_3" => Source::T5xxl,
        _ => return None,
    })
}
