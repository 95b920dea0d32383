//! Conversion of model files: parts merged, types changed, one file written. Nothing is held in memory as a whole.
#![forbid(unsafe_code)]

mod piece;
mod plan;
mod stream;

use std::path::Path;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::files::{Container, Metadata, ModelFile, TensorEntry, Writer, same_file};
use crate::report::Callbacks;
use crate::weights::TypePolicy;
use crate::{log_info, log_warn};

pub use plan::check_types;

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Item {
    /// Name in the output.
    pub name: String,
    /// Name under which an importance matrix knows it.
    pub canonical: String,
    /// Where it lies.
    pub file: Arc<ModelFile>,
    /// Index of its entry there.
    pub entry: usize,
}

impl Item {
    fn source(&self) -> Result<&TensorEntry> {
        self.file.tensors().get(self.entry).ok_or_else(|| {
            Error::Internal(format!("{} has no tensor {}", self.file.path().display(), self.entry))
        })
    }
}

/// How to convert.
pub struct Conversion<'a> {
    /// Where to write; the name's end chooses the container.
    pub output: &'a Path,
    /// Types wished for.
    pub types: &'a TypePolicy,
    /// Threads that read, convert and write.
    pub threads: usize,
    /// Whom to tell.
    pub report: &'a Callbacks,
    /// Whether to go on.
    pub cancel: &'a CancelToken,
}

/// Writes `items` in the order of their names; of two with one name the later is written.
///
/// The output appears when it is whole; a failure leaves what was there before.
pub fn convert(items: Vec<Item>, how: &Conversion<'_>) -> Result<()> {
    refuse_own_input(&items, how.output)?;
    let container = Container::of_path(how.output);
    let plan = plan::plan(items, how.types, container)?;
    for name in &plan.left_out {
        log_warn!(how.report, "{name} is left out: the output has no type for it");
    }
    if plan.works.is_empty() {
        return Err(Error::invalid(
            "the input holds no tensor of a model that could be written: check the paths of the inputs",
        ));
    }
    for ty in plan.unmeasured() {
        log_warn!(
            how.report,
            "type {ty} is made for an importance matrix; without one (load_imatrix) its quality is poor"
        );
    }
    let writer = Writer::create(how.output, container, &plan.outputs, &Metadata::default())
        .map_err(|e| Error::Invalid(format!("output_path: {e}")))?;
    log_info!(
        how.report,
        "writing {} tensors, {} MiB, with {} threads",
        plan.works.len(),
        writer.file_bytes() >> 20,
        how.threads
    );
    stream::run(&plan.works, &writer, how)?;
    writer.finish()
}

/// An output that is one of the inputs, also through a link, is refused.
fn refuse_own_input(items: &[Item], output: &Path) -> Result<()> {
    let mut seen: Vec<&Arc<ModelFile>> = Vec::new();
    for item in items {
        if seen.iter().any(|f| Arc::ptr_eq(f, &item.file)) {
            continue;
        }
        seen.push(&item.file);
        let own = std::iter::once(item.file.path()).chain(item.file.paths());
        if let Some(path) = own.into_iter().find(|path| same_file(path, output)) {
            return Err(Error::invalid(format!(
                "output_path: {} is the input {}, choose another name",
                output.display(),
                path.display()
            )));
        }
    }
    Ok(())
}
