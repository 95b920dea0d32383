//! Streaming output: the layout is fixed first, tensors are then written at their places from several threads.
//!
//! Bytes go to a file beside the target that is renamed when whole: a failure or a drop leaves the target as it was.
#![forbid(unsafe_code)]

use super::dtype::Dtype;
use super::metadata::Metadata;
use super::{gguf_layout, limits, safetensors_layout};
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Container {
    Gguf,
    Safetensors,
}

impl Container {
    /// By the name's end: `.safetensors`, and GGUF for everything else.
    pub fn of_path(path: &Path) -> Self {
        match path.extension() {
            Some(e) if e.eq_ignore_ascii_case("safetensors") => Container::Safetensors,
            _ => Container::Gguf,
        }
    }
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Name.
    pub name: String,
    /// Element type; GGUF lacks bool and fp8, safetensors lacks quantised types.
    pub dtype: Dtype,
    /// Extents, fastest axis first; at most four for GGUF.
    pub shape: Vec<usize>,
}

/// Header and places of a file to be written.
#[derive(Debug)]
pub(super) struct Layout {
    /// Everything before the data.
    pub header: Vec<u8>,
    /// First byte of each tensor in the file.
    pub offsets: Vec<u64>,
    /// Bytes of the whole file.
    pub total: u64,
}

/// An output being written. `Sync`: threads share it. Dropping it before [`Writer::finish`] removes what was written.
#[derive(Debug)]
pub struct Writer {
    given: PathBuf,
    target: PathBuf,
    part: Part,
    tensors: Vec<Place>,
    total: u64,
}

#[derive(Debug)]
struct Place {
    name: String,
    offset: u64,
    nbytes: u64,
    written: AtomicU64,
}

impl Writer {
    /// Checks the plan and the target, writes the header beside the target. Nothing else is touched.
    pub fn create(
        target: &Path,
        container: Container,
        plan: &[Planned],
        metadata: &Metadata,
    ) -> Result<Self> {
        let sizes = sizes(target, plan)?;
        let layout = match container {
            Container::Gguf => gguf_layout::layout(target, plan, &sizes, metadata)?,
            Container::Safetensors => safetensors_layout::layout(target, plan, &sizes, metadata)?,
        };
        let resolved = resolve(target)?;
        let part = Part::beside(target, &resolved)?;
        part.file.set_len(layout.total).map_err(|e| write_error(target, &e))?;
        write_all_at(&part.file, &layout.header, 0).map_err(|e| write_error(target, &e))?;
        let tensors = plan
            .iter()
            .zip(layout.offsets)
            .zip(sizes)
            .map(|((p, offset), nbytes)| Place {
                name: p.name.clone(),
                offset,
                nbytes,
                written: AtomicU64::new(0),
            })
            .collect();
        Ok(Self { given: target.to_path_buf(), target: resolved, part, tensors, total: layout.total })
    }

    /// Bytes of tensor `index` of the plan.
    pub fn nbytes(&self, index: usize) -> u64 {
        self.tensors.get(index).map_or(0, |t| t.nbytes)
    }

    /// Bytes of the finished file.
    pub fn file_bytes(&self) -> u64 {
        self.total
    }

    /// Writes the whole tensor `index` of the plan.
    pub fn write_at(&self, index: usize, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 != self.nbytes(index) {
            return Err(Error::Internal(format!(
                "tensor {index} of the output has {} bytes, {} were given",
                self.nbytes(index),
                bytes.len()
            )));
        }
        self.write_part(index, 0, bytes)
    }

    /// Writes part of tensor `index` from its byte `start` on. Each byte is to be written once.
    pub fn write_part(&self, index: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let fits = |t: &&Place| start.checked_add(bytes.len() as u64).is_some_and(|e| e <= t.nbytes);
        let place = self.tensors.get(index).filter(fits).ok_or_else(|| {
            Error::Internal(format!("tensor {index} of the output has no {} bytes at {start}", bytes.len()))
        })?;
        write_all_at(&self.part.file, bytes, place.offset + start)
            .map_err(|e| write_error(&self.given, &e))?;
        place.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Puts the file in place of the target. An error when a tensor was not written as a whole.
    ///
    /// The data is not forced to the disk: like `cp`, the file is safe against failures of this process, not of power.
    pub fn finish(mut self) -> Result<()> {
        if let Some(t) = self.tensors.iter().find(|t| t.written.load(Ordering::Relaxed) != t.nbytes) {
            return Err(Error::file(
                &self.given,
                format!(
                    "tensor '{}' was written by {} of {} bytes",
                    t.name,
                    t.written.load(Ordering::Relaxed),
                    t.nbytes
                ),
            ));
        }
        self.part.put(&self.given, &self.target)
    }
}

/// Writes a small file beside `target` and puts it in place.
pub(super) fn replace_file(target: &Path, bytes: &[u8]) -> Result<()> {
    let resolved = resolve(target)?;
    let mut part = Part::beside(target, &resolved)?;
    write_all_at(&part.file, bytes, 0).map_err(|e| write_error(target, &e))?;
    part.put(target, &resolved)
}

/// Bytes of each tensor; names are unique and of bearable length.
fn sizes(target: &Path, plan: &[Planned]) -> Result<Vec<u64>> {
    let mut names = HashSet::new();
    let mut total = 0u64;
    plan.iter()
        .map(|p| {
            let wrong =
                |what: &dyn std::fmt::Display| Error::file(target, format!("tensor '{}' {what}", p.name));
            if p.name.is_empty() || p.name.len() > limits::NAME_BYTES || p.name.contains('\0') {
                return Err(wrong(&"has a name that cannot be written"));
            }
            if !names.insert(p.name.as_str()) {
                return Err(wrong(&"would be written twice"));
            }
            let shape_error =
                format_args!("of type {} and shape {:?} cannot be written", p.dtype, p.shape).to_string();
            let nbytes = p.dtype.nbytes(&p.shape).ok_or_else(|| wrong(&shape_error))?;
            // room for padding and header is left below the largest file offset
            total = total.checked_add(nbytes).filter(|&t| t < 1 << 60).ok_or_else(|| wrong(&shape_error))?;
            Ok(nbytes)
        })
        .collect()
}

/// The file that will be replaced: links are followed, folders, devices and read-only files refused.
fn resolve(target: &Path) -> Result<PathBuf> {
    let meta = match std::fs::metadata(target) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(target.to_path_buf()),
        Err(e) => return Err(write_error(target, &e)),
    };
    if meta.is_dir() {
        return Err(Error::file(target, "is a folder, the output has to be a file"));
    }
    if !meta.is_file() {
        return Err(Error::file(target, "is a pipe or device, the output has to be a regular file"));
    }
    OpenOptions::new().write(true).open(target).map_err(|e| write_error(target, &e))?;
    std::fs::canonicalize(target).map_err(|e| write_error(target, &e))
}

fn write_error(target: &Path, e: &io::Error) -> Error {
    let what = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full".into(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        io::ErrorKind::PermissionDenied => "no permission to write".into(),
        io::ErrorKind::NotFound => "the folder does not exist".into(),
        _ => format!("cannot be written: {e}"),
    };
    Error::file(target, what)
}

/// The unfinished file beside the target; removed when dropped unless renamed.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: File,
    renamed: bool,
}

/// Tells apart outputs that one process writes at a time.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Part {
    fn beside(given: &Path, target: &Path) -> Result<Self> {
        let folder = match target.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        if target.file_name().is_none() {
            return Err(Error::file(given, "names no file"));
        }
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            // short, since the target's own name may be as long as names can be
            let path = folder.join(format!(".sd-{}-{number}.part", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { path, file, renamed: false }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(write_error(given, &e)),
            }
        }
    }
}

impl Part {
    fn put(&mut self, given: &Path, target: &Path) -> Result<()> {
        std::fs::rename(&self.path, target).map_err(|e| write_error(given, &e))?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.renamed {
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// Whether both paths lead to one file, also through links. False when either does not exist.
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(x), Ok(y)) => same_meta(&x, &y, a, b),
        _ => false,
    }
}

#[cfg(unix)]
fn same_meta(x: &std::fs::Metadata, y: &std::fs::Metadata, _: &Path, _: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    x.dev() == y.dev() && x.ino() == y.ino()
}

#[cfg(not(unix))]
fn same_meta(_: &std::fs::Metadata, _: &std::fs::Metadata, a: &Path, b: &Path) -> bool {
    matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[n..];
        offset += n as u64;
    }
    Ok(())
}
