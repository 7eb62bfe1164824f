/* attention_grad_avx512_bf16.c: gradient of attention of bf16 with vdpbf16ps, which adds two products in one
 * instruction. It takes and gives subnormal numbers as 0; weights and ds are rounded to bf16; see docs/numerics.md. The
 * algorithm is in attention_grad_vec.inc. */
#include "ops/attention/attention_grad_vec.h"
#include "simd/vec_avx512.h"

#include "ops/softmax/dropout_mask.inc"

#define TILE_PAIRS 1
#define TILE_ROWS  8

#define ACC     float
#define VEC     vf
#define V(name) vf_##name

#define SUFFIX f32
#define TANH   tanhf
#include "ops/softmax/score_segment.inc"
#define SUFFIX pairs
#include "ops/attention/attention_vec_tile.inc"

#define SCORE_SEGMENT score_segment_f32
#define TILE_OF_ACC   tile_pairs
#define PRODUCT       tile_product_pairs

#define SUFFIX bf16_avx512_bf16
#define SCALAR attention_grad_bf16_avx512
#define VALUE  uint16_t
#define GET    vf_get_bf16
#define PUT    vf_put_bf16
#define SAME   0
#define PAIRS  1
#include "ops/attention/attention_grad_vec.inc"
