#!/usr/bin/env bash
# bench.sh FOLDER: a summary in about three minutes. Every bench/bench_*.c, each of which prints its own table;
# then caravan bench on two shapes, or on the one that BENCH_PRESET names.
set -euo pipefail
folder=$1
ninja -C "$folder" benches >/dev/null
shopt -s nullglob
for source in bench/bench_*.c; do
    name=$(basename "$source" .c)
    echo "== $name"
    "$folder/$name"
done

# summary OPTIONS…
summary() {
    echo "== caravan bench $*"
    "$folder/caravan" bench "$@"
}

if [ -n "${BENCH_PRESET-}" ]; then
    summary --preset "$BENCH_PRESET" --ladder
    summary --preset "$BENCH_PRESET" --batch 8
else
    summary --preset stories110m --ladder
    summary --preset llama3.2-1b --decode 32
    summary --preset llama3.2-1b --decode 32 --batch 8
fi
