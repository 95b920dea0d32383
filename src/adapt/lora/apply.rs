//! LoRA files on a loaded model: added to its weights while they are loaded, or to the output of its layers while
//! they compute.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::math::{dense, strength};
use super::parse::{Adapter, Delta, Entry, Factor, Parsed, parse};
use super::resolve::Targets;
use crate::error::{Error, Result};
use crate::files::ModelFile;
use crate::graph::{Device, Storage, Type, Weight};
use crate::layer::{Adapters, Delta as LayerDelta, DeltaKind};
use crate::tensor::HostTensor;
use crate::weights::names::Dialect;
use crate::weights::{Merge, values_f32, write_as};

/// An open LoRA file and what it changes in one model.
pub struct LoraFile {
    file: Arc<ModelFile>,
    parsed: Parsed,
}

impl LoraFile {
    /// Opens `path` for the model with the weights `targets`; `denoiser` is the prefix of the network it is for.
    pub fn open(path: &Path, targets: &Targets, dialect: &Dialect, denoiser: &str) -> Result<Self> {
        let every = |name: &str| Some(name.to_owned());
        Ok(Self::new(Arc::new(ModelFile::open(path)?), every, targets, dialect, denoiser))
    }

    /// The tensors of an open file under the names that `rename` gives them; without one they are not looked at.
    pub fn new(
        file: Arc<ModelFile>,
        rename: impl Fn(&str) -> Option<String>,
        targets: &Targets,
        dialect: &Dialect,
        denoiser: &str,
    ) -> Self {
        let numbered = file.tensors().iter().enumerate();
        let (numbers, entries): (Vec<usize>, Vec<Entry>) = numbered
            .filter_map(|(number, tensor)| {
                let name = rename(&tensor.name)?;
                Some((number, Entry { name, shape: tensor.shape.clone() }))
            })
            .unzip();
        let mut parsed = parse(&entries, targets, dialect, denoiser);
        if numbers.len() != file.tensors().len() {
            parsed.adapters.iter_mut().for_each(|adapter| renumber(adapter, &numbers));
        }
        Self { file, parsed }
    }

    /// What the file holds for the model.
    pub fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    fn fetch(&self, index: usize) -> Result<HostTensor> {
        let entry = self.file.tensors().get(index);
        let entry = entry.ok_or_else(|| Error::Internal(format!("LoRA tensor {index} is not there")))?;
        HostTensor::new(entry.shape.clone(), values_f32(&self.file, entry)?)
    }
}

/// Turns positions in a list of tensors into `numbers`, their positions in the file.
fn renumber(adapter: &mut Adapter, numbers: &[usize]) {
    use super::parse::{Outer, Strength};
    let new = |index: &mut usize| *index = numbers[*index];
    let factor = |f: &mut Factor| {
        new(&mut f.up);
        new(&mut f.down);
        f.core.as_mut().map(new);
    };
    let outer = |o: &mut Outer| match o {
        Outer::Full { index, .. } => new(index),
        Outer::Product(f) => factor(f),
    };
    match &mut adapter.delta {
        Delta::LowRank(f) => factor(f),
        Delta::Loha { first, second } => [first, second].into_iter().for_each(factor),
        Delta::Lokr { outer: a, inner: b } => [a, b].into_iter().for_each(outer),
        Delta::Diff { index } => new(index),
    }
    match &mut adapter.strength {
        Strength::Unit => {}
        Strength::Scalar(index) => new(index),
        Strength::AlphaOverRank { alpha, .. } => new(alpha),
    }
    adapter.dora_scale.as_mut().map(new);
}

/// LoRA files with the strengths that a generation gives them, in its order.
#[derive(Clone, Default)]
pub struct LoraSet {
    loras: Vec<(Arc<LoraFile>, f32)>,
    /// For each weight the changes: file and adapter.
    changes: HashMap<String, Vec<(usize, usize)>>,
}

impl LoraSet {
    /// Takes files and multipliers.
    pub fn new(loras: Vec<(Arc<LoraFile>, f32)>) -> Self {
        let mut changes: HashMap<String, Vec<_>> = HashMap::new();
        for (i, (file, _)) in loras.iter().enumerate() {
            for (j, adapter) in file.parsed.adapters.iter().enumerate() {
                changes.entry(adapter.target.clone()).or_default().push((i, j));
            }
        }
        Self { loras, changes }
    }

    /// Whether no weight changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether the weight `name` changes.
    pub fn touches(&self, name: &str) -> bool {
        self.changes.contains_key(name)
    }

    /// The part of the changes whose weights `keep` chooses.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        let changes = self.changes.iter().filter(|(name, _)| keep(name));
        Self { loras: self.loras.clone(), changes: changes.map(|(n, c)| (n.clone(), c.clone())).collect() }
    }

    fn of(&self, name: &str) -> impl Iterator<Item = (&LoraFile, &Adapter, f32)> {
        self.changes.get(name).into_iter().flatten().map(|&(i, j)| {
            let (file, multiplier) = &self.loras[i];
            (file.as_ref(), &file.parsed.adapters[j], *multiplier)
        })
    }
}

impl Merge for LoraSet {
    fn touches(&self, name: &str) -> bool {
        Self::touches(self, name)
    }

    fn merge(&self, name: &str, _shape: [usize; 4], values: &mut [f32]) -> Result<()> {
        // Loading works on several weights at a time already.
        self.of(name).try_for_each(|(file, adapter, multiplier)| {
            super::math::add_to(values, adapter, multiplier, &|index| file.fetch(index), 1)
        })
    }
}

/// Changes that layers add to their output.
pub struct RunTime {
    deltas: HashMap<String, Vec<LayerDelta>>,
    fingerprint: u64,
}

impl Adapters for RunTime {
    fn deltas(&self, weight: &str) -> &[LayerDelta] {
        self.deltas.get(weight).map_or(&[], Vec::as_slice)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Factors whose values lie on the host until all are known and get memory in one piece.
struct Pending {
    storage: Arc<Storage>,
    values: Vec<(Weight, Vec<f32>)>,
}

/// Most tensors of one change.
const PER_ADAPTER: usize = 3;

impl Pending {
    fn add(&mut self, name: &str, ty: Type, shape: [usize; 4], values: Vec<f32>) -> Result<Weight> {
        if shape.iter().product::<usize>() != values.len() {
            return Err(Error::shape("LoRA", format!("{name}: {} values for {shape:?}", values.len())));
        }
        let weight = self.storage.declare(name, ty, shape)?;
        self.values.push((weight.clone(), values));
        Ok(weight)
    }

    fn place(self, device: &Device) -> Result<()> {
        self.storage.allocate(device)?;
        for (weight, values) in self.values {
            let mut bytes = vec![0; weight.bytes()];
            write_as(weight.ty(), &values, weight.shape()[0], &mut bytes)?;
            weight.write(0, &bytes)?;
        }
        Ok(())
    }
}

impl RunTime {
    /// Takes the changes of `set` for the given weights (name and shape, as they lie in memory) onto `device`.
    /// `fingerprint` must be new.
    pub fn new<'w>(
        set: &LoraSet,
        weights: impl Iterator<Item = (&'w str, [usize; 4])>,
        device: &Device,
        threads: usize,
        fingerprint: u64,
    ) -> Result<Self> {
        let count: usize = set.loras.iter().map(|(file, _)| file.parsed.adapters.len() * PER_ADAPTER).sum();
        let mut pending = Pending { storage: Storage::new(count.max(1))?, values: Vec::new() };
        let mut deltas: HashMap<String, Vec<LayerDelta>> = HashMap::new();
        for (name, shape) in weights {
            for (file, adapter, multiplier) in set.of(name) {
                let delta = layer_delta((file, adapter), multiplier, shape, threads, &mut pending)?;
                deltas.entry(layer_of(name)).or_default().push(delta);
            }
        }
        pending.place(device)?;
        Ok(Self { deltas, fingerprint })
    }

    /// Whether no layer changes.
    pub fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }

    /// Whether the layer of the weight `name` changes.
    pub fn touches(&self, name: &str) -> bool {
        self.deltas.contains_key(name)
    }
}

/// Name of the weight whose layer a change of `name` belongs to: a bias is a layer's, too.
fn layer_of(name: &str) -> String {
    name.strip_suffix(".bias").map_or_else(|| name.to_owned(), |layer| format!("{layer}.weight"))
}

/// One adapter as a layer takes it. `shape` is that of the whole weight.
fn layer_delta(
    (file, adapter): (&LoraFile, &Adapter),
    multiplier: f32,
    shape: [usize; 4],
    threads: usize,
    pending: &mut Pending,
) -> Result<LayerDelta> {
    let fetch = |index| file.fetch(index);
    let name = &adapter.target;
    let total: usize = shape.iter().product();
    if name.ends_with(".bias") {
        let rows = adapter.rows.len() * adapter.columns;
        let first_row = adapter.rows.start * adapter.columns;
        let values = dense(adapter, multiplier, &fetch, threads)?.data;
        let kind = DeltaKind::Bias(pending.add(name, Type::F32, [rows, 1, 1, 1], values)?);
        return Ok(LayerDelta { kind, scale: 1.0, first_row, rows });
    }
    // A matrix is [columns, rows], a kernel [w, h, inputs, rows].
    let rows = if shape[2] == 1 && shape[3] == 1 { shape[1] } else { shape[3] };
    let columns = total / rows.max(1);
    if let Delta::LowRank(factor) = &adapter.delta
        && adapter.columns == columns
    {
        let kind = low_rank(file, name, factor, pending)?;
        let scale = strength(adapter, multiplier, &fetch)?;
        return Ok(LayerDelta { kind, scale, first_row: adapter.rows.start, rows: adapter.rows.len() });
    }
    // Kinds without factors become the difference itself: half precision, scaled to a largest value of 1.
    let mut values = dense(adapter, multiplier, &fetch, threads)?.data;
    let largest = values.iter().fold(0.0f32, |a, v| a.max(v.abs()));
    let scale = if largest.is_normal() { largest } else { 1.0 };
    values.iter_mut().for_each(|v| *v /= scale);
    let (start, count) = (adapter.rows.start * adapter.columns, values.len());
    if columns == 0 || start % columns != 0 || count % columns != 0 {
        return Err(Error::Weights(format!("LoRA of {name}: {count} values are no rows of {columns}")));
    }
    let kind = DeltaKind::Dense(pending.add(name, Type::F16, [columns, count / columns, 1, 1], values)?);
    Ok(LayerDelta { kind, scale, first_row: start / columns, rows: count / columns })
}

fn low_rank(file: &LoraFile, name: &str, factor: &Factor, pending: &mut Pending) -> Result<DeltaKind> {
    let mut add = |index: usize, rows: usize| {
        let values = file.fetch(index)?.data;
        let columns = values.len() / rows.max(1);
        pending.add(name, Type::F32, [columns, rows, 1, 1], values)
    };
    let down = add(factor.down, factor.rank)?;
    let mid = factor.core.map(|core| add(core, factor.rank)).transpose()?;
    Ok(DeltaKind::LowRank { down, mid, up: add(factor.up, factor.size.rows)? })
}
