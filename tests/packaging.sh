#!/usr/bin/env bash
# packaging.sh CARAVAN SOURCE: a release is the same bytes twice, with a bill of materials that names the version and the archive's
# digest; what packaging/ says to run are commands and options that there are; the unit is one that systemd understands.
set -uo pipefail
caravan=$(realpath "$1") source=$(realpath "$2")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "packaging: $1"; failed=1; }

# Words of a command line, from `caravan COMMAND` on: each option is one of that command's.
check_line() {
    local file=$1 command=$2 option
    shift 2
    "$caravan" "$command" --help >"$work/help" 2>&1 || { fail "$file: there is no command $command"; return; }
    for option in "$@"; do
        case $option in -m) option=--model ;; --*) ;; *) continue ;; esac
        grep -qE -- "(^|[ ,])$option( |$)" "$work/help" || fail "$file: caravan $command has no $option"
    done
}
for file in caravan.service train.slurm Containerfile kubernetes.yaml; do
    lines=0
    while read -ra words; do
        lines=$((lines + 1))
        check_line "$file" "${words[@]}"
    done < <(sed -e ':a; /\\$/ { N; s/\\\n#*//; ba }' "$source/packaging/$file" | tr -d '[],"' |
        grep -oE '(caravan|args:) +(pull|serve|train|generate|chat) .*' | sed -E 's/^(caravan|args:) +//')
    [ "$lines" -ge 1 ] || fail "$file runs nothing"
done

if command -v systemd-analyze >/dev/null; then
    sed "s|/usr/bin/caravan|$caravan|; /^Documentation/d" "$source/packaging/caravan.service" >"$work/caravan.service"
    systemd-analyze verify "$work/caravan.service" >"$work/said" 2>&1
    ! grep -q 'caravan\.service' "$work/said" || fail "$(cat "$work/said")"
fi

if ! git -C "$source" rev-parse HEAD >/dev/null 2>&1; then
    echo "no git checkout: make dist was not tried"
    exit $failed
fi
"$source/tools/dist.sh" "$work/one" >/dev/null 2>&1 && "$source/tools/dist.sh" "$work/two" >/dev/null 2>&1 || fail "make dist fails"
diff -r "$work/one" "$work/two" || fail "two releases of a commit differ"
(cd "$work/one" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS is wrong"
archive=$(ls "$work"/one/caravan-*.tar.gz)
version=$(basename "$archive" .tar.gz) && version=${version#caravan-}
"$caravan" --version | grep -qF "$version" || fail "the program is not of version $version"
tar -tzf "$archive" >"$work/list"
for file in CMakeLists.txt src/cli/main.c python/caravan/__init__.py LICENSE; do
    grep -qx "caravan-$version/$file" "$work/list" || fail "the archive has no $file"
done
bom=$work/one/caravan-$version.cdx.json
grep -q "\"version\": \"$version\"" "$bom" && grep -q "$(sha256sum <"$archive" | cut -d ' ' -f 1)" "$bom" ||
    fail "the bill of materials is of another archive"
for library in jansson libpcre2-8 libutf8proc nettle; do
    grep -q "\"name\": \"$library\"" "$bom" || fail "the bill of materials does not name $library"
done
! command -v python3 >/dev/null || python3 -m json.tool "$bom" >/dev/null || fail "the bill of materials is not JSON"
exit $failed
