#!/usr/bin/env bash
# figures.sh [--list] [PATTERN…]: the figures of README.md and docs/*.md, each by the command that makes it. Runs those
# whose place matches a pattern, or all (half an hour on two cores), and prints place, command and output; --list only
# says what there is. Some want what is not in the repository, and are passed over without it:
#   MODEL=DIR    the stories260K checkpoint        TEXT=FILE   60 kB of TinyStories
#   TORCH=PYTHON a Python that has PyTorch
# CARAVAN names the program (build/caravan); bench_kernels is beside it (ninja -C build benches).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
caravan=${CARAVAN:-build/caravan}
kernels=$(dirname "$caravan")/bench_kernels
list=
[ "${1-}" = --list ] && list=1 && shift

# busy LOOPS THREADS: tokens per second of 400 tokens beside busy loops.
busy() {
    local loops=() i
    for ((i = 0; i < $1; i++)); do
        while :; do :; done &
        loops+=($!)
    done
    "$caravan" generate -m "$MODEL" -p "Once upon a time" -n 400 --temperature 0 --ignore-eos -t "$2" --json |
        grep -oE '"decode_tokens_per_second": *[0-9.]+'
    [ ${#loops[@]} = 0 ] || { kill "${loops[@]}" && wait "${loops[@]}" 2>/dev/null; } || true
}

# place | what it needs | command
figures='
README: demo, after make clean || make demo
README: plan || $caravan plan --preset llama2-70b --mesh data=32,model=4 --train --batch 512
README: speed, bf16 || $caravan bench --preset llama3.2-1b --decode 24
README: speed, int8 || $caravan bench --preset llama3.2-1b --decode 24 --quantize int8
PERFORMANCE: training, seq 1024 || $caravan bench --train --preset stories110m --seq 1024 --batch 2
PERFORMANCE: training, selective || $caravan bench --train --preset stories110m --seq 1024 --batch 2 --remat selective
PERFORMANCE: training, seq 2048 || $caravan bench --train --preset stories110m --seq 2048 --batch 1
PERFORMANCE: training, llama3.2-1b || $caravan bench --train --preset llama3.2-1b --seq 512 --batch 1 --optimizer adafactor --remat block
PERFORMANCE: training, PyTorch | TORCH | bench/train_compare.sh $caravan $TORCH
PERFORMANCE: threads, no loops | MODEL | busy 0 2; busy 0 4; busy 0 1
PERFORMANCE: threads, 2 loops | MODEL | busy 2 2; busy 2 1
PERFORMANCE: threads, 8 loops | MODEL | busy 8 2; busy 8 4; busy 8 1
PERFORMANCE: overhead, 2 threads || $caravan bench --preset stories15m --prefill 64 --decode 200 --context 32
PERFORMANCE: overhead, 1 thread || $caravan bench --preset stories15m --prefill 64 --decode 200 --context 32 -t 1
PERFORMANCE: short prompts || $caravan bench --preset stories15m --prefill 5 --decode 4 --context 32
PERFORMANCE: products with weights || $kernels 2 linear
PERFORMANCE: decoding, bf16 || $caravan bench --preset llama3.2-1b --prefill 512 --decode 12 --table --batches 1,8,32 --contexts 32
PERFORMANCE: decoding, int8 || $caravan bench --preset llama3.2-1b --prefill 512 --decode 12 --table --batches 1,8,32 --contexts 32 --quantize int8
PERFORMANCE: decoding, int4 || $caravan bench --preset llama3.2-1b --prefill 512 --decode 12 --table --batches 1,8,32 --contexts 32 --quantize int4:64
PERFORMANCE: attention || $kernels 2 attention
PERFORMANCE: AMX, products || $kernels 2 products
PERFORMANCE: AMX, which kernel || $kernels 2 choice
PERFORMANCE: huge pages || $caravan bench --preset llama3.2-1b --prefill 64 --repeats 1 --decode 12 --context 32
QUANTIZATION: perplexity | MODEL TEXT | tools/perplexity.sh $MODEL $TEXT 512 60000
QUANTIZATION: context 8192, int8 || $caravan bench --preset llama3.2-1b --prefill 64 --decode 8 --context 8192 --quantize int8
QUANTIZATION: context 8192, int8, cache int8 || $caravan bench --preset llama3.2-1b --prefill 64 --decode 8 --context 8192 --quantize int8 --kv-cache int8
QUANTIZATION: context 8192, int4, batch 4 || $caravan bench --preset llama3.2-1b --prefill 64 --decode 8 --context 8192 --batch 4 --quantize int4:64
QUANTIZATION: context 8192, int4, batch 4, cache int8 || $caravan bench --preset llama3.2-1b --prefill 64 --decode 8 --context 8192 --batch 4 --quantize int4:64 --kv-cache int8
QUANTIZATION: prefill, int8 || $caravan bench --preset llama3.2-1b --prefill 512 --decode 4 --quantize int8
QUANTIZATION: prefill, activations int8 || $caravan bench --preset llama3.2-1b --prefill 512 --decode 4 --quantize int8 --activations int8
'

chosen() { # PLACE: is it one of the patterns?
    local place=$1 pattern
    shift
    [ $# = 0 ] && return
    for pattern; do
        [[ ${place,,} == *"${pattern,,}"* ]] && return
    done
    return 1
}

failed=0
while IFS='|' read -r place needs command; do
    place=${place% } command=${command# }
    { [ -n "$place" ] && chosen "$place" "$@"; } || continue
    printf '== %s\n' "$place"
    missing=
    for name in $needs; do
        [ -n "${!name-}" ] || missing+=" $name"
    done
    text=${command//\$caravan/$caravan}
    echo "\$ ${text//\$kernels/$kernels}"
    [ -z "$missing" ] || { echo "passed over: give$missing"; continue; }
    [ -n "$list" ] || eval "$command" 2>&1 </dev/null || { echo "failed"; failed=$((failed + 1)); }
done <<<"$figures"
[ "$failed" = 0 ]
