//! Bringing weights from files into memory: mapped, copied or converted, on the caller's threads.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::importance::Importance;
use super::index::Index;
use super::part::{LoadOptions, Planned};
use crate::error::{Error, Result};
use crate::files::{Dtype, ModelFile, TensorEntry, apply_scale, convert_source};
use crate::graph::{Storage, Type, Weight, dequantize, quantize};

/// Values that are added to weights while loading, such as a merged LoRA.
pub trait Merge: Send + Sync {
    /// Whether the weight `name` changes.
    fn touches(&self, name: &str) -> bool;

    /// Adds to `values`, the whole weight `name` of `shape` (ggml order) in f32.
    fn merge(&self, name: &str, shape: [usize; 4], values: &mut [f32]) -> Result<()>;
}

/// One loading of one part.
pub(super) struct Filler<'a> {
    pub index: &'a Index,
    pub planned: &'a [Planned],
    pub merges: &'a [Arc<dyn Merge>],
}

/// A tensor's bytes in a mapped file, kept alive by the open file.
struct MappedTensor {
    file: Arc<ModelFile>,
    entry: TensorEntry,
}

impl AsRef<[u8]> for MappedTensor {
    fn as_ref(&self) -> &[u8] {
        self.file.mapped(&self.entry).unwrap_or_default()
    }
}

impl Filler<'_> {
    pub(super) fn run(&self, storage: &Arc<Storage>, options: &LoadOptions<'_>) -> Result<()> {
        let mut rest = Vec::new();
        for planned in self.planned {
            let mapped = options.mmap && options.device.is_cpu() && self.map(storage, planned)?;
            if !mapped {
                rest.push(planned);
            }
        }
        storage.allocate(options.device)?;
        (options.progress)(self.planned.len() - rest.len(), self.planned.len());
        self.fill_all(&rest, options)
    }

    /// Points the weight into its file where the bytes there are the ones it wants.
    fn map(&self, storage: &Arc<Storage>, planned: &Planned) -> Result<bool> {
        let Some((file, entry)) = planned.place.as_ref().and_then(|p| self.index.source(p)) else {
            return Ok(false);
        };
        let fits = holds_as_is(entry, planned.weight.ty()) && !self.is_merged(planned.weight.name());
        if !fits || file.mapped(entry).is_none() {
            return Ok(false);
        }
        let mapping: Arc<dyn AsRef<[u8]> + Send + Sync> =
            Arc::new(MappedTensor { file: file.clone(), entry: entry.clone() });
        storage.map(&planned.weight, &mapping, 0)?;
        Ok(true)
    }

    /// Fills `rest` on `options.threads` threads; progress is reported on the calling one.
    fn fill_all(&self, rest: &[&Planned], options: &LoadOptions<'_>) -> Result<()> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let before = self.planned.len() - rest.len();
        let work = |report: &dyn Fn(usize)| {
            let mut scratch = Scratch::default();
            while !stop.load(Ordering::Relaxed) {
                let Some(planned) = rest.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let result = if (options.cancelled)() {
                    Err(Error::Cancelled)
                } else {
                    self.fill(planned, &mut scratch)
                };
                if let Err(error) = result {
                    failure.lock().get_or_insert(error);
                    stop.store(true, Ordering::Relaxed);
                    break;
                }
                report(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..options.threads.clamp(1, rest.len().max(1)) {
                scope.spawn(|| work(&|_| {}));
            }
            work(&|count| (options.progress)(before + count, self.planned.len()));
        });
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        (options.progress)(self.planned.len(), self.planned.len());
        Ok(())
    }

    fn fill(&self, planned: &Planned, scratch: &mut Scratch) -> Result<()> {
        let weight = &planned.weight;
        let Some((file, entry)) = planned.place.as_ref().and_then(|p| self.index.source(p)) else {
            return store(weight, &mut |bytes| {
                bytes.fill(0);
                Ok(())
            });
        };
        if holds_as_is(entry, weight.ty()) && !self.is_merged(weight.name()) {
            return store(weight, &mut |bytes| file.read_into(entry, bytes));
        }
        read_f32(file, entry, scratch)?;
        for merge in self.merges.iter().filter(|m| m.touches(weight.name())) {
            merge.merge(weight.name(), weight.shape(), &mut scratch.values)?;
        }
        let values = &scratch.values;
        if !weight.ty().is_quantized() {
            return store(weight, &mut |bytes| write_as(weight.ty(), values, weight.shape()[0], bytes));
        }
        let importance = Importance::of(weight.name(), weight.shape());
        store(weight, &mut |bytes| importance.quantize(weight.ty(), values, 0, bytes))
    }

    fn is_merged(&self, name: &str) -> bool {
        self.merges.iter().any(|m| m.touches(name))
    }
}

/// Memory that one thread uses for one tensor after the other.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

/// Whether the file's bytes are the weight's.
fn holds_as_is(entry: &TensorEntry, ty: Type) -> bool {
    entry.scale.is_none() && entry.dtype.ggml_id() == u32::try_from(ty.id()).ok()
}

/// The values of a file's tensor as f32, scaled where the file says so.
pub fn values_f32(file: &ModelFile, entry: &TensorEntry) -> Result<Vec<f32>> {
    let mut scratch = Scratch::default();
    read_f32(file, entry, &mut scratch)?;
    Ok(scratch.values)
}

fn read_f32(file: &ModelFile, entry: &TensorEntry, scratch: &mut Scratch) -> Result<()> {
    let size = usize::try_from(entry.nbytes).map_err(|_| Error::Memory(format!("tensor {}", entry.name)))?;
    scratch.bytes.clear();
    scratch.bytes.resize(size, 0);
    file.read_into(entry, &mut scratch.bytes)?;
    scratch.values.clear();
    scratch.values.resize(entry.elements(), 0.0);
    decode(entry.dtype, &scratch.bytes, &mut scratch.values)?;
    if let Some(scale) = file.scale_of(entry) {
        let mut factors = vec![0.0; scale.elements()];
        convert_source(scale.dtype, &file.read(scale)?, &mut factors)?;
        apply_scale(&mut scratch.values, &factors);
    }
    Ok(())
}

/// Values of `bytes` in type `dtype`.
pub fn decode(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    let quantized = dtype
        .ggml_id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Type::from_ggml)
        .filter(|ty| ty.is_quantized());
    match quantized {
        Some(ty) => dequantize(ty, bytes, out),
        None => convert_source(dtype, bytes, out),
    }
}

/// Writes rows of `width` values in type `ty`.
pub fn write_as(ty: Type, values: &[f32], width: usize, out: &mut [u8]) -> Result<()> {
    if ty == Type::I32 {
        for (raw, &value) in out.chunks_exact_mut(4).zip(values) {
            raw.copy_from_slice(&(value as i32).to_le_bytes());
        }
        return Ok(());
    }
    quantize(ty, values, width, None, out)
}

/// Hands the weight's own memory to `write`, or a buffer that is copied where that memory is a device's.
fn store(weight: &Weight, write: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()> {
    if let Some(result) = weight.fill_in_place(&mut *write) {
        return result;
    }
    let mut bytes = vec![0; weight.bytes()];
    write(&mut bytes)?;
    weight.write(0, &bytes)
}
