//! The folder layout of diffusers: one folder for each part of a pipeline.
//!
//! Only file names are looked at; `model_index.json` is read for the names of the classes.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Folders of the parts that have weights.
const PARTS: [&str; 11] = [
    "unet",
    "transformer",
    "transformer_2",
    "vae",
    "text_encoder",
    "text_encoder_2",
    "text_encoder_3",
    "image_encoder",
    "controlnet",
    "adapter",
    "prior",
];

/// Stems under which the parts keep their weights.
const STEMS: [&str; 2] = ["diffusion_pytorch_model", "model"];

/// A part of a pipeline and the file that holds it (an index where it is split).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Folder's name: `unet`, `text_encoder_2`, ...
    pub name: String,
    /// What to open.
    pub file: PathBuf,
    /// Class given by `model_index.json`, such as `CLIPTextModelWithProjection`.
    pub class: Option<String>,
}

/// A diffusers folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Pipeline's class by `model_index.json`.
    pub pipeline: Option<String>,
    /// Parts with weights, in a fixed order.
    pub components: Vec<Component>,
}

/// Finds the parts in `folder`. An error when the folder cannot be read or holds none.
pub fn layout(folder: &Path) -> Result<Layout> {
    let meta = std::fs::metadata(folder).map_err(|e| Error::file(folder, e))?;
    if !meta.is_dir() {
        return Err(Error::file(folder, "is no folder"));
    }
    let classes = model_index(&folder.join("model_index.json"));
    let text = |v: &serde_json::Value| v.as_str().map(str::to_owned);
    let pipeline = classes.as_ref().and_then(|c| text(&c["_class_name"]));
    let mut components = Vec::new();
    for name in PARTS {
        if let Some(file) = weights_in(&folder.join(name)) {
            let class = classes.as_ref().and_then(|c| text(&c[name][1]));
            components.push(Component { name: name.to_owned(), file, class });
        }
    }
    if components.is_empty() {
        return Err(Error::file(
            folder,
            "is a folder without weights in unet/, transformer/, vae/ or text_encoder/: \
             a model file or a diffusers folder was expected",
        ));
    }
    Ok(Layout { pipeline, components })
}

/// The weights in the folder of one part: whole before split, full before half precision, safetensors before pickles.
pub fn weights_in(folder: &Path) -> Option<PathBuf> {
    let candidates = |stem: &str| {
        let torch = if stem == "model" { "pytorch_model" } else { stem };
        [
            format!("{stem}.safetensors"),
            format!("{stem}.safetensors.index.json"),
            format!("{stem}.fp16.safetensors"),
            format!("{stem}.safetensors.index.fp16.json"),
            format!("{stem}.fp16.safetensors.index.json"),
            format!("{stem}.bf16.safetensors"),
            format!("{torch}.bin"),
            format!("{torch}.bin.index.json"),
            format!("{torch}.fp16.bin"),
        ]
    };
    STEMS.iter().flat_map(|stem| candidates(stem)).map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The index of the pipeline; one that is missing, huge or broken only costs the names of the classes.
fn model_index(path: &Path) -> Option<serde_json::Value> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > super::limits::INDEX_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
