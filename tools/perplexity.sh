#!/usr/bin/env bash
# The table of docs/QUANTIZATION.md: perplexity of a model on a text, by way of quantizing.
#   tools/perplexity.sh MODEL TEXT [CONTEXT [BYTES]]
# The first BYTES of the text are scored, in pieces of CONTEXT tokens. CARAVAN names the program.
set -euo pipefail
caravan=${CARAVAN:-build/caravan} model=$1 context=${3:-512} bytes=${4:-100000}
text=$(mktemp) && trap 'rm -f "$text"' EXIT
head -c "$bytes" "$2" >"$text"
echo "| weights | perplexity | against bf16 |"
echo "| --- | --- | --- |"
for how in none int8 int4:32 int4:64 int4:128; do
    perplexity=$("$caravan" score --model "$model" --file "$text" --context "$context" --dtype bf16 --quantize "$how" \
        --summary --json | sed -n 's/.*"perplexity": *\([0-9.]*\).*/\1/p' | tail -1)
    [ "$how" = none ] && base=$perplexity
    awk -v h="$how" -v p="$perplexity" -v b="$base" \
        'BEGIN { printf "| %s | %.4f | %+.2f%% |\n", h == "none" ? "bf16" : h, p, 100 * (p / b - 1) }'
done
