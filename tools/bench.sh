#!/usr/bin/env bash
# bench.sh FOLDER: builds and runs every bench/bench_*.c, each of which prints its own table; then
# caravan bench with the shape that BENCH_PRESET names.
set -euo pipefail
folder=$1
preset=${BENCH_PRESET-stories110m}
ninja -C "$folder" benches >/dev/null
shopt -s nullglob
for source in bench/bench_*.c; do
    name=$(basename "$source" .c)
    echo "== $name"
    "$folder/$name"
done

for dtype in f32 bf16; do
    echo "== caravan bench --preset $preset --dtype $dtype"
    "$folder/caravan" bench --preset "$preset" --dtype "$dtype"
done
