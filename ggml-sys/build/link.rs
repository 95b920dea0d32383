//! The link lines for cargo.

use crate::{Result, Target, variable};
use std::path::Path;

/// Every archive that a build of ggml may consist of, each before those that it needs.
const KNOWN: [&str; 8] =
    ["ggml", "ggml-cuda", "ggml-vulkan", "ggml-metal", "ggml-blas", "ggml-rpc", "ggml-cpu", "ggml-base"];

/// Links the archives of `GGML_LIB_DIR`. They must be compiled with the defines of `main.rs` and with `-fexceptions`.
pub fn prebuilt(dir: &Path) -> Result<()> {
    let target = Target::from_cargo()?;
    let present: Vec<_> = KNOWN.into_iter().filter(|name| archive(dir, name, &target).is_file()).collect();
    for name in ["ggml", "ggml-cpu", "ggml-base"].into_iter().chain(target.gpu_archives()) {
        if !present.contains(&name) {
            let missing = archive(dir, name, &target);
            return Err(format!("GGML_LIB_DIR: {} is missing", missing.display()).into());
        }
    }
    for name in &present {
        println!("cargo::rerun-if-changed={}", archive(dir, name, &target).display());
    }
    archives(dir, &present)?;
    system(&target);
    Ok(())
}

/// Links `names` from `dir`, in this order.
pub fn archives(dir: &Path, names: &[&str]) -> Result<()> {
    let dir = dir.to_str().ok_or("the folder of ggml's libraries is not valid UTF-8")?;
    println!("cargo::rustc-link-search=native={dir}");
    println!("cargo::metadata=lib_dir={dir}");
    for name in names {
        println!("cargo::rustc-link-lib=static={name}");
    }
    Ok(())
}

/// Links what ggml's archives need from the system.
pub fn system(target: &Target) {
    let dylib = |name: &str| println!("cargo::rustc-link-lib=dylib={name}");
    match target.os.as_str() {
        "macos" | "ios" => dylib("c++"),
        "windows" => ["ws2_32", "advapi32"].into_iter().for_each(dylib),
        _ => ["stdc++", "m", "pthread", "dl"].into_iter().for_each(dylib),
    }
    if target.openmp && !target.msvc {
        dylib(if cc::Build::new().get_compiler().is_like_clang() { "omp" } else { "gomp" });
    }
    for backend in &target.gpu {
        match *backend {
            "vulkan" => dylib(if target.os == "windows" { "vulkan-1" } else { "vulkan" }),
            "metal" => {
                for framework in ["Foundation", "Metal", "MetalKit", "Accelerate"] {
                    println!("cargo::rustc-link-lib=framework={framework}");
                }
            }
            _ => cuda(target),
        }
    }
}

/// The CUDA runtime and cuBLAS as shared libraries, and the driver library.
fn cuda(target: &Target) {
    let root = variable("CUDA_PATH")
        .or_else(|| variable("CUDA_HOME"))
        .unwrap_or_else(|| "/usr/local/cuda".to_owned());
    for folder in
        ["lib64", "lib64/stubs", "lib/x64", "targets/x86_64-linux/lib", "targets/x86_64-linux/lib/stubs"]
    {
        let folder = Path::new(&root).join(folder);
        if folder.is_dir() {
            println!("cargo::rustc-link-search=native={}", folder.display());
        }
    }
    let driver = if target.os == "windows" { "nvcuda" } else { "cuda" };
    for name in ["cudart", "cublas", "cublasLt", driver] {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
}

fn archive(dir: &Path, name: &str, target: &Target) -> std::path::PathBuf {
    dir.join(if target.msvc { format!("{name}.lib") } else { format!("lib{name}.a") })
}

impl Target {
    /// The archives that the features ask for.
    pub fn gpu_archives(&self) -> impl Iterator<Item = &'static str> {
        KNOWN
            .into_iter()
            .filter(|name| self.gpu.iter().any(|backend| name.strip_prefix("ggml-") == Some(backend)))
    }
}
