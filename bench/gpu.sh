#!/usr/bin/env bash
# gpu.sh [QUICK]: what a GPU makes of the models, in under 8 minutes on an H100 with a program that is built: decoding of
# llama3.1-8b at batch 1, 8 and 64 and in int8 as a share of the copy bandwidth that is measured in turns with it, a prefill
# of 2,048 tokens, training of llama3.2-1b at seq 2,048 as MFU; a table in Markdown. QUICK, anything, takes small shapes: a
# try, on any plugin. CARAVAN is the program, DEVICE the plugin (cuda).
set -uo pipefail
caravan=${CARAVAN:-build/caravan}
device=${DEVICE:-cuda}
served=llama3.1-8b trained=llama3.2-1b prompt=2048 context=2048 batches="1 8 64" seq=2048
if [ $# -gt 0 ]; then
    served=stories15m trained=stories15m prompt=64 context=64 batches="1 4" seq=64
fi

number() { sed -nE "s/.*\"$1\": ([-+.e0-9]+).*/\1/p" <<<"$2"; }

# run NAME SECONDS SHARE ARGUMENTS: one figure, by the names of bench's JSON
run() {
    local name=$1 seconds=$2 share=$3 said
    shift 3
    said=$("$caravan" bench --device "$device" "$@" --json 2>&1 | grep '^{') || {
        echo "| $name | failed | | | |"
        return
    }
    awk -v name="$name" -v s="$(number "$seconds" "$said")" -v t="$(number tokens_per_second "$said")" \
        -v u="$(number "$share" "$said")" -v o="$(number overhead_seconds "$said")" 'BEGIN {
        printf "| %s | %.2f ms | %.0f | %s | %s |\n", name, 1000 * s, t, u == "" ? "" : sprintf("%.1f%%", 100 * u), o == "" ? "" : sprintf("%.1f%%", 100 * o / s) }'
}

begin=$SECONDS
echo "| $device | a step | tokens/s | of the peak measured meanwhile | host |"
echo '|---|---|---|---|---|'
for batch in $batches; do
    run "$served, decode, $batch rows" seconds_per_token bandwidth_utilization -p $served --prefill 0 --decode 64 --batch "$batch" --context $context
done
run "$served, decode, int8" seconds_per_token bandwidth_utilization -p $served --quantize int8 --prefill 0 --decode 64 --context $context
run "$served, prefill of $prompt" seconds mfu -p $served --prefill $prompt --decode 0
run "$trained, training at $seq" seconds_per_step mfu --train -p $trained --seq $seq --batch 4 --remat block
echo "in $((SECONDS - begin)) s"
