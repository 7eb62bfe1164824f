/*
 * norm_neon.c: layernorm, rmsnorm and their gradients with NEON, for every type. The algorithm is in
 * norm_vec.inc and norm_vec_grad.inc.
 */
#include "ops/norm/norm_vec.h"
#include "simd/vec_neon.h"

#define COLUMNS 4

#define ACC           double
#define ACC_AS        f64
#define VEC           vd
#define V(name)       vd_##name
#define PASSES        2
#define HALVES        1
#define HALF_OF(v, i) (v)
#define DOUBLES(v)    (v)

#define SUFFIX f64_neon
#define VALUE  double
#define AS     f64
#include "ops/norm/norm_vec.inc"
#include "ops/norm/norm_vec_grad.inc"

#undef ACC
#undef ACC_AS
#undef VEC
#undef V
#undef PASSES
#undef HALVES
#undef HALF_OF
#undef DOUBLES
#define ACC           float
#define ACC_AS        f32
#define VEC           vf
#define V(name)       vf_##name
#define PASSES        1
#define HALVES        2
#define HALF_OF(v, i) ((i) ? vd_high(v) : vd_low(v))
#define DOUBLES(v)    vd_add(vd_low(v), vd_high(v))

#define SUFFIX f32_neon
#define VALUE  float
#define AS     f32
#include "ops/norm/norm_vec.inc"
#include "ops/norm/norm_vec_grad.inc"

#define SUFFIX f16_neon
#define VALUE  uint16_t
#define AS     f16
#include "ops/norm/norm_vec.inc"
#include "ops/norm/norm_vec_grad.inc"

#define SUFFIX bf16_neon
#define VALUE  uint16_t
#define AS     bf16
#include "ops/norm/norm_vec.inc"
#include "ops/norm/norm_vec_grad.inc"
