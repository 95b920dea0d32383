#!/bin/sh
# Checks that a shared library exports the recorded functions and our sd_ext_* ones, and nothing else.
#   check_exports.sh LIBRARY [RECORD]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
library=$1
record=${2:-$root/tests/abi/abi.json}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$library" | awk '{ print $NF }' | sort -u > "$work/found"
python3 -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))["functions"]))' "$record" > "$work/names"
grep -o 'sd_ext_[a-z0-9_]*(' "$root/include/stable-diffusion-ext.h" | tr -d '(' >> "$work/names"
sort -u "$work/names" > "$work/wanted"

if ! diff "$work/wanted" "$work/found" > "$work/difference"; then
    echo "$library: exports differ (< missing, > too many):" >&2
    cat "$work/difference" >&2
    exit 1
fi
echo "$(wc -l < "$work/found") exports, as wanted"
