//! Gives the shared library its soname: the plain name followed by the revision of the C interface.

use std::path::Path;

fn main() {
    let source = Path::new("src/capi/ext.rs");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", source.display());
    let text = std::fs::read_to_string(source).unwrap_or_default();
    let revision = text
        .lines()
        .find(|line| line.contains("const SD_EXT_ABI_VERSION"))
        .and_then(|line| line.rsplit('=').next())
        .map(|value| value.trim().trim_end_matches(';').to_string());
    let Some(revision) = revision else {
        println!("cargo:warning=src/capi/ext.rs states no SD_EXT_ABI_VERSION: the library gets no soname");
        return;
    };
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos" | "ios") => {
            let name = format!("@rpath/libstable-diffusion.{revision}.dylib");
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,{name}");
        }
        Ok("windows") => {}
        _ => println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libstable-diffusion.so.{revision}"),
    }
}
