//! ggml with its CPU and RPC backends, by the `cc` crate: nothing but a C and a C++ compiler is needed.
//!
//! The archives have the names of ggml's own CMake build (`ggml`, `ggml-cpu`, `ggml-rpc`, `ggml-base`), so that
//! `GGML_LIB_DIR` accepts either.

use crate::stamp::Stamp;
use crate::{DEFINES, Result, Target, link};
use std::path::{Path, PathBuf};
use std::{env, fs};

// `ggml.cpp` is left out on purpose: it replaces the process' `std::terminate` handler by one that forks a debugger.
const BASE: [&str; 8] = [
    "ggml.c",
    "ggml-alloc.c",
    "ggml-quants.c",
    "ggml-backend.cpp",
    "ggml-backend-meta.cpp",
    "ggml-opt.cpp",
    "ggml-threading.cpp",
    "gguf.cpp",
];

const REGISTRY: [&str; 2] = ["ggml-backend-reg.cpp", "ggml-backend-dl.cpp"];

const RPC: [&str; 2] = ["ggml-rpc/ggml-rpc.cpp", "ggml-rpc/transport.cpp"];

const CPU: [&str; 15] = [
    "ggml-cpu.c",
    "ggml-cpu.cpp",
    "repack.cpp",
    "hbm.cpp",
    "quants.c",
    "traits.cpp",
    "amx/amx.cpp",
    "amx/mmq.cpp",
    "tiled/tiled.cpp",
    "tiled/tiled-kernel.cpp",
    "binary-ops.cpp",
    "unary-ops.cpp",
    "vec.cpp",
    "ops.cpp",
    "llamafile/sgemm.cpp",
];

/// Compiles the four archives into `OUT_DIR`, unless they are there, and links them.
pub fn build(source: &Path, target: &Target) -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let stamp = Stamp::new(&out, source, target)?;
    if !stamp.is_valid() {
        stamp.clear()?;
        compile(source, target, &out)?;
        stamp.write()?;
    }
    link::archives(&out, &["ggml", "ggml-rpc", "ggml-cpu", "ggml-base"])?;
    link::system(target);
    Ok(())
}

fn compile(source: &Path, target: &Target, out: &Path) -> Result<()> {
    version_header(source, out)?;
    let recipe = Recipe { source, target, out };
    let files = |names: &[&str]| names.iter().map(|name| source.join("src").join(name)).collect::<Vec<_>>();
    recipe.archive("ggml-base", &files(&BASE), &[])?;
    recipe.archive("ggml-cpu", &cpu_files(source, target), &cpu_defines(target))?;
    recipe.archive("ggml-rpc", &files(&RPC), &[])?;
    recipe.archive("ggml", &files(&REGISTRY), &["GGML_USE_CPU", "GGML_USE_RPC"])
}

/// ggml's CMake writes this header from `ggml-version.h.in`.
fn version_header(source: &Path, out: &Path) -> Result<()> {
    let text = fs::read_to_string(source.join("CMakeLists.txt"))?;
    let part = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(&format!("set(GGML_VERSION_{name} "))?.strip_suffix(')'))
            .ok_or_else(|| format!("no GGML_VERSION_{name} in ggml's CMakeLists.txt"))
    };
    let version = format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?);
    let header = format!("#define GGML_VERSION \"{version}\"\n#define GGML_COMMIT \"unknown\"\n");
    fs::write(out.join("ggml-version.h"), header)?;
    Ok(())
}

/// The architecture's own kernels come on top of the common files.
fn cpu_files(source: &Path, target: &Target) -> Vec<PathBuf> {
    let folder = source.join("src/ggml-cpu");
    let mut files: Vec<_> = CPU.iter().map(|name| folder.join(name)).collect();
    if let Some(arch) = arch_folder(target) {
        for name in ["quants.c", "repack.cpp"] {
            files.push(folder.join("arch").join(arch).join(name));
        }
    }
    files
}

fn cpu_defines(target: &Target) -> Vec<&'static str> {
    let mut defines = vec!["GGML_USE_CPU_REPACK", "GGML_USE_LLAMAFILE"];
    if arch_folder(target).is_none() {
        defines.push("GGML_CPU_GENERIC");
    }
    defines
}

fn arch_folder(target: &Target) -> Option<&'static str> {
    match target.arch.as_str() {
        "x86_64" | "x86" => Some("x86"),
        "aarch64" | "arm" => Some("arm"),
        _ => None,
    }
}

struct Recipe<'a> {
    source: &'a Path,
    target: &'a Target,
    out: &'a Path,
}

impl Recipe<'_> {
    /// C and C++ files want different standards: they are compiled apart and archived together.
    fn archive(&self, name: &str, files: &[PathBuf], defines: &[&str]) -> Result<()> {
        let (c, cpp): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| file.extension().is_some_and(|e| e == "c"));
        let mut objects = Vec::new();
        for (files, is_cpp) in [(c, false), (cpp, true)] {
            if !files.is_empty() {
                objects.extend(self.compiler(is_cpp, defines).files(files).try_compile_intermediates()?);
            }
        }
        // The link lines come from `link`, in the order that the archives need.
        cc::Build::new().cargo_metadata(false).objects(objects).try_compile(name)?;
        Ok(())
    }

    fn compiler(&self, cpp: bool, defines: &[&str]) -> cc::Build {
        let mut build = cc::Build::new();
        build
            .cpp(cpp)
            .std(if cpp { "gnu++17" } else { "gnu11" })
            .cargo_metadata(false)
            .warnings(false)
            // A debug build of ggml is tens of times slower, and every test of the workspace computes with it.
            .opt_level(3)
            .debug(false)
            .pic(true)
            .define("NDEBUG", None)
            .include(self.source.join("include"))
            .include(self.source.join("src"))
            .include(self.source.join("src/ggml-cpu"))
            .include(self.out)
            // The abort callback throws through C frames.
            .flag_if_supported("-fexceptions");
        for (name, value) in DEFINES {
            build.define(name, value);
        }
        for name in defines {
            build.define(name, None);
        }
        match self.target.os.as_str() {
            "windows" => build.define("_CRT_SECURE_NO_WARNINGS", None),
            "macos" | "ios" => build.define("_XOPEN_SOURCE", "600").define("_DARWIN_C_SOURCE", None),
            _ => build.define("_XOPEN_SOURCE", "600").define("_GNU_SOURCE", None),
        };
        if let Some(march) = &self.target.march {
            build.flag_if_supported(march);
        }
        if self.target.openmp {
            build.define("GGML_USE_OPENMP", None).flag(if self.target.msvc { "/openmp" } else { "-fopenmp" });
        }
        build
    }
}
