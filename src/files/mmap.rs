//! The one mapping of a file into memory.
//!
//! Read-only and shared with the page cache: pages are read when touched and can be dropped under pressure.

use std::fs::File;

/// A file mapped read-only as a whole.
#[derive(Debug)]
pub struct Map(memmap2::Mmap);

impl Map {
    /// Maps `file`, which needs to be open for reading only. `None` where the system refuses
    /// (empty file, no address space, a file system without mapping): the caller reads instead.
    pub fn new(file: &File) -> Option<Self> {
        // SAFETY: `memmap2` requires that the bytes do not change while mapped, since a `&[u8]` is handed out.
        // The mapping is made read-only just below and this process never writes a model file in place: `Writer`
        // writes beside its target and renames, which leaves a mapped inode as it is. Another process that
        // truncates the file can still take the pages away, as with every mapped file; mapping is therefore only
        // done when the caller asked for it (`enable_mmap`), and headers are always read, never mapped.
        let map = unsafe { memmap2::MmapOptions::new().map(file) };
        map.ok().map(Self)
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
