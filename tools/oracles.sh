#!/usr/bin/env bash
# oracles.sh FOLDER: makes the stored reference numbers under tests/data anew by running
# tests/oracles/*.py; ORACLES="rng ops" runs some of them. The libraries that serve as oracles come
# from PyPI into FOLDER/oracles, unless $PYTHON names an interpreter that has them.
set -euo pipefail
folder=$1
python=${PYTHON-}
if [ -z "$python" ]; then
    python=$folder/oracles/bin/python
    if [ ! -x "$python" ]; then
        python3 -m venv "$folder/oracles"
        "$folder/oracles/bin/pip" install -q -r tests/oracles/requirements.txt
    fi
fi
export CARAVAN=${CARAVAN-$PWD/$folder/caravan}
failed=()
for script in tests/oracles/*.py; do
    name=$(basename "$script" .py)
    [ -z "${ORACLES-}" ] || [[ " $ORACLES " == *" $name "* ]] || continue
    echo "== $script"
    "$python" "$script" || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "Failed: ${failed[*]}; the lines above say why." >&2
    exit 1
fi
git status --short tests/data
