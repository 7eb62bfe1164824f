/* norm_scalar.c: portable norms and their gradients for every type. The algorithm is in norm_scalar.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "ops/norm/norm_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>

enum { PART = 8 }; /* element rows, or columns, of a unit */

/* The elements that row p of block n keeps, NULL for all. */
static const uint8_t *mask_of(const bstk__norm_args *g, int64_t n, int64_t p) {
    const int64_t number = g->partial_idx ? g->partial_idx[n] : -1;
    return number < 0 ? NULL : g->partial_masks + (number * g->edge + p) * g->edge;
}

/* `count` values of head h from column j0 on; the head stride of shared ones is 0. */
static void load_columns(const bstk__norm_columns *c, int64_t h, int64_t j0, int64_t count, double missing,
                         double *to) {
    const int64_t first = h * c->h + j0 * c->col;
    for (int64_t q = 0; q < count; q++) {
        const int64_t at = first + q * c->col;
        if (c->data == NULL)
            to[q] = missing;
        else if (c->dtype == BSTK_F64)
            to[q] = ((const double *)c->data)[at];
        else if (c->dtype == BSTK_F32)
            to[q] = (double)((const float *)c->data)[at];
        else if (c->dtype == BSTK_F16)
            to[q] = (double)bstk__f16_to_f32(((const uint16_t *)c->data)[at]);
        else
            to[q] = (double)bstk__bf16_to_f32(((const uint16_t *)c->data)[at]);
    }
}

static void store_columns(const bstk__norm_columns *c, int64_t h, int64_t j0, int64_t count, const double *from) {
    for (int64_t q = 0; q < count; q++) {
        const int64_t at = h * c->h + (j0 + q) * c->col;
        if (c->dtype == BSTK_F64)
            ((double *)c->data)[at] = from[q];
        else if (c->dtype == BSTK_F32)
            ((float *)c->data)[at] = (float)from[q];
        else if (c->dtype == BSTK_F16)
            ((uint16_t *)c->data)[at] = bstk__f32_to_f16((float)from[q]);
        else
            ((uint16_t *)c->data)[at] = bstk__f32_to_bf16((float)from[q]);
    }
}

/* Eight sums side by side, which the compiler can keep in vectors, joined at the end. */
static double sum_of(const double *values, int64_t count) {
    double lane[8] = {0};
    for (int64_t q = 0; q + 8 <= count; q += 8)
        for (int64_t l = 0; l < 8; l++)
            lane[l] += values[q + l];
    for (int64_t q = count / 8 * 8; q < count; q++)
        lane[q % 8] += values[q];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#define SAME(x)        (x)
#define F32_TO_F16(x)  bstk__f32_to_f16((float)(x))
#define F32_TO_BF16(x) bstk__f32_to_bf16((float)(x))

#define SUFFIX f64_scalar
#define SAVED  double
#define VALUE  double
#define LOAD   SAME
#define STORE  SAME
#include "ops/norm/norm_scalar.inc"

#define SUFFIX f32_scalar
#define SAVED  float
#define VALUE  float
#define LOAD   SAME
#define STORE  (float)
#include "ops/norm/norm_scalar.inc"

#define SUFFIX f16_scalar
#define SAVED  float
#define VALUE  uint16_t
#define LOAD   bstk__f16_to_f32
#define STORE  F32_TO_F16
#include "ops/norm/norm_scalar.inc"

#define SUFFIX bf16_scalar
#define SAVED  float
#define VALUE  uint16_t
#define LOAD   bstk__bf16_to_f32
#define STORE  F32_TO_BF16
#include "ops/norm/norm_scalar.inc"
