#!/usr/bin/env bash
# python.sh CARAVAN SOURCE LIBRARY VERSION CC: the wheel is made of the library and installed in a bare virtual environment,
# without the network; what tests/python_package.py asks of it holds, there and, where numpy is installed, with numpy. What the
# package believes of structs and functions is what the headers say. And what docs/PYTHON.md shows runs as it stands.
set -uo pipefail
caravan=$(realpath "$1") source=$(realpath "$2") library=$(realpath "$3") version=$4 cc=$5
python=$(command -v python3) || { echo "SKIP: python3 is not installed"; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$python" -m venv bare >said 2>&1 || { echo "SKIP: python3 cannot make virtual environments: $(tail -n 1 said)"; exit 77; }
fail() { echo "python: $1"; exit 1; }

wheel=$("$source/tools/wheel.py" "$library" "$version" "$work/dist") || fail "no wheel was made"
bare/bin/pip install -q --no-index --no-deps --disable-pip-version-check "$wheel" || fail "the wheel cannot be installed"

bare/bin/python -c 'from caravan import _c; print(_c.program_of_checks())' >checks.c || fail "the package cannot be imported"
"$cc" -std=gnu17 -fsyntax-only -I"$source/include" checks.c || fail "the package and the headers differ"

"$caravan" init -p tiny -s 3 --context 4096 --tokenizer "$source/tests/data/chat/tokenizer.json" -o my-llama >said 2>&1 ||
    fail "$(cat said)"
cp "$source/tests/data/chat/tools.jinja" my-llama/chat_template.jinja
head -c 20000 "$source/docs/ARCHITECTURE.md" >story.txt

bare/bin/python "$source/tests/python_package.py" "$caravan" "$work/my-llama" story.txt || exit 1
found=$("$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' 2>said)
if [ -n "$found" ]; then
    PYTHONPATH=$found bare/bin/python "$source/tests/python_package.py" "$caravan" "$work/my-llama" story.txt || exit 1
else
    echo "numpy is not installed: arrays were lists and buffers"
fi

# Several processes give what one gives, and end together.
if [ -f "$(dirname "$library")/libcaravan-mpi.so" ] && command -v mpirun >/dev/null; then
    several=(mpirun --allow-run-as-root --oversubscribe -n 2 bare/bin/python "$source/tests/python_ranks.py" my-llama story.txt)
    bare/bin/python "$source/tests/python_ranks.py" my-llama story.txt run1 >one || fail "a mesh in one process: $(cat one)"
    "${several[@]}" run2 >two 2>&1 || fail "a mesh in two processes: $(cat two)"
    [ "$(grep -v ^drawn one)" = "$(grep -v ^drawn two)" ] || fail "two processes give something else than one: $(cat one two)"
    [ "$(grep -c ^drawn two) $(grep ^drawn two | sort -u | wc -l)" = "2 1" ] || fail "two processes differ: $(cat two)"
    if "${several[@]}" fail >said 2>&1; then fail "a process failed, and the others did not"; fi
    grep -q "caravan: rank 1 on .* failed: ValueError: as it should" said || fail "the failure of a process is not told: $(cat said)"
else
    echo "there is no MPI: meshes were in one process"
fi

# Blocks of the page are one program, but for those that want what is not here: a block says so in its first line.
awk '/^```python/ { on = 1; text = ""; next } /^```/ { if (on && text !~ /^# needs /) printf "%s\n", text; on = 0 }
     on { text = text $0 "\n" }' "$source/docs/PYTHON.md" >page.py
lines=$(wc -l <page.py)
[ "$lines" -ge 40 ] || fail "docs/PYTHON.md shows $lines lines"
PYTHONPATH=$found bare/bin/python page.py >said 2>&1 </dev/null || fail "docs/PYTHON.md: $(cat said)"
echo "docs/PYTHON.md: $lines lines ran"
