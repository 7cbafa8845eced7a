#!/usr/bin/env bash
# check.sh: what a machine can see of CONTRIBUTING.md's rules, over all tracked and new files. Prints each
# finding as FILE:LINE: sentence and ends with exit status 1 if there was an error; warnings do not count.
set -uo pipefail
cd "$(dirname "$0")/.."
errors=0
warnings=0
error() { echo "$1"; errors=$((errors + 1)); }
warning() { echo "warning: $1"; warnings=$((warnings + 1)); }

files() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
mapfile -t sources < <(files '*.c' '*.h' '*.def')
mapfile -t scripts < <(files '*.sh' .ci/run)
code=$(mktemp)
trap 'rm -rf "$code" "$code.d"' EXIT
awk -f tools/code.awk "${sources[@]}" >"$code"

# 1. Functions that overrun, keep state or swallow errors.
banned='strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|strncpy|alloca'
while IFS= read -r hit; do
    error "$hit  <- banned: $(grep -oE "\b($banned)\b" <<<"${hit#*:*:}" | head -n 1); CONTRIBUTING.md names what to use"
done < <(grep -E "^[^:]*:[0-9]+:.*\b($banned) *\(" "$code")

# 2. The library neither ends the process nor prints: only the command line and the tests do.
while IFS= read -r hit; do
    error "$hit  <- a library function neither exits nor prints"
done < <(grep -E '^src/' "$code" | grep -vE '^src/cli/' | grep -E ':.*\b(exit|printf|puts|perror|putchar) *\(|\b(stdout|stderr)\b')

# 3. Includes go up the picture only.
declare -A allowed
while read -r folder rest; do
    folder=${folder%:}
    [ -d "src/$folder" ] || error "tools/layers.txt: there is no src/$folder"
    for above in $rest; do
        [ -n "${allowed[$above]+x}" ] || error "tools/layers.txt: $folder may not come before $above, which it includes"
    done
    allowed[$folder]=" $rest "
done < <(grep -vE '^ *(#|$)' tools/layers.txt)
for folder in src/*/; do
    folder=$(basename "$folder")
    [ -n "${allowed[$folder]+x}" ] || error "tools/layers.txt: src/$folder has no row"
done
while IFS=: read -r file line include; do
    from=${file#src/} from=${from%%/*}
    to=$(sed -E 's/.*"([^"/]+)\/.*/\1/' <<<"$include")
    [[ $include == *\"*/*\"* ]] || { error "$file:$line: write includes from src/: \"folder/file.h\""; continue; }
    [ "$to" = caravan ] || [ "$to" = "$from" ] || [[ ${allowed[$from]-} == *" $to "* ]] ||
        error "$file:$line: src/$from may not include from src/$to (tools/layers.txt)"
done < <(grep -E '^src/[^:]*:[0-9]+: *# *include *"' "$code")
# Nor do files of a folder include each other in a circle; X.c, X.h and X_impl.h are one (of kernels, X_impl.h is a body that several share).
while IFS= read -r circle; do
    error "src/: files include each other in a circle:$circle"
done < <(sed -nE 's/^src\/([^:]*)\.(c|h|def):[0-9]+: *# *include *"([^"]*)\.(c|h|def)".*/\1 \3/p' "$code" |
    sed -E '/kernels/!s/_impl( |$)/\1/g' | sort -u | LC_ALL=C tsort 2>&1 >/dev/null |
    sed -E 's/^tsort: *//; s/.*contains a loop.*/;/' | tr '\n' ' ' | tr ';' '\n' | grep -E '[a-z]')

# What a model is made of, only src/model knows: all others ask by functions (model/model.h).
while IFS= read -r hit; do
    error "$hit  <- a model is asked by the functions of model/model.h"
done < <(printf '%s\n' "${sources[@]}" | grep -vE '^src/model/' | xargs -d '\n' grep -nE '# *include *"model/(block|family|config_json)\.h"' /dev/null)

# Who uses devices neither names the processor nor asks whether there are several: one is a mesh of one (src/run/).
while IFS= read -r hit; do
    error "$hit  <- goes through src/run/, where one device is a mesh of one"
done < <(grep -E '^src/(serve|train|sim)/' "$code" |
    grep -E '"cpu/|\b(cpu_kernels|cpu_backend|executor_run) *\(|[a-z]mesh *\?|\bif \(!?([eort]->)?mesh *[)&|]')

# 4. A file that one can hold in mind.
while read -r lines file; do
    [ "$file" = total ] && continue
    if [ "$lines" -gt 1200 ]; then
        error "$file:$lines: more than 1200 lines; split it by idea"
    elif [ "$lines" -gt 800 ]; then
        warning "$file: $lines lines; is it still one idea?"
    fi
done < <(wc -l "${sources[@]}")

# 5. Nothing speaks of the machine it was written on, nor of work left undone.
while IFS= read -r hit; do
    error "$hit  <- a path of one machine"
done < <(files | grep -vE '^tools/check.sh$' | xargs -d '\n' grep -nIE '(^|[^a-zA-Z0-9_.}])/(home|work|root|Users)/[a-z]')
while IFS= read -r hit; do
    error "$hit  <- unfinished work belongs in an issue"
done < <(printf '%s\n' "${sources[@]}" "${scripts[@]}" | grep -vE '^tools/check.sh$' | xargs -d '\n' grep -nE '\b(TODO|FIXME|XXX|HACK)\b')

# 6. Every public header stands alone, in C and in C++.
cc=${CC:-cc}
for header in include/caravan/*.h; do
    name=${header#include/}
    echo "#include \"$name\"" | $cc -std=c17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c - ||
        error "$header: does not compile alone as C17"
    if command -v c++ >/dev/null; then
        echo "#include \"$name\"" | c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ - ||
            error "$header: does not compile alone as C++11"
    fi
    grep -qF "\"$name\"" include/caravan/caravan.h 2>/dev/null || [ "$name" = caravan/caravan.h ] ||
        [ ! -f include/caravan/caravan.h ] || error "$header: caravan/caravan.h does not include it"
done

# 7. Headers are guarded by their path.
for header in $(files 'src/*.h' 'include/*.h'); do
    grep -qE '^#(ifndef|pragma once)' "$header" || [[ $header == *_impl.h ]] || error "$header: no include guard"
done

# 8. A fuzz target has seeds.
for target in fuzz/fuzz_*.c; do
    subject=$(basename "$target" .c)
    [ -n "$(ls "fuzz/corpus/${subject#fuzz_}" 2>/dev/null)" ] || error "$target: no seeds in fuzz/corpus/${subject#fuzz_}"
done

# 9. Shell scripts parse.
for script in "${scripts[@]}"; do
    bash -n "$script" || error "$script: does not parse"
done

# 10. Files and folders that the documents name are there: by their path, by their name alone in `code`, and as links.
# NAME and the like stand for any. So are headers and scripts that comments of the code name.
mapfile -t pages < <(files '*.md' 'include/*.h')
declare -A named
while IFS= read -r file; do named[${file##*/}]=1; done < <(files)
while IFS=: read -r file line path; do
    path=${path%[.,]}
    [[ $path =~ NAME ]] || compgen -G "$path" >/dev/null || error "$file:$line: there is no $path"
done < <(grep -noE '\b(src|tests|tools|docs|bench|examples|include|cmake|fuzz)/[A-Za-z0-9_./*-]+' "${pages[@]}" /dev/null)
while IFS=: read -r file line name; do
    name=${name//\`/}
    [ -n "${named[$name]-}" ] || error "$file:$line: there is no file $name"
done < <(grep -noE '`[a-z_0-9]+\.(c|h|def|sh)`' "${pages[@]}" /dev/null)
while IFS=: read -r file line name; do
    name=${name#[ (]}
    [ -n "${named[$name]-}" ] || error "$file:$line: there is no file $name"
done < <(grep -noE '(^|[ (])[a-z_0-9]{4,}\.(h|sh)\b' "${sources[@]}" /dev/null)
while IFS=: read -r file line link; do
    link=${link#](} link=${link%)}
    [ -e "$(dirname "$file")/$link" ] || error "$file:$line: the link leads to no $link"
done < <(grep -noE '\]\([A-Za-z][A-Za-z0-9_./-]*\)' "${pages[@]}" /dev/null)

# 11. Layout, by the version of clang-format whose style this is; others differ in details.
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    while IFS= read -r file; do
        error "$file: make format changes it"
    done < <(files '*.c' '*.h' | xargs -d '\n' -P 2 -n 64 clang-format --dry-run 2>&1 | sed -nE 's/^([^: ]+):[0-9]+:.*clang-format-violations.*/\1/p' | sort -u)
else
    warning "clang-format 14 is not here; the layout was not checked"
fi

# A comment behind a declaration that is too long for its line makes clang-format part the type from the name.
while IFS= read -r hit; do
    error "$hit  <- put the comment above the declaration"
done < <(awk 'FNR > 1 && last ~ /^ +(const )?[A-Za-z_]+( [a-z_]+)?( \*)?$/ && last !~ /^ +(else|do|return)$/ &&
              /^ +(\*?[a-z_]+|\[[^]]*\])(\[[^]]*\])*; \/\*/ { print FILENAME ":" FNR ":" $0 } { last = $0 }' "${sources[@]}")

# 12. A graph does not depend on the compiler.
while IFS= read -r hit; do
    error "$hit"
done < <(grep -E '^(src|include)/' "$code" >"$code.d"; awk -f tools/order.awk "$code.d" "$code.d")

# 13. Words that once made help, messages and pages hard to read do not come back (docs/GLOSSARY.md has those to use): in strings
# of the code, and in headings of the pages, which name things.
odd='(?<!here )\b(is|are) no (?!longer|more\b)[a-z]|(?<!here )\bis none of\b|\b(is|are) wanted\b|\blooks? (at it|for the end)|\bgo on (from|with)\b|\blet only\b'
odd+='|\bcarried out\b|\bmost (texts|tokens|threads|bytes|memory|connections|positions)\b|\bis said to be\b|\bto be had\b|\btake another one\b|\bwas asked for\b|\bwhose it is\b'
odd+='|\b(does|do|has|have) (not|no) end\b|\bhas no end\b|\b(is|are) not known\b|\bthere is no memory\b|\b(is|are) not read\b|\b(holds no|claims an?|wants an?)\b'
odd+='|\bcannot say (that|what)\b|\bfetch (it|the file) again\b|\bhas not (%|a)|\bcomes? to more\b|\bmay (not )?go on\b|\bgoes on (there|from|behind)\b|\bthe same command goes on\b'
odd+='|\bleads? (back )?to (itself|each|no)\b|\bstands? (where|twice|beside|inside)\b|\bmissing or no\b|\bout of turn\b|\bgives? .{1,12} back\b|\bpace of a\b|\btime went to\b'
while IFS= read -r hit; do
    error "$hit  <- say it in the field's words (docs/GLOSSARY.md, CONTRIBUTING.md)"
done < <(printf '%s\n' "${sources[@]}" | grep '^src/' | xargs -d '\n' grep -nP "^(?!\s*(\*|/\*)).*\"[^\"]*($odd)[^\"]*\"" /dev/null)
while IFS= read -r hit; do
    error "$hit  <- a heading names a thing"
done < <(grep -nE '^#+ (Who|What|Whether|Where|Which|Why|When|Beside|Behind|The end)\b' README.md docs/*.md)

echo "check: $errors errors, $warnings warnings"
[ "$errors" = 0 ]
