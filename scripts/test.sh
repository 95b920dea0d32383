#!/bin/sh
# All tests: Rust, C and C++ programs, published clients, installation, a few recorded pictures.
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
if python3 -c 'import numpy, PIL' 2> /dev/null; then
    sh scripts/recorded.sh "$library"
else
    echo "skip recorded pictures (need the Python packages numpy and pillow)"
fi
