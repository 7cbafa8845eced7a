#!/usr/bin/env bash
# bench.sh FOLDER: builds and runs every bench/bench_*.c, each of which prints its own table; then
# generates with a model of random weights, greedily, and prints what generate says of its speed.
# BENCH_PRESET and BENCH_DTYPE choose another model.
set -euo pipefail
folder=$1
preset=${BENCH_PRESET-stories110m}
dtype=${BENCH_DTYPE-bf16}
ninja -C "$folder" benches >/dev/null
shopt -s nullglob
for source in bench/bench_*.c; do
    name=$(basename "$source" .c)
    echo "== $name"
    "$folder/$name"
done

model=$folder/bench-$preset-$dtype
[ -f "$model/config.json" ] || "$folder/caravan" init --preset "$preset" --dtype "$dtype" -o "$model"
prompt=1$(printf ',%s' $(seq 3 257))
echo "== generate, $preset, $dtype: a prompt of 256 tokens and 256 more"
"$folder/caravan" generate --model "$model" --dtype "$dtype" --tokens "$prompt" --max-tokens 256 \
    --temperature 0 --ignore-eos 2>&1 >/dev/null | grep -v '^$'
