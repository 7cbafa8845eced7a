#!/usr/bin/env bash
# numerics.sh [PRESET [TURNS]]: what numerics cost: decoding, a prompt and a step of training with --numerics fast, exact and portable, in turns,
# and the medians, as a table in Markdown. (In serving fast is exact: the column shows how far turns are apart.)
#   CARAVAN=build/caravan  THREADS=1  DECODE=24  PROMPT=256  TRAINED=stories15m  SEQ=256  BATCHED=4
set -euo pipefail
preset=${1:-stories110m} turns=${2:-5}
caravan=${CARAVAN:-build/caravan} threads=${THREADS:-1} decode=${DECODE:-24} prompt=${PROMPT:-256}
trained=${TRAINED:-stories15m} seq=${SEQ:-256} batched=${BATCHED:-4}

median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
number() { sed -nE "s/.*\"$1\": ?([-+.e0-9]+).*/\1/p" | head -n 1; }

# measure FIGURE ARGUMENTS: a row of tokens per second, by the name of the figure in bench's JSON (seconds: the lower the better)
measure() {
    local name=$1 figure=$2 how i
    shift 2
    declare -A seen=([fast]="" [exact]="" [portable]="")
    for ((i = 0; i < turns; i++)); do
        for how in fast exact portable; do
            seen[$how]+=$("$caravan" bench -t "$threads" --numerics "$how" --json "$@" 2>/dev/null | tr ',{' '\n\n' | number "$figure")$'\n'
        done
    done
    local fast exact portable
    fast=$(printf %s "${seen[fast]}" | median) exact=$(printf %s "${seen[exact]}" | median)
    portable=$(printf %s "${seen[portable]}" | median)
    awk -v name="$name" -v f="$fast" -v e="$exact" -v p="$portable" 'BEGIN {
        printf "| %s | %.4g ms | %+.1f%% | %+.1f%% |\n", name, 1000 * f, 100 * (e / f - 1), 100 * (p / f - 1) }'
}

echo "| $preset, $threads threads | fast | exact | portable |"
echo '|---|---|---|---|'
for how in "--dtype f32" "--dtype bf16" "--dtype bf16 --quantize int8" "--dtype bf16 --quantize int8 --activations int8" \
    "--dtype bf16 --quantize int4" "--dtype bf16 --quantize q4_0"; do
    # shellcheck disable=SC2086
    measure "a token, ${how//--/}" seconds_per_token -p "$preset" --prefill 0 --decode "$decode" $how
    # shellcheck disable=SC2086
    measure "a prompt of $prompt, ${how//--/}" seconds -p "$preset" --prefill "$prompt" --decode 0 $how
done
for how in f32 bf16; do
    measure "a step of training $trained, $how" seconds_per_step --train -p "$trained" --seq "$seq" --batch "$batched" --dtype "$how"
done
