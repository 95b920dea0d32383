//! Model files made to do harm: each is refused quickly, in little memory, with a message, and nothing panics.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "hostile/archives.rs"]
mod archives;
#[path = "files/build.rs"]
mod build;
#[path = "hostile/bulk.rs"]
mod bulk;
#[path = "hostile/pickles.rs"]
mod pickles;
#[path = "hostile/sweep.rs"]
mod sweep;

use stable_diffusion::files::ModelFile;
use std::time::{Duration, Instant};

/// Opening takes below a second on an idle machine; tests run on busy ones and without optimisation.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens bytes, reads whatever opens, and returns the refusal, if any.
fn open(name: &str, bytes: Vec<u8>) -> Result<(), String> {
    let start = Instant::now();
    let len = bytes.len() as u64;
    let result = ModelFile::from_bytes(name, bytes);
    let took = start.elapsed();
    assert!(took < PATIENCE, "{name} took {took:?}");
    let file = result.map_err(|e| e.to_string())?;
    for entry in file.tensors() {
        assert!(entry.nbytes <= len.max(16 << 20) * 1032, "{name}: {entry:?}");
        if entry.nbytes < 16 << 20 && file.read(entry).is_ok() {
            let mapped = file.mapped(entry).map(<[u8]>::len);
            assert!(mapped.is_none_or(|n| n as u64 == entry.nbytes));
        }
    }
    Ok(())
}

/// The refusal of bytes that have to be refused.
fn refused(name: &str, bytes: Vec<u8>) -> String {
    let message = open(name, bytes).expect_err(name);
    assert!(message.starts_with(name) && message.len() < 4096, "{message}");
    message
}

/// Most memory that this process has ever used, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
