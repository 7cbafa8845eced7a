#!/bin/sh
# pages.sh PROGRAM FOLDER: lets the program write its man pages and completions into FOLDER, laid out
# as under PREFIX/share.
set -eu
program=$1
folder=$2
mkdir -p "$folder/man/man1" "$folder/bash-completion/completions" "$folder/zsh/site-functions" \
    "$folder/fish/vendor_completions.d"
"$program" _man > "$folder/man/man1/caravan.1"
for command in $("$program" _commands); do
    "$program" _man "$command" > "$folder/man/man1/caravan-$command.1"
done
"$program" _completion bash > "$folder/bash-completion/completions/caravan"
"$program" _completion zsh > "$folder/zsh/site-functions/_caravan"
"$program" _completion fish > "$folder/fish/vendor_completions.d/caravan.fish"
