#!/usr/bin/env bash
# setup.sh SOURCE: on a machine that lacks a library plain `make` names it and installs nothing; `make setup` does install.
# The machine is one in a folder: its pkg-config knows no libraries, its apt-get writes down what it was asked.
set -uo pipefail
source=$1
command -v make >/dev/null || { echo "make is not here: skipped"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
stub() { printf '#!/bin/sh\n%s\n' "$2" >"$dir/$1"; chmod +x "$dir/$1"; }
stub pkg-config 'exit 1'
stub id 'echo 0'
stub apt-get "echo \"\$@\" >>'$dir/asked'"
stub cmake 'exit 1'
failed=0
check() { eval "$2" || { echo "setup: $1"; cat "$dir/said"; failed=1; }; }

PATH="$dir:$PATH" make -C "$source" BUILD="$dir/build" >"$dir/said" 2>&1
code=$?
check "plain make ends well without its libraries" '[ $code != 0 ]'
check "plain make asked apt-get for something" '[ ! -e "$dir/asked" ]'
check "plain make does not name the packages and make setup in a sentence" \
    'grep -q "needs libjansson-dev libpcre2-dev libutf8proc-dev nettle-dev, which this machine lacks; .make setup. installs" "$dir/said"'

PATH="$dir:$PATH" make -C "$source" BUILD="$dir/build" setup >"$dir/said" 2>&1
code=$?
check "make setup fails" '[ $code = 0 ]'
check "make setup does not install the libraries of build and tests" \
    'grep -q "install .*libjansson-dev libpcre2-dev libutf8proc-dev nettle-dev libcmocka-dev" "$dir/asked"'
exit $failed
