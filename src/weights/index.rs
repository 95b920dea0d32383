//! Where every tensor lies: canonical names over all open files. Nothing is read yet.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::files::{Dtype, ModelFile, TensorEntry};

/// Place of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    file: usize,
    entry: usize,
    /// Extents in ggml order, fastest first.
    pub shape: [usize; 4],
    /// Number of axes in the file.
    pub rank: usize,
    /// Element type in the file.
    pub dtype: Dtype,
}

/// Tensors of several files under their canonical names; a later file wins over an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Index {
    files: Vec<Arc<ModelFile>>,
    places: BTreeMap<String, Place>,
}

impl Index {
    /// Adds the tensors of `file` under the names `rename` gives them; `None` leaves a tensor out.
    pub fn add(&mut self, file: Arc<ModelFile>, mut rename: impl FnMut(&str) -> Option<String>) {
        let number = self.files.len();
        for (entry, tensor) in file.tensors().iter().enumerate() {
            if crate::files::scaled::is_bookkeeping(&tensor.name) {
                continue;
            }
            let Some(name) = rename(&tensor.name) else { continue };
            let place = Place {
                file: number,
                entry,
                shape: tensor.shape4(),
                rank: tensor.shape.len(),
                dtype: tensor.dtype,
            };
            self.places.insert(name, place);
        }
        self.files.push(file);
    }

    /// Place of the tensor `name`.
    pub fn get(&self, name: &str) -> Option<&Place> {
        self.places.get(name)
    }

    /// Whether there is a tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Whether the name of some tensor starts with `prefix`.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.with_prefix(prefix).next().is_some()
    }

    /// Tensors whose names start with `prefix`, in name order.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Place)> {
        self.places
            .range(prefix.to_owned()..)
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(name, place)| (name.as_str(), place))
    }

    /// All tensors in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Place)> {
        self.places.iter().map(|(name, place)| (name.as_str(), place))
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The open files.
    pub fn files(&self) -> &[Arc<ModelFile>] {
        &self.files
    }

    /// File and entry of a place of this index.
    pub fn source(&self, place: &Place) -> Option<(&Arc<ModelFile>, &TensorEntry)> {
        let file = self.files.get(place.file)?;
        Some((file, file.tensors().get(place.entry)?))
    }
}
