#!/bin/sh
# Holds every object of the library to the instructions that its name allows, so that no CPU meets one it has not got:
#   *_avx512_bf16.c.o  everything;  *_avx512.c.o  no dot products of bf16;  *_avx2.c.o  no zmm, no mask or high register;
#   all others         nothing of AVX at all (no ymm, zmm or v... instruction)
# Usage: tools/check_instructions.sh BUILD_DIR; prints what leaks and exits 1. --self-test shows that it sees leaks.
# Elsewhere than on x86-64 there is nothing to hold: exits 77.
set -u

# Lines of a disassembly on standard input that the class $1 does not allow. An instruction is the third field between
# tabs; a name in <...> behind it is no operand.
leaks() {
    awk -F '\t' -v class="$1" '
        NF < 3 || $1 !~ /^ *[0-9a-f]+:/ { next }
        {
            code = $3; sub(/<.*/, "", code); sub(/#.*/, "", code)
            name = code; sub(/ .*/, "", name)
            bf16 = name ~ /^v(dpbf16ps|cvtne2?ps2bf16|cvtneps2bf16)/
            avx512 = code ~ /%zmm|%k[0-7]|\{%k|\{z\}|\{1to|%[xy]mm(1[6-9]|2[0-9]|3[01])/
            avx = code ~ /%ymm/ || (name ~ /^v/ && name !~ /^ver[rw]$/ && code ~ /%xmm/) || name ~ /^vzero/
            if ((class == "avx512" && bf16) || (class == "avx2" && (avx512 || bf16)) ||
                (class == "none" && (avx || avx512 || bf16)))
                print "    " $0
        }'
}

class_of() {
    case $1 in
    *_avx512_bf16.c.o) echo all ;;
    *_avx512.c.o) echo avx512 ;;
    *_avx2.c.o) echo avx2 ;;
    *) echo none ;;
    esac
}

# Checks the objects below $1; 0 when all are clean.
check() {
    bad=0
    objects=$(find "$1" -path '*bstk_objects.dir*' -name '*.o' | sort)
    [ -n "$objects" ] || { echo "check_instructions: no objects of the library in $1" >&2; return 2; }
    count=0
    for object in $objects; do
        count=$((count + 1))
        class=$(class_of "$object")
        [ "$class" = all ] && continue
        found=$(objdump -d --no-show-raw-insn "$object" | sed 's/^\( *[0-9a-f]*:\)\t/\1\t\t/' | leaks "$class" | head -n 3)
        if [ -n "$found" ]; then
            echo "check_instructions: $object may not have" >&2
            echo "$found" >&2
            bad=1
        fi
    done
    [ "$bad" -eq 0 ] && echo "no instruction leaks in $count objects"
    return "$bad"
}

# Objects with a leak each, made by the compiler, must be refused, and the same under their right name taken.
self_test() {
    where=$(mktemp -d)
    trap 'rm -rf "$where"' EXIT
    dir=$where/bstk_objects.dir
    mkdir "$dir"
    compile() { ${CC:-cc} -O1 -c -x c -o "$dir/$1" "$2" - || exit 1; }
    expect() { # status, what
        check "$where" >"$where/log" 2>&1
        [ $? -eq "$1" ] || { echo "check_instructions: self-test: $2" >&2; cat "$where/log" >&2; exit 1; }
        rm -f "$dir"/*.o
    }
    wide='typedef float v __attribute__((vector_size(64))); void f(v *a) { *a += *a; }'
    half='typedef float v __attribute__((vector_size(32))); void f(v *a) { *a += *a; }'
    one='float f(float a) { return a + a; }'
    dot='void f(void) { __asm__("vdpbf16ps %zmm0, %zmm1, %zmm2"); }'
    echo "$wide" | compile x_avx512.c.o -mavx512f; expect 0 "AVX-512 refused in its object"
    echo "$wide" | compile x_avx2.c.o -mavx512f; expect 1 "AVX-512 taken in an AVX2 object"
    echo "$wide" | compile x_scalar.c.o -mavx512f; expect 1 "AVX-512 taken in a scalar object"
    echo "$half" | compile x_avx2.c.o -mavx2; expect 0 "AVX2 refused in its object"
    echo "$half" | compile x_plan.c.o -mavx2; expect 1 "AVX2 taken in a plan"
    echo "$one" | compile x_plan.c.o -mavx; expect 1 "VEX of xmm taken in a plan"
    echo "$one" | compile x_plan.c.o -msse2; expect 0 "SSE2 refused in a plan"
    echo "$dot" | compile x_avx512.c.o -mavx512f; expect 1 "a dot product of bf16 taken in an AVX-512 object"
    echo "$dot" | compile x_avx512_bf16.c.o -mavx512f; expect 0 "a dot product of bf16 refused in its object"
    expect 2 "an empty folder passed"
    echo "the check of instructions sees leaks"
}

case $(uname -m) in
x86_64 | amd64) ;;
*) echo "[  SKIPPED ] check of instructions: not on $(uname -m)"; exit 77 ;;
esac
command -v objdump >/dev/null || { echo "[  SKIPPED ] check of instructions: there is no objdump"; exit 77; }
if [ "${1-}" = --self-test ]; then
    self_test
else
    check "${1:?usage: tools/check_instructions.sh BUILD_DIR | --self-test}"
fi
