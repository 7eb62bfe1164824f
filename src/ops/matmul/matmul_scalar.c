/* matmul_scalar.c: portable sdd, dsd and dds for every pair of types. The algorithm is in matmul_scalar.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "ops/matmul/matmul_kernel.h"

#include <string.h>

enum { TILE_ROWS = 8, TILE_COLS = 64, TILE_K = 32 };

#define SAME(x) (x)

#define SUFFIX       f64_scalar
#define ACC          double
#define DENSE        double
#define DENSE_LOAD   SAME
#define DENSE_STORE  SAME
#define PACKED       double
#define PACKED_LOAD  SAME
#define PACKED_STORE SAME
#include "ops/matmul/matmul_scalar.inc"

#define SUFFIX       f32_scalar
#define ACC          float
#define DENSE        float
#define DENSE_LOAD   SAME
#define DENSE_STORE  SAME
#define PACKED       float
#define PACKED_LOAD  SAME
#define PACKED_STORE SAME
#include "ops/matmul/matmul_scalar.inc"

#define SUFFIX       f16_scalar
#define ACC          float
#define DENSE        uint16_t
#define DENSE_LOAD   bstk__f16_to_f32
#define DENSE_STORE  bstk__f32_to_f16
#define PACKED       uint16_t
#define PACKED_LOAD  bstk__f16_to_f32
#define PACKED_STORE bstk__f32_to_f16
#include "ops/matmul/matmul_scalar.inc"

#define SUFFIX       bf16_scalar
#define ACC          float
#define DENSE        uint16_t
#define DENSE_LOAD   bstk__bf16_to_f32
#define DENSE_STORE  bstk__f32_to_bf16
#define PACKED       uint16_t
#define PACKED_LOAD  bstk__bf16_to_f32
#define PACKED_STORE bstk__f32_to_bf16
#include "ops/matmul/matmul_scalar.inc"

#define SUFFIX       f16_packed_f32_scalar
#define ACC          float
#define DENSE        uint16_t
#define DENSE_LOAD   bstk__f16_to_f32
#define DENSE_STORE  bstk__f32_to_f16
#define PACKED       float
#define PACKED_LOAD  SAME
#define PACKED_STORE SAME
#include "ops/matmul/matmul_scalar.inc"

#define SUFFIX       bf16_packed_f32_scalar
#define ACC          float
#define DENSE        uint16_t
#define DENSE_LOAD   bstk__bf16_to_f32
#define DENSE_STORE  bstk__f32_to_bf16
#define PACKED       float
#define PACKED_LOAD  SAME
#define PACKED_STORE SAME
#include "ops/matmul/matmul_scalar.inc"
