/* softmax_grad_scalar.c: portable gradient of the softmax for every type. The algorithm is in softmax_grad_scalar.inc.
 */
#include "core/checked.h"
#include "core/half.h"
#include "ops/softmax/softmax_grad_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* One rounding from the sum to the type of the term. */
static void store_sum(const bstk__grad_term *t, int64_t index, double sum) {
    switch (t->dtype) {
    case BSTK_F64:
        ((double *)t->data)[index] = sum;
        break;
    case BSTK_F32:
        ((float *)t->data)[index] = (float)sum;
        break;
    case BSTK_F16:
        ((uint16_t *)t->data)[index] = bstk__f32_to_f16((float)sum);
        break;
    default:
        ((uint16_t *)t->data)[index] = bstk__f32_to_bf16((float)sum);
        break;
    }
}

/* The first of blocks [low, high) of a row whose block column is at least `column`. */
static int64_t first_block_at(const int32_t *col_idx, int64_t low, int64_t high, int64_t column) {
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (col_idx[middle] < column)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

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
