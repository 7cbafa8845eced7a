#!/usr/bin/env bash
# without.sh [PART…]: builds the program without each of its optional parts, EDIT, HWLOC, MPI and MICROHTTPD, and without all of
# them (ALL), in build-without-PART, and holds it to what it says: --version names what is there, texts are those of build/caravan,
# and what needs a part is refused in a sentence. With ccache, which finds what build/ is made of, a build takes half a minute.
set -uo pipefail
cd "$(dirname "$0")/.."
parts=(EDIT HWLOC MPI MICROHTTPD)
jobs=${JOBS:-$(nproc)}
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
export CARAVAN_THREADS=1
failed=0
fail() { echo "without $part: $1"; failed=1; }

[ $# -gt 0 ] || set -- ALL "${parts[@]}"
for part; do
    folder=build-without-${part,,}
    log=$folder/without.log
    mkdir -p "$folder"
    off=() said=
    for p in "${parts[@]}"; do
        [ "$part" != ALL ] && [ "$part" != "$p" ] || off+=("-DCVN_WITH_$p=OFF")
    done
    if ! cmake -S . -B "$folder" -G Ninja -DCVN_SHARED=OFF "${launcher[@]}" "${off[@]}" >"$log" 2>&1 ||
        ! ninja -C "$folder" -j "$jobs" caravan >>"$log" 2>&1; then
        tail -n 20 "$log"
        fail "does not build"
        continue
    fi
    caravan=$folder/caravan
    said=$(CARAVAN_MPI= "$caravan" --version)
    for p in "${parts[@]}"; do
        case $p in EDIT) name=libedit ;; HWLOC) name=hwloc ;; MICROHTTPD) name=libmicrohttpd ;; MPI) name= ;; esac
        [[ " ${off[*]} " == *"_$p=OFF"* ]] && label='^without:' || label='^with:'
        [ -z "$name" ] || grep -q "$label.*\b$name\b" <<<"$said" || fail "--version does not say so of $name: $said"
    done
    "$caravan" init -p tiny -s 3 --tokenizer tests/data/chat/tokenizer.json -o "$folder/model" --force >"$log" 2>&1 &&
        text=$("$caravan" generate -m "$folder/model" -p Once -n 20 --temperature 0 --mesh data=2 2>>"$log") &&
        [ "$text" = "$(build/caravan generate -m "$folder/model" -p Once -n 20 --temperature 0 2>/dev/null)" ] ||
        fail "generate: $(cat "$log")"
    echo Hello | "$caravan" chat -m "$folder/model" -n 5 >"$log" 2>&1 || fail "chat: $(cat "$log")"
    if [[ " ${off[*]} " == *MICROHTTPD* ]]; then
        said=$("$caravan" serve -m "$folder/model" 2>&1) && fail "serve runs"
        [[ $said == *libmicrohttpd* ]] || fail "serve says: $said"
    fi
    if [[ " ${off[*]} " == *MPI* ]]; then
        [ ! -e "$folder/libcaravan-mpi.so" ] || fail "there is a module for MPI"
        said=$(OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$caravan" generate -m "$folder/model" -p Once --mesh data=2 2>&1) &&
            fail "one of two processes runs alone"
        [[ $said == *libcaravan-mpi.so* ]] || fail "a process of several says: $said"
    fi
    [ "$failed" = 1 ] || echo "without $part: ok"
done
exit "$failed"
