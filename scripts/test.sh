#!/bin/sh
# All tests: Rust, C and C++ programs, published clients, installation.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo fetch --locked
cargo test --workspace --locked
sh scripts/check_interface.sh
library=${CARGO_TARGET_DIR:-target}/debug/libstable_diffusion.so
if python3 -c 'import venv' 2> /dev/null; then
    sh scripts/test_clients.sh "$library"
fi
sh scripts/test_install.sh
