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

# Blocks of the page are one program, but for those that want what is not here: a block says so in its first line.
awk '/^```python/ { on = 1; text = ""; next } /^```/ { if (on && text !~ /^# needs /) printf "%s\n", text; on = 0 }
     on { text = text $0 "\n" }' "$source/docs/PYTHON.md" >page.py
lines=$(wc -l <page.py)
[ "$lines" -ge 40 ] || fail "docs/PYTHON.md shows $lines lines"
PYTHONPATH=$found bare/bin/python page.py >said 2>&1 </dev/null || fail "docs/PYTHON.md: $(cat said)"
echo "docs/PYTHON.md: $lines lines ran"
