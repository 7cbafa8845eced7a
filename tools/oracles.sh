#!/usr/bin/env bash
# oracles.sh FOLDER: makes the stored reference numbers under tests/data anew by running tests/oracles/*.py.
# The libraries that serve as oracles come from PyPI into FOLDER/oracles, unless $PYTHON names an
# interpreter that has them.
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
for script in tests/oracles/*.py; do
    echo "== $script"
    "$python" "$script"
done
