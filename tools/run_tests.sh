#!/bin/sh
# Builds the tests beside the release build and runs them all. Ends with "N passed, N failed".
# Usage: [BUILD=build] [JOBS=2] [OPTIONS="-DBSTK_SANITIZE=..."] tools/run_tests.sh [ctest arguments]
set -eu
build=${BUILD:-build}/tests
jobs=${JOBS:-2}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086
cmake -S . -B "$build" -DBSTK_TESTS=ON -DCMAKE_BUILD_TYPE="${TYPE:-Release}" -DBSTK_WERROR="${WERROR:-ON}" ${OPTIONS:-} >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
cmake --build "$build" -j"$jobs" >"$log" 2>&1 || { grep -E "error|warning|Error" "$log" >&2 || cat "$log" >&2; exit 1; }

status=0
(cd "$build" && ctest --output-on-failure -j"$jobs" "$@") | tee "$log" || status=$?
# The pipe hides ctest's status: its closing line does not.
total=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$log")
failed=$(sed -n 's/.*passed, \([0-9]*\) tests failed out of .*/\1/p' "$log")
[ -n "$total" ] && [ "$total" -gt 0 ] || { echo "run_tests: ctest ran no test" >&2; exit 1; }
# What a test left out inside itself (too large under a sanitizer) is named.
grep -hE '\[  SKIPPED \] [a-z]|^SKIPPED' "$build/Testing/Temporary/LastTest.log" | sort -u || true
echo "$((total - failed)) passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$status" -eq 0 ]
