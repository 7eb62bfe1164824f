#!/bin/sh
# Runs every libFuzzer target for FUZZ_SECONDS (30) from its corpus; a crash leaves its input in build/fuzz and fails.
set -eu
seconds=${FUZZ_SECONDS:-30}
build=build/fuzz
log=$(mktemp)
trap 'rm -f "$log"' EXIT
CC=clang cmake -S . -B $build -DBSTK_FUZZ=ON -DBSTK_TOOL=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DBSTK_SANITIZE=address,undefined >"$log" 2>&1 || { cat "$log"; exit 1; }
cmake --build $build -j"${JOBS:-2}" >"$log" 2>&1 || { cat "$log"; exit 1; }
found=0
for target in $build/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    mkdir -p "$build/corpus/$name"
    echo "== $name: $seconds s"
    "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="$build/" "$build/corpus/$name" "fuzz/corpus/${name#fuzz_}" >"$log" 2>&1 || { tail -n 40 "$log"; exit 1; }
    grep -E 'stat::number_of_executed_units' "$log" || true
    found=$((found + 1))
done
[ "$found" -gt 0 ] || { echo "fuzz: no target was built" >&2; exit 1; }
