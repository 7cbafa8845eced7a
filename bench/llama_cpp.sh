#!/usr/bin/env bash
# llama_cpp.sh PROGRAMS [TYPE…]: decode and prompts of one GGUF file of each type, by Caravan and by llama.cpp's llama-bench in
# the folder PROGRAMS, in turns on the same threads, and the ratios of the medians. The types are those of `caravan convert`; all
# files are of MODEL (a model of any form; else random weights of the llama3.2-1b shape), and kept in FOLDER (build/llama_cpp).
#   CARAVAN=build/caravan  THREADS=2  TURNS=3  PROMPT=512  DECODE=32
set -euo pipefail
programs=$1
shift
types=("$@")
[ $# -gt 0 ] || types=(q4_0 q4_k_m q6_k q8_0)
caravan=${CARAVAN:-build/caravan} folder=${FOLDER:-build/llama_cpp} model=${MODEL-}
threads=${THREADS:-2} turns=${TURNS:-3} prompt=${PROMPT:-512} decode=${DECODE:-32}
mkdir -p "$folder"
if [ -z "$model" ]; then
    model=$folder/model
    [ -e "$model" ] || "$caravan" init --preset llama3.2-1b --dtype bf16 -o "$model" >/dev/null
fi

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

# The number behind a key, of the part of a line that begins with a text.
number() { sed -E "s/.*$1.*\"$2\": ([0-9.e+]+).*/\1/"; }

ours() {
    local json
    json=$("$caravan" bench -m "$1" -t "$threads" --prefill "$prompt" --decode "$decode" --repeats 1 --json 2>/dev/null)
    sed -E 's/.*"prefill": \{([^}]*)\}.*/\1/' <<<"$json" | number '' tokens_per_second >>"$folder/ours.prompt"
    sed -E 's/.*"decode": \{([^}]*)\}.*/\1/' <<<"$json" | number '' tokens_per_second >>"$folder/ours.decode"
}

theirs() {
    LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$programs/llama-bench" -m "$1" -t "$threads" \
        -p "$prompt" -n "$decode" -r 1 -o jsonl 2>/dev/null >"$folder/theirs.json"
    grep '"n_gen": 0' "$folder/theirs.json" | number '' avg_ts >>"$folder/theirs.prompt"
    grep '"n_prompt": 0' "$folder/theirs.json" | number '' avg_ts >>"$folder/theirs.decode"
}

echo "| type | decode | llama.cpp | ratio | prompt of $prompt | llama.cpp | ratio |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
for type in "${types[@]}"; do
    file=$folder/$(basename "$model")-$type.gguf
    [ -e "$file" ] || "$caravan" convert "$model" "$file" --type "$type" >/dev/null 2>&1
    rm -f "$folder"/{ours,theirs}.{prompt,decode}
    for ((turn = 0; turn < turns; turn++)); do
        ours "$file"
        theirs "$file"
    done
    for what in decode prompt; do
        a=$(median <"$folder/ours.$what") b=$(median <"$folder/theirs.$what")
        [ $what = prompt ] || printf '| %s ' "$type"
        awk -v a="$a" -v b="$b" 'BEGIN { printf "| %.1f | %.1f | %.2f ", a, b, a / b }'
    done
    echo '|'
done
