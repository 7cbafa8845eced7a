#!/usr/bin/env bash
# docs_output.sh CARAVAN SOURCE: what the documents show of programs is what they print. In a block of a page, "$ cat FILE"
# is followed by what the file holds, and "$ caravan COMMAND" by its output, in which … stands for anything and lines may
# be folded. Run are commands whose output does not depend on the machine; stories260K is looked for in the shared data.
set -uo pipefail
caravan=$(realpath "$1")
source=$(realpath "$2")
model=$source/../shared/data/checkpoints/stories260K-hf
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
[ -d "$model" ] && ln -s "$model" stories260K
ran=0 skipped=0 wrong=0

# check PAGE COMMAND TEXT
check() {
    local page=$1 command=$2 text=$3 output
    case $command in
    "cat "*) printf '%s' "$text" >"${command#cat }"; return ;;
    "caravan opt "* | "caravan "*" stories260K "* | "caravan "*" stories260K") ;;
    *) return ;;
    esac
    if [[ $command == *stories260K* && ! -e stories260K ]]; then
        skipped=$((skipped + 1))
        return
    fi
    output=$(bash -c "caravan() { '$caravan' \"\$@\"; }; $command" 2>/dev/null | tr -s '[:space:]' ' ')
    text=$(tr -s '[:space:]' ' ' <<<"$text")
    text=$(sed 's/[][\\*?]/\\&/g; s/…/*/g' <<<"$text")
    ran=$((ran + 1))
    # shellcheck disable=SC2053 # a pattern is meant
    [[ "${output% } " == ${text% }" " ]] && return
    wrong=$((wrong + 1))
    printf '%s: "%s" prints\n%s\n' "$page" "$command" "$output"
}

for page in README.md docs/SHARDING.md docs/GRAPH.md docs/QUANTIZATION.md; do
    command="" text="" indent=""
    while IFS= read -r line; do
        case $line in
        '```'* | '    $ '* | '$ '*) next=1 ;;
        '    '*) next=0 ;;
        *) next=$([ -n "$indent" ] && echo 1 || echo 0) ;; # the end of an indented block
        esac
        if [ "$next" = 1 ]; then
            [ -n "$command" ] && check "$page" "$command" "$text"
            command="" text=""
        fi
        case $line in
        '    $ '*) indent='    ' command=${line#'    $ '} ;;
        '$ '*) indent='' command=${line#'$ '} ;;
        *) [ -n "$command" ] && text+=${line#"$indent"}$'\n' ;;
        esac
    done <"$source/$page"
done
echo "$ran commands, $wrong of them wrong, $skipped skipped for want of shared data"
[ "$wrong" = 0 ] && [ "$ran" -ge 2 ]
