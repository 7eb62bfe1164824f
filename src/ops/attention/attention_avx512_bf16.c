/* attention_avx512_bf16.c: fused attention of bf16 with vdpbf16ps, which adds two products in one instruction. It takes
 * and gives subnormal numbers as 0; weights are rounded to bf16; see docs/numerics.md. The algorithm is in
 * attention_vec.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "ops/attention/attention_kernel.h"
#include "ops/attention/attention_vec.h"
#include "simd/vec_avx512.h"

#include <bstk/layout.h>

#include <float.h>
#include <math.h>
#include <string.h>

#define TILE_ROWS 8
#define LOG2E     0x1.71547652b82fep+0

#include "ops/attention/attention_vec_keep.inc"
#include "ops/softmax/dropout_mask.inc"

#define ACC     float
#define ACC_AS  f32
#define LARGEST FLT_MAX
#define VEC     vf
#define V(name) vf_##name
#define SUFFIX  f32
#define TANH    tanhf
#include "ops/softmax/score_segment.inc"

#define TILE_PAIRS 1
#define SUFFIX     pairs
#include "ops/attention/attention_vec_tile.inc"

#define SUFFIX   bf16_avx512_bf16
#define VALUE    uint16_t
#define VALUE_AS bf16
#define SAME     0
#define PAIRS    1
#include "ops/attention/attention_vec.inc"
