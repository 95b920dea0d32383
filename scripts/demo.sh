#!/bin/sh
# Builds the library and makes a picture with the bundled demo model through a C program.
#   demo.sh [PROMPT] [FILE.png]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
prompt=${1:-a photo of a red apple}
file=${2:-demo.png}
cargo fetch --locked
cargo build --release --lib --locked
target=${CARGO_TARGET_DIR:-target}
sh scripts/examples.sh "$target/release/libstable_diffusion.so" "$target/examples-c" > /dev/null
"$target/examples-c/txt2img" -m models/emoji-sd.safetensors -p "$prompt" -o "$file" -W 128 -H 128 -s 20 --guidance 5 \
    --seed 1
