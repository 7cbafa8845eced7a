#!/usr/bin/env bash
# The table of docs/QUANTIZATION.md by type: bits of a weight and perplexity of a model in each type that `caravan convert` writes,
# to the nearest and, where --calibrate is for the type, calibrated; each against the model in bf16.
#   tools/perplexity_types.sh MODEL TEXT [CALIBRATION [BYTES [TYPE…]]]
# The first BYTES of TEXT are scored in pieces of 512 tokens. CALIBRATION is a file; "own": the model's own text; "none": nothing is
# calibrated. Models are kept in FOLDER (build/perplexity), and rows that were measured in FOLDER/rows, so that a run that ended
# early goes on. CARAVAN names the program, THREADS its threads.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^#   /usage: /p' "$0" >&2; exit 2; }
model=$1 text=$2 calibration=${3:-own} bytes=${4:-60000}
shift $(($# < 4 ? $# : 4))
caravan=${CARAVAN:-build/caravan} folder=${FOLDER:-build/perplexity} threads=${THREADS:-2}
types=("$@")
[ $# -gt 0 ] || types=(bf16 int8 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 mxfp4 int4:32 int4:64 int4:128)
mkdir -p "$folder"
head -c "$bytes" "$text" >"$folder/text"

# score NAME TYPE OPTION…: a line of the name, bytes of the model and the perplexity.
score() {
    local name=$1 type=$2 file=$folder/${1// /-} perplexity
    shift 2
    case $type in q* | mxfp4) file=$file.gguf ;; esac
    grep -q "^$name|" "$folder/rows" 2>/dev/null && return
    [ -e "$file" ] || "$caravan" convert "$model" "$file" --type "$type" -t "$threads" "$@" >&2
    perplexity=$("$caravan" score --model "$file" --file "$folder/text" --context 512 --dtype bf16 -t "$threads" --summary --json |
        sed -n 's/.*"perplexity": *\([0-9.]*\).*/\1/p' | tail -1)
    echo "$name|$(du -bs "$file" | cut -f1)|$perplexity" >>"$folder/rows"
}

score bf16 bf16
for type in "${types[@]}"; do
    score "$type" "$type"
    case $calibration:$type in
    none:* | *:bf16 | *:f16 | *:f32 | *:int8 | *:q8_0) ;;
    own:*) score "$type calibrated" "$type" --calibrate ;;
    *) score "$type calibrated" "$type" --calibrate "$calibration" ;;
    esac
done
echo "| type | MB | perplexity |"
echo "| --- | ---: | ---: |"
awk -F '|' '$1 == "bf16" { base = $3 }
    { row[++n] = sprintf("| %s | %.0f | %.2f", $1, $2 / 1e6, $3); value[n] = $3 }
    END { for (i = 1; i <= n; i++) printf "%s (%+.1f %%) |\n", row[i], 100 * (value[i] / base - 1) }' "$folder/rows"
