#!/usr/bin/env bash
# export_jax.sh CARAVAN PYTHON MODEL [PROMPT ...]: what `caravan export --to stablehlo` writes gives, run by JAX alone
# (tools/run_exported.py), the greedy text of `caravan generate`, in f32, from several files, and with weights in 8 and 4 bits;
# what texts cost is what `caravan score` says, and steps of training begin with that and bring it down
# (tools/check_exported.py). PYTHON is one that has jax.
set -euo pipefail
caravan=$1 python=$2 model=$3
shift 3
[ $# -gt 0 ] || set -- "Once upon a time" "The little dog was" "One day"
here=$(dirname "$(realpath "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wrong=0
number() { "$python" -c "import json, sys; print(*json.loads(sys.argv[1])['$1'])" "$2"; }
for form in "--shard-size 300k" "--quantize int8" "--quantize int4:32"; do
    # shellcheck disable=SC2086
    "$caravan" export "$model" "$folder/out" --to stablehlo --dtype f32 --context 256 --force $form
    for prompt; do
        said=$("$caravan" generate --model "$folder/out" --dtype f32 --prompt "$prompt" -n 40 --temperature 0 \
            --ignore-eos --json 2>/dev/null)
        want=$(number tokens "$said")
        # shellcheck disable=SC2046
        got=$(JAX_PLATFORMS=cpu "$python" "$here/run_exported.py" "$folder/out" 40 $(number prompt_tokens "$said"))
        if [ "$want" = "$got" ]; then
            echo "same 40 tokens, $form: $prompt"
        else
            echo "differ, $form: $prompt"
            printf '  caravan %s\n  JAX     %s\n' "$want" "$got"
            wrong=1
        fi
    done
done
"$caravan" export "$model" "$folder/out" --to stablehlo --dtype f32 --context 256 --force --score --train 40
for prompt; do
    said=$("$caravan" score --model "$folder/out" --dtype f32 --text "$prompt, there was a little girl." --json 2>/dev/null)
    # shellcheck disable=SC2046
    got=$(JAX_PLATFORMS=cpu "$python" "$here/check_exported.py" "$folder/out" $(number tokens "$said"))
    "$python" - "$(number logprobs "$said")" "$got" "$prompt" <<'END' || wrong=1
import sys
want = [float(x) for x in sys.argv[1].split()[1:]]  # none of the first
got, loss = ([float(x) for x in line.split()] for line in sys.argv[2].splitlines())
off = max(abs(a - b) for a, b in zip(want, got))
begins = abs(loss[0] + sum(want) / len(want))
good = len(got) == len(want) and off < 1e-4 and begins < 1e-4 and loss[-1] < 0.9 * loss[0]
print(f"{'same' if good else 'differ'}: log-probabilities by {off:.1e}, loss {loss[0]:.4f} -> {loss[-1]:.4f}: {sys.argv[3]}")
sys.exit(not good)
END
done
exit $wrong
