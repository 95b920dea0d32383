#!/bin/sh
# Builds and runs the C tests as C11 and as C++17 against a shared library.
#   ctest.sh LIBRARY [--valgrind | --no-model]      # both leave out the calls on a loaded model
# LIBRARY is libstable-diffusion.so, or what cargo builds: target/debug/libstable_diffusion.so.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
library=$(realpath "$1")
runner=
[ "${2:-}" = --valgrind ] && runner="valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Programs ask for the library by its soname.
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
ln -s "$library" "$work/${soname:-$(basename "$library")}"
export LD_LIBRARY_PATH="$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

warnings="-Wall -Wextra -Werror -pedantic -O1 -g -I$root/include"
status=0
for source in "$root"/tests/capi/*.c; do
    name=$(basename "$source" .c)
    gcc -std=c11 $warnings "$source" "$library" -pthread -lm -o "$work/$name-c"
    g++ -std=c++17 $warnings -x c++ "$source" -x none "$library" -pthread -lm -o "$work/$name-cpp"
    for program in "$work/$name-c" "$work/$name-cpp"; do
        if $runner "$program"; then
            echo "ok   $(basename "$program")"
        else
            echo "FAIL $(basename "$program")"
            status=1
        fi
    done
done

if [ $# -eq 1 ]; then
    gcc -std=c11 $warnings "$root/tests/capi/model/generate.c" "$library" -pthread -o "$work/generate"
    if "$work/generate" "$root/models/emoji-sd.safetensors"; then
        echo "ok   generate"
    else
        echo "FAIL generate"
        status=1
    fi
fi
exit $status
