#!/usr/bin/env bash
# constrain.sh MODEL [TURNS [TOKENS]]: decode with a JSON schema and without, in turns, and the ratio of the medians. The schema asks for
# so many strings that no text ends before its limit.
#   CARAVAN=build/caravan  THREADS=0
set -euo pipefail
model=$1 turns=${2:-5} tokens=${3:-64}
caravan=${CARAVAN:-build/caravan}
schema='{"type":"array","minItems":1000,"items":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]}}'

decode() {
    "$caravan" generate -m "$model" -p Once --temperature 1 --seed "$1" --max-tokens "$tokens" -t "${THREADS:-0}" --ignore-eos --json \
        "${@:2}" 2>/dev/null | sed -E 's/.*"decode_tokens_per_second": ([0-9.]+).*/\1/' | tail -n 1
}

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

with=() without=()
for ((i = 0; i < turns; i++)); do
    without+=("$(decode "$i")")
    with+=("$(decode "$i" --json-schema "$schema")")
done
a=$(printf '%s\n' "${with[@]}" | median) b=$(printf '%s\n' "${without[@]}" | median)
echo "tokens per second with a schema $a, without $b, ratio $(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.3f", a / b }')"
