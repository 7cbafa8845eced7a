#!/bin/sh
# Makes the tables of docs/FORESIGHT.md anew: what is simulated of every published measurement, beside it.
#
#     tools/foresight.sh [CARAVAN] [FOLDER with rows.csv and silicon.csv]
set -e
here=$(cd "$(dirname "$0")/.." && pwd)
caravan=${1:-$here/build/caravan}
tables=${2:-$here/../shared/data/published}
page=$here/docs/FORESIGHT.md
new=$page.new
trap 'rm -f "$new"' EXIT
sed '/^<!-- tables/q' "$page" >"$new"
for table in "$here/bench/published/articles.csv" "$tables/rows.csv" "$tables/silicon.csv"; do
    [ -e "$table" ] || continue
    printf '\n## %s\n\n' "$(basename "$table")" >>"$new"
    "$caravan" simulate --rows "$table" --markdown >>"$new"
done
mv "$new" "$page"
