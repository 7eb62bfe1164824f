/* softmax_grad_scalar.c: portable gradient of the softmax for every type. The algorithm is in softmax_grad_scalar.inc.
 */
#include "core/checked.h"
#include "core/half.h"
#include "ops/softmax/softmax_grad_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ops/softmax/softmax_grad_store.inc"

#define SAME(x) (x)

#define SUFFIX f64_scalar
#define ACC    double
#define VALUE  double
#define LOAD   SAME
#define STORE  SAME
#define TANH   tanh
#define EXP    exp
#include "ops/softmax/softmax_grad_scalar.inc"

#define SUFFIX f32_scalar
#define ACC    float
#define VALUE  float
#define LOAD   SAME
#define STORE  SAME
#define TANH   tanhf
#define EXP    expf
#include "ops/softmax/softmax_grad_scalar.inc"

#define SUFFIX f16_scalar
#define ACC    float
#define VALUE  uint16_t
#define LOAD   bstk__f16_to_f32
#define STORE  bstk__f32_to_f16
#define TANH   tanhf
#define EXP    expf
#include "ops/softmax/softmax_grad_scalar.inc"

#define SUFFIX bf16_scalar
#define ACC    float
#define VALUE  uint16_t
#define LOAD   bstk__bf16_to_f32
#define STORE  bstk__f32_to_bf16
#define TANH   tanhf
#define EXP    expf
#include "ops/softmax/softmax_grad_scalar.inc"
