/*
 * matmul_neon.c: sdd, dsd and dds with NEON, for every pair of types. Tiles are 8 rows x 2 vectors: 16 sums hide the
 * latency of four multiply-adds a cycle, and leave registers for 4 steps of 8 rows (bench/notes/neon.md). The half
 * types are converted as they are packed. The algorithm is in matmul_vec.inc.
 */
#include "core/checked.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/matmul_vec.h"
#include "simd/vec_neon.h"

#include <string.h>

#define ROWS    8
#define VECS    2
#define PAIRS   0
#define BY_LANE 1

#define ACC     double
#define ACC_AS  f64
#define VEC     vd
#define V(name) vd_##name

#define SUFFIX      f64_neon
#define DENSE       double
#define DENSE_AS    f64
#define DENSE_SAME  1
#define PACKED      double
#define PACKED_AS   f64
#define PACKED_SAME 1
#include "ops/matmul/matmul_vec.inc"

#undef ACC
#undef ACC_AS
#undef VEC
#undef V
#define ACC     float
#define ACC_AS  f32
#define VEC     vf
#define V(name) vf_##name

#define SUFFIX      f32_neon
#define DENSE       float
#define DENSE_AS    f32
#define DENSE_SAME  1
#define PACKED      float
#define PACKED_AS   f32
#define PACKED_SAME 1
#include "ops/matmul/matmul_vec.inc"

#define SUFFIX      f16_neon
#define DENSE       uint16_t
#define DENSE_AS    f16
#define DENSE_SAME  0
#define PACKED      uint16_t
#define PACKED_AS   f16
#define PACKED_SAME 0
#include "ops/matmul/matmul_vec.inc"

#define SUFFIX      bf16_neon
#define DENSE       uint16_t
#define DENSE_AS    bf16
#define DENSE_SAME  0
#define PACKED      uint16_t
#define PACKED_AS   bf16
#define PACKED_SAME 0
#include "ops/matmul/matmul_vec.inc"

#define SUFFIX      f16_packed_f32_neon
#define DENSE       uint16_t
#define DENSE_AS    f16
#define DENSE_SAME  0
#define PACKED      float
#define PACKED_AS   f32
#define PACKED_SAME 1
#include "ops/matmul/matmul_vec.inc"

#define SUFFIX      bf16_packed_f32_neon
#define DENSE       uint16_t
#define DENSE_AS    bf16
#define DENSE_SAME  0
#define PACKED      float
#define PACKED_AS   f32
#define PACKED_SAME 1
#include "ops/matmul/matmul_vec.inc"
