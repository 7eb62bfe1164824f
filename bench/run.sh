#!/bin/bash
# Runs the speed table of the CPU with every peer that is found; writes bench/results/DATE-CPU[-Tthreads].json and .png.
# Usage: bench/run.sh [THREADS [BENCH-OPTION...]]; the tool is BSTK (build/bstk).
set -euo pipefail
cd "$(dirname "$0")/.."
threads=${1:-1}
shift || true
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
name=bench/results/$(date -u +%Y-%m-%d)-${cpu:-unknown}
command=("${BSTK:-build/bstk}" bench bench/problems/cpu.txt --threads "$threads" --peer all)
if [ "$threads" = 1 ]; then
    command=(taskset -c "$(($(nproc) - 1))" "${command[@]}")
else
    name=$name-${threads}threads
fi
exec "${command[@]}" --json "$name.json" --plot "$name.png" "$@"
