#!/bin/sh
# Published clients of the C interface against this library, unmodified.
#   test_clients.sh LIBRARY      # a path to libstable-diffusion.so or libstable_diffusion.so
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
library=$(realpath "$1")
environment=${SD_CLIENT_ENV:-$root/target/client-env}
if [ ! -x "$environment/bin/python" ]; then
    python3 -m venv "$environment"
    CMAKE_ARGS="-DSTABLE_DIFFUSION_BUILD=OFF" "$environment/bin/pip" install -q \
        stable-diffusion-cpp-python==0.4.7 pillow numpy safetensors
fi
STABLE_DIFFUSION_CPP_LIB="$library" "$environment/bin/python" "$root/tests/clients/python/test_client.py"
