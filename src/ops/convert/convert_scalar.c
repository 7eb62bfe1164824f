/* convert_scalar.c: portable pack and unpack. Types of one size share a body, convert_scalar.inc. */
#include "core/checked.h"
#include "ops/convert/convert_kernel.h"

#include <stdbool.h>
#include <string.h>

enum { AHEAD = 4 }; /* rows of a block that unpack asks for before it reads them */

/* The rows of a block: `bytes` of each, rows that lie to_row and from_row bytes apart. What lies `next` bytes further
 * on is asked for, since a block is too short for the hardware to see where the copy goes. */
static inline __attribute__((always_inline)) void copy_each(char *to, int64_t to_row, const char *from,
                                                            int64_t from_row, int64_t rows, const int64_t bytes,
                                                            int64_t next) {
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) {
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(from + next + at, 0, 2);
        memcpy(to, from, (size_t)bytes);
    }
}

/* Of the sizes that whole blocks have most often the compiler knows the length. */
static void copy_rows(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t rows, int64_t bytes,
                      int64_t next) {
    switch (bytes) {
    case 32:
        copy_each(to, to_row, from, from_row, rows, 32, next);
        break;
    case 64:
        copy_each(to, to_row, from, from_row, rows, 64, next);
        break;
    case 128:
        copy_each(to, to_row, from, from_row, rows, 128, next);
        break;
    case 256:
        copy_each(to, to_row, from, from_row, rows, 256, next);
        break;
    default:
        copy_each(to, to_row, from, from_row, rows, bytes, next);
        break;
    }
}

static void clear_rows(void *to, int64_t to_row, int64_t rows, int64_t bytes) {
    for (int64_t r = 0; bytes > 0 && r < rows; r++)
        memset((char *)to + r * to_row, 0, (size_t)bytes);
}

#define SUFFIX  bits64
#define ELEMENT uint64_t
#include "ops/convert/convert_scalar.inc"

#define SUFFIX  bits32
#define ELEMENT uint32_t
#include "ops/convert/convert_scalar.inc"

#define SUFFIX  bits16
#define ELEMENT uint16_t
#include "ops/convert/convert_scalar.inc"

#define KERNEL(name, body)                                                                                             \
    void name(const void *args, int64_t begin, int64_t end, void *scratch) {                                           \
        (void)scratch;                                                                                                 \
        body(args, begin, end);                                                                                        \
    }

KERNEL(pack_f64_scalar, pack_bits64)
KERNEL(pack_f32_scalar, pack_bits32)
KERNEL(pack_f16_scalar, pack_bits16)
KERNEL(pack_bf16_scalar, pack_bits16)
KERNEL(unpack_f64_scalar, unpack_bits64)
KERNEL(unpack_f32_scalar, unpack_bits32)
KERNEL(unpack_f16_scalar, unpack_bits16)
KERNEL(unpack_bf16_scalar, unpack_bits16)
