/* attention_plan.h: the plan of an attention, for its two ways: fused (attention_plan.c) and composed. */
#ifndef BSTK_ATTENTION_PLAN_H
#define BSTK_ATTENTION_PLAN_H

#include "ops/attention/attention_kernel.h"
#include "plan/plan_impl.h"

#include <bstk/attention.h>

typedef struct bstk__attention_plan_impl {
    bstk_plan base;
    bstk_tensor q, k, v, o, lse; /* descriptions; lse.ndim -1: none */
    bstk__terms_spec spec;
    double default_scale;
    bstk__attention_args args; /* of both ways: the composed one reads the terms only */
    /* Composed only: sdd is NULL otherwise. */
    bstk_tensor scores;  /* packed, contiguous; its data lies in the scratch of a run */
    size_t scores_bytes; /* rounded up to 64 */
    bstk_plan *sdd, *softmax, *dsd;
} bstk__attention_plan_impl;

/* Shape rules that the forward and the gradient share. Views of q, k, v and the sizes that follow from them. */
typedef struct bstk__attention_shape {
    bstk__view q, k, v;
    int64_t batches, heads, group;
} bstk__attention_shape;

bstk_status bstk__attention_check(const char *who, const bstk_layout *layout, const bstk_tensor *q,
                                  const bstk_tensor *k, const bstk_tensor *v, bstk__attention_shape *shape);

/* A tensor [Z, H, rows, cols] of q's type, batch size, heads and so on; `sizes` as those of o. */
bstk_status bstk__attention_check_dense(const char *who, const char *name, const bstk_tensor *t, bstk_dtype dtype,
                                        const int64_t sizes[4], bstk__view *view);

/* Strides of a view, without data. */
bstk__attention_dense bstk__attention_strides(const bstk__view *view);

/* True when a wholly kept block of a row needs the scale only. */
int32_t bstk__attention_plain(const bstk__terms *terms);

/* Plans sdd, softmax and dsd for a plan whose descriptions are filled. */
bstk_status bstk__attention_composed_plan(const bstk_attention_desc *desc, const bstk__attention_shape *shape,
                                          bstk__attention_plan_impl *plan);

/* Runs them; everything has been checked. `scale` is the one to use. */
bstk_status bstk__attention_composed_run(const bstk__attention_plan_impl *plan, const bstk_tensor *q,
                                         const bstk_tensor *k, const bstk_tensor *v, const bstk_score_terms *terms,
                                         double scale, const bstk_tensor *o, const bstk_tensor *lse, void *scratch);

void bstk__attention_composed_destroy(bstk__attention_plan_impl *plan);

#endif
