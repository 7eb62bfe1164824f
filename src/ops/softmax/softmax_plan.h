/* softmax_plan.h: what other ops may ask of a softmax plan beyond the public header. */
#ifndef BSTK_SOFTMAX_PLAN_H
#define BSTK_SOFTMAX_PLAN_H

#include <bstk/softmax.h>

/* As bstk_softmax_plan; `heads` is how many share a layout of one head, 0 to read it off the values. */
bstk_status bstk__softmax_plan_make(bstk_context *ctx, const bstk_softmax_desc *desc, int64_t heads, bstk_plan **out);

#endif
