//! Importance matrices: for each weight matrix the mean square of what its columns were multiplied with.
//!
//! Two formats are read: the `.dat` of llama.cpp's `imatrix` up to July 2025, which the recorded library reads and
//! writes too, and the GGUF that followed (`general.type` = `imatrix`). `.dat` is written.
//!
//! `.dat`, all numbers i32 little-endian: entries; for each the length of the name, the name, calls, values, then
//! the values as f32 (mean squares times calls). After the entries, optionally: calls in all, length of the
//! data set's name, the name.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::limits;
use super::metadata::Metadata;
use super::model::{ModelFile, TensorEntry};
use super::source::{Cursor, Source};
use super::writer::replace_file;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// What was seen by one weight matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Graph evaluations that contributed.
    pub calls: u32,
    /// For each column (times each expert): mean square of the inputs, times `calls`.
    pub values: Vec<f32>,
}

/// An importance matrix by the name of the weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    entries: BTreeMap<String, Entry>,
    /// Evaluations in all, as far as the file says.
    pub chunks: u32,
    /// Where the inputs came from, as far as the file says.
    pub dataset: Option<String>,
}

impl Imatrix {
    /// The entry of a weight.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// All entries by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, e)| (name.as_str(), e))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds to the entry of `name`, or makes one. An error when the numbers of columns differ.
    pub fn add(&mut self, name: &str, entry: Entry) -> Result<()> {
        let Some(held) = self.entries.get_mut(name) else {
            self.entries.insert(name.to_owned(), entry);
            return Ok(());
        };
        if held.values.len() != entry.values.len() {
            return Err(Error::Invalid(format!(
                "importance matrix: '{name}' has {} columns in one place and {} in another",
                held.values.len(),
                entry.values.len()
            )));
        }
        held.calls = held.calls.saturating_add(entry.calls);
        held.values.iter_mut().zip(&entry.values).for_each(|(h, v)| *h += v);
        Ok(())
    }

    /// Adds all entries of another matrix.
    pub fn merge(&mut self, other: Imatrix) -> Result<()> {
        // nothing is taken from a matrix that does not fit
        for (name, entry) in &other.entries {
            if self.entries.get(name).is_some_and(|held| held.values.len() != entry.values.len()) {
                return self.add(name, entry.clone());
            }
        }
        for (name, entry) in other.entries {
            self.add(&name, entry)?;
        }
        self.chunks = self.chunks.saturating_add(other.chunks);
        if other.dataset.is_some() {
            self.dataset = other.dataset;
        }
        Ok(())
    }

    /// Reads a file of either format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        if is_gguf(&source)? {
            return Self::from_gguf(&ModelFile::open(path)?);
        }
        Self::from_dat(&source)
    }

    /// The same for bytes in memory; `name` stands for the path in messages.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self> {
        let source = Source::from_bytes(name, bytes);
        if is_gguf(&source)? {
            let bytes = source.read_vec(0, source.len())?;
            return Self::from_gguf(&ModelFile::from_bytes(name, bytes)?);
        }
        Self::from_dat(&source)
    }

    fn from_dat(source: &Source) -> Result<Self> {
        let mut cursor = Cursor::new(source, 0);
        let count = cursor.u32("the number of entries")? as usize;
        if count == 0 || count > limits::IMATRIX_ENTRIES {
            return Err(source.error(format!(
                "is no importance matrix: it claims {count} entries, 1 to {} were expected",
                limits::IMATRIX_ENTRIES
            )));
        }
        let mut matrix = Self::default();
        for _ in 0..count {
            let (name, entry) = dat_entry(&mut cursor)?;
            matrix.add(&name, entry).map_err(|e| source.error(e))?;
        }
        if cursor.remaining() >= 4 {
            matrix.chunks = cursor.u32("the number of chunks")?.min(i32::MAX as u32);
        }
        if cursor.remaining() >= 4 {
            let len = cursor.u32("the data set's name")? as usize;
            if len > limits::NAME_BYTES {
                return Err(source.error(format!("the data set's name claims {len} bytes")));
            }
            matrix.dataset =
                Some(String::from_utf8_lossy(cursor.bytes(len, "the data set's name")?).into_owned());
        }
        Ok(matrix)
    }

    /// `NAME.in_sum2` holds sums of squares `[columns, experts]`, `NAME.counts` how many `[1, experts]`.
    fn from_gguf(file: &ModelFile) -> Result<Self> {
        let wrong = |what: String| Error::file(file.path(), what);
        if file.metadata().str("general.type") != Some("imatrix") {
            return Err(wrong("is a GGUF file, but no importance matrix (general.type)".into()));
        }
        let mut matrix = Self {
            chunks: number(file.metadata(), "imatrix.chunk_count"),
            dataset: file
                .metadata()
                .get("imatrix.datasets")
                .and_then(|v| v.as_strings())
                .and_then(|v| v.first().cloned()),
            ..Self::default()
        };
        for sums in file.tensors() {
            let Some(name) = sums.name.strip_suffix(".in_sum2") else { continue };
            let counts = file
                .get(&format!("{name}.counts"))
                .ok_or_else(|| wrong(format!("'{}' comes without '{name}.counts'", sums.name)))?;
            let experts = counts.elements();
            if experts == 0
                || !sums.elements().is_multiple_of(experts)
                || sums.elements() > limits::IMATRIX_VALUES
            {
                return Err(wrong(format!(
                    "'{}' has {} values for {experts} counts",
                    sums.name,
                    sums.elements()
                )));
            }
            let (mut values, counts) = (floats(file, sums)?, floats(file, counts)?);
            let calls = counts.iter().fold(0f32, |a, &b| a.max(b));
            let columns = values.len() / experts;
            for (row, &count) in values.chunks_mut(columns.max(1)).zip(&counts) {
                // an expert that was never asked has no opinion: all columns count the same
                row.iter_mut().for_each(|v| *v = if count > 0.0 { *v / count * calls } else { calls });
            }
            matrix.add(name, Entry { calls: calls as u32, values })?;
        }
        if matrix.is_empty() {
            return Err(wrong("holds no entry of an importance matrix".into()));
        }
        Ok(matrix)
    }

    /// Writes the `.dat` format beside `path` and puts it in place when whole.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut out = Vec::new();
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX).to_le_bytes();
        out.extend(int(self.entries.len()));
        for (name, entry) in &self.entries {
            out.extend(int(name.len()));
            out.extend(name.as_bytes());
            out.extend(int(entry.calls as usize));
            out.extend(int(entry.values.len()));
            entry.values.iter().for_each(|v| out.extend(v.to_le_bytes()));
        }
        out.extend(int(self.chunks as usize));
        if let Some(dataset) = &self.dataset {
            out.extend(int(dataset.len()));
            out.extend(dataset.as_bytes());
        }
        replace_file(path, &out)
    }
}

fn is_gguf(source: &Source) -> Result<bool> {
    let mut start = [0; 4];
    let len = source.len().min(4) as usize;
    source.read_at(0, &mut start[..len])?;
    Ok(start == super::gguf::MAGIC)
}

fn dat_entry(cursor: &mut Cursor<'_>) -> Result<(String, Entry)> {
    let len = cursor.u32("the length of a name")? as usize;
    if len == 0 || len > limits::NAME_BYTES {
        return Err(cursor.error(format!(
            "is no importance matrix: a name claims {len} bytes, 1 to {} were expected",
            limits::NAME_BYTES
        )));
    }
    let name = String::from_utf8_lossy(cursor.bytes(len, "a name")?).into_owned();
    let calls = cursor.u32("a number of calls")?;
    let count = cursor.u32("a number of values")? as usize;
    if calls > i32::MAX as u32 || count == 0 || count > limits::IMATRIX_VALUES {
        return Err(cursor.error(format!(
            "'{name}' claims {count} values of {calls} calls, 1 to {} values were expected",
            limits::IMATRIX_VALUES
        )));
    }
    let bytes = cursor.bytes(count * 4, "values")?;
    let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    check(&values).map_err(|m| cursor.error(format!("'{name}' {m}")))?;
    Ok((name, Entry { calls, values }))
}

/// Mean squares are finite and not negative.
fn check(values: &[f32]) -> std::result::Result<(), String> {
    match values.iter().find(|v| !v.is_finite() || **v < 0.0) {
        Some(v) => Err(format!("holds the value {v}, mean squares were expected")),
        None => Ok(()),
    }
}

fn floats(file: &ModelFile, entry: &TensorEntry) -> Result<Vec<f32>> {
    if entry.dtype != Dtype::F32 {
        return Err(Error::file(
            file.path(),
            format!("'{}' is of type {}, f32 was expected", entry.name, entry.dtype),
        ));
    }
    let mut values = vec![0.0; entry.elements()];
    super::convert_source(entry.dtype, &file.read(entry)?, &mut values)?;
    check(&values).map_err(|m| Error::file(file.path(), format!("'{}' {m}", entry.name)))?;
    Ok(values)
}

fn number(metadata: &Metadata, key: &str) -> u32 {
    metadata.get(key).and_then(|v| v.as_u64()).and_then(|v| v.try_into().ok()).unwrap_or(0)
}
