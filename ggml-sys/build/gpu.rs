//! ggml with GPU backends, by its own CMake files: lists of architectures, the generator of Vulkan's shaders and the
//! embedding of Metal's are not worth a second description.

use crate::{DEFINES, Result, Target, link, variable};
use std::env;
use std::path::{Path, PathBuf};

/// ggml's options that choose instructions of the CPU backend; all off, since `Target::march` chooses.
const INSTRUCTIONS: [&str; 7] =
    ["GGML_NATIVE", "GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C"];

/// Options that would look for further software on the building machine.
const UNUSED: [&str; 7] = [
    "BUILD_SHARED_LIBS",
    "GGML_BLAS",
    "GGML_CCACHE",
    "GGML_CUDA_NCCL",
    "GGML_RPC_RDMA",
    "GGML_BUILD_TESTS",
    "GGML_BUILD_EXAMPLES",
];

const USED: [&str; 5] =
    ["GGML_CPU", "GGML_RPC", "GGML_LLAMAFILE", "GGML_METAL_EMBED_LIBRARY", "CMAKE_POSITION_INDEPENDENT_CODE"];

/// Builds all archives into `OUT_DIR/lib` and links them.
pub fn build(source: &Path, target: &Target) -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let lib = out.join("lib");
    let defines: Vec<_> = DEFINES.iter().map(|(name, value)| format!("{name}={value}")).collect();

    let mut config = cmake::Config::new("build/cmake");
    config
        .profile("Release")
        .build_target("ggml")
        .define("GGML_SOURCE_DIR", source)
        .define("GGML_SYS_LIB_DIR", &lib)
        .define("GGML_SYS_DEFINES", defines.join(";"))
        .define("GGML_SYS_MARCH", target.march.as_deref().unwrap_or_default())
        .define("GGML_OPENMP", switch(target.openmp));
    for (names, on) in [(&INSTRUCTIONS[..], false), (&UNUSED[..], false), (&USED[..], true)] {
        for name in names {
            config.define(name, switch(on));
        }
    }
    for backend in ["cuda", "vulkan", "metal"] {
        config.define(format!("GGML_{}", backend.to_uppercase()), switch(target.gpu.contains(&backend)));
    }
    // ggml's own list, which serves all cards, takes an hour; `90` or `86;89` is a matter of minutes.
    if let Some(architectures) = variable("GGML_CUDA_ARCHITECTURES") {
        config.define("CMAKE_CUDA_ARCHITECTURES", architectures);
    }
    config.build();

    let names: Vec<_> = ["ggml"]
        .into_iter()
        .chain(target.gpu_archives())
        .chain(["ggml-rpc", "ggml-cpu", "ggml-base"])
        .collect();
    link::archives(&lib, &names)?;
    link::system(target);
    Ok(())
}

fn switch(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}
