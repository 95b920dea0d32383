//! Writes the C headers from `src/capi`, doc comments included.
//!
//! `header [--check] [ROOT]`: with `--check` nothing is written, and a difference is an error.
#![forbid(unsafe_code)]

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Files whose items make up `stable-diffusion.h`, types first.
const MAIN: &[&str] = &[
    "types",
    "callbacks",
    "info",
    "names",
    "params",
    "context",
    "image",
    "video",
    "upscale",
    "convert",
    "canny",
    "memory",
];

const MAIN_INTRO: &str = "\
/*
 * libstable-diffusion: images and videos with diffusion models.
 *
 * Generated from src/capi; change the Rust source, not this file.
 *
 * Memory: what a function returns is C heap memory that the caller frees as its comment says. What a caller passes is
 * copied and stays the caller's. Every function that frees takes NULL.
 * Threads: contexts are independent. One context does one call at a time; further calls wait. Callbacks come on the
 * thread that made the call.
 * Errors: a call that fails returns false or NULL and logs why; sd_ext_last_error() in stable-diffusion-ext.h tells the
 * reason to the thread that made the call.
 * Static linking on Windows: leave SD_BUILD_SHARED_LIB undefined; define it to link with the DLL.
 */";

const API_MACRO: &str = "\n\
#if defined(_WIN32) || defined(__CYGWIN__)
#ifndef SD_BUILD_SHARED_LIB
#define SD_API
#else
#ifdef SD_BUILD_DLL
#define SD_API __declspec(dllexport)
#else
#define SD_API __declspec(dllimport)
#endif
#endif
#else
#if __GNUC__ >= 4
#define SD_API __attribute__((visibility(\"default\")))
#else
#define SD_API
#endif
#endif

struct ggml_tensor;";

const EXT_INTRO: &str = "\
/*
 * Additions of this library to stable-diffusion.h. A client that must also run on other implementations of that
 * interface looks these functions up at run time.
 *
 * Generated from src/capi/ext.rs; change the Rust source, not this file.
 */";

fn config(intro: &str, guard: &str) -> Config {
    let mut config = Config {
        language: Language::C,
        header: Some(intro.into()),
        include_guard: Some(guard.into()),
        no_includes: true,
        cpp_compat: true,
        style: Style::Both,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 110,
        tab_width: 4,
        ..Config::default()
    };
    config.function.prefix = Some("SD_API".into());
    config
}

/// Source files of the rooms that hold exported items.
fn sources(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| root.join("src/capi").join(format!("{name}.rs"))).collect()
}

fn generate(root: &Path, names: &[&str], config: Config) -> Result<String, String> {
    let mut builder = Builder::new().with_config(config);
    for source in sources(root, names) {
        builder = builder.with_src(source);
    }
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    // Rust's heading for what a caller must see to.
    Ok(text.replace(" * # Safety\n", " * Pointers:\n").replace('`', ""))
}

fn main_header(root: &Path) -> Result<String, String> {
    let mut config = config(MAIN_INTRO, "STABLE_DIFFUSION_H");
    config.sys_includes = ["stdbool.h", "stddef.h", "stdint.h", "string.h"].map(String::from).to_vec();
    config.after_includes = Some(API_MACRO.into());
    // Known to C by its tag only, as in ggml's own header.
    config.export.exclude = vec!["ggml_tensor".into()];
    config.export.rename.insert("ggml_tensor".into(), "struct ggml_tensor".into());
    generate(root, MAIN, config)
}

fn ext_header(root: &Path) -> Result<String, String> {
    let mut config = config(EXT_INTRO, "STABLE_DIFFUSION_EXT_H");
    config.includes = vec!["stable-diffusion.h".into()];
    generate(root, &["ext"], config)
}

fn run() -> Result<(), String> {
    let mut check = false;
    let mut root = PathBuf::from(".");
    for argument in std::env::args().skip(1) {
        if argument == "--check" {
            check = true;
        } else {
            root = argument.into();
        }
    }
    for (name, text) in
        [("stable-diffusion.h", main_header(&root)?), ("stable-diffusion-ext.h", ext_header(&root)?)]
    {
        let path = root.join("include").join(name);
        if check {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            if found != text {
                return Err(format!(
                    "include/{name} is not what src/capi gives: run `cargo run --profile tool -p header`"
                ));
            }
        } else {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
