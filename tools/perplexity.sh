#!/usr/bin/env bash
# The tables of docs/QUANTIZATION.md: perplexity of a model on a text, by how weights, what enters products of prompts,
# and the KV cache are quantized.
#   tools/perplexity.sh MODEL TEXT [CONTEXT [BYTES]]
# The first BYTES of the text are scored, in pieces of CONTEXT tokens. CARAVAN names the program.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^#   /usage: /p' "$0" >&2; exit 2; }
caravan=${CARAVAN:-build/caravan} model=$1 context=${3:-512} bytes=${4:-100000}
text=$(mktemp) && trap 'rm -f "$text"' EXIT
head -c "$bytes" "$2" >"$text"

# row WEIGHTS ACTIVATIONS CACHE, each as the option says it; the first row is what the others are compared with.
row() {
    local perplexity names=("${1/none/bf16}" "$2" "${3/none/bf16}")
    [ "$2" = none ] && names[1]=$([ "$1" = none ] && echo bf16 || echo "16 bits")
    perplexity=$("$caravan" score --model "$model" --file "$text" --context "$context" --dtype bf16 --quantize "$1" \
        --activations "$2" --kv-cache "$3" --summary --json | sed -n 's/.*"perplexity": *\([0-9.]*\).*/\1/p' | tail -1)
    base=${base:-$perplexity}
    awk -v w="${names[0]}" -v a="${names[1]}" -v c="${names[2]}" -v p="$perplexity" -v b="$base" \
        'BEGIN { printf "| %s | %s | %s | %.4f | %+.2f%% |\n", w, a, c, p, 100 * (p / b - 1) }'
}

echo "| weights | what enters products | KV cache | perplexity | against bf16 |"
echo "| --- | --- | --- | ---: | ---: |"
row none none none
row none none int8
row int8 none none
row int8 none int8
row int8 int8 none
row int8 int8 int8
for group in 32 64 128; do
    row int4:$group none none
done
row int4:32 none int8
