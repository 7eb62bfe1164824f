/* softmax_avx2.c: softmax with AVX2, FMA and F16C, for every type. The algorithm is in softmax_vec.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "core/tensor_view.h"
#include "ops/softmax/softmax_kernel.h"
#include "simd/vec_avx2.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ops/softmax/dropout_mask.inc"

#define ROWS 8

#define ACC     double
#define ACC_AS  f64
#define VEC     vd
#define V(name) vd_##name
#define SUFFIX  f64
#define TANH    tanh
#include "ops/softmax/score_segment.inc"

#define SCORE_SEGMENT score_segment_f64

#define SUFFIX f64_avx2
#define VALUE  double
#define AS     f64
#define SAME   1
#include "ops/softmax/softmax_vec.inc"

#undef ACC
#undef ACC_AS
#undef VEC
#undef V
#undef SCORE_SEGMENT
#define ACC     float
#define ACC_AS  f32
#define VEC     vf
#define V(name) vf_##name
#define SUFFIX  f32
#define TANH    tanhf
#include "ops/softmax/score_segment.inc"

#define SCORE_SEGMENT score_segment_f32

#define SUFFIX f32_avx2
#define VALUE  float
#define AS     f32
#define SAME   1
#include "ops/softmax/softmax_vec.inc"

#define SUFFIX f16_avx2
#define VALUE  uint16_t
#define AS     f16
#define SAME   0
#include "ops/softmax/softmax_vec.inc"

#define SUFFIX bf16_avx2
#define VALUE  uint16_t
#define AS     bf16
#define SAME   0
#include "ops/softmax/softmax_vec.inc"
