//! Where the source of ggml lies.

use crate::{Result, variable};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that carries ggml. `Cargo.toml` names it as a dependency for no target, so that `Cargo.lock` fixes
/// version and checksum and cargo downloads it, but never compiles it.
const PACKAGE: &str = "llama-cpp-sys-2";

/// The folder of ggml's `CMakeLists.txt`, `include` and `src`.
pub fn find() -> Result<PathBuf> {
    let dir = match variable("GGML_SOURCE_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => packaged()?,
    };
    if !dir.join("src/ggml.c").is_file() {
        return Err(format!(
            "{} holds no src/ggml.c; set GGML_SOURCE_DIR to a folder of ggml",
            dir.display()
        )
        .into());
    }
    println!("cargo::rerun-if-changed={}", dir.display());
    Ok(dir)
}

fn packaged() -> Result<PathBuf> {
    // Without network first: after `cargo fetch` or `cargo vendor` nothing has to be asked for. A plain `cargo build`
    // does not download a package that no target needs, so the second call may.
    let output = metadata(true).or_else(|_| metadata(false))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == PACKAGE)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| format!("cargo metadata does not list {PACKAGE}; run `cargo fetch --locked`"))?;
    let folder = Path::new(manifest).parent().ok_or("a manifest path without a folder")?;
    Ok(folder.join("llama.cpp").join("ggml"))
}

/// The JSON of `cargo metadata`. No `--filter-platform`: it would drop the package.
fn metadata(offline: bool) -> Result<Vec<u8>> {
    let mut command = Command::new(env::var_os("CARGO").ok_or("cargo did not set CARGO")?);
    command.args(["metadata", "--format-version=1", "--locked", "--manifest-path", "Cargo.toml"]);
    if offline {
        command.arg("--offline");
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "the source of ggml (package {PACKAGE}) is not at hand; run `cargo fetch --locked` or set GGML_SOURCE_DIR. \
         cargo metadata said: {}",
        reason.trim()
    )
    .into())
}
