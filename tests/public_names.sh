#!/usr/bin/env bash
# public_names.sh SOURCE BUILD CC NM: the installed libraries show names that begin with cvn_ and no others, the shared one
# with a version; a program with functions of its own that are called as some inside the library links and calls its own.
set -uo pipefail
source=$1 build=$2 cc=$3 nm=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
fail() { echo "public_names: $1"; failed=1; }

shown=$("$nm" -g --defined-only "$build/libcaravan.a" | awk 'NF == 3 { print $3 }')
others=$(grep -v '^cvn_' <<<"$shown")
[ -z "$others" ] || fail "libcaravan.a shows $(wc -w <<<"$others") names without cvn_, such as $(head -n 1 <<<"$others")"
grep -qx cvn_model_open <<<"$shown" || fail "libcaravan.a does not show cvn_model_open"
if [ -e "$build/libcaravan.so" ]; then
    others=$("$nm" -D --defined-only "$build/libcaravan.so" | awk '$3 !~ /^cvn_[a-z_0-9]*@@CARAVAN_[0-9]/ && $2 != "A" { print $3 }')
    [ -z "$others" ] || fail "libcaravan.so shows what is no cvn_ name with a version, such as $(head -n 1 <<<"$others")"
fi

cat >"$dir/own.c" <<'C'
#include <caravan/caravan.h>
#include <stdio.h>
#include <string.h>

static int asked;
int file_exists(const char *path);
int strbuf_add(void *out, const char *text);

/* Both are inside the library, too, with other parameters. */
int file_exists(const char *path)
{
    asked++;
    return path[0];
}

int strbuf_add(void *out, const char *text)
{
    asked++;
    return out == text;
}

int main(void)
{
    cvn_err err = {0};
    cvn_model *model = NULL;
    if (cvn_model_open("no-such-model", NULL, &model, &err) == 0 || !strstr(err.message, "no-such-model"))
        return 1;
    if (asked || !file_exists("x") || strbuf_add(NULL, "") || asked != 2)
        return 2;
    puts(err.message);
    return 0;
}
C
# The static library, and what caravan.pc says that it needs, of which this machine may have shared libraries only.
needs=$(PKG_CONFIG_PATH="$build" pkg-config --print-requires-private caravan) || { echo "no pkg-config: skipped"; exit 77; }
# shellcheck disable=SC2086 # names are words
flags="-I$source/include $build/libcaravan.a $(pkg-config --libs $needs) -lm -lpthread -ldl"
# shellcheck disable=SC2086 # flags are words
if "$cc" -o "$dir/own" "$dir/own.c" $flags >"$dir/said" 2>&1; then
    "$dir/own" >"$dir/said" 2>&1 || fail "the program with a file_exists of its own ends with $?: $(cat "$dir/said")"
else
    fail "a program with a file_exists of its own does not link: $(head -n 5 "$dir/said")"
fi
exit $failed
