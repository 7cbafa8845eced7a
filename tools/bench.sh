#!/usr/bin/env bash
# bench.sh FOLDER: builds and runs every bench/bench_*.c, each of which prints its own table.
set -euo pipefail
folder=$1
ninja -C "$folder" benches >/dev/null
shopt -s nullglob
found=0
for source in bench/bench_*.c; do
    name=$(basename "$source" .c)
    echo "== $name"
    "$folder/$name"
    found=1
done
[ "$found" = 1 ] || echo "No benchmarks yet."
