#!/bin/sh
# All tests again under AddressSanitizer + UndefinedBehaviorSanitizer, then those with threads under ThreadSanitizer.
# OpenMP's runtime is not instrumented: under TSan the library is built without it and the tests bring pthreads.
set -eu
export JOBS="${JOBS:-2}" TYPE=RelWithDebInfo WERROR=OFF
echo "== ASan + UBSan"
ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    BUILD=build/asan OPTIONS="-DBSTK_SANITIZE=address,undefined" tools/run_tests.sh -LE install
echo "== TSan"
BUILD=build/tsan OPTIONS="-DBSTK_SANITIZE=thread -DBSTK_OPENMP=OFF" tools/run_tests.sh -L threads
