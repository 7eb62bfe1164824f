#!/bin/bash
# peers_here_test.sh TOOL PROBLEMS: every peer that this machine has must do something of the list, and do it right; one
# that is not used is named as skipped.
set -u
tool=$(realpath "$1") problems=$(realpath "$2")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export LC_ALL=C
failed=0
for peer in openblas libxsmm mkl onednn scipy torch; do
    if ! "$tool" bench "$problems" --threads 1 --peer $peer --min-time 0 --repetitions 1 >out 2>&1; then
        echo "$peer: bench failed: $(tail -n 1 out)"
        failed=1
    elif grep -q "^peer $peer: not used" out; then
        echo "[  SKIPPED ] peers_here: $(sed -n 's/^peer //p' out)"
    elif grep 'wrong result\|process ended' out; then
        failed=1
    elif ! grep -q "^    $peer.* x " out; then
        echo "$peer: is here, but has no ratio"
        failed=1
    fi
done
exit $failed
