/*
 * attention_composed.c: attention as sdd -> softmax -> dsd on one layout, for those who ask for it (kernel "composed").
 * The scores of the stored blocks live in scratch, in f32 (f64 for f64): raw scores of f16 queries and keys reach
 * beyond the largest f16.
 */
#include "core/checked.h"
#include "core/error.h"
#include "ops/attention/attention_plan.h"
#include "ops/matmul/matmul_plan.h"
#include "ops/softmax/softmax_plan.h"

#include <stdio.h>

enum { ALIGN = 64 };

/* Scores [Z, blocks of all heads, b, b]. */
static bstk_status make_scores(const bstk_attention_desc *d, const bstk__attention_shape *s,
                               bstk__attention_plan_impl *plan) {
    const bstk_layout *l = d->layout;
    const bstk_dtype dtype = d->q->dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    int64_t blocks, bytes = (int64_t)bstk_dtype_size(dtype);
    const bool fits = bstk__mul(l->nnz, l->heads == 1 ? s->heads : 1, &blocks) && bstk__mul(bytes, blocks, &bytes) &&
                      bstk__mul(bytes, s->batches, &bytes) && bstk__mul(bytes, l->block, &bytes) &&
                      bstk__mul(bytes, l->block, &bytes) && bstk__add(bytes, 2 * ALIGN, &bytes);
    if (!fits)
        return bstk__fail(BSTK_ERR_OVERFLOW, "attention: the scores of %lld blocks x %lld batches do not fit 64 bits",
                          (long long)l->nnz, (long long)s->batches);
    plan->scores = bstk_tensor_make(NULL, dtype, 4, (const int64_t[]){s->batches, blocks, l->block, l->block});
    plan->scores_bytes = (size_t)((bytes - ALIGN - 1) / ALIGN * ALIGN);
    return BSTK_OK;
}

static bstk_status make_parts(const bstk_attention_desc *d, const bstk__attention_shape *s,
                              bstk__attention_plan_impl *plan) {
    bstk_context *ctx = plan->base.ctx;
    bstk_matmul_desc sdd = BSTK_MATMUL_DESC_INIT, dsd = BSTK_MATMUL_DESC_INIT;
    bstk_softmax_desc softmax = BSTK_SOFTMAX_DESC_INIT;
    sdd.mode = BSTK_SDD;
    sdd.trans_b = 1;
    sdd.layout = softmax.layout = dsd.layout = d->layout;
    sdd.a = d->q;
    sdd.b = d->k;
    sdd.c = softmax.x = softmax.y = dsd.a = &plan->scores;
    softmax.lse = d->lse;
    softmax.terms = d->terms;
    dsd.mode = BSTK_DSD;
    dsd.b = d->v;
    dsd.c = d->o;
    BSTK_TRY(bstk_matmul_plan(ctx, &sdd, &plan->sdd));
    BSTK_TRY(bstk__softmax_plan_make(ctx, &softmax, s->heads, &plan->softmax));
    /* Weights of dropped places are 0: their values, which may be NaN, are not looked at. */
    return bstk__matmul_plan_make(ctx, &dsd, 1, &plan->dsd);
}

bstk_status bstk__attention_composed_plan(const bstk_attention_desc *desc, const bstk__attention_shape *shape,
                                          bstk__attention_plan_impl *plan) {
    BSTK_TRY(make_scores(desc, shape, plan));
    BSTK_TRY(make_parts(desc, shape, plan));
    const bstk_plan *const parts[] = {plan->sdd, plan->softmax, plan->dsd};
    size_t largest = 0;
    for (int i = 0; i < 3; i++) {
        largest = parts[i]->scratch_bytes > largest ? parts[i]->scratch_bytes : largest;
        plan->base.bytes += parts[i]->bytes;
    }
    plan->base.flops = plan->sdd->flops + plan->dsd->flops;
    plan->base.scratch_bytes = plan->scores_bytes + largest + ALIGN - 1;
    snprintf(plan->base.kernel, sizeof plan->base.kernel, "%.84s+%.84s+%.84s", plan->sdd->kernel, plan->softmax->kernel,
             plan->dsd->kernel);
    return BSTK_OK;
}

bstk_status bstk__attention_composed_run(const bstk__attention_plan_impl *plan, const bstk_tensor *q,
                                         const bstk_tensor *k, const bstk_tensor *v, const bstk_score_terms *terms,
                                         double scale, const bstk_tensor *o, const bstk_tensor *lse, void *scratch) {
    bstk_tensor scores = plan->scores;
    scores.data = scratch;
    bstk_exec part = BSTK_EXEC_INIT;
    part.scratch = (char *)scratch + plan->scores_bytes;
    part.scratch_bytes = plan->base.scratch_bytes - plan->scores_bytes - (ALIGN - 1);
    bstk_score_terms scaled = *terms;
    scaled.scale = scale;
    BSTK_TRY(bstk_matmul_run(plan->sdd, 1, q, k, 0, &scores, &part));
    BSTK_TRY(bstk_softmax_run(plan->softmax, &scores, &scaled, &scores, lse, NULL, &part));
    return bstk_matmul_run(plan->dsd, 1, &scores, v, 0, o, &part);
}

void bstk__attention_composed_destroy(bstk__attention_plan_impl *plan) {
    bstk_plan_release(plan->sdd);
    bstk_plan_release(plan->softmax);
    bstk_plan_release(plan->dsd);
}
