/* matmul_plan.h: what other ops may ask of a product plan beyond the public header. */
#ifndef BSTK_MATMUL_PLAN_H
#define BSTK_MATMUL_PLAN_H

#include <bstk/matmul.h>

/* As bstk_matmul_plan; `skip_zeros` 1 (dsd, dds): a packed value of exactly 0 leaves its dense row unread. */
bstk_status bstk__matmul_plan_make(bstk_context *ctx, const bstk_matmul_desc *desc, int32_t skip_zeros,
                                   bstk_plan **out);

#endif
