#!/bin/sh
# Writes bench/published/simulated: of every published measurement what `caravan simulate` predicts for it, as CSV (one file
# for each table in bench/published/rows), and the errors of groups of rows (summary.csv). docs/FORESIGHT.md quotes the latter.
#
#     tools/foresight.sh [CARAVAN]
set -e
here=$(cd "$(dirname "$0")/.." && pwd)
caravan=${1:-$here/build/caravan}
out=$here/bench/published/simulated
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
# The rows of a table in Markdown as CSV.
csv='{
    line = ""
    for (i = 2; i < NF; i++) {
        field = $i
        if (field ~ /[",]/) { gsub(/"/, "\"\"", field); field = "\"" field "\"" }
        line = line (i > 2 ? "," : "") field
    }
    print line
}'
echo "table,error,rows,median,p90,worst" >"$work/summary.csv"
for table in "$here"/bench/published/rows/*.csv; do
    name=$(basename "$table" .csv)
    "$caravan" simulate --rows "$table" | grep '^|' | grep -v '^|---' >"$work/all"
    sed '/^| error |/,$d' "$work/all" | awk -F ' *[|] *' "$csv" >"$work/$name.csv"
    sed '1,/^| error |/d' "$work/all" | awk -F ' *[|] *' "$csv" | sed "s/^/$name,/" >>"$work/summary.csv"
    mv "$work/$name.csv" "$out/$name.csv"
done
mv "$work/summary.csv" "$out/summary.csv"
