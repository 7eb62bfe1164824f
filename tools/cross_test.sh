#!/bin/sh
# NEON without an Arm machine: builds for AArch64 with Debian's cross compiler (cmake/aarch64-linux-gnu.cmake) and runs
# under qemu: unit tests of the ops, the problems of every kernel, and which kernel an op chooses. qemu is some 30 times
# slower than the machine: what only takes long is left to the native tests. Ends with "N passed, N failed".
# Usage: [BUILD=build/neon] [JOBS=2] tools/cross_test.sh
set -eu
build=${BUILD:-build/neon}
jobs=${JOBS:-2}
mkdir -p "$build"
log=$build/cross_test.log

# The run-time libraries are enough: headers are the same for all machines, and these links stand for the -dev packages.
libraries=/usr/lib/aarch64-linux-gnu
root=$PWD/$build/root
mkdir -p "$root/lib/pkgconfig"
for pair in libpng16.so.16:libpng.so libz.so.1:libz.so libcmocka.so.0:libcmocka.so; do
    ln -sf "$libraries/${pair%%:*}" "$root/lib/${pair##*:}"
done
printf 'Name: cmocka\nDescription: unit tests\nVersion: 1.1\nLibs: -L%s -lcmocka\n' "$root/lib" >"$root/lib/pkgconfig/cmocka.pc"

echo "== build"
cmake -S . -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" -DCMAKE_PREFIX_PATH="$root" \
    -DBSTK_TESTS=ON -DBSTK_WERROR="${WERROR:-ON}" ${OPTIONS:-} >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$build" -j"$jobs" >"$log" 2>&1 || { grep -E "error|warning|Error" "$log" >&2 || cat "$log" >&2; exit 1; }
bstk="qemu-aarch64 $build/bstk"
passed=0 failed=0
good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $1"; }

echo "== which kernel is chosen"
# chosen CAP PROBLEM KERNEL
chosen() {
    got=$(BSTK_MAX_ISA=$1 $bstk bench "$2" --min-time 0 --repetitions 1 2>&1 | tail -n 1)
    [ "${got##* }" = "$3" ] && good || bad "$2 under $1 ran '${got##* }', expected $3"
}
for type in f64 f32 f16 bf16 f16+f32 bf16+f32; do
    name=$(echo "$type" | sed 's/+/_packed_/')
    for op in sdd dsd dds; do
        chosen neon "$op:$type:b16:m32:n32:k32:ones" "${op}_${name}_neon"
    done
done
for type in f64 f32 f16 bf16; do
    chosen neon "attention:$type:b16:m32:n32:d16:ones" "attention_${type}_neon"
    chosen neon "attention:$type:b16:m32:n32:d16:ones:bwd" "attention_grad_${type}_neon"
    chosen neon "softmax:$type:b16:m32:n32:ones" "softmax_${type}_neon"
    chosen neon "softmax:$type:b16:m32:n32:ones:bwd" "softmax_grad_${type}_neon"
    for op in layernorm rmsnorm; do
        chosen neon "$op:$type:b16:m32:n32:ones" "${op}_${type}_neon"
        chosen neon "$op:$type:b16:m32:n32:ones:bwd" "${op}_grad_${type}_neon"
    done
    chosen scalar "dsd:$type:b16:m32:n32:k32:ones" "dsd_${type}_scalar"
done

echo "== unit tests"
# ..._neon: under that cap, and every plan must run a kernel of NEON.
tests='test_(core|registry|check|ref|schedule|attention_errors|vec_math)$|replay_ops|expect_isa_can_fail'
tests=$tests'|test_(attention_fused|attention_grad|cases_layout|norm|score_terms|softmax_grad|threads)_neon'
(cd "$build" && ctest --output-on-failure -j"$jobs" -R "$tests") | tee "$log" || true # its closing line tells
total=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$log")
wrong=$(sed -n 's/.*passed, \([0-9]*\) tests failed out of .*/\1/p' "$log")
[ "${total:-0}" -gt 0 ] || { echo "cross_test: ctest ran no test" >&2; exit 1; }
passed=$((passed + total - wrong)) failed=$((failed + wrong))

echo "== every kernel against the float64 reference"
results=$build/kernels
rm -rf "$results"
mkdir -p "$results"
$bstk kernels | awk 'NR > 1 {print $1, $NF}' >"$log"
[ "$(grep -c '_neon yes$' "$log")" -gt 0 ] || bad "no kernel for NEON is available"
{ cut -d' ' -f1 "$log"; printf '%s\n' composed sdd_grad dsd_grad dds_grad; } |
    xargs -n 1 -P "$jobs" sh -c '
        variants=1
        case $2 in *_neon*) variants=2 ;; esac
        qemu-aarch64 "$1/bstk" check --variants $variants --kernel "$2" >"$1/kernels/$2" 2>&1 || true
        grep -h " pass$\| FAIL$" "$1/kernels/$2" || true' cross_test "$build"
for result in "$results"/*; do
    tail -n 1 "$result" | grep -q '^[1-9][0-9]* passed, 0 failed$' && good ||
        { bad "${result##*/}"; grep -v "^kernel\| FAIL$" "$result"; }
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
