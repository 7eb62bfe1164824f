/* softmax_grad_neon.c: gradient of the softmax with NEON, for every type. The algorithm is in
 * softmax_grad_vec.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "ops/softmax/softmax_grad_kernel.h"
#include "simd/vec_neon.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ops/softmax/dropout_mask.inc"
#include "ops/softmax/softmax_grad_store.inc"

#define ROWS 8

#define ACC     double
#define ACC_AS  f64
#define VEC     vd
#define V(name) vd_##name
#define EXP     exp

#define SUFFIX f64_neon
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

#define SUFFIX f32_neon
#define VALUE  float
#define AS     f32
#define SAME   1
#include "ops/softmax/softmax_grad_vec.inc"

#define SUFFIX f16_neon
#define VALUE  uint16_t
#define AS     f16
#define SAME   0
#include "ops/softmax/softmax_grad_vec.inc"

#define SUFFIX bf16_neon
#define VALUE  uint16_t
#define AS     bf16
#define SAME   0
#include "ops/softmax/softmax_grad_vec.inc"
