#!/usr/bin/env bash
# fuzz.sh FOLDER SECONDS: builds the fuzz targets in FOLDER with clang's libFuzzer and runs each for so
# many seconds, starting from its seeds. What it finds stays in FOLDER/found/.
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
ninja -C "$folder" -j"${JOBS:-$(nproc)}"
mkdir -p "$folder/found"
failed=()
for source in fuzz/fuzz_*.c; do
    target=$(basename "$source" .c)
    subject=${target#fuzz_}
    work=$folder/corpus/$subject
    mkdir -p "$work"
    log=$folder/$target.log
    if "$folder/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -verbosity=1 \
        -artifact_prefix="$folder/found/$target-" "$work" "fuzz/corpus/$subject" >"$log" 2>&1; then
        echo "$target: $(sed -n 's/^Done \(.*\)/\1/p' "$log")"
    else
        tail -n 60 "$log"
        failed+=("$target")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "Found by ${failed[*]}; the inputs are in $folder/found" >&2
    exit 1
fi
echo "Nothing found."
