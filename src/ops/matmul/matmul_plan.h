/* matmul_plan.h: what other ops and the gradients may ask of a product plan beyond the public header. */
#ifndef BSTK_MATMUL_PLAN_H
#define BSTK_MATMUL_PLAN_H

#include "core/tensor_view.h"

#include <bstk/matmul.h>

/* As bstk_matmul_plan; `skip_zeros` 1 (dsd, dds): a packed value of exactly 0 leaves its dense row unread. */
bstk_status bstk__matmul_plan_make(bstk_context *ctx, const bstk_matmul_desc *desc, int32_t skip_zeros,
                                   bstk_plan **out);

/* A product whose tensors have been found to fit. */
typedef struct bstk__matmul_problem {
    const char *who, *c_name; /* for messages */
    const bstk_matmul_desc *desc;
    const bstk_layout *layout;
    bstk__view a, b, c;
    int64_t batches, heads; /* those of C, or where a gradient sums over what was shared, more */
    int64_t m, n, k;        /* of C = op(A) op(B) */
} bstk__matmul_problem;

/*
 * Checks a product all but for C being writable. `gradient` 1: C is the incoming gradient d_c, and messages say so. The
 * problem points into `desc`.
 */
bstk_status bstk__matmul_check(const bstk_matmul_desc *desc, int32_t gradient, bstk__matmul_problem *p);

/* The plan of a checked product. C may have 1 batch item instead of `batches`, and 1 or a divisor of `heads`, or packed
 * values that all heads share: it gets the sums. */
bstk_status bstk__matmul_plan_checked(bstk_context *ctx, const bstk__matmul_problem *p, int32_t skip_zeros,
                                      bstk_plan **out);

#endif
