#!/usr/bin/env bash
# docs_index.sh CARAVAN SOURCE LIBRARY CC: the quick starts of docs/index.md run as they stand there, one block of ```sh after the
# other, in a folder with a text and the examples, and so do the commands of README.md, one line after the other. What they pull is a
# small model of random weights that is here already, the server's port is one that is free, pkg-config knows the library that was
# built, runs of training end after 3 steps, and mpirun may start more processes than there are cores.
set -uo pipefail
caravan=$(realpath "$1") source=$(realpath "$2") library=$(realpath "$3") cc=$(command -v "$4")
work=$(mktemp -d)
cd "$work" || exit 1
command -v curl >/dev/null || { echo "SKIP: curl is not installed"; exit 77; }
trap 'rm -rf "$work"' EXIT
mkdir -p bin models/HuggingFaceTB
export CARAVAN_MODELS=$work/models HOME=$work PATH=$work/bin:$PATH CARAVAN_THREADS=2
ln -s "$caravan" bin/caravan
printf '#!/bin/sh\nexit 0\n' >bin/hf # all is here
printf '#!/bin/sh\necho "-I%s/include %s -Wl,-rpath,%s"\n' "$source" "$library" "$(dirname "$library")" >bin/pkg-config
printf '#!/bin/sh\nexec %s "$@"\n' "$cc" >bin/cc
chmod +x bin/*
ln -s "$source/examples" "$source/packaging" .
head -c 60000 "$source/docs/ARCHITECTURE.md" >story.txt
caravan init -p tiny -s 3 --context 512 --tokenizer "$source/tests/data/chat/tokenizer.json" \
    -o models/HuggingFaceTB/SmolLM2-135M-Instruct >said 2>&1 || { cat said; exit 1; }

# Some port that nobody listens at.
port=$((20000 + RANDOM % 20000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((20000 + RANDOM % 20000)); done
export CARAVAN_PORT=$port

ran=0 wrong=0
block="" on=0
while IFS= read -r line; do
    case $line in
    '```sh') on=1 block="" ;;
    '```'*)
        if [ $on = 1 ]; then
            ran=$((ran + 1))
            # What it starts in the background ends with it.
            printf '%s\n' 'set -e; trap '"'"'code=$?; kill $(jobs -p) 2>/dev/null || true; wait || true; exit $code'"'"' EXIT' \
                "${block//127.0.0.1:8080/127.0.0.1:$port}" >block.sh
            bash block.sh >said 2>&1 </dev/null
            code=$?
            if [ $code != 0 ]; then
                wrong=$((wrong + 1))
                printf '%s\n--- %s\n' "$block" "$code" && cat said
            fi
        fi
        on=0 ;;
    *) block+=$line$'\n' ;;
    esac
done <"$source/docs/index.md"
echo "$ran quick starts, $wrong of them wrong"
[ $wrong = 0 ] && [ $ran = 6 ] || exit 1

# README: lines of four spaces and a command, behind which, after two spaces, stands what it is. Those that want a network, a plugin or
# a server are left out; tests/docs_curl.sh has the server.
printf '#!/bin/sh\nexec %s --allow-run-as-root --oversubscribe "$@"\n' "$(command -v mpirun)" >bin/mpirun
chmod +x bin/mpirun
ln -s models/HuggingFaceTB/SmolLM2-135M-Instruct my-llama
head -c 6000 story.txt >book.txt && cp "$source/tests/data/task/questions.jsonl" .
echo '{"type": "object", "properties": {"name": {"enum": ["Paris", "Rome"]}}, "required": ["name"]}' >city.json
ran=0
while IFS= read -r command; do
    case $command in
    *pull* | *serve* | *PLUGIN* | *"--device"*) continue ;;
    mpirun*) [ -e "$(dirname "$caravan")/libcaravan-mpi.so" ] && command -v mpirun >/dev/null || continue ;;
    esac
    [[ $command =~ --out\ ([A-Za-z]+) ]] && rm -rf "${BASH_REMATCH[1]}"
    ran=$((ran + 1))
    command=${command/--steps 1000/}
    [[ $command == *train*--data* ]] && command+=" --steps 3"
    if ! bash -c "set -e; $command" >said 2>&1 </dev/null; then
        wrong=$((wrong + 1))
        printf '%s\n' "$command" && cat said
    fi
done < <(sed -nE '/^    (caravan|mpirun|cc|\.\/)/{s/^ +//; s/ {2,}[^- ].*$//; p}' "$source/README.md")
echo "$ran commands of README.md, $wrong of them wrong"
[ $wrong = 0 ] && [ $ran -ge 18 ]
