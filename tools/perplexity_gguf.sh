#!/usr/bin/env bash
# The table of docs/QUANTIZATION.md for GGUF files: perplexity of a model in each type that `caravan convert` writes, by what
# enters products, each against the model in f32; and that of llama.cpp's llama-perplexity, which is in the folder PROGRAMS, on
# the same files and text against its own in f32.
#   tools/perplexity_gguf.sh PROGRAMS MODEL TEXT [CONTEXT [BYTES]]
# The first BYTES of the text are scored in pieces of CONTEXT tokens; llama.cpp leaves out the first half of each piece. Files are
# kept in FOLDER (build/perplexity). CARAVAN names the program, THREADS its threads and TYPES the types.
set -euo pipefail
[ $# -ge 3 ] || { sed -n 's/^#   /usage: /p' "$0" >&2; exit 2; }
programs=$1 model=$2 context=${4:-512} bytes=${5:-24000}
caravan=${CARAVAN:-build/caravan} folder=${FOLDER:-build/perplexity} threads=${THREADS:-2}
read -ra types <<<"${TYPES:-q8_0 q6_k q4_k_m q4_0}"
mkdir -p "$folder"
head -c "$bytes" "$3" >"$folder/text"

file() {
    local file=$folder/$1.gguf
    [ -e "$file" ] || "$caravan" convert "$model" "$file" --type "$1" >/dev/null 2>&1
    echo "$file"
}

# ours FILE OPTION…
ours() {
    "$caravan" score --model "$1" --file "$folder/text" --context "$context" --stride $((context - 1)) -t "$threads" --summary --json \
        "${@:2}" | sed -n 's/.*"perplexity": *\([0-9.]*\).*/\1/p' | tail -1
}

theirs() {
    LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$programs/llama-perplexity" -m "$1" -f "$folder/text" \
        -c "$context" -b "$context" -t "$threads" 2>&1 | sed -n 's/.*Final estimate: PPL = \([0-9.]*\).*/\1/p'
}

# row NAME FILE: the first one is what the others are compared with.
row() {
    local values
    values=("$(ours "$2" --dtype f32)" "$(ours "$2" --dtype bf16)")
    if [ "$1" = f32 ]; then values+=(-); else values+=("$(ours "$2" --dtype bf16 --activations int8)"); fi
    values+=("$(theirs "$2")")
    base=${base:-${values[0]} ${values[3]}}
    awk -v name="$1" -v values="${values[*]}" -v base="$base" 'BEGIN {
        split(values, v, " "); split(base, b, " ")
        printf "| %s", name
        for (i = 1; i <= 4; i++)
            if (v[i] == "-") printf " | -"
            else printf " | %.4f (%+.2f%%)", v[i], 100 * (v[i] / b[i < 4 ? 1 : 2] - 1)
        print " |"
    }'
}

echo "| weights | activations f32 | bf16 | \`--activations int8\` | llama.cpp |"
echo "| --- | ---: | ---: | ---: | ---: |"
row f32 "$(file f32)"
case $model in
*.gguf) row "the file" "$model" ;;
esac
for type in "${types[@]}"; do
    row "$type" "$(file "$type")"
done
