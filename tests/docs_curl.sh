#!/usr/bin/env bash
# docs_curl.sh CARAVAN SOURCE: what the documents ask a server by curl, as it is typed there, is answered: with status 200, by a
# server with a small model of random weights. Blocks of pages are read; a command goes on until its quotes are closed.
set -uo pipefail
caravan=$(realpath "$1")
source=$(realpath "$2")
command -v curl >/dev/null || { echo "SKIP: curl is not installed"; exit 77; }
work=$(mktemp -d)
cd "$work" || exit 1
"$caravan" init -p tiny -s 3 --context 4096 --tokenizer "$source/tests/data/chat/tokenizer.json" -o model >none || exit 1
cp "$source/tests/data/chat/tools.jinja" model/chat_template.jinja
"$caravan" serve -m model --port 0 --context 600 >out 2>err &
server=$!
trap 'kill $server 2>/dev/null; wait $server; rm -rf "$work"' EXIT
until grep -q "is ready" err; do
    kill -0 $server 2>/dev/null || { cat err; exit 1; }
    sleep 0.05
done
url=$(sed -n 's/^listening at //p' out)

ran=0 wrong=0
# Whole commands, a line each.
commands() {
    awk '/^    curl / { text = ""; on = 1 }
         on { text = text (text == "" ? "" : " ") $0; if (gsub(/\047/, "&", text) % 2 == 0) { print text; on = 0 } }' "$1"
}
while IFS= read -r line; do
    ran=$((ran + 1))
    typed=${line//http:\/\/127.0.0.1:8080/$url}
    status=$(bash -c "curl() { command curl -sS -o answer -w '%{http_code}' \"\$@\"; }; $typed" 2>&1)
    if [ "$status" != 200 ] || [ ! -s answer ] || grep -q '"error": *{' answer; then
        wrong=$((wrong + 1))
        printf '%s\n%s: %s\n' "$line" "$status" "$(cat answer)"
    fi
done < <(commands "$source/README.md"; commands "$source/docs/SERVING.md")
echo "$ran requests, $wrong of them wrong"
[ "$wrong" = 0 ] && [ "$ran" -ge 10 ]
