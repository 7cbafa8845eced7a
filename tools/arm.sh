#!/usr/bin/env bash
# arm.sh FOLDER: builds for 64-bit Arm and runs, under qemu-user, the tests of kernels, of the model and of training, and
# the program, whose texts must be those that it writes elsewhere. The emulator has dotprod, i8mm and bf16, so that kernels of
# every level are run.
# arm.sh FOLDER --products: only the tests of products with weights in panels, which are all that Arm has kernels of its own for.
# arm.sh FOLDER --numerics: only that portable numerics give what they give here: digests of texts and of training
# (tests/test_portable.c), by BUILD/test_portable of this machine (build) and by that of every level of Arm.
# Debian: dpkg --add-architecture arm64; apt-get install gcc-aarch64-linux-gnu qemu-user libjansson-dev:arm64
# libpcre2-dev:arm64 libutf8proc-dev:arm64 nettle-dev:arm64 libcmocka-dev:arm64
# Where those would change other packages of the machine, they may lie in a folder instead, which ARM_ROOT names: `apt-get download`
# each library and its -dev package for arm64, and `dpkg -x` them there.
set -euo pipefail
folder=$1
jobs=${JOBS:-$(nproc)}
export ARM_ROOT=${ARM_ROOT-}
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || qemu=qemu-aarch64
[ -e /lib/ld-linux-aarch64.so.1 ] || export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu # the cross compiler's C library
for tool in aarch64-linux-gnu-gcc "$qemu"; do
    if ! command -v "$tool" >/dev/null; then
        echo "arm: $tool is missing; tools/arm.sh says what to install" >&2
        exit 3
    fi
done
for library in jansson libpcre2-8 libutf8proc nettle cmocka; do
    if [ ! -e "$ARM_ROOT/usr/lib/aarch64-linux-gnu/pkgconfig/$library.pc" ]; then
        echo "arm: $library for 64-bit Arm is missing; tools/arm.sh says what to install" >&2
        exit 3
    fi
done
ulimit -d 8000000 # KiB for each program: whatever the emulator keeps, the machine stays usable

cmake -S . -B "$folder" -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCVN_SHARED=OFF >/dev/null
if [ "${2-}" = --products ]; then
    products=(test_kernels_choice test_kernels_linear test_kernels_linear_int8 test_blocks)
    ninja -C "$folder" -j "$jobs" "${products[@]}"
    ctest --test-dir "$folder" -j "$jobs" --timeout 1800 --output-on-failure -R "^($(xargs <<<"${products[*]}" | tr ' ' '|'))\$"
    exit
fi
if [ "${2-}" = --numerics ]; then
    ninja -C "$folder" -j "$jobs" test_portable
    here=$(PORTABLE_PRINT=1 "${BUILD:-build}/test_portable" | grep -xE '[0-9a-f]{16}')
    there=$(PORTABLE_PRINT=1 "$qemu" "$folder/test_portable" | grep -xE '[0-9a-f]{16}')
    if [ -z "$here" ] || [ "$here" != "$there" ]; then
        diff <(echo "$here") <(echo "$there") | head >&2
        echo "arm: digests of portable numerics differ" >&2
        exit 1
    fi
    echo "arm: $(wc -l <<<"$here") digests of portable numerics are those of this machine"
    exit
fi
tests=()
for source in tests/test_kernels_*.c; do
    name=$(basename "$source" .c)
    [[ $name == *_amx* ]] || tests+=("$name")
done
tests+=(test_base test_rng test_threads test_sample test_llama test_engine test_kv_int8 test_quantize test_grad_llama
    test_train_curve test_blocks)
ninja -C "$folder" -j "$jobs" caravan "${tests[@]}"

# Of the engine and of the curves, a part; the rest takes minutes here.
run=" ${tests[*]} "
run=${run/ test_train_curve / }
run=${run/ test_engine / test_engine_portable }
ctest --test-dir "$folder" -j "$jobs" --timeout 1800 --output-on-failure -R "^($(xargs <<<"$run" | tr ' ' '|'))\$"
"$qemu" "$folder/test_train_curve" adamw_follows_torch

model=../shared/data/checkpoints/stories260K-hf
if [ ! -d "$model" ]; then
    echo "arm: no texts were compared for want of $model"
    exit 0
fi
story=', there was a little girl named Lily. She loved to play outside'
for how in none int8 int4; do
    text=$("$qemu" "$folder/caravan" generate --model "$model" --quantize "$how" --prompt 'Once upon a time' \
        --temperature 0 --max-tokens 24 2>/dev/null)
    if [[ $text != "$story"* ]]; then
        echo "arm: with --quantize $how the program writes \"$text\"; elsewhere, \"$story\"" >&2
        exit 1
    fi
done
echo "arm: the texts in f32, int8 and int4 are those of other machines"
