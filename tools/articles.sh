#!/usr/bin/env bash
# articles.sh [CARAVAN]: writes docs/ARTICLES.md: each thing that the founding articles name (bench/published/ninety.txt), with the command
# that shows it and what that printed here. A command that prints nothing of the kind fails the run, and its row says so.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
program=$(realpath "${1:-$here/build/caravan}")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
caravan() { timeout 300 "$program" "$@"; }
caravan init -p stories260k --context 2048 -o tiny >/dev/null || exit 1
caravan init -p dim=128,layers=2,heads=16,kv_heads=4,ffn=256,vocab=512 -o tiny16 >/dev/null || exit 1
for ((i = 0; i < 400; i++)); do echo "once there was a caravan of $i camels"; done >data.txt
prompt=$(for ((i = 0; i < 1500; i++)); do printf '%s,' $((i % 500 + 3)); done)
failed=0

# A row of the table, with one line of what was printed.
row() {
    local number=$1 what=$2 command=$3 pattern=$4 remark=$5 run said=''
    if [ "$command" != - ]; then
        run=${command//GRAPHS/$here\/tests\/data\/graphs}
        run=${run//ROWS/$here\/bench\/published\/rows}
        run=${run//PROMPT/${prompt%,}}
        # Commands that have run once are not run again.
        local kept
        kept=$(cksum <<<"$run" | cut -d ' ' -f 1)
        [ -e "$kept" ] || eval "$run" >"$kept" 2>&1 </dev/null
        said=$(tr -d '\r' <"$kept" | grep -m 1 -E -- "$pattern" | grep -oE -- "$(shown "$pattern")" | head -n 1)
        said=$(sed 's/^[| ]*//; s/ *| */; /g' <<<"$said" | tr -s ' ' | cut -c 1-150)
        [ -n "$said" ] || { said='**nothing of the kind**' && failed=$((failed + 1)) && echo "$number: $run" >&2; }
        command="\`${command//|/\\|}\`"
        said="\`$said\`"
        [ "$said" != '`**nothing of the kind**`' ] || said='**failed**'
    else
        command=–
    fi
    printf '| %s | %s | %s | %s | %s |\n' "$number" "$what" "$command" "$said" "$remark"
}

# Of JSON the field alone, of other output the line.
shown() {
    case $1 in
    '"'*) echo "$1: [^,}]*" ;;
    *) echo '.*' ;;
    esac
}

rows() {
    while IFS=$'\x1f' read -r number what command pattern remark; do
        row "$number" "$what" "$command" "$pattern" "$remark"
    done < <(grep -v '^#' "$here/bench/published/ninety.txt" | sed 's/ :: \?/\x1f/g')
}

cat <<'END' >page
# The founding articles, thing by thing

Five articles on running Llama by compilers describe what Caravan re-creates. This page has the ninety things that they name, in the
order of their texts, each with a command and a line of what it printed on a machine with two cores and no accelerator. `tools/articles.sh` runs
the commands of [ninety.txt](../bench/published/ninety.txt) and writes the page. `ROWS` is bench/published/rows, `GRAPHS` tests/data/graphs,
`PROMPT` 1,500 token ids, `tiny` a model with random weights. Times are of a machine that was busy. What a chip would do is simulated:
[FORESIGHT.md](FORESIGHT.md) says how far off that is.

| # | what | command | prints | remark |
|---:|---|---|---|---|
END
rows >>page
cat "$here/bench/published/articles.txt" >>page
cp page "$here/docs/ARTICLES.md"
! grep -q '[*][*]failed[*][*]' page
