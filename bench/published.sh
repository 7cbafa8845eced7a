#!/usr/bin/env bash
# published.sh [--simulated] [FILTER]: the configurations that the founding articles report, compiled by the TPUs' own compiler for chips
# that are not here, as rows of bench/published/compiled.csv: memory of a device, in bytes, beside what `caravan plan` says, the
# time of a step by the compiler's estimates, whether it fits, or else why there is none. FILTER, an extended regular
# expression, picks rows by their first column, such as '7B.*v5e' or '^82 8 '. CARAVAN is the program (build/caravan), DEVICE
# the plugin (tpu). A row takes seconds to many minutes. With --simulated nothing is compiled: rows of bench/published/simulated/compiled.csv
# have a step's time by the compiler's estimates, as compiled.csv has it, beside what `caravan simulate` says of the same step.
set -uo pipefail
caravan=${CARAVAN:-build/caravan}
device=${DEVICE:-tpu}
simulated=
[ "${1-}" = --simulated ] && simulated=1 && shift
filter=${1:-.}
kept=$(dirname "$0")/published/compiled.csv

number() { sed -nE "s/.*\"$1\": (null|[-+.e0-9]+).*/\1/p" <<<"$2"; }

# beside NAME ARGUMENTS: both times of a step whose compilation is kept; nothing of others.
beside() {
    local name=$1 compiled chip said
    shift
    compiled=$(awk -F, -v name="$name" '$1 == name { print $6 }' "$kept")
    [ -n "$compiled" ] || return 0
    chip=$(grep -oE -- '--topology [a-z0-9]+' <<<"$*" | cut -d ' ' -f 2)
    # shellcheck disable=SC2046 # words of a list without blanks in them
    said=$("$caravan" simulate --chip "$chip" $(sed -E 's/--topology [^ ]+//' <<<"$*") --json 2>&1)
    awk -v name="$name" -v c="$compiled" -v s="$(number seconds "$said")" \
        'BEGIN { printf "%s,%.2f,%.2f,%.1f\n", name, c, 1000 * s, c / (1000 * s) }'
}

# row NAME GIB ARGUMENTS: GIB is the memory of a device
row() {
    local name=$1 memory=$2 said peak planned
    shift 2
    grep -qE "$filter" <<<"$name" || return 0
    [ -z "$simulated" ] || { beside "${name//,/;}" "$@" && return 0; }
    said=$("$caravan" compile --device "$device" "$@" --json 2>&1) || {
        printf '%s,,,,,,,"%s"\n' "${name//,/;}" "$(grep -o 'caravan: .*' <<<"$said" | tr '"' "'" | cut -c10-300 | tail -n 1)"
        return 0
    }
    said=$(grep '^{' <<<"$said")
    peak=$(number peak "$said")
    planned=$(number total "$said")
    awk -v name="${name//,/;}" -v peak="$peak" -v plan="$planned" -v s="$(number seconds "$said")" \
        -v took="$(number compile_seconds "$said")" -v memory="$memory" 'BEGIN {
        printf "%s,%.0f,%.0f,%.0f,%+.1f,%.2f,%s,\n", name, took, peak, plan, 100 * (plan - peak) / peak, 1000 * s,
            peak <= memory * 2^30 ? "yes" : "no" }'
}

if [ -n "$simulated" ]; then
    echo 'row,compiled ms,simulated ms,compiled / simulated'
else
    echo 'row,compiled in s,peak,planned,planned % more,a step ms,fits,why not'
fi

# Training: v4-N are N / 2 chips. (66)
train() { row "66 $1 $2 $4 rows of $5" 32 -p "$3" --topology "$6" --mesh "$7" --layout 2d --train --optimizer adafactor --batch "$4" --seq "$5"; }
for rows in "256 1024" "128 2048"; do
    # shellcheck disable=SC2086
    train 7B v4-32 llama2-7b $rows v4:2x2x4 data=16,model=1
    # shellcheck disable=SC2086
    train 13B v4-64 llama2-13b $rows v4:2x4x4 data=32,model=1
done
train 70B v4-256 llama2-70b 512 1024 v4:4x4x8 data=32,model=4
train 70B v4-256 llama2-70b 256 2048 v4:4x4x8 data=32,model=4

# Serving on v5e: throughput by rows, latency of one. (71 to 74)
serve() {
    local layout=tp
    [[ $4 != data=* ]] || layout=dp+tp
    row "$1" 16 -p "$2" --topology "$3" --mesh "$4" --layout $layout --batch "$5" --context "$6" "${@:7}"
}
for rows in 1 8 16 32; do
    serve "71 70B int8 v5e-16 $rows rows" llama2-70b v5e:4x4 model=16 $rows 2048 --quantize int8
done
serve "73 7B bf16 v5e-4" llama2-7b v5e:2x2 model=4 1 2048
serve "73 13B int8 v5e-4" llama2-13b v5e:2x2 model=4 1 2048 --quantize int8
serve "74 7B bf16 v5e-4, 256 tokens" llama2-7b v5e:2x2 model=4 1 256

# LLaMA on v4. (75)
latency() { row "75 $1 $2" 32 -p "$3" --topology "$4" --mesh "$5" --layout tp --batch 1 --context 256; }
latency 7B v4-8 llama-7b v4:2x2x1 model=4
latency 7B v4-16 llama-7b v4:2x2x2 model=8
latency 65B v4-16 llama-65b v4:2x2x2 model=8
latency 65B v4-32 llama-65b v4:2x2x4 model=16

# Llama 3.1 70B in 8 bits on v5e-16, by rows and context. (82, 83)
for at in 8:2048 8:4096 8:8192 16:2048 16:4096 16:8192 32:2048 32:4096 32:8192 64:2048 64:4096 128:2048; do
    rows=${at%:*} context=${at#*:}
    serve "82 $rows rows of $context, tp 16" llama3.1-70b v5e:4x4 model=16 "$rows" "$context" --quantize int8 --kv-cache int8
    serve "83 $rows rows of $context, dp 2 tp 8" llama3.1-70b v5e:4x4 data=2,model=8 "$rows" "$context" --quantize int8 --kv-cache int8
done
