#!/bin/sh
# Formatting, static analysis, layering, file rules. Prints what is wrong; exits 1 when anything is.
set -u
status=0
step() { echo "lint: $1"; }
wrong() { echo "lint: $1" >&2; status=1; }

step "clang-format"
git ls-files -- '*.c' '*.h' '*.cpp' | xargs clang-format --dry-run -Werror || wrong "run clang-format -i on the files above"

step "cppcheck"
# The ctu and redundant-check reports do not know that fail() never returns, nor that an error text is for writing: all
# that they say here is false. An enum that a loop stops at is no index either, and scratch is cut into
# regions of several types on purpose.
cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability \
    --suppress=unknownMacro --suppress=preprocessorErrorDirective --suppress=ctunullpointer --suppress=ctuuninitvar -D_POSIX_C_SOURCE=200809L --suppress=nullPointerRedundantCheck --suppress=arrayIndexOutOfBoundsCond --suppress=invalidPointerCast -DNAN=nan_value -DINFINITY=infinite_value \
    -Iinclude -Isrc src tools/bstk || wrong "cppcheck"

step "include arrows"
tools/check_layers.py || wrong "include arrows"

step "mypy"
mypy --no-error-summary || wrong "mypy"

step "files"
git ls-files -- '*.c' '*.h' '*.inc' '*.def' '*.py' '*.sh' | xargs wc -l | awk '$2 != "total" && $1 > 800 {print $2, $1; bad = 1} END {exit bad}' ||
    wrong "files over 800 lines"
repeated=$(git ls-files -- 'src/*' 'tools/bstk/*' 'tests/*.c' 'fuzz/*.c' | sed 's|.*/||' | grep -v '^CMakeLists.txt$' | sort | uniq -d)
[ -z "$repeated" ] || wrong "file names that occur twice: $repeated"
git grep -nE '\b(TO[D]O|FIX[M]E|X[X]X)\b' -- ':!*.md' && wrong "unfinished work is marked in code"
git ls-files -- '*.sh' 'Makefile' '.ci/run' | while read -r file; do
    case $file in
    Makefile) ;;
    *) head -n 1 "$file" | grep -q bash && shell=bash || shell=sh; $shell -n "$file" || exit 1 ;;
    esac
done || wrong "a shell script does not parse"
exit $status
