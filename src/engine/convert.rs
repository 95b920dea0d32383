//! Conversion of model files and the importance matrix.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::open::{open_one, placed};
use super::request::ConvertRequest;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::family;
use crate::files::ModelFile;
use crate::graph::Type;
use crate::log_info;
use crate::pipeline::convert::{self, Conversion, Item};
use crate::report::Callbacks;
use crate::weights::TypePolicy;
use crate::weights::names::{Dialect, Source, canonical};

/// Reads model files, converts their tensors and writes one file.
pub fn convert(request: &ConvertRequest, callbacks: &Callbacks) -> Result<()> {
    let ty = match request.output_type {
        None => None,
        Some(id) => Some(
            i32::try_from(id)
                .ok()
                .and_then(Type::from_ggml)
                .ok_or_else(|| Error::invalid(format!("output_type: {id} is no type")))?,
        ),
    };
    let types = TypePolicy::new(ty, request.tensor_type_rules.as_deref())?;
    convert::check_types(&types)?;
    let files = open_all(request)?;
    for (_, file) in &files {
        log_info!(
            callbacks,
            "{} ({}): {} tensors",
            file.path().display(),
            file.format(),
            file.tensors().len()
        );
    }
    let how = Conversion {
        output: &request.output,
        types: &types,
        threads: request.n_threads,
        report: callbacks,
        cancel: &CancelToken::none(),
    };
    convert::convert(items(&files, request.convert_name), &how)
}

fn open_all(request: &ConvertRequest) -> Result<Vec<(Source, Arc<ModelFile>)>> {
    let inputs = [
        (Source::Model, "model_path", &request.model),
        (Source::ClipL, "clip_l_path", &request.clip_l),
        (Source::ClipG, "clip_g_path", &request.clip_g),
        (Source::T5xxl, "t5xxl_path", &request.t5xxl),
        (Source::DiffusionModel, "diffusion_model_path", &request.diffusion_model),
        (Source::Vae, "vae_path", &request.vae),
    ];
    let mut files = Vec::new();
    for (source, field, path) in inputs {
        open_one(source, field, path.as_deref(), &mut files)?;
    }
    if files.is_empty() {
        return Err(Error::invalid("no input is given: set model_path or one of the other paths"));
    }
    Ok(files)
}

/// Every tensor with its names. Files of no known family keep theirs.
fn items(files: &[(Source, Arc<ModelFile>)], convert_name: bool) -> Vec<Item> {
    let networks: Vec<_> = files
        .iter()
        .filter(|(source, _)| {
            matches!(source, Source::Model | Source::DiffusionModel | Source::FolderUnet)
                || is_folder_part(*source)
        })
        .cloned()
        .collect();
    let unet = family::detect(&placed(&networks, false)).is_ok_and(family::Family::is_unet);
    let raw = placed(files, unet);
    let dialect = family::detect(&raw).map_or(Dialect::PLAIN, |family| family.dialect(&raw));
    let mut items = Vec::new();
    for (source, file) in files {
        for (entry, tensor) in file.tensors().iter().enumerate() {
            let given = source.place(&tensor.name, unet);
            let canonical = canonical(&given, &dialect).into_owned();
            let name = if convert_name { canonical.clone() } else { given.into_owned() };
            items.push(Item { name, canonical, file: file.clone(), entry });
        }
    }
    items
}

fn is_folder_part(source: Source) -> bool {
    matches!(source, Source::FolderVae | Source::FolderTextEncoder | Source::FolderTextEncoder2)
}

/// The importance matrix: how much each input channel of a weight matters, measured while generating.
pub mod imatrix {
    use crate::error::{Error, Result};
    use crate::weights::importance;
    use std::path::Path;

    /// Reads a file and adds to what is there.
    pub fn load(path: &Path) -> Result<()> {
        importance::load(path).map_err(named)
    }

    /// Writes what is there.
    pub fn save(path: &Path) -> Result<()> {
        importance::save(path).map_err(named)
    }

    /// Starts or stops measuring.
    pub fn collect(on: bool) -> Result<()> {
        importance::measure(on);
        Ok(())
    }

    fn named(error: Error) -> Error {
        match error {
            Error::File { .. } => Error::Invalid(format!("imatrix_path: {error}")),
            other => other,
        }
    }
}
