/* convert_scalar.c: portable pack and unpack. Types of one size share a body, convert_scalar.inc. */
#include "core/checked.h"
#include "ops/convert/convert_kernel.h"

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
