#!/bin/sh
# Makes the tables of docs/FORESIGHT.md anew: what is simulated of every published measurement, beside it.
#
#     tools/foresight.sh [CARAVAN]
set -e
here=$(cd "$(dirname "$0")/.." && pwd)
caravan=${1:-$here/build/caravan}
page=$here/docs/FORESIGHT.md
new=$page.new
trap 'rm -f "$new"' EXIT
sed '/^<!-- tables/q' "$page" >"$new"
for table in "$here"/bench/published/rows/*.csv; do
    printf '\n## %s\n\n' "$(basename "$table")" >>"$new"
    "$caravan" simulate --rows "$table" >>"$new"
done
mv "$new" "$page"
