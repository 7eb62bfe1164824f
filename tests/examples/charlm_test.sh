#!/bin/sh
# The example charlm: a short training run within its band, the same bits again and with other threads, files, samples,
# and what it refuses. Usage: charlm_test.sh CHARLM; runs in the project's root.
set -eu
charlm=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $1" >&2; exit 1; }
field() { sed -n "s/^$1: \([^ ]*\).*/\1/p" "$2"; }
refused() { # exit status, what the line must name, arguments
    want=$1 what=$2
    shift 2
    status=0
    "$charlm" "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ "$status" -eq "$want" ] || fail "charlm $*: exit $status, expected $want"
    grep -q "^charlm: .*$what" "$dir/err" && [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "charlm $*: $(cat "$dir/err")"
}

head -c 81920 examples/data/charlm_text.txt >"$dir/text" # 20 pieces, 2 of them for validation

run() { "$charlm" --text "$dir/text" --context 256 --steps 40 --seed 1 "$@"; }
run --threads 2 --save "$dir/model.bin" >"$dir/first"
run --threads 1 >"$dir/second"
run --threads 2 >"$dir/third"
bits=$(field validation "$dir/first")
# The band that README.md of the example documents; it was 4.551 where that was written.
awk -v b="$bits" 'BEGIN { exit !(b > 4.35 && b < 4.75) }' || fail "$bits bits/byte after 40 steps"
for other in second third; do
    [ "$(field parameters "$dir/first")" = "$(field parameters "$dir/$other")" ] || fail "other bits: $other"
done

# A saved model is the trained one, rounded to float16.
"$charlm" --text "$dir/text" --load "$dir/model.bin" >"$dir/loaded"
awk -v a="$bits" -v b="$(field validation "$dir/loaded")" 'BEGIN { d = a - b; exit !(d < 0.01 && d > -0.01) }' ||
    fail "the saved model has $(field validation "$dir/loaded") bits/byte, the trained one $bits"
[ ! -e "$dir/model.bin.tmp" ] || fail "a temporary file is left"

# The weights that come with the example: sampled past the end of a window, the same text from the same seed.
"$charlm" --load examples/data/charlm.bin --sample 60 --prompt "/* " --seed 3 --threads 1 >"$dir/sample1"
"$charlm" --load examples/data/charlm.bin --sample 60 --prompt "/* " --seed 3 --threads 2 >"$dir/sample2"
cmp -s "$dir/sample1" "$dir/sample2" || fail "two samples from one seed differ"
[ "$(wc -c <"$dir/sample1")" -eq 64 ] || fail "a sample of 60 bytes, a prompt of 3 and a newline: $(wc -c <"$dir/sample1")"
"$charlm" --load examples/data/charlm.bin --sample 200 >"$dir/words" # it has learned more than blanks
[ "$(tr -d ' \n' <"$dir/words" | wc -c)" -gt 60 ] || fail "a sample of blanks: $(cat "$dir/words")"
"$charlm" --load "$dir/model.bin" --sample 400 --temperature 0 >"$dir/long" # the window has 256
[ "$(wc -c <"$dir/long")" -eq 401 ] || fail "a sample longer than the window"

head -c 5000 "$dir/model.bin" >"$dir/short.bin"
printf 'x' | cat "$dir/model.bin" - >"$dir/long.bin"
head -c 64 "$dir/model.bin" | sed 's/CHARLM1/CHARLM9/' >"$dir/magic.bin"
refused 1 "has less than" --load "$dir/short.bin" --sample 1
refused 1 "has more than" --load "$dir/long.bin" --sample 1
refused 1 "is not a model" --load "$dir/magic.bin" --sample 1
refused 1 "none.bin" --load "$dir/none.bin" --sample 1
refused 1 "no.txt" --text "$dir/no.txt" --steps 1
refused 1 "validation text has" --text "$dir/text" --context 8192 --steps 0
refused 1 "training text has" --text "$dir/long" --context 512 --steps 1
refused 1 "cannot write" --text "$dir/text" --context 64 --steps 0 --save "$dir/none/model.bin"
refused 2 "expected 0 to" --steps -1
refused 2 "sparse or dense" --attention wide
refused 2 "unknown option" --wrong 1
echo "charlm: $bits bits/byte after 40 steps, same bits, files, samples"
