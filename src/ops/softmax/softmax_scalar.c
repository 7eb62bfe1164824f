/* softmax_scalar.c: portable softmax for every type. The algorithm is in softmax_scalar.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "core/tensor_view.h"
#include "ops/softmax/softmax_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Element `index` of a mask that keeps by nonzero. Floating: -0 is zero, NaN is not. */
static bool is_nonzero(bstk_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
    case BSTK_F64:
        return ((const double *)data)[index] != 0;
    case BSTK_F32:
        return ((const float *)data)[index] != 0;
    case BSTK_F16:
    case BSTK_BF16:
        return (((const uint16_t *)data)[index] & 0x7fffu) != 0;
    default:
        return bstk__load_integer(dtype, (const char *)data + index * (int64_t)bstk_dtype_size(dtype)) != 0;
    }
}

size_t bstk__softmax_scratch_bytes(const bstk__softmax_args *args, size_t score_size) {
    return (size_t)(args->row_blocks * args->edge) * (score_size + 1);
}

#define SAME(x) (x)

#define SUFFIX f64_scalar
#define ACC    double
#define VALUE  double
#define LOAD   SAME
#define STORE  SAME
#define EXP    exp
#include "ops/softmax/softmax_scalar.inc"

#define SUFFIX f32_scalar
#define ACC    float
#define VALUE  float
#define LOAD   SAME
#define STORE  SAME
#define EXP    expf
#include "ops/softmax/softmax_scalar.inc"

#define SUFFIX f16_scalar
#define ACC    float
#define VALUE  uint16_t
#define LOAD   bstk__f16_to_f32
#define STORE  bstk__f32_to_f16
#define EXP    expf
#include "ops/softmax/softmax_scalar.inc"

#define SUFFIX bf16_scalar
#define ACC    float
#define VALUE  uint16_t
#define LOAD   bstk__bf16_to_f32
#define STORE  bstk__f32_to_bf16
#define EXP    expf
#include "ops/softmax/softmax_scalar.inc"
