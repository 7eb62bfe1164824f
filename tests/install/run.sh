#!/bin/sh
# Installs a build into a fresh prefix and uses it as a stranger would: CMake package, pkg-config, C, C++, man page.
# Also: exported symbols are exactly those of abi/symbols.txt, and every header compiles alone as C11 and C++17.
# Usage: tests/install/run.sh BUILD_DIR SOURCE_DIR
set -eu
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
fail() { echo "install test: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; fail "cmake --install"; }
libdir=$(dirname "$(find "$prefix" -name 'libbstk.so' | head -n 1)")
[ -e "$libdir/libbstk.so.0" ] || fail "no libbstk.so.0 (SOVERSION) in $libdir"

nm -D --defined-only "$libdir/libbstk.so" | awk '$2 ~ /[TDBR]/ {print $3}' | sort >"$work/symbols.txt"
diff -u "$source/abi/symbols.txt" "$work/symbols.txt" || fail "exported symbols differ from abi/symbols.txt"
# Names of functions declared in the headers must be what is exported.
cat "$prefix"/include/bstk/*.h | tr '\n' ' ' | grep -o 'BSTK_API[^;]*;' | grep -o 'bstk_[a-z_0-9]*(' | tr -d '(' |
    sort -u >"$work/declared.txt"
diff -u "$work/declared.txt" "$work/symbols.txt" || fail "declared and exported functions differ"

for header in "$prefix"/include/bstk/*.h; do
    printf '#include <bstk/%s>\nint not_empty;\n' "$(basename "$header")" >"$work/one.c"
    cp "$work/one.c" "$work/one.cpp"
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -c "$work/one.c" -o "$work/one.o"
    c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -c "$work/one.cpp" -o "$work/one.o"
done

cmake -S "$source/tests/install" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 &&
    cmake --build "$work/cmake" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "CMake consumer"; }
"$work/cmake/consumer_c"
"$work/cmake/consumer_cxx"

PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs bstk)
# shellcheck disable=SC2086
cc -std=c11 "$source/tests/install/consumer.c" -o "$work/consumer_pc" $flags
LD_LIBRARY_PATH=$libdir "$work/consumer_pc"

[ -x "$prefix/bin/bstk" ] || fail "no bin/bstk"
"$prefix/bin/bstk" --version >/dev/null || fail "the installed tool does not start"
[ -e "$prefix/share/man/man1/bstk.1" ] || fail "no man page"
echo "install test passed"
