#!/usr/bin/env bash
# llama_cpp.sh PROGRAMS [TYPE…]: one GGUF file of each type by Caravan and by llama.cpp, whose llama-bench and llama-batched-bench
# are in the folder PROGRAMS: decoding alone and in batches of 8 and 32, a prompt, and batches and a prompt with rows of 8 bits
# (which llama.cpp has always), in turns on the same threads, and the ratios of the medians. The types are those of
# `caravan convert`; all files are of MODEL (a model of any form; else random weights of the llama3.2-1b shape), and kept in
# FOLDER (build/llama_cpp), where files that are there already are taken as they are. A turn of a type takes about a minute.
# For processors without AVX-512, llama.cpp is built with -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
# -DGGML_AVX512=OFF, and CARAVAN_CPU=avx2 is set.
#   CARAVAN=build/caravan  THREADS=2  TURNS=2  PROMPT=256  DECODE=24  BATCHED=8
set -euo pipefail
programs=$1
shift
types=("$@")
[ $# -gt 0 ] || types=(q4_0 q4_k_m q5_k_m q6_k q8_0 mxfp4 bf16)
caravan=${CARAVAN:-build/caravan} folder=${FOLDER:-build/llama_cpp} model=${MODEL-}
threads=${THREADS:-2} turns=${TURNS:-2} prompt=${PROMPT:-256} decode=${DECODE:-24} batched=${BATCHED:-8} context=128
export LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$folder"

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

# The GGUF file of a type, made where there is none.
file() {
    local from=${model:-$folder/model} file
    file=$folder/$(basename "$from")-$1.gguf
    if [ ! -e "$file" ]; then
        [ -e "$from" ] || "$caravan" init --preset llama3.2-1b --dtype bf16 -o "$from" >/dev/null
        "$caravan" convert "$from" "$file" --type "$1" >/dev/null 2>&1
    fi
    echo "$file"
}

# Tokens per second of the row of a table for scripts that is of this part and batch, and its share of the bandwidth.
row() { awk -F, -v part="$1" -v batch="$2" '$(NF - 10) == part && $(NF - 7) == batch { print $(NF - 2), $(NF - 1) }'; }

ours() {
    local bench=("$caravan" bench -m "$1" -t "$threads" --prefill "$prompt" --repeats 1 --csv)
    "${bench[@]}" --decode "$decode" --context "$context" --table --batches 8,32 --contexts "$context" 2>/dev/null >"$folder/csv"
    row decode 1 <"$folder/csv" >>"$folder/ours.decode"
    row table 8 <"$folder/csv" >>"$folder/ours.batch8"
    row table 32 <"$folder/csv" >>"$folder/ours.batch32"
    row prefill 1 <"$folder/csv" >>"$folder/ours.prompt"
    # bf16 has no rows of 8 bits
    "${bench[@]}" --decode 2 --context "$context" --activations int8 --table --batches 8,32 --contexts "$context" 2>/dev/null >"$folder/csv" ||
        true
    row table 8 <"$folder/csv" >>"$folder/ours.batch8_8"
    row table 32 <"$folder/csv" >>"$folder/ours.batch32_8"
    row prefill 1 <"$folder/csv" >>"$folder/ours.prompt_8"
}

# The number behind a key of lines of JSON that have a text in them.
number() { sed -nE "/$1/s/.*\"$2\": ([0-9.e+]+).*/\1/p" "$folder/json"; }

theirs() {
    "$programs/llama-bench" -m "$1" -t "$threads" -p "$prompt" -n "$decode" -r 1 -o jsonl 2>/dev/null >"$folder/json"
    number '"n_gen": 0,' avg_ts >>"$folder/theirs.prompt"
    number '"n_prompt": 0,' avg_ts >>"$folder/theirs.decode"
    "$programs/llama-batched-bench" -m "$1" -t "$threads" -tb "$threads" -c $((32 * (context + batched) + context)) \
        -npp "$context" -ntg "$batched" -npl 8,32 -pps --output-format jsonl 2>/dev/null >"$folder/json"
    number '"pl": 8,' speed_tg >>"$folder/theirs.batch8"
    number '"pl": 32,' speed_tg >>"$folder/theirs.batch32"
}

measured=(decode batch8 batch32 prompt batch8_8 batch32_8 prompt_8)
echo "Tokens per second of Caravan, of llama.cpp, and their ratio."
echo
printf '| type | decode | | | of the bandwidth '
printf '| %s | | ' 'batch 8' 'batch 32' "prompt of $prompt" 'batch 8, rows of 8 bits' 'batch 32' 'prompt'
printf '|\n| --- | ---: | ---: | ---: '
printf '| ---: %.0s' {1..19}
echo '|'
for type in "${types[@]}"; do
    file=$(file "$type")
    rm -f "$folder"/{ours,theirs}.*
    for ((turn = 0; turn < turns; turn++)); do
        ours "$file"
        theirs "$file"
    done
    printf '| %s ' "$type"
    for what in "${measured[@]}"; do
        a=$(median <"$folder/ours.$what") b=$(median <"$folder/theirs.${what%_8}")
        [ -n "$a" ] || a=0
        awk -v a="$a" -v b="$b" 'BEGIN { if (a) printf "| %.1f | %.1f | %.2f ", a, b, a / b; else printf "| | | " }'
        [ "$what" != decode ] || awk '{ print $2 }' "$folder/ours.decode" | median | awk '{ printf "| %.0f%% ", 100 * $1 }'
    done
    echo '|'
done
