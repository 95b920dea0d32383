#!/bin/sh
# Builds the programs of examples/c against a shared library.
#   examples.sh LIBRARY FOLDER
# They find the library where it is now.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
library=$(realpath "$1")
folder=$2
mkdir -p "$folder"
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ -n "$soname" ] && ln -sf "$library" "$folder/$soname"
for source in "$root"/examples/c/*.c; do
    name=$(basename "$source" .c)
    gcc -std=c11 -Wall -Wextra -Werror -pedantic -O2 -I"$root/include" "$source" "$library" -Wl,-rpath,"\$ORIGIN" \
        -o "$folder/$name"
    echo "ok   $folder/$name"
done
