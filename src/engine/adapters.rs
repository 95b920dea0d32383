//! The LoRAs of one generation, on the networks of a context.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::request::{Lora, LoraApply};
use crate::adapt::lora::{LoraFile, LoraSet, RunTime, Targets};
use crate::error::Result;
use crate::family::Model;
use crate::graph::Device;
use crate::layer::Runner;
use crate::report::Callbacks;
use crate::weights::names::{DENOISER, Dialect, HIGH_NOISE_DENOISER};
use crate::weights::{Index, Merge};
use crate::{log_info, log_warn};

/// Files that stay open between generations.
const OPEN_FILES: usize = 8;

/// A file as it was when it was read: another file of the same name is read again.
#[derive(Clone, Debug, PartialEq)]
struct FileKey {
    path: PathBuf,
    modified: Option<SystemTime>,
    bytes: u64,
    high_noise: bool,
}

impl FileKey {
    fn new(path: &Path, high_noise: bool) -> Self {
        let facts = std::fs::metadata(path).ok();
        Self {
            path: path.to_owned(),
            modified: facts.as_ref().and_then(|f| f.modified().ok()),
            bytes: facts.map_or(0, |f| f.len()),
            high_noise,
        }
    }
}

/// What a generation wants applied: a file with its multiplier's bits.
type Wish = (FileKey, u32);

/// What LoRAs may change in a context, the files that were used last, and what is applied now.
pub(super) struct Shelf {
    targets: Targets,
    dialect: Dialect,
    /// The one used last is at the end.
    files: Vec<(FileKey, Arc<LoraFile>)>,
    applied: Vec<Wish>,
    /// The LoRA of the model's own files.
    companion: Option<Arc<LoraFile>>,
    /// Whether anything was applied yet.
    fresh: bool,
    /// Counts changes, so that graphs of different adapters are told apart.
    changes: u64,
}

impl Shelf {
    /// For the weights of `index`.
    pub fn new(index: &Index, dialect: Dialect) -> Self {
        let targets = Targets::from_index(index);
        Self {
            targets,
            dialect,
            files: Vec::new(),
            applied: Vec::new(),
            companion: None,
            fresh: true,
            changes: 0,
        }
    }

    /// Takes the LoRA that belongs to `model`, which counts in every generation.
    pub fn accompany(&mut self, model: &dyn Model, report: &Callbacks) {
        self.companion = model.companion(&self.targets, &self.dialect).map(Arc::new);
        if let Some(warning) = self.companion.as_ref().and_then(|lora| lora.parsed().warning()) {
            log_warn!(report, "LoRA of the model: {warning}");
        }
    }

    /// Makes `loras` (and nothing of an earlier generation) count on `runners`. What cannot be used is said.
    pub fn apply(
        &mut self,
        loras: &[Lora],
        mode: LoraApply,
        runners: &mut [&mut Runner],
        device: &Device,
        report: &Callbacks,
    ) -> Result<()> {
        let keys = loras.iter().map(|lora| FileKey::new(&lora.path, lora.high_noise));
        let wishes: Vec<Wish> = keys.zip(loras).map(|(key, lora)| (key, lora.multiplier.to_bits())).collect();
        if wishes == self.applied && !self.fresh {
            return Ok(());
        }
        let mut opened = Vec::new();
        for (lora, (key, _)) in loras.iter().zip(&wishes) {
            if let Some(file) = self.file(key, report) {
                opened.push((file, lora.multiplier));
            }
        }
        opened.extend(self.companion.clone().map(|lora| (lora, 1.0)));
        self.changes += 1;
        self.fresh = true;
        let set = LoraSet::new(opened);
        let result = place(&set, mode, runners, device, self.changes);
        if result.is_err() {
            // Nothing of a half-applied list may stay.
            clear(runners);
            return result;
        }
        self.applied = wishes;
        self.fresh = false;
        Ok(())
    }

    /// The file, opened or from the shelf; `None` when it cannot be used at all.
    fn file(&mut self, key: &FileKey, report: &Callbacks) -> Option<Arc<LoraFile>> {
        let shown = key.path.display();
        let file = match self.files.iter().position(|(known, _)| known == key) {
            Some(i) => self.files.remove(i).1,
            None => {
                let denoiser = if key.high_noise { HIGH_NOISE_DENOISER } else { DENOISER };
                match LoraFile::open(&key.path, &self.targets, &self.dialect, denoiser) {
                    Ok(file) => Arc::new(file),
                    Err(error) => {
                        log_warn!(report, "LoRA {shown} is left out: {error}");
                        return None;
                    }
                }
            }
        };
        let parsed = file.parsed();
        match parsed.warning() {
            Some(warning) => log_warn!(report, "LoRA {shown}: {warning}"),
            None => log_info!(report, "LoRA {shown}: {} weights change", parsed.adapters.len()),
        }
        self.files.push((key.clone(), file.clone()));
        if self.files.len() > OPEN_FILES {
            self.files.remove(0);
        }
        Some(file)
    }
}

fn clear(runners: &mut [&mut Runner]) {
    for runner in runners {
        runner.set_adapters(None);
        runner.part_mut().set_merges(Vec::new());
    }
}

/// Splits `set` in what is merged and what layers add, and hands both to the networks.
fn place(
    set: &LoraSet,
    mode: LoraApply,
    runners: &mut [&mut Runner],
    device: &Device,
    change: u64,
) -> Result<()> {
    if set.is_empty() {
        clear(runners);
        return Ok(());
    }
    let at_run_time = match mode {
        LoraApply::Immediately => false,
        LoraApply::AtRuntime => true,
        // Adding to quantised weights and rounding again loses most of a small change.
        LoraApply::Auto => runners.iter().any(|r| r.part().weights().any(|w| w.ty().is_quantized())),
    };
    let mut adapters = None;
    let mut merged = set.clone();
    if at_run_time {
        let weights: Vec<_> = runners
            .iter()
            .flat_map(|runner| layer_weights(runner))
            .filter(|(name, _)| set.touches(name))
            .collect();
        let run_time = RunTime::new(
            set,
            weights.iter().map(|(name, shape)| (name.as_str(), *shape)),
            device,
            device.threads(),
            change,
        )?;
        merged = set.filtered(|name| !weights.iter().any(|(known, _)| known == name));
        adapters = (!run_time.is_empty()).then(|| Arc::new(run_time));
    }
    let merges: Vec<Arc<dyn Merge>> = if merged.is_empty() { Vec::new() } else { vec![Arc::new(merged)] };
    for runner in runners {
        let own = adapters.as_ref().filter(|a| runner.part().weights().any(|w| a.touches(w.name())));
        let own = own.map(|a| a.clone() as Arc<dyn crate::layer::Adapters>);
        runner.set_adapters(own);
        runner.part_mut().set_merges(merges.clone());
    }
    Ok(())
}

/// Weights that only linear layers and convolutions use, and their biases; others (norms, tables) do not ask for
/// adapters, so theirs are merged in every mode.
fn layer_weights(runner: &Runner) -> Vec<(String, [usize; 4])> {
    const NOT_LAYERS: &[&str] = &["embedding.", "embeddings.", "text_projection", "pos_embed"];
    let is_matrix = |shape: [usize; 4]| shape[1..].iter().product::<usize>() > 1;
    let layers: std::collections::HashSet<&str> = runner
        .part()
        .weights()
        .filter(|w| is_matrix(w.shape()) && !NOT_LAYERS.iter().any(|part| w.name().contains(part)))
        .filter_map(|w| w.name().strip_suffix(".weight"))
        .collect();
    let of_layer = |name: &str| {
        let layer = name.strip_suffix(".weight").or_else(|| name.strip_suffix(".bias"));
        layer.is_some_and(|layer| layers.contains(layer))
    };
    let weights = runner.part().weights().filter(|w| of_layer(w.name()));
    weights.map(|w| (w.name().to_owned(), w.shape())).collect()
}
