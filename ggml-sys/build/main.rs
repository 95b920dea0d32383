//! Builds ggml and tells cargo how to link it. `docs/build.md` describes the sources, the variables and the features.

mod cpu;
mod gpu;
mod link;
mod source;
mod stamp;

use std::env;
use std::error::Error;
use std::path::Path;

/// What a step of the build gives, with a message for the person building.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Definitions that change layouts or behaviour: every file of ggml must see the same ones, whoever compiles it.
/// `GGML_MAX_NAME` is also part of `src/bindings.rs` (`scripts/bindings.sh`).
const DEFINES: [(&str, &str); 2] = [("GGML_MAX_NAME", "128"), ("GGML_SCHED_MAX_COPIES", "4")];

fn main() {
    if let Err(error) = build() {
        // `cargo::error=` shows without the noise of a panicking build script.
        println!("cargo::error={}", error.to_string().replace('\n', " "));
        std::process::exit(1);
    }
}

fn build() -> Result<()> {
    println!("cargo::rerun-if-changed=build");
    if let Some(dir) = variable("GGML_LIB_DIR") {
        return link::prebuilt(Path::new(&dir)).and_then(|()| guard());
    }
    let source = source::find()?;
    let target = Target::from_cargo()?;
    if target.gpu.is_empty() {
        cpu::build(&source, &target)?;
    } else {
        gpu::build(&source, &target)?;
    }
    guard()
}

/// The C++ side of `src/guard.rs`: it catches what ggml's abort callback throws.
fn guard() -> Result<()> {
    println!("cargo::rerun-if-changed=src/guard.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("src/guard.cpp")
        .opt_level(2)
        .warnings(true)
        .try_compile("ggml-guard")?;
    Ok(())
}

/// An environment variable of the person building; cargo runs the script again when it changes.
fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What is built: machine, instruction set and backends.
#[derive(Debug)]
struct Target {
    arch: String,
    os: String,
    msvc: bool,
    openmp: bool,
    /// Backends besides CPU and RPC, by ggml's names in lower case: `cuda`, `vulkan`, `metal`.
    gpu: Vec<&'static str>,
    /// The compiler flag that chooses the instruction set of the CPU backend, if there is one.
    march: Option<String>,
}

impl Target {
    fn from_cargo() -> Result<Self> {
        let cfg = |key: &str| env::var(key).map_err(|_| format!("cargo did not set {key}"));
        let arch = cfg("CARGO_CFG_TARGET_ARCH")?;
        let os = cfg("CARGO_CFG_TARGET_OS")?;
        let feature = |name: &str| env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
        let gpu: Vec<_> = [("CUDA", "cuda"), ("VULKAN", "vulkan"), ("METAL", "metal")]
            .into_iter()
            .filter(|(name, _)| feature(name))
            .map(|(_, backend)| backend)
            .collect();
        if gpu.contains(&"metal") && os != "macos" {
            return Err("feature `metal` needs a macOS target; remove the feature".into());
        }
        let cross = cfg("TARGET")? != cfg("HOST")?;
        Ok(Self {
            march: march(&arch, &os, cross),
            msvc: cfg("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "msvc"),
            openmp: feature("OPENMP"),
            arch,
            os,
            gpu,
        })
    }
}

/// The flag for `GGML_MARCH`: `native` (default, unless cross-compiling), `portable`, or a name that the compiler knows.
fn march(arch: &str, os: &str, cross: bool) -> Option<String> {
    let default = if cross { "portable" } else { "native" };
    let wanted = variable("GGML_MARCH").unwrap_or_else(|| default.to_owned());
    match (wanted.as_str(), arch) {
        // AVX2, FMA and F16C: every x86 machine since 2013 (Intel) and 2015 (AMD). Without AVX2 ggml is not usable.
        ("portable", "x86_64") => Some("-march=x86-64-v3".to_owned()),
        ("portable", "aarch64") if os != "macos" => Some("-march=armv8-a".to_owned()),
        ("portable", _) => None,
        // On ARM `-march=native` picks the architecture level only, `-mcpu=native` the features of the core too.
        ("native", "aarch64") => Some("-mcpu=native".to_owned()),
        (name, _) => Some(format!("-march={name}")),
    }
}
