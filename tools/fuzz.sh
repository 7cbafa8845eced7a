#!/usr/bin/env bash
# fuzz.sh FOLDER SECONDS: builds the fuzz targets in FOLDER with clang's libFuzzer and runs each for so
# many seconds, as many at a time as there are processors (or JOBS), starting from its seeds. What it
# finds stays in FOLDER/found/.
set -euo pipefail
folder=$1 seconds=$2
clang=${CLANG:-clang}
if ! printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);
int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d[0] == n; }' |
    "$clang" -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null; then
    echo "Fuzzing needs clang with its runtime: apt-get install clang libclang-rt-dev" >&2
    exit 3
fi
cmake -S . -B "$folder" -G Ninja -DCMAKE_C_COMPILER="$clang" -DCVN_FUZZ=ON >/dev/null
targets=(fuzz/fuzz_*.c)
targets=("${targets[@]##*/}")
targets=("${targets[@]%.c}")
jobs=${JOBS:-$(nproc)}
ninja -C "$folder" -j"$jobs" "${targets[@]}"
mkdir -p "$folder/found"

# fuzz_one TARGET: its log goes to a file; the file FOLDER/TARGET.failed says that something was found.
fuzz_one() {
    local target=$1 subject=${1#fuzz_} log=$folder/$1.log
    mkdir -p "$folder/corpus/$subject"
    rm -f "$folder/$target.failed"
    if "$folder/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -verbosity=1 \
        -artifact_prefix="$folder/found/$target-" "$folder/corpus/$subject" "fuzz/corpus/$subject" \
        >"$log" 2>&1; then
        echo "$target: $(sed -n 's/^Done \(.*\)/\1/p' "$log")"
    else
        tail -n 60 "$log"
        touch "$folder/$target.failed"
    fi
}

running=0 failed=()
for target in "${targets[@]}"; do
    if [ "$running" = "$jobs" ]; then
        wait -n
        running=$((running - 1))
    fi
    fuzz_one "$target" &
    running=$((running + 1))
done
wait
for target in "${targets[@]}"; do
    [ ! -e "$folder/$target.failed" ] || failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "Found by ${failed[*]}; the inputs are in $folder/found" >&2
    exit 1
fi
echo "Nothing found."
