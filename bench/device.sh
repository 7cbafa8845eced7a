#!/usr/bin/env bash
# device.sh DEVICE CHIP [QUICK]: a page of results of an accelerator, in under 8 minutes on an H100 with a program that is built:
#
#     bench/gpu.sh          cuda h100_sxm
#     bench/tpu.sh          tpu v5e
#     bench/device.sh pjrt:/opt/plugin.so v5e quick
#
# Decoding of an 8B (a TPU of 16 GB: a 1B) at batch 1, 8 and 64 and in int8, a prefill of 2,048 tokens, training of a 1B at 2,048; each
# beside what `caravan simulate` says of the chip, whose name is one of `caravan chips`, and as a share of the bandwidth or of the
# products that are measured in turns with it. A profile of decoding lies beside the page, as PAGE.json, for Perfetto. QUICK, anything,
# takes small shapes: a try, on any plugin. CARAVAN is the program, PAGE where the page goes (bench/measured/DEVICE.md); it is printed, too.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,11p' "$0" >&2; exit 1; }
caravan=${CARAVAN:-build/caravan}
device=$1 chip=$2 quick=${3-}
name=${device##*/}
page=${PAGE:-$(dirname "$0")/measured/${name%%,*}.md}
served=llama3.1-8b trained=llama3.2-1b prompt=2048 context=2048 batches="1 8 64" seq=2048
[[ $device != tpu* ]] || served=llama3.2-1b
[ -z "$quick" ] || served=stories15m trained=stories15m prompt=64 context=64 batches="1 4" seq=64

number() { sed -nE "s/.*\"$1\": ([-+.e0-9]+).*/\1/p" <<<"$2"; }
milliseconds() { awk -v s="$1" 'BEGIN { if (s != "") printf "%.2f", 1000 * s }'; }

# figure NAME SECONDS SHARE PREDICTION… -- ARGUMENTS…: one row, by the names of bench's JSON
figure() {
    local name=$1 seconds=$2 share=$3 said predicted
    local prediction=()
    shift 3
    while [ "$1" != -- ]; do prediction+=("$1") && shift; done
    shift
    predicted=$("$caravan" simulate --chip "$chip" "${prediction[@]}" --json 2>/dev/null)
    predicted=$(milliseconds "$(number seconds "$predicted")")
    said=$("$caravan" bench --device "$device" "$@" --json 2>&1 | tee -a "$log" | grep '^{') || {
        echo "| $name | failed: $(grep -o 'caravan: .*' "$log" | tail -n 1 | cut -c 10-160) | $predicted | | | |"
        return
    }
    awk -v name="$name" -v s="$(number "$seconds" "$said")" -v t="$(number tokens_per_second "$said")" -v p="$predicted" \
        -v u="$(number "$share" "$said")" -v o="$(number overhead_seconds "$said")" 'BEGIN {
        printf "| %s | %.2f | %s | %.0f | %s | %s |\n", name, 1000 * s, p, t, u == "" ? "" : sprintf("%.1f%%", 100 * u), o == "" ? "" : sprintf("%.1f%%", 100 * o / s) }'
}

page() {
    local batch begin=$SECONDS
    echo "# ${device##*/}, $(date -I)"
    echo
    "$caravan" --version | head -n 1
    "$caravan" devices "$device" 2>&1 | head -n 4 | sed 's/^/    /'
    echo
    echo "| | a step, ms | simulated ($chip), ms | tokens/s | of the peak measured meanwhile | host |"
    echo '|---|---:|---:|---:|---:|---:|'
    for batch in $batches; do
        figure "$served, decode, $batch rows" seconds_per_token bandwidth_utilization -p $served --batch "$batch" --context $context -- \
            -p $served --prefill 0 --decode 64 --batch "$batch" --context $context
    done
    figure "$served, decode, int8" seconds_per_token bandwidth_utilization -p $served --quantize int8 --context $context -- \
        -p $served --quantize int8 --prefill 0 --decode 64 --context $context
    figure "$served, prefill of $prompt" seconds mfu -p $served --prefill --seq $prompt -- -p $served --prefill $prompt --decode 0
    figure "$trained, training at $seq" seconds_per_step mfu -p $trained --train --seq $seq --batch 4 --remat block -- \
        --train -p $trained --seq $seq --batch 4 --remat block
    echo
    if "$caravan" bench --device "$device" -p $served --prefill 0 --decode 4 --context $context --repeats 1 --profile "${page%.md}.json" >>"$log" 2>&1; then
        echo "Profile: [$(basename "${page%.md}").json]($(basename "${page%.md}").json), with $(grep -c '"cat":"device"' "${page%.md}.json") events of the device."
    else
        echo "Profile: failed: $(grep -o 'caravan: .*' "$log" | tail -n 1 | cut -c 10-160)"
    fi
    echo "All in $((SECONDS - begin)) s."
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
mkdir -p "$(dirname "$page")"
page | tee "$page"
