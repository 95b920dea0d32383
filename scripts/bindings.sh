#!/bin/bash
# Writes ggml-sys/src/bindings.rs from the headers of the locked ggml package.
#
# Needs: bindgen (cargo install bindgen-cli), libclang (LIBCLANG_PATH, if it is not found by itself), rustfmt, python3.
# GGML_SOURCE_DIR overrides where ggml is taken from, as it does for the build.
set -euo pipefail
cd "$(dirname "$0")/.."

source_dir=${GGML_SOURCE_DIR:-}
if [ -z "$source_dir" ]; then
    cargo fetch --locked --quiet
    source_dir=$(cargo metadata --format-version=1 --locked --offline | python3 -c '
import json, os, sys
package = next(p for p in json.load(sys.stdin)["packages"] if p["name"] == "llama-cpp-sys-2")
print(os.path.join(os.path.dirname(package["manifest_path"]), "llama.cpp", "ggml"))')
fi

version=$(sed -n 's/^set(GGML_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\))/\2/p' "$source_dir/CMakeLists.txt" | paste -sd.)
[ -n "$version" ] || { echo "no GGML_VERSION_* in $source_dir/CMakeLists.txt" >&2; exit 1; }

# libclang from PyPI brings no compiler headers (stddef.h ...); those of gcc serve as well.
builtin_headers=$(${CC:-cc} -print-file-name=include)

header=$(mktemp --suffix=.h)
trap 'rm -f "$header"' EXIT
for h in ggml ggml-alloc ggml-backend ggml-cpu gguf ggml-rpc; do echo "#include \"$h.h\""; done > "$header"

# C-unwind: the abort callback throws through these calls (see src/guard.cpp).
# FILE is the platform's; ours is opaque and comes from libc's fopen.
bindgen "$header" \
    --output ggml-sys/src/bindings.rs \
    --rust-edition 2024 --rust-target 1.85 \
    --allowlist-item '(ggml|gguf|GGML|GGUF)_.*' \
    --override-abi '(ggml|gguf)_.*=C-unwind' \
    --default-enum-style consts --no-prepend-enum-name \
    --blocklist-type 'FILE|_IO_FILE|_IO_.*|__off.*_t' \
    --no-layout-tests --merge-extern-blocks \
    --raw-line '/// An opaque C stream, as `fopen` returns it.' \
    --raw-line '#[repr(C)]' \
    --raw-line 'pub struct FILE { _opaque: [u8; 0] }' \
    --raw-line '/// The version of ggml that these bindings were made from.' \
    --raw-line "pub const BOUND_VERSION: &::std::ffi::CStr = c\"$version\";" \
    --raw-line '/// The longest tensor name, with its NUL; part of the layout of `ggml_tensor` and of the RPC protocol.' \
    --raw-line 'pub const GGML_MAX_NAME: usize = 128;' \
    --blocklist-item GGML_MAX_NAME \
    -- -I"$source_dir/include" -DGGML_MAX_NAME=128 -idirafter "$builtin_headers"
