#!/bin/sh
# Installs into a temporary folder, moves it, and builds a program with it: pkg-config shared and static, CMake.
#   test_install.sh [FOLDER]      # FOLDER as for install.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/scripts/install.sh" "$work/first" "$@"
mv "$work/first" "$work/moved"
export PKG_CONFIG_PATH="$work/moved/lib/pkgconfig"

cat > "$work/main.c" <<'C'
#include <stable-diffusion-ext.h>
#include <stdio.h>

int main(void) {
    printf("%s %d\n", sd_version(), sd_ext_abi_version() == SD_EXT_ABI_VERSION);
    return sd_ext_abi_version() == SD_EXT_ABI_VERSION && new_sd_ctx(NULL) == NULL ? 0 : 1;
}
C
soname=$(readelf -d "$work/moved/lib/libstable-diffusion.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ -e "$work/moved/lib/$soname" ] || { echo "the soname $soname is no file that was installed" >&2; exit 1; }

flags=$(pkg-config --cflags --libs stable-diffusion)
gcc "$work/main.c" $flags -o "$work/shared"
LD_LIBRARY_PATH="$work/moved/lib" "$work/shared"
echo "ok   pkg-config, shared"

flags=$(pkg-config --cflags --libs stable-diffusion-static)
gcc "$work/main.c" $flags -o "$work/static"
"$work/static"
if readelf -d "$work/static" | grep -q stable-diffusion; then
    echo "the static program needs the shared library" >&2
    exit 1
fi
echo "ok   pkg-config, static"

if ! command -v cmake > /dev/null; then
    echo "skip cmake (not installed)"
    exit 0
fi
mkdir "$work/cmake"
cp "$work/main.c" "$work/cmake/"
cat > "$work/cmake/CMakeLists.txt" <<'M'
cmake_minimum_required(VERSION 3.16)
project(client C)
find_package(stable-diffusion 0.1 REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared stable-diffusion)
add_executable(static main.c)
target_link_libraries(static stable-diffusion-static)
M
cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$work/moved" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/cmake/build" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/cmake/build/shared"
"$work/cmake/build/static"
echo "ok   cmake, shared and static"
