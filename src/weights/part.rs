//! Weights of one network: asked for while the network is put together, loaded as one piece.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;

use super::fill::{Filler, Merge};
use super::index::{Index, Place};
use super::policy::{Role, TypePolicy};
use crate::error::{Error, Result};
use crate::graph::{Device, Storage, Weight};

/// How many faults one message lists.
const LISTED: usize = 12;

/// Collects what a network asks for: declares tensors and notes everything missing or mis-shaped.
pub struct Loader<'a> {
    index: &'a Index,
    policy: &'a TypePolicy,
    storage: Arc<Storage>,
    planned: RefCell<Vec<Planned>>,
    faults: RefCell<Vec<String>>,
}

/// A declared weight and where its bytes come from; without a place it is filled with zeros.
pub(super) struct Planned {
    pub weight: Weight,
    pub place: Option<Place>,
}

impl<'a> Loader<'a> {
    /// A loader for one network out of `index`.
    pub fn new(index: &'a Index, policy: &'a TypePolicy) -> Result<Self> {
        Ok(Self {
            index,
            policy,
            storage: Storage::new(index.len() * 2 + 1024)?,
            planned: RefCell::default(),
            faults: RefCell::default(),
        })
    }

    /// The names below `prefix` (no dot at its end).
    pub fn scope(&self, prefix: &str) -> Scope<'_> {
        Scope { loader: self, prefix: prefix.to_owned() }
    }

    /// Ends the asking: one message with everything missing or mis-shaped, or the part.
    ///
    /// `part` names the network and `fields` the parameters that could supply it, for the message.
    pub fn finish(self, part: &str, fields: &str) -> Result<Part> {
        let faults = self.faults.into_inner();
        if !faults.is_empty() {
            let shown = faults.iter().take(LISTED).cloned().collect::<Vec<_>>().join("; ");
            let more = faults.len().saturating_sub(LISTED);
            let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
            return Err(Error::Weights(format!(
                "{part}: {} of its tensors do not fit: {shown}{tail}. Check {fields}",
                faults.len()
            )));
        }
        Ok(Part {
            name: part.to_owned(),
            index: self.index.clone(),
            storage: self.storage,
            planned: self.planned.into_inner(),
            merges: Vec::new(),
        })
    }
}

/// A place in the tree of names: what `weights.at("to_q")` walks.
#[derive(Clone)]
pub struct Scope<'a> {
    loader: &'a Loader<'a>,
    prefix: String,
}

impl<'a> Scope<'a> {
    /// The names below `self.path`.
    pub fn at(&self, path: impl Display) -> Scope<'a> {
        Scope { loader: self.loader, prefix: self.full(path) }
    }

    /// Full name of `name` here.
    pub fn full(&self, name: impl Display) -> String {
        if self.prefix.is_empty() { name.to_string() } else { format!("{}.{name}", self.prefix) }
    }

    /// Full name of this place.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the tensor `name` is there.
    pub fn has(&self, name: impl Display) -> bool {
        self.loader.index.has(&self.full(name))
    }

    /// Whether any tensor lies below `path`.
    pub fn has_below(&self, path: impl Display) -> bool {
        self.loader.index.has_prefix(&format!("{}.", self.full(path)))
    }

    /// Shape of the tensor `name` in ggml order, if it is there.
    pub fn shape(&self, name: impl Display) -> Option<[usize; 4]> {
        self.loader.index.get(&self.full(name)).map(|place| place.shape)
    }

    /// Number of axes of the tensor `name` in its file, if it is there.
    pub fn rank(&self, name: impl Display) -> Option<usize> {
        self.loader.index.get(&self.full(name)).map(|place| place.rank)
    }

    /// Shape of a tensor without which the network's sizes are unknown.
    pub fn need_shape(&self, name: impl Display) -> Result<[usize; 4]> {
        let full = self.full(name);
        let place = self.loader.index.get(&full);
        place.map(|p| p.shape).ok_or_else(|| Error::Weights(format!("tensor {full} is missing")))
    }

    /// How many of `path.0`, `path.1`, ... have tensors below them.
    pub fn count(&self, path: impl Display) -> usize {
        (0..).take_while(|i| self.has_below(format!("{path}.{i}"))).count()
    }

    /// The weight `name` with exactly `shape` (trailing ones may be left out).
    ///
    /// A fault is noted for [`Loader::finish`] and a tensor of the wished shape returned, so that one message can
    /// list all faults.
    pub fn weight(&self, name: impl Display, shape: &[usize], role: Role) -> Result<Weight> {
        let full = self.full(name);
        let want = padded(shape);
        let place = self.loader.index.get(&full).copied();
        let fault = match place {
            None => Some(format!("{full} {want:?} is missing")),
            Some(p) if !same_values(p.shape, want) => {
                Some(format!("{full} is {:?}, {want:?} was expected", p.shape))
            }
            Some(_) => None,
        };
        let place = place.filter(|_| fault.is_none());
        self.loader.faults.borrow_mut().extend(fault);
        self.declare(full, want, place, role)
    }

    /// As [`Scope::weight`], or `None` when there is no such tensor.
    pub fn optional(&self, name: impl Display, shape: &[usize], role: Role) -> Result<Option<Weight>> {
        let name = name.to_string();
        if self.has(&name) { self.weight(name, shape, role).map(Some) } else { Ok(None) }
    }

    /// The weight `name` in the shape it has in the file.
    pub fn any(&self, name: impl Display, role: Role) -> Result<Weight> {
        let name = name.to_string();
        let shape = self.need_shape(&name)?;
        self.weight(name, &shape, role)
    }

    fn declare(&self, full: String, shape: [usize; 4], place: Option<Place>, role: Role) -> Result<Weight> {
        let loader = self.loader;
        if let Some(known) = loader.planned.borrow().iter().find(|p| p.weight.name() == full) {
            return Ok(known.weight.clone());
        }
        let dtype = place.map_or(crate::files::Dtype::F32, |p| p.dtype);
        let ty = loader.policy.resolve(&full, shape, dtype, role);
        let weight = loader.storage.declare(&full, ty, shape)?;
        loader.planned.borrow_mut().push(Planned { weight: weight.clone(), place });
        Ok(weight)
    }
}

/// Weights of one network: declared, and in memory once loaded.
pub struct Part {
    name: String,
    index: Index,
    storage: Arc<Storage>,
    planned: Vec<Planned>,
    merges: Vec<Arc<dyn Merge>>,
}

/// How a part gets into memory.
pub struct LoadOptions<'a> {
    /// Where the weights go.
    pub device: &'a Device,
    /// Threads that read and convert.
    pub threads: usize,
    /// Point into the files where types and device allow.
    pub mmap: bool,
    /// Told about each tensor that is there: done, of all.
    pub progress: &'a dyn Fn(usize, usize),
    /// Whether to stop.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Part {
    /// Name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes in memory when loaded.
    pub fn bytes(&self) -> usize {
        self.storage.bytes()
    }

    /// Number of tensors.
    pub fn tensors(&self) -> usize {
        self.planned.len()
    }

    /// All weights.
    pub fn weights(&self) -> impl Iterator<Item = &Weight> {
        self.planned.iter().map(|p| &p.weight)
    }

    /// Whether the weights are in memory.
    pub fn is_loaded(&self) -> bool {
        self.storage.is_placed()
    }

    /// Takes the weights into memory; does nothing when they are there.
    pub fn load(&mut self, options: &LoadOptions<'_>) -> Result<()> {
        if self.is_loaded() {
            return Ok(());
        }
        let filler = Filler { index: &self.index, planned: &self.planned, merges: &self.merges };
        let result = filler.run(&self.storage, options);
        if result.is_err() {
            self.storage.release();
        }
        result
    }

    /// Takes the weights out of memory; graphs built on them must be built anew.
    pub fn unload(&mut self) {
        self.storage.release();
    }

    /// Sets what is added to the weights while loading (merged adapters). Weights in memory are dropped when that
    /// changes anything, so that the next load starts from the files again and nothing of an earlier merge stays.
    pub fn set_merges(&mut self, merges: Vec<Arc<dyn Merge>>) {
        let same = merges.len() == self.merges.len()
            && merges.iter().zip(&self.merges).all(|(a, b)| Arc::ptr_eq(a, b));
        if same {
            return;
        }
        let touches = |list: &[Arc<dyn Merge>]| {
            self.planned.iter().any(|p| list.iter().any(|m| m.touches(p.weight.name())))
        };
        if touches(&merges) || touches(&self.merges) {
            self.storage.release();
        }
        self.merges = merges;
    }
}

fn padded(shape: &[usize]) -> [usize; 4] {
    let mut out = [1; 4];
    for (axis, &extent) in shape.iter().enumerate() {
        out[axis.min(3)] *= extent;
    }
    out
}

/// A 1x1 convolution and a matrix hold the same values in the same order; leading ones do not count.
fn same_values(found: [usize; 4], want: [usize; 4]) -> bool {
    let significant = |shape: [usize; 4]| shape.into_iter().filter(|&n| n != 1).collect::<Vec<_>>();
    found == want || significant(found) == significant(want)
}
