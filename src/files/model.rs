//! What all readers give: tensors with their places, and the reading of their bytes.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::metadata::Metadata;
use super::packed::{Last, Packed};
use super::source::Source;
use super::{gguf, index, safetensors, strided, torch_legacy, torch_zip, zip};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Container of a file, told by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    Safetensors,
    Gguf,
    TorchZip,
    TorchLegacy,
    /// Several files named by an index (`*.index.json`).
    Sharded,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Safetensors => "safetensors",
            Format::Gguf => "GGUF",
            Format::TorchZip => "torch (zip)",
            Format::TorchLegacy => "torch (legacy)",
            Format::Sharded => "sharded",
        })
    }
}

/// One tensor of a file. `offset` and `nbytes` were checked against the file.
#[derive(Clone, Debug)]
pub struct TensorEntry {
    /// Name in the file.
    pub name: String,
    /// Element type in the file.
    pub dtype: Dtype,
    /// Extents in ggml order, fastest axis first; as many as the file gives (none for a scalar, at most 8).
    pub shape: Vec<usize>,
    /// Byte of the first element: in the file, or in the inflated member of a compressed zip.
    pub offset: u64,
    /// Bytes that reading gives.
    pub nbytes: u64,
    /// Steps in elements, one for each axis of `shape`, where the file does not hold the elements in order.
    pub strides: Option<Vec<usize>>,
    /// Index of the tensor that this one has to be multiplied with, see [`super::scaled`].
    pub scale: Option<usize>,
    pub(super) source: u32,
    pub(super) packed: Option<u32>,
}

impl TensorEntry {
    pub(super) fn plain(name: String, dtype: Dtype, shape: Vec<usize>, offset: u64, nbytes: u64) -> Self {
        Self { name, dtype, shape, offset, nbytes, strides: None, scale: None, source: 0, packed: None }
    }

    /// Whether parts of it can be read without reading all of it.
    pub fn reads_in_parts(&self) -> bool {
        self.strides.is_none() && self.packed.is_none()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Extents in ggml order with exactly four axes: missing ones are 1, those beyond the fourth are
    /// folded into the fourth, as ggml keeps convolutions over time (`[w, h, d, in * out]`).
    pub fn shape4(&self) -> [usize; 4] {
        let mut shape = [1; 4];
        for (axis, &extent) in self.shape.iter().enumerate() {
            shape[axis.min(3)] *= extent;
        }
        shape
    }
}

/// What a reader finds in one file.
#[derive(Debug)]
pub(super) struct Contents {
    pub format: Format,
    pub tensors: Vec<TensorEntry>,
    pub metadata: Metadata,
    /// Deflated members that tensors refer to.
    pub packed: Vec<Packed>,
}

impl Contents {
    pub(super) fn new(format: Format, tensors: Vec<TensorEntry>, metadata: Metadata) -> Self {
        Self { format, tensors, metadata, packed: Vec::new() }
    }
}

/// An open model: nothing but headers has been read. Shared by threads without a lock.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    format: Format,
    tensors: Vec<TensorEntry>,
    metadata: Metadata,
    by_name: HashMap<String, usize>,
    sources: Vec<Source>,
    packed: Vec<Packed>,
    last: Last,
}

impl ModelFile {
    /// Opens a file of any supported format, told by content.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_source(Source::open(path.as_ref())?)
    }

    /// The same for bytes in memory; `name` stands for the path in messages.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        Self::from_source(Source::from_bytes(name, bytes))
    }

    fn from_source(source: Source) -> Result<Self> {
        if index::sniff(&source)? {
            return index::open(&source);
        }
        let contents = read_contents(&source)?;
        let path = source.path().to_path_buf();
        Self::build(path, contents.format, vec![(source, contents)])
    }

    /// Joins checked files; refuses repeated names and links weights to their scales.
    pub(super) fn build(path: PathBuf, format: Format, parts: Vec<(Source, Contents)>) -> Result<Self> {
        let (mut tensors, mut packed, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        let mut metadata = Metadata::default();
        for (number, (source, contents)) in (0u32..).zip(parts) {
            let first_packed = packed.len() as u32;
            tensors.extend(contents.tensors.into_iter().map(|t| TensorEntry {
                source: number,
                packed: t.packed.map(|p| p + first_packed),
                ..t
            }));
            packed.extend(contents.packed);
            sources.push(source);
            if number == 0 {
                metadata = contents.metadata;
            }
        }
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (i, t) in tensors.iter().enumerate() {
            if by_name.insert(t.name.clone(), i).is_some() {
                return Err(Error::file(&path, format!("tensor '{}' occurs twice", t.name)));
            }
        }
        super::scaled::link(&path, &mut tensors, &by_name)?;
        Ok(Self { path, format, tensors, metadata, by_name, sources, packed, last: Last::default() })
    }

    /// Path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Paths of the files that hold the tensors: one, or as many as there are shards.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(Source::path)
    }

    /// Container.
    pub fn format(&self) -> Format {
        self.format
    }

    /// All tensors in the order of the file.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// Pairs beside the tensors.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensor named `name`.
    pub fn get(&self, name: &str) -> Option<&TensorEntry> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// The tensor that `entry` has to be multiplied with, if it is a scaled one.
    pub fn scale_of(&self, entry: &TensorEntry) -> Option<&TensorEntry> {
        entry.scale.and_then(|i| self.tensors.get(i))
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.sources.iter().map(Source::len).sum()
    }

    fn source(&self, entry: &TensorEntry) -> Result<&Source> {
        self.sources.get(entry.source as usize).ok_or_else(|| self.foreign(entry))
    }

    fn foreign(&self, entry: &TensorEntry) -> Error {
        Error::Internal(format!(
            "tensor '{}' belongs to another file than {}",
            entry.name,
            self.path.display()
        ))
    }

    /// Fills `out` with the whole tensor, elements in order. `out` has `entry.nbytes` bytes.
    pub fn read_into(&self, entry: &TensorEntry, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 != entry.nbytes {
            return Err(Error::Internal(format!(
                "tensor '{}' has {} bytes, {} were given",
                entry.name,
                entry.nbytes,
                out.len()
            )));
        }
        self.read_range(entry, 0, out)
    }

    /// Fills `out` from byte `start` of the tensor, so that a large one can be read in pieces.
    pub fn read_range(&self, entry: &TensorEntry, start: u64, out: &mut [u8]) -> Result<()> {
        let end = start.checked_add(out.len() as u64).filter(|&e| e <= entry.nbytes);
        if end.is_none() {
            return Err(Error::Internal(format!(
                "tensor '{}' has no {} bytes at {start}",
                entry.name,
                out.len()
            )));
        }
        let Some(strides) = &entry.strides else { return self.read_stored(entry, entry.offset + start, out) };
        let size = entry.dtype.type_size();
        if !start.is_multiple_of(size as u64) || !out.len().is_multiple_of(size) {
            return Err(Error::Internal(format!("tensor '{}' is read by parts of elements", entry.name)));
        }
        if out.is_empty() {
            return Ok(());
        }
        let span = strided::span(&entry.shape, strides).unwrap_or(0) * size as u64;
        let mut data = super::source::zeroed(span)?;
        self.read_stored(entry, entry.offset, &mut data)?;
        strided::gather(&data, size, &entry.shape, strides, (start / size as u64) as usize, out);
        Ok(())
    }

    /// Bytes as the storage holds them, from byte `at` of the file or of the inflated member.
    fn read_stored(&self, entry: &TensorEntry, at: u64, out: &mut [u8]) -> Result<()> {
        let source = self.source(entry)?;
        match entry.packed {
            None => source.read_at(at, out),
            Some(index) => {
                let packed = self.packed.get(index as usize).ok_or_else(|| self.foreign(entry))?;
                self.last.read(index, packed, source, at, out)
            }
        }
    }

    /// The whole tensor.
    pub fn read(&self, entry: &TensorEntry) -> Result<Vec<u8>> {
        let mut out = super::source::zeroed(entry.nbytes)?;
        self.read_into(entry, &mut out)?;
        Ok(out)
    }

    /// The tensor's bytes in the mapped file, without a copy. `None` where the file does not hold them as they
    /// are (compressed, strided) or cannot be mapped. The address has whatever alignment the file gives it.
    pub fn mapped(&self, entry: &TensorEntry) -> Option<&[u8]> {
        if entry.strides.is_some() || entry.packed.is_some() {
            return None;
        }
        let bytes = self.sources.get(entry.source as usize)?.mapped()?;
        let start = usize::try_from(entry.offset).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(entry.nbytes).ok()?)?)
    }
}

/// Tells the format by content and reads the headers.
pub(super) fn read_contents(source: &Source) -> Result<Contents> {
    let mut start = [0; 16];
    let len = source.len().min(start.len() as u64) as usize;
    source.read_at(0, &mut start[..len])?;
    let start = &start[..len];
    if start.starts_with(&gguf::MAGIC) {
        gguf::read(source)
    } else if start.starts_with(&zip::MAGIC) {
        torch_zip::read(source)
    } else if safetensors::sniff(start, source.len()) {
        safetensors::read(source)
    } else if torch_legacy::sniff(start) {
        torch_legacy::read(source)
    } else {
        let what = match start {
            [b'<', ..] => " (it looks like a web page)",
            _ if start.starts_with(b"version https:") => {
                " (it is a Git LFS pointer, the file itself was not fetched)"
            }
            _ => "",
        };
        Err(source.error(format!("is no safetensors, GGUF or torch file{what}")))
    }
}
