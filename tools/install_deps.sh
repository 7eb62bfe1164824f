#!/bin/sh
# Makes sure that what the build (`build`), the tests (`test`), the whole check of CI (`check`) or the tests for Arm under
# qemu (`cross`, on Debian 12) need is there. As root on a Debian-like system missing packages are installed; elsewhere
# they are named in one line with the command that installs them, and it fails.
# Usage: tools/install_deps.sh build|test|check|cross
set -eu

what=${1:-build}
missing=

# need PACKAGE COMMAND...: the package is needed unless the command (a cheap probe) succeeds.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

header() { printf '#include <stddef.h>\n#include <stdio.h>\n%s\n' "$1" | cc -E -x c - ; }

cmake_is_new_enough() {
    version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    # shellcheck disable=SC2086
    set -- $version
    [ $# -eq 2 ] && { [ "$1" -gt 3 ] || { [ "$1" -eq 3 ] && [ "$2" -ge 25 ]; }; }
}

# The fuzzer's run-time library comes apart from clang.
fuzzer_runtime() { ls "$(clang -print-resource-dir)"/lib/linux/libclang_rt.fuzzer-* 2>/dev/null | grep -q .; }

need gcc command -v cc
need make command -v make
need cmake cmake_is_new_enough
need libpng-dev header '#include <png.h>'
if [ "$what" != build ]; then
    need g++ command -v c++
    need pkg-config command -v pkg-config
    need libcmocka-dev header '#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>'
    need python3 command -v python3
    python_has() { /usr/bin/python3 -c "import $1" || python3 -c "import $1"; }
    need python3-pytest python_has pytest
    need python3-hypothesis python_has hypothesis
    need python3-torch python_has torch
    need python3-scipy python_has scipy
    need python3-matplotlib python_has matplotlib
    need python3-numpy sh -c '/usr/bin/python3 -c "import numpy" || python3 -c "import numpy"'
fi
if [ "$what" = check ]; then
    need git command -v git
    need clang command -v clang
    need libclang-rt-14-dev fuzzer_runtime
    need clang-format command -v clang-format
    need cppcheck command -v cppcheck
    need mypy command -v mypy
    need python3-venv python3 -c 'import ensurepip'
fi
if [ "$what" = cross ]; then
    libraries=/usr/lib/aarch64-linux-gnu
    need gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdio.h
    need qemu-user command -v qemu-aarch64
    need libpng16-16:arm64 test -e $libraries/libpng16.so.16
    need libcmocka0:arm64 test -e $libraries/libcmocka.so.0
fi
[ -z "$missing" ] && exit 0
case $missing in *:arm64*) architecture="dpkg --add-architecture arm64" ;; *) architecture= ;; esac

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$missing" >&2
    $architecture
    apt-get update -qq >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    exit 0
fi
echo "missing:$missing; install with: ${architecture:+sudo $architecture && }sudo apt-get install$missing (or your system's packages of that kind)" >&2
exit 1
