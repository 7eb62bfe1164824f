/* attention_grad_avx512.c: gradient of attention with AVX-512 F, BW, DQ and VL, for every type. The algorithm is in
 * attention_grad_vec.inc. */
#include "ops/attention/attention_grad_vec.h"
#include "simd/vec_avx512.h"

#include "ops/attention/attention_grad_store.inc"
#include "ops/softmax/dropout_mask.inc"

#define TILE_PAIRS 0
#define TILE_ROWS  8

#define ACC     double
#define VEC     vd
#define V(name) vd_##name

#define SUFFIX f64
#define TANH   tanh
#include "ops/softmax/score_segment.inc"
#define SUFFIX f64
#include "ops/attention/attention_vec_tile.inc"

#define SCORE_SEGMENT score_segment_f64
#define TILE_OF_ACC   tile_f64
#define PRODUCT       tile_product_f64

#define SUFFIX f64_avx512
#define SCALAR attention_grad_f64_scalar
#define VALUE  double
#define GET    vd_get_f64
#define PUT    vd_put_f64
#define SAME   1
#define PAIRS  0
#include "ops/attention/attention_grad_vec.inc"

#undef ACC
#undef VEC
#undef V
#undef SCORE_SEGMENT
#undef TILE_OF_ACC
#undef PRODUCT

#define ACC     float
#define VEC     vf
#define V(name) vf_##name

#define SUFFIX f32
#define TANH   tanhf
#include "ops/softmax/score_segment.inc"
#define SUFFIX f32
#include "ops/attention/attention_vec_tile.inc"

#define SCORE_SEGMENT score_segment_f32
#define TILE_OF_ACC   tile_f32
#define PRODUCT       tile_product_f32

#define SUFFIX f32_avx512
#define SCALAR attention_grad_f32_scalar
#define VALUE  float
#define GET    vf_get_f32
#define PUT    vf_put_f32
#define SAME   1
#define PAIRS  0
#include "ops/attention/attention_grad_vec.inc"

#define SUFFIX f16_avx512
#define SCALAR attention_grad_f16_scalar
#define VALUE  uint16_t
#define GET    vf_get_f16
#define PUT    vf_put_f16
#define SAME   0
#define PAIRS  0
#include "ops/attention/attention_grad_vec.inc"

#define SUFFIX bf16_avx512
#define SCALAR attention_grad_bf16_scalar
#define VALUE  uint16_t
#define GET    vf_get_bf16
#define PUT    vf_put_bf16
#define SAME   0
#define PAIRS  0
#include "ops/attention/attention_grad_vec.inc"
