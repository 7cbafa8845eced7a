#!/usr/bin/env bash
# test.sh FOLDER: runs the tests of a build folder. The last line is "N passed, N failed[, N skipped]"
# and counts test programs; single tests that were skipped inside of them are named above it.
set -uo pipefail
folder=$1
# Tests ask for more memory than there is, to see it refused; the sanitizers would end the program.
export ASAN_OPTIONS=${ASAN_OPTIONS-allocator_may_return_null=1}
export TSAN_OPTIONS=${TSAN_OPTIONS-allocator_may_return_null=1}
log=$folder/test.log
# One more than processors: tests of several processes spend much of their time waiting.
jobs=${JOBS:-$(nproc 2>/dev/null || echo 1)}
ctest --test-dir "$folder" --output-on-failure -j"$((jobs + 1))" ${CTEST_ARGS-} | tee "$log"
code=${PIPESTATUS[0]}

inside=$(sed -n 's/^\[  SKIPPED \] \([a-z].*\)/\1/p' "$folder/Testing/Temporary/LastTest.log" 2>/dev/null | sort -u)
if [ -n "$inside" ]; then
    echo "Skipped for want of data or hardware:"
    sed 's/^/  /' <<<"$inside"
fi
count() { grep -cE "^ *[0-9]+/[0-9]+ +Test +#.* $1" "$log"; }
passed=$(count 'Passed') skipped=$(count '\*\*\*Skipped')
total=$(sed -n 's/^.* tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -n 1)
failed=$((${total:-0} - passed - skipped))
if [ "${total:-0}" = 0 ]; then
    echo "No tests were run in $folder."
    code=1
fi
echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
[ "$code" = 0 ] && [ "$failed" = 0 ]
