/* attention_avx2.c: fused attention with AVX2, FMA and F16C. The half types are converted, a step of keys at a
 * time. The algorithm is in attention_vec.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "ops/attention/attention_kernel.h"
#include "ops/attention/attention_vec.h"
#include "simd/vec_avx2.h"

#include <bstk/layout.h>

#include <float.h>
#include <math.h>
#include <string.h>

#define TILE_ROWS  6
#define TILE_PAIRS 0
#define LOG2E      0x1.71547652b82fep+0

#include "ops/attention/attention_vec_keep.inc"
#include "ops/softmax/dropout_mask.inc"

#define ACC     double
#define ACC_AS  f64
#define LARGEST DBL_MAX
#define VEC     vd
#define V(name) vd_##name
#define SUFFIX  f64
#define TANH    tanh
#include "ops/softmax/score_segment.inc"
#define SUFFIX f64
#include "ops/attention/attention_vec_tile.inc"

#define SUFFIX   f64_avx2
#define VALUE    double
#define VALUE_AS f64
#define SAME     1
#define PAIRS    0
#include "ops/attention/attention_vec.inc"

#undef ACC
#undef ACC_AS
#undef LARGEST
#undef VEC
#undef V
#define ACC     float
#define ACC_AS  f32
#define LARGEST FLT_MAX
#define VEC     vf
#define V(name) vf_##name
#define SUFFIX  f32
#define TANH    tanhf
#include "ops/softmax/score_segment.inc"
#define SUFFIX f32
#include "ops/attention/attention_vec_tile.inc"

#define SUFFIX   f32_avx2
#define VALUE    float
#define VALUE_AS f32
#define SAME     1
#define PAIRS    0
#include "ops/attention/attention_vec.inc"

#define SUFFIX   f16_avx2
#define VALUE    uint16_t
#define VALUE_AS f16
#define SAME     0
#define PAIRS    0
#include "ops/attention/attention_vec.inc"

#define SUFFIX   bf16_avx2
#define VALUE    uint16_t
#define VALUE_AS bf16
#define SAME     0
#define PAIRS    0
#include "ops/attention/attention_vec.inc"
