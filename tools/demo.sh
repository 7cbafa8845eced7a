#!/usr/bin/env bash
# demo.sh PROGRAM: generates text with the model in $MODEL, or with a small one of random weights made on
# the spot (build/demo), and shows tokens and speed.
set -euo pipefail
caravan=$1
model=${MODEL-}
if [ -z "$model" ]; then
    model=$(dirname "$caravan")/demo
    if [ ! -f "$model/config.json" ]; then
        echo "\$ caravan init --preset stories15m --seed 1 -o $model"
        "$caravan" init --preset stories15m --seed 1 -o "$model"
    fi
    echo "The weights are random, so the text means nothing; MODEL=DIR make demo takes a trained model."
    prompt=(--tokens 1,403,407,261,378)
else
    prompt=(--prompt "${PROMPT-Once upon a time}")
fi
echo "\$ caravan generate --model $model ${prompt[*]} --max-tokens 128"
"$caravan" generate --model "$model" "${prompt[@]}" --max-tokens 128 ${SEED+--seed "$SEED"}
