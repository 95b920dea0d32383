//! How much the columns of each weight matter when it is quantised: the importance matrix of the process.
//!
//! The C interface names no object that could own it (`load_imatrix` and its like take a path or nothing), so this is
//! state of the process, guarded by locks. It only ever changes how weights are rounded.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::files::imatrix::{Entry, Imatrix};
use crate::graph::{ProductSink, Type, needs_importance, quantize};

/// What was read from files.
static LOADED: RwLock<Option<Imatrix>> = RwLock::new(None);
/// What was measured, by the name of the weight.
static MEASURED: Mutex<BTreeMap<String, Measured>> = Mutex::new(BTreeMap::new());
/// Whether products are being watched.
static MEASURING: AtomicBool = AtomicBool::new(false);

/// Sums over the inputs of one weight.
#[derive(Clone, Debug)]
struct Measured {
    calls: u32,
    columns: usize,
    /// Rows seen by each expert.
    rows: Vec<u64>,
    /// Sums of squares for each column of each expert.
    squares: Vec<f64>,
}

impl Measured {
    fn new(columns: usize, experts: usize) -> Self {
        Self { calls: 0, columns, rows: vec![0; experts], squares: vec![0.0; columns * experts] }
    }

    /// Mean squares times calls. An expert that saw nothing has no opinion: all its columns count the same.
    fn entry(&self) -> Entry {
        let calls = self.calls.max(1) as f32;
        let experts = self.squares.chunks(self.columns.max(1)).zip(&self.rows);
        let values = experts.flat_map(|(squares, &rows)| {
            squares.iter().map(move |&s| if rows == 0 { calls } else { (s / rows as f64) as f32 * calls })
        });
        Entry { calls: self.calls, values: values.collect() }
    }
}

/// Reads a file and adds it to what was read before.
pub fn load(path: &Path) -> Result<()> {
    let matrix = Imatrix::open(path)?;
    let mut loaded = LOADED.write();
    match loaded.as_mut() {
        Some(held) => held.merge(matrix),
        None => {
            *loaded = Some(matrix);
            Ok(())
        }
    }
}

/// Writes what was read and measured.
pub fn save(path: &Path) -> Result<()> {
    let matrix = current()?;
    if matrix.is_empty() {
        return Err(Error::invalid(
            "imatrix_path: there is nothing to write: call load_imatrix, or enable_imatrix_collection and generate",
        ));
    }
    matrix.save(path)
}

/// What was read and measured, as one matrix. An error when a weight has one width in a file and another in a model.
pub fn current() -> Result<Imatrix> {
    let mut matrix = LOADED.read().clone().unwrap_or_default();
    let measured = MEASURED.lock();
    for (name, entry) in measured.iter() {
        matrix.add(name, entry.entry())?;
    }
    let calls = measured.values().map(|m| m.calls).max().unwrap_or(0);
    matrix.chunks = matrix.chunks.saturating_add(calls);
    Ok(matrix)
}

/// Forgets everything that was read and measured.
pub fn clear() {
    *LOADED.write() = None;
    MEASURED.lock().clear();
}

/// Starts or stops measuring.
pub fn measure(on: bool) {
    MEASURING.store(on, Ordering::Relaxed);
}

/// Whether products are to be watched.
pub fn is_measuring() -> bool {
    MEASURING.load(Ordering::Relaxed)
}

/// Takes the inputs of products into the matrix of the process.
pub struct Meter;

/// Beginnings of the names of a model's own weights, as opposed to those of adapters and other networks.
const MODEL_PREFIXES: [&str; 3] = ["model.", "cond_stage_model.", "text_encoders."];

impl ProductSink for Meter {
    fn wants(&self, weight: &str) -> bool {
        MODEL_PREFIXES.iter().any(|prefix| weight.starts_with(prefix))
    }

    fn product(&self, weight: &str, columns: usize, experts: usize, inputs: &[f32], expert_of: &[usize]) {
        if columns == 0 {
            return;
        }
        let mut measured = MEASURED.lock();
        let fresh = || Measured::new(columns, experts);
        let entry = measured.entry(weight.to_owned()).or_insert_with(fresh);
        if entry.columns != columns || entry.rows.len() != experts {
            // another model with a weight of that name: its numbers replace the old ones
            *entry = fresh();
        }
        entry.calls = entry.calls.saturating_add(1);
        for (i, row) in inputs.chunks_exact(columns).enumerate() {
            let expert = expert_of.get(i).copied().unwrap_or(0);
            let Some(count) = entry.rows.get_mut(expert) else { continue };
            *count += 1;
            for (sum, x) in entry.squares[expert * columns..][..columns].iter_mut().zip(row) {
                // masked positions may hold anything
                if x.is_finite() {
                    *sum += f64::from(*x) * f64::from(*x);
                }
            }
        }
    }
}

/// Weights of the columns of one tensor. Where nothing is known, all columns count the same, which is what the
/// recorded library's bytes come from.
pub struct Importance {
    values: Vec<f32>,
    width: usize,
    rows_per_expert: usize,
    known: bool,
}

impl Importance {
    /// For the tensor with the canonical name `name` and this shape (ggml order, experts on the third axis).
    pub fn of(name: &str, shape: [usize; 4]) -> Self {
        let [width, rows, experts, _] = shape;
        let found = lookup(name).filter(|v| v.len() == width || v.len() == width * experts);
        let known = found.is_some();
        let mut values = found.unwrap_or_else(|| vec![1.0; width]);
        for row in values.chunks_mut(width.max(1)) {
            if row.iter().all(|v| *v <= 0.0) {
                row.fill(1.0);
            }
        }
        let rows_per_expert = if values.len() > width { rows } else { usize::MAX };
        Self { values, width, rows_per_expert: rows_per_expert.max(1), known }
    }

    /// Whether it comes from a matrix.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Writes whole rows of `values`, the first being row `first` of the tensor, in type `ty`.
    pub fn quantize(&self, ty: Type, values: &[f32], first: usize, out: &mut [u8]) -> Result<()> {
        let row_bytes = ty.row_bytes(self.width).filter(|b| *b > 0).ok_or_else(|| {
            Error::shape("quantize", format!("rows of {} values cannot be stored as {ty}", self.width))
        })?;
        let (mut row, mut values, mut out) = (first, values, out);
        while !values.is_empty() {
            let expert = row / self.rows_per_expert;
            let until = expert.saturating_add(1).saturating_mul(self.rows_per_expert);
            let rows = (values.len() / self.width.max(1)).min(until - row).max(1);
            let columns = self.values.get(expert * self.width..).and_then(|v| v.get(..self.width));
            let (now, rest) = values.split_at((rows * self.width).min(values.len()));
            let (bytes, after) = out.split_at_mut((rows * row_bytes).min(out.len()));
            quantize(ty, now, self.width, columns, bytes)?;
            (row, values, out) = (row + rows, rest, after);
        }
        Ok(())
    }
}

/// Whether `ty` cannot be made well without measured importance.
pub fn is_wanted(ty: Type) -> bool {
    needs_importance(ty)
}

fn lookup(name: &str) -> Option<Vec<f32>> {
    let loaded = LOADED.read().as_ref().and_then(|m| m.get(name)).map(|e| e.values.clone());
    let measured = MEASURED.lock().get(name).map(|m| m.entry().values);
    match (loaded, measured) {
        (Some(mut a), Some(b)) if a.len() == b.len() => {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            Some(a)
        }
        (a, b) => b.or(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_measured_and_used_apart() {
        let name = "model.test.experts.weight";
        let inputs = [1.0, 2.0, 3.0, 4.0, f32::NAN, 2.0];
        Meter.product(name, 2, 3, &inputs, &[0, 2, 2]);
        let entry = current().unwrap().get(name).unwrap().clone();
        assert_eq!(entry, Entry { calls: 1, values: vec![1.0, 4.0, 1.0, 1.0, 4.5, 10.0] });
        let importance = Importance::of(name, [2, 5, 3, 1]);
        assert!(importance.is_known());
        assert_eq!((importance.rows_per_expert, importance.values.len()), (5, 6));
        assert!(!Importance::of(name, [3, 5, 3, 1]).is_known());
        assert!(!Importance::of("model.test.other", [2, 5, 1, 1]).is_known());
    }

    #[test]
    fn names_outside_the_model_are_left_alone() {
        assert!(Meter.wants("model.diffusion_model.x.weight") && Meter.wants("text_encoders.t5xxl.y"));
        assert!(!Meter.wants("lora.x.up") && !Meter.wants("tae.x"));
    }

    #[test]
    fn weights_of_columns_change_the_rounding() {
        let ty = Type::from_ggml(2).unwrap();
        let values: Vec<f32> = (0..64).map(|i| (i as f32 * 0.7).sin()).collect();
        let mut plain = vec![0; ty.row_bytes(32).unwrap() * 2];
        let mut weighted = plain.clone();
        Importance::of("model.test.none", [32, 2, 1, 1]).quantize(ty, &values, 0, &mut plain).unwrap();
        let mut inputs = [0.001f32; 32];
        inputs[5] = 100.0;
        Meter.product("model.test.columns", 32, 1, &inputs, &[]);
        Importance::of("model.test.columns", [32, 2, 1, 1]).quantize(ty, &values, 0, &mut weighted).unwrap();
        let error = |bytes: &[u8]| {
            let mut back = vec![0.0; 64];
            crate::graph::dequantize(ty, bytes, &mut back).unwrap();
            (back[5] - values[5]).abs() + (back[37] - values[37]).abs()
        };
        assert!(error(&weighted) < error(&plain), "{} {}", error(&weighted), error(&plain));
    }
}
