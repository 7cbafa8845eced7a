#!/usr/bin/env bash
# portable.sh MODEL [TOKENS]: that portable numerics say the same on every set of instructions of this machine: of texts of 200 tokens, likeliest
# and drawn, the receipts that portable C made are verified, to the bits of every logit, with each of the others.
#   CARAVAN=build/caravan  TYPES="none int8 int4 q4_0"
set -euo pipefail
model=$1 tokens=${2:-200}
caravan=${CARAVAN:-build/caravan}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failed=0
for type in ${TYPES:-none int8 int4 q4_0}; do
    for how in "--temperature 0" "--temperature 1 --seed 7"; do
        # shellcheck disable=SC2086
        CARAVAN_CPU=portable "$caravan" generate -m "$model" --tokens 1,2,3 -n "$tokens" --ignore-eos --numerics portable --quantize "$type" \
            $how --receipt "$work/receipt" >/dev/null 2>&1
        for set in avx2 avx_vnni avx512 avx512_vnni avx512_bf16 dotprod i8mm; do
            flag=$set # as Linux calls it
            case $set in avx512) flag=avx512f ;; dotprod) flag=asimddp ;; esac
            grep -qw "$flag" /proc/cpuinfo || continue
            said=$(CARAVAN_CPU=$set "$caravan" verify "$work/receipt" -m "$model" 2>&1) || failed=1
            echo "$type, ${how//--/}, $set: $said"
        done
    done
done
exit $failed
