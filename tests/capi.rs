//! The C and C++ programs in `tests/capi` against the shared library that cargo built for this test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared library beside this test's program.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    let name = format!("{}stable_diffusion{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    [deps.join(&name), deps.parent().unwrap().join(&name)].into_iter().find(|p| p.exists()).unwrap()
}

fn run(script: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("sh").arg(root.join("scripts").join(script)).arg(library()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn programs_in_c11_and_cpp17() {
    run("ctest.sh");
}

#[test]
fn exports_are_the_interface() {
    run("check_exports.sh");
}
