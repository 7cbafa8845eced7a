#!/bin/sh
# What `caravan simulate --chip this` says of this machine, which measures steps one by one, beside what `caravan bench`
# measures of whole runs right after: prefill, decoding and training, on one device and on two. In a table, and how far apart.
#
#     tools/foresight_here.sh [CARAVAN] [PRESET of prefill and decoding]        about 10 minutes; nothing else should run
set -e
caravan=${1:-$(cd "$(dirname "$0")/.." && pwd)/build/caravan}
preset=${2:-llama3.2-1b}

number() { sed -nE "s/.*\"$1\": ([-+.e0-9]+).*/\1/p"; }

# row NAME FIELD "what simulate and bench are asked" "simulate alone" "bench alone"
row() {
    # shellcheck disable=SC2086
    said=$("$caravan" simulate --chip this --json $3 $4 | number seconds)
    # shellcheck disable=SC2086
    took=$("$caravan" bench --json $3 $5 | grep -o "\"$2\": {.*" | number "$6")
    awk -v name="$1" -v said="$said" -v took="$took" 'BEGIN {
        error = 100 * (said / took - 1)
        printf "| %s | %.3f | %.3f | %+.1f %% | %s |\n", name, 1e3 * said, 1e3 * took, error,
               (error * error < 100 ? "yes" : "no") }'
}

echo '| | simulated, ms | measured, ms | error | within 10 % |'
echo '|---|---|---|---|---|'
for type in none int8 int4; do
    row "$preset, $type, prefill of 512" prefill "--preset $preset --quantize $type" \
        "--prefill --seq 512" "--prefill 512 --decode 0" seconds
    for batch in 1 8 32; do
        row "$preset, $type, a step of $batch rows" decode \
            "--preset $preset --quantize $type --batch $batch" "--context 160" \
            "--prefill 0 --context 128 --decode 64" seconds_per_token
    done
done
row "$preset, 2 devices, a step of 8 rows" decode \
    "--preset $preset --mesh model=2 --layout tp --batch 8" "--context 160" \
    "--prefill 0 --context 128 --decode 64" seconds_per_token
for model in tiny stories260k stories15m stories42m stories110m; do
    row "$model, training on 2 rows of 256" train \
        "--train --preset $model --seq 256 --batch 2 --remat none" "" "" seconds_per_step
done
row "stories15m, 2 devices, training on 2 rows of 256" train \
    "--train --preset stories15m --seq 256 --batch 2 --remat none --mesh data=2 --layout fsdp" "" "" \
    seconds_per_step
