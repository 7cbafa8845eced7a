#!/usr/bin/env bash
# demo.sh PROGRAM: writes some megabytes of little stories, trains a small model on them (about two
# minutes on 2 cores), and lets it tell stories of its own. MODEL=DIR takes a model that is there already.
set -euo pipefail
caravan=$1
build=$(dirname "$caravan")
model=${MODEL-}

# show COMMAND…: prints it as one would type it, and runs it.
show() {
    local word line="\$"
    for word; do
        [[ $word == *[!A-Za-z0-9_./,:=-]* ]] && word="'$word'"
        line+=" $word"
    done
    echo "$line"
    "$@"
}

if [ -z "$model" ]; then
    model=$build/demo
    steps=${STEPS-800}
    if tail -n 1 "$model/metrics.jsonl" 2> /dev/null | grep -q "\"step\":$steps,"; then
        echo "The model in $model is trained; remove it to train another."
    elif [ -d "$model/checkpoints" ]; then
        show "$caravan" train --resume "$model" --steps "$steps"
    else
        echo "\$ $build/stories examples/stories.grammar --seed 1 --megabytes 4 > $build/stories.txt"
        "$build/stories" examples/stories.grammar --seed 1 --megabytes 4 > "$build/stories.txt"
        # With 2,048 pieces nearly every word is one, names too, and is easier to keep in mind.
        show "$caravan" tokenize --train-bpe "$build/stories.txt" --vocab 2048 --out "$build/stories.json"
        show "$caravan" train --data "$build/stories.txt" --tokenizer "$build/stories.json" \
            --preset tiny --seq 256 --batch 8 \
            --steps "$steps" --validation 0.02 --prompt "Once upon a time" --out "$model"
    fi
fi
for seed in ${SEED-1 2 3}; do
    echo
    show "$caravan" generate --model "$model" --prompt "${PROMPT-Once upon a time}" \
        --max-tokens 240 --temperature 0.7 --seed "$seed"
done
if [ -f "$model/report.html" ]; then
    echo
    echo "The curve of the run: $model/report.html"
fi
