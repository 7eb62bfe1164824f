#!/bin/sh
# All tests again under AddressSanitizer + UndefinedBehaviorSanitizer, then those with threads under ThreadSanitizer. Not
# the runs under each cap: test_rows runs the kernels of every instruction set here already, and they would take 25 minutes.
set -eu
export JOBS="${JOBS:-2}" TYPE=RelWithDebInfo WERROR=OFF
echo "== ASan + UBSan"
ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    BUILD=build/asan OPTIONS="-DBSTK_SANITIZE=address,undefined" tools/run_tests.sh -LE "install|isa"
echo "== TSan"
BUILD=build/tsan OPTIONS="-DBSTK_SANITIZE=thread" tools/run_tests.sh -L threads
