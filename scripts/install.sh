#!/bin/sh
# Installs library, headers, pkg-config and CMake files below PREFIX; DESTDIR is honoured.
#   install.sh PREFIX [FOLDER]
# FOLDER holds libstable_diffusion.so and .a; without it they are built (cargo build --release).
set -eu
[ $# -ge 1 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$1
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac
if [ $# -ge 2 ]; then
    built=$2
else
    (cd "$root" && cargo build --release --lib)
    built=${CARGO_TARGET_DIR:-$root/target}/release
fi

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
revision=$(sed -n 's/.*const SD_EXT_ABI_VERSION: c_int = \([0-9]*\);/\1/p' "$root/src/capi/ext.rs")
commit=$(sed -n 's/^const COMMIT: &CStr = c"\(.*\)";/\1/p' "$root/src/capi/info.rs")
to=${DESTDIR:-}$prefix
mkdir -p "$to/lib/pkgconfig" "$to/lib/cmake/stable-diffusion" "$to/include" "$to/share/licenses/stable-diffusion"

# The file has the soname's name; the plain name is what linkers and dlopen clients ask for.
install -m 755 "$built/libstable_diffusion.so" "$to/lib/libstable-diffusion.so.$revision"
ln -sf "libstable-diffusion.so.$revision" "$to/lib/libstable-diffusion.so"
install -m 644 "$built/libstable_diffusion.a" "$to/lib/libstable-diffusion.a"
install -m 644 "$root/include/stable-diffusion.h" "$root/include/stable-diffusion-ext.h" "$to/include/"
for licence in "$root"/LICENSE* "$root"/THIRD_PARTY*; do
    [ -e "$licence" ] && install -m 644 "$licence" "$to/share/licenses/stable-diffusion/"
done

# What the static library needs besides itself: the C++ runtime of ggml and the system's libraries.
private="-lstdc++ -lpthread -ldl -lrt -lm"
for kind in "" -static; do
    libs="-L\${libdir} -lstable-diffusion"
    [ -n "$kind" ] && libs="\${libdir}/libstable-diffusion.a $private"
    sed -e "s|@KIND@|$kind|" -e "s|@VERSION@|$version|" -e "s|@COMMIT@|$commit|" -e "s|@LIBS@|$libs|" \
        -e "s|@PRIVATE@|$private|" "$root/scripts/install/stable-diffusion.pc.in" \
        > "$to/lib/pkgconfig/stable-diffusion$kind.pc"
done
for file in stable-diffusion-config.cmake stable-diffusion-config-version.cmake; do
    sed -e "s|@VERSION@|$version|" -e "s|@COMMIT@|$commit|" -e "s|@REVISION@|$revision|" \
        "$root/scripts/install/$file.in" > "$to/lib/cmake/stable-diffusion/$file"
done
echo "installed $version (interface $revision) to $prefix"
