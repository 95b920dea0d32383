#!/bin/sh
# Compares whole pictures with recorded ones (tests/recorded): a table of cases, margins in dB, seconds, memory.
#   recorded.sh LIBRARY [PATTERN ...] [-v]      # without patterns: the few that CI runs
# Every case of a kind: recorded.sh LIBRARY 'sd1_*'. All of them take an hour or two on two cores.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
library=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- canny sd1_txt2img sd1_img2img sd1_sizes sdxs512 sd1_refused
exec python3 "$root/tests/recorded/run_cases.py" "$library" "$@"
