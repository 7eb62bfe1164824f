# Toolchain file: for 64-bit Arm with Debian's cross compiler; programs run under qemu (tools/cross_test.sh).
#   cmake -S . -B build/neon -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
find_program(BSTK_QEMU qemu-aarch64)
set(CMAKE_CROSSCOMPILING_EMULATOR ${BSTK_QEMU})
