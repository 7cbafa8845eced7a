#!/usr/bin/env bash
# test.sh FOLDER: runs the tests of a build folder. The last line is "N passed, N failed[, N skipped]"
# and counts test programs; single tests that were skipped inside of them are named above it. Where up to
# three programs fail, each is run once more, alone: a machine that is too busy must not look like a defect.
# What passes then is named, for it depends on time, and a test should not.
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
again=()
failures=$(grep -cE "^ *[0-9]+/[0-9]+ +Test +#.*\*\*\*(Failed|Timeout|Exception)" "$log")
if [ "$code" != 0 ] && [ "$failures" -gt 0 ] && [ "$failures" -le 3 ]; then
    echo "Once more, what failed:"
    ctest --test-dir "$folder" --output-on-failure --rerun-failed ${CTEST_ARGS-} | tee "$log.again"
    code=${PIPESTATUS[0]}
    mapfile -t again < <(sed -nE 's/^ *[0-9]+\/[0-9]+ +Test +#[0-9]+: +([^ ]+).* Passed .*/\1/p' "$log.again")
fi
count() { grep -cE "^ *[0-9]+/[0-9]+ +Test +#.* $1" "$log"; }
passed=$(count 'Passed') skipped=$(count '\*\*\*Skipped')
total=$(sed -n 's/^.* tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -n 1)
passed=$((passed + ${#again[@]}))
failed=$((${total:-0} - passed - skipped))
[ ${#again[@]} = 0 ] || echo "Passed only the second time: ${again[*]}"
if [ "${total:-0}" = 0 ]; then
    echo "No tests were run in $folder."
    code=1
fi
echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
[ "$code" = 0 ] && [ "$failed" = 0 ]
