#!/usr/bin/env bash
# arm.sh FOLDER: builds for 64-bit Arm and runs the tests of the kernels and of the model under qemu-user.
# Debian: dpkg --add-architecture arm64; apt-get install gcc-aarch64-linux-gnu qemu-user libjansson-dev:arm64
# libpcre2-dev:arm64 libcmocka-dev:arm64
set -euo pipefail
folder=$1
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    if ! command -v "$tool" >/dev/null; then
        echo "arm: $tool is missing; tools/arm.sh says what to install" >&2
        exit 3
    fi
done
cmake -S . -B "$folder" -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCVN_SHARED=OFF >/dev/null
ninja -C "$folder"
ctest --test-dir "$folder" --timeout 1800 -R '^test_(kernels_|llama$|base$|rng$|sample$)' --output-on-failure
