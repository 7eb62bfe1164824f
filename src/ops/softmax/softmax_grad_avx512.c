/* softmax_grad_avx512.c: gradient of the softmax with AVX-512 F, BW, DQ and VL, for every type. The algorithm is in
 * softmax_grad_vec.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "ops/softmax/softmax_grad_kernel.h"
#include "simd/vec_avx512.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ops/softmax/dropout_mask.inc"
#include "ops/softmax/softmax_grad_store.inc"

#define ROWS 16

#define ACC     double
#define ACC_AS  f64
#define VEC     vd
#define V(name) vd_##name
#define EXP     exp

#define SUFFIX f64_avx512
#define VALUE  double
#define AS     f64
#define SAME   1
#include "ops/softmax/softmax_grad_vec.inc"

#undef ACC
#undef ACC_AS
#undef VEC
#undef V
#undef EXP
#define ACC     float
#define ACC_AS  f32
#define VEC     vf
#define V(name) vf_##name
#define EXP     expf

#define SUFFIX f32_avx512
#define VALUE  float
#define AS     f32
#define SAME   1
#include "ops/softmax/softmax_grad_vec.inc"

#define SUFFIX f16_avx512
#define VALUE  uint16_t
#define AS     f16
#define SAME   0
#include "ops/softmax/softmax_grad_vec.inc"

#define SUFFIX bf16_avx512
#define VALUE  uint16_t
#define AS     bf16
#define SAME   0
#include "ops/softmax/softmax_grad_vec.inc"
