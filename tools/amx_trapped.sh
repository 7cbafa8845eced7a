#!/usr/bin/env bash
# amx_trapped.sh: everything as on a machine with AMX, on one that has none (tests/amx_trap.h): builds all tests and the
# program a second time, and runs the tests, or those whose names match a pattern.
#
#   tools/amx_trapped.sh                 all of them: minutes, since a tile instruction takes microseconds
#   tools/amx_trapped.sh kernels engine  some of them
#   AMX_TRAP_REPORT=1 build-trapped/caravan_trapped generate …      the program itself
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build-trapped}
cmake -S . -B "$build" -G Ninja -DCVN_TRAPPED=ON >/dev/null
ninja -C "$build"
some=$(IFS='|' && echo "$*")
ctest --test-dir "$build" --output-on-failure -R "(${some:-.}).*_trapped|test_kernels_amx"
