#!/usr/bin/env bash
# export_jax.sh CARAVAN PYTHON MODEL [PROMPT ...]: what `caravan export --to stablehlo` writes gives, run by JAX alone
# (tools/run_exported.py), the greedy text of `caravan generate`, in f32 and with weights in 8 bits. PYTHON is one that
# has jax.
set -euo pipefail
caravan=$1 python=$2 model=$3
shift 3
[ $# -gt 0 ] || set -- "Once upon a time" "The little dog was" "One day"
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wrong=0
for form in "" --int8; do
    "$caravan" export "$model" "$folder/out" --to stablehlo --dtype f32 --context 256 --force $form
    for prompt; do
        said=$("$caravan" generate --model "$folder/out" --dtype f32 --prompt "$prompt" -n 40 --temperature 0 \
            --ignore-eos --json 2>/dev/null)
        ids() { "$python" -c "import json, sys; print(*json.loads(sys.argv[1])['$1'])" "$said"; }
        want=$(ids tokens)
        # shellcheck disable=SC2046
        got=$(JAX_PLATFORMS=cpu "$python" "$here/run_exported.py" "$folder/out" 40 $(ids prompt_tokens))
        if [ "$want" = "$got" ]; then
            echo "same 40 tokens${form:+ in 8 bits}: $prompt"
        else
            echo "differ${form:+ in 8 bits}: $prompt"
            printf '  caravan %s\n  JAX     %s\n' "$want" "$got"
            wrong=1
        fi
    done
done
exit $wrong
