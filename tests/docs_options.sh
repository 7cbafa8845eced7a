#!/usr/bin/env bash
# docs_options.sh CARAVAN SOURCE: what the documents say of the command line is so. Behind every `caravan COMMAND` of the
# pages and of the examples in the commands' own help stand options that this command has; an option in running text is
# one of some command. Prints FILE:LINE: sentence for each that is not.
set -uo pipefail
caravan=$1
cd "$2" || exit 1
errors=0
error() { echo "$1"; errors=$((errors + 1)); }

declare -A has
for command in $("$caravan" _commands); do
    for option in $("$caravan" "$command" --help | sed -n '/^Options:/,/^$/p' | grep -oE '^  (-., )?--[a-z0-9-]+' | grep -oE '\-\-[a-z0-9-]+') --help; do
        has[$command $option]=1
        has[any $option]=1
    done
done
has[any --version]=1
[ -n "${has[train --data]-}" ] || { echo "no options were read"; exit 1; }

# A line may hold several commands, and pipes between them.
while IFS= read -r hit; do
    place=$(cut -d: -f1,2 <<<"$hit")
    while read -r _ command rest; do
        "$caravan" "$command" --help >/dev/null 2>&1 || { [[ $command =~ ^[a-z]+$ ]] && [[ $hit =~ \`caravan\ $command ]] && error "$place: there is no command $command"; continue; }
        for option in $(grep -oE '(^| |\[)--[a-z][a-z0-9-]*' <<<"$rest" | tr -d ' ['); do
            [ -n "${has[$command $option]-}" ] || error "$place: caravan $command has no option $option"
        done
    done < <(cut -d: -f3- <<<"$hit" | grep -oE 'caravan [a-z]+( [^|;&#`<>]*)?')
done < <(grep -nE 'caravan [a-z]+' README.md CONTRIBUTING.md CHANGELOG.md docs/*.md
    for command in $("$caravan" _commands); do
        "$caravan" "$command" --help | sed -n '/^Examples:/,/^Usage:/p' | grep -n '^  caravan' | sed "s/^/help of $command:/"
    done)

# In running text: `--option`, `--option value`.
while IFS= read -r hit; do
    for option in $(cut -d: -f3- <<<"$hit" | grep -oE '`--[a-z][a-z0-9-]*' | tr -d '`'); do
        [ -n "${has[any $option]-}" ] || grep -qE 'mpirun|srun|mpi=|cpus-per-task|--mca' <<<"$hit" ||
            error "$(cut -d: -f1,2 <<<"$hit"): no command has an option $option"
    done
done < <(grep -nE '`--[a-z]' README.md CONTRIBUTING.md CHANGELOG.md docs/*.md)

echo "$errors mistakes, ${#has[@]} options"
[ "$errors" = 0 ]
