#!/bin/bash
# Refuses memory to the program, one allocation at a time, and holds each end to what it should be: status 1, one sentence,
# nothing left in memory (of a build with AddressSanitizer, build-asan) or half-written on disk.
#
#     tools/starve.sh build-asan generate [MODEL]     load, compile and generate
#     tools/starve.sh build-asan train [MODEL]        open, compile, train, save
#     tools/starve.sh build-asan inspect [MODEL]      tell as JSON, whole or not at all
#
# Without MODEL a small one is made. Allocations are told apart by the functions that were being called: the first of each
# way there is refused, each in a run of its own. SAMPLE=40 takes 40 of them, EVERY=1 every single allocation, which takes
# hours. JOBS runs at once (2). SHOW_ON=1 names those that the program did without.
set -u
build=$(cd "${1:?the folder of a build}" && pwd) command=${2:?generate, train or inspect} model=${3:-}
data=$(cd "$(dirname "$0")/../tests/data" && pwd)
program=$build/caravan_starved
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$model" ]; then
    model=$(cd "$model" && pwd) || exit
else
    model=$work/model
    "$program" init -p tiny -s 3 --tokenizer "$data/chat/tokenizer.json" -o "$model" >"$work/init" || exit
fi
for i in $(seq 40); do
    echo "Once upon a time there was a cat, number $i, who liked to sing."
done >"$work/story.txt"
export program command model work

run() { # where: with what the environment says
    mkdir -p "$work/$1" && cd "$work/$1" || exit
    if [ "$command" = generate ]; then
        exec "$program" generate --model "$model" --prompt 'Once upon' --max-tokens 4 --threads 1 --temperature 0 --context 64
    fi
    [ "$command" = inspect ] && exec "$program" inspect --model "$model" --tensors --json
    XDG_CACHE_HOME=$work/$1/cache exec "$program" train --data ../story.txt --init "$model" --steps 1 --batch 2 --seq 32 \
        --threads 1 --out run
}

one() { # n
    local said status own wrong=
    (CVN_FAIL_ALLOCATION=$1 run "$1") >"$work/$1.out" 2>"$work/$1.err"
    status=$?
    said=$work/$1.err
    own=$(grep -c '^caravan: ' "$said")
    if [ $status = 0 ]; then
        [ "$command" != train ] && ! cmp -s "$work/$1.out" "$work/whole.out" && wrong='another text'
    elif [ $status != 1 ]; then
        wrong="status $status"
    elif [ "$(grep '^caravan: ' "$said" | grep -vc '^caravan: warning: ')" != 1 ] || ! tail -1 "$said" | grep -q '^caravan: '; then
        wrong="$own sentences"
    fi
    grep -q 'Sanitizer\|runtime error' "$said" && wrong="$wrong sanitizer"
    [ -n "$(find "$work/$1" -name '*.tmp-*' -o -name '*.partial' -o -name '.new-*')" ] && wrong="$wrong half-written"
    [ -n "$wrong" ] && { echo "BAD $1: $wrong"; sed 's/^/    /' "$said" | head -${LINES_EACH:-40}; }
    [ $status = 0 ] && echo "WENT ON $1: $(grep -m1 '^caravan: ' "$said")"
    rm -rf "${work:?}/$1" "$work/$1.out" "$said"
}
export -f run one

(CVN_LIST_ALLOCATIONS=$work/list run whole) >"$work/whole.out" 2>"$work/whole.err" || { cat "$work/whole.err"; exit 1; }
all=$(tail -1 "$work/list")
if [ "${EVERY:-0}" = 1 ]; then
    seq "$all"
else
    head -n -1 "$work/list"
fi >"$work/numbers"
if [ -n "${SAMPLE:-}" ]; then # spread evenly
    awk -v sample="$SAMPLE" '{ n[NR] = $1 } END { for (i = 0; i < sample; i++) print n[1 + int(i * NR / sample)] }' \
        "$work/numbers" | sort -nu >"$work/sample"
    mv "$work/sample" "$work/numbers"
fi
numbers=$(wc -l <"$work/numbers")
sort -n "$work/numbers" | xargs -P "${JOBS:-2}" -I{} bash -c 'one {}' >"$work/result"
grep -v '^WENT ON' "$work/result"
[ "${SHOW_ON:-0}" = 1 ] && grep '^WENT ON' "$work/result"
bad=$(grep -c '^BAD' "$work/result")
echo "$command: $all allocations, $numbers of them refused, one a run: $bad ended wrongly, $(grep -c '^WENT ON' "$work/result") did without"
[ "$bad" = 0 ]
