#!/bin/sh
# Everything about the C interface: headers up to date and as recorded, exports, C and C++ programs, examples.
#   check_interface.sh [LIBRARY]      # target/debug/libstable_diffusion.so, built when none is named
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
if [ $# -eq 0 ]; then
    cargo build --lib
    set -- "${CARGO_TARGET_DIR:-target}/debug/libstable_diffusion.so"
fi
cargo run -q --profile tool -p header -- --check
echo "ok   headers are what src/capi gives"
if python3 -c 'import clang.cindex' 2> /dev/null; then
    python3 scripts/abi_check.py
else
    echo "skip abi_check.py (needs the Python package libclang); tests/capi/layout.c checks sizes and offsets"
fi
sh scripts/check_exports.sh "$1"
# Calls on a loaded model are part of `cargo test --test capi`.
sh scripts/ctest.sh "$1" --no-model
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh scripts/examples.sh "$1" "$work"
