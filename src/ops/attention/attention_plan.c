/*
 * attention_plan.c: attention as sdd -> softmax -> dsd on one layout. The scores of the stored blocks live in scratch,
 * in f32 (f64 for f64): raw scores of f16 queries and keys reach beyond the largest f16.
 */
#include <bstk/attention.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/matmul/matmul_plan.h"
#include "ops/operand.h"
#include "ops/softmax/score_terms.h"
#include "ops/softmax/softmax_plan.h"
#include "plan/plan_impl.h"

#include <math.h>
#include <stdio.h>

static const char OP[] = "attention";
enum { MAX_HEAD_SIZE = 256, ALIGN = 64 };

typedef struct attention_plan {
    bstk_plan base;
    bstk_tensor q, k, v, o, lse; /* descriptions; lse.ndim -1: none */
    bstk__terms_spec spec;
    bstk_tensor scores;  /* packed, contiguous; its data lies in the scratch of a run */
    size_t scores_bytes; /* rounded up to ALIGN */
    double default_scale;
    bstk_plan *sdd, *softmax, *dsd;
} attention_plan;

static void destroy(bstk_plan *plan) {
    attention_plan *a = (attention_plan *)plan;
    bstk_plan_release(a->sdd);
    bstk_plan_release(a->softmax);
    bstk_plan_release(a->dsd);
}

typedef struct sizes {
    int64_t batches, heads;
} sizes;

static bstk_status check_desc(const bstk_attention_desc *desc, bstk_plan **out) {
    if (desc == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "attention: %s is NULL", desc ? "out" : "desc");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID,
                          "attention: desc.struct_size is %zu, expected %zu (BSTK_ATTENTION_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "attention: layout is NULL");
    return BSTK_OK;
}

static bstk_status check_head_size(const char *name, int64_t size) {
    if (size < 1 || size > MAX_HEAD_SIZE)
        return bstk__fail(BSTK_ERR_INVALID, "attention: %s has head size %lld, expected 1 to %d", name, (long long)size,
                          (int)MAX_HEAD_SIZE);
    return BSTK_OK;
}

static bstk_status check_heads(const bstk_layout *l, const bstk__view *q, const bstk__view *k, const bstk__view *v) {
    const int64_t heads = q->shape[1];
    if (l->heads != 1 && heads != l->heads)
        return bstk__fail(BSTK_ERR_INVALID,
                          "attention: q has %lld heads, but the layout has %lld; expected the same, "
                          "or a layout of 1 head",
                          (long long)heads, (long long)l->heads);
    if (k->shape[1] != v->shape[1])
        return bstk__fail(BSTK_ERR_INVALID, "attention: k has %lld heads and v has %lld, expected the same",
                          (long long)k->shape[1], (long long)v->shape[1]);
    if (k->shape[1] != heads && (k->shape[1] == 0 || heads % k->shape[1] != 0))
        return bstk__fail(BSTK_ERR_INVALID, "attention: k has %lld heads, expected a divisor of q's %lld",
                          (long long)k->shape[1], (long long)heads);
    return BSTK_OK;
}

static bstk_status check_kv_batch(const char *name, int64_t got, int64_t need) {
    return got == 1 ? BSTK_OK : bstk__check_size(OP, name, "batch size", got, need);
}

static bstk_status check(const bstk_attention_desc *d, sizes *s, bstk__terms_spec *spec) {
    const bstk_layout *l = d->layout;
    const bstk_tensor *const tensors[] = {d->q, d->k, d->v, d->o};
    static const char *const names[] = {"q", "k", "v", "o"};
    bstk__view views[4];
    for (int i = 0; i < 4; i++) {
        BSTK_TRY(bstk__view_make(OP, names[i], tensors[i], 2, 4, &views[i]));
        BSTK_TRY(bstk__check_float(OP, names[i], tensors[i]->dtype));
        if (tensors[i]->dtype != d->q->dtype)
            return bstk__fail(BSTK_ERR_TYPE, "attention: %s is %s, expected %s as q", names[i],
                              bstk_dtype_name(tensors[i]->dtype), bstk_dtype_name(d->q->dtype));
    }
    const bstk__view *q = &views[0], *k = &views[1], *v = &views[2], *o = &views[3];
    BSTK_TRY(bstk__check_extent(OP, "q", "rows", q->shape[2], l->m, l->rows, l->block));
    BSTK_TRY(bstk__check_extent(OP, "k", "rows", k->shape[2], l->n, l->cols, l->block));
    BSTK_TRY(bstk__check_extent(OP, "v", "rows", v->shape[2], l->n, l->cols, l->block));
    BSTK_TRY(check_head_size("q", q->shape[3]));
    BSTK_TRY(bstk__check_size(OP, "k", "head size", k->shape[3], q->shape[3]));
    BSTK_TRY(check_head_size("v", v->shape[3]));
    BSTK_TRY(check_heads(l, q, k, v));
    BSTK_TRY(check_kv_batch("k", k->shape[0], q->shape[0]));
    BSTK_TRY(check_kv_batch("v", v->shape[0], q->shape[0]));
    BSTK_TRY(bstk__check_size(OP, "o", "batch size", o->shape[0], q->shape[0]));
    BSTK_TRY(bstk__check_size(OP, "o", "heads", o->shape[1], q->shape[1]));
    BSTK_TRY(bstk__check_size(OP, "o", "rows", o->shape[2], q->shape[2]));
    BSTK_TRY(bstk__check_size(OP, "o", "head size", o->shape[3], v->shape[3]));
    BSTK_TRY(bstk__check_output(OP, "o", d->o));
    /* The terms are checked here once, so that messages name attention; the softmax plan checks them again. */
    bstk__terms terms;
    *s = (sizes){.batches = q->shape[0], .heads = q->shape[1]};
    BSTK_TRY(bstk__terms_plan(OP, &d->terms, s->batches, s->heads, l->m, l->n, &terms, spec));
    bstk__view lse;
    return d->lse == NULL
               ? BSTK_OK
               : bstk__check_lse(OP, d->lse, "q", d->q->dtype, (const int64_t[]){s->batches, s->heads, l->m}, &lse);
}

/* Scores [Z, blocks of all heads, b, b]. */
static bstk_status make_scores(const bstk_attention_desc *d, const sizes *s, attention_plan *plan) {
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

static bstk_status make_parts(const bstk_attention_desc *d, const sizes *s, attention_plan *plan) {
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

static bstk_status finish(const bstk_attention_desc *d, const sizes *s, attention_plan *plan) {
    BSTK_TRY(make_scores(d, s, plan));
    BSTK_TRY(make_parts(d, s, plan));
    const bstk_plan *const parts[] = {plan->sdd, plan->softmax, plan->dsd};
    size_t largest = 0;
    for (int i = 0; i < 3; i++) {
        largest = parts[i]->scratch_bytes > largest ? parts[i]->scratch_bytes : largest;
        plan->base.bytes += parts[i]->bytes;
    }
    plan->q = *d->q;
    plan->k = *d->k;
    plan->v = *d->v;
    plan->o = *d->o;
    plan->lse.ndim = -1;
    if (d->lse)
        plan->lse = *d->lse;
    plan->default_scale = 1 / sqrt((double)d->q->shape[d->q->ndim - 1]);
    plan->base.flops = plan->sdd->flops + plan->dsd->flops;
    plan->base.scratch_bytes = plan->scores_bytes + largest + ALIGN - 1;
    snprintf(plan->base.kernel, sizeof plan->base.kernel, "%.84s+%.84s+%.84s", plan->sdd->kernel, plan->softmax->kernel,
             plan->dsd->kernel);
    return BSTK_OK;
}

bstk_status bstk_attention_plan(bstk_context *ctx, const bstk_attention_desc *desc, bstk_plan **out) {
    sizes s = {0, 0};
    BSTK_TRY(check_desc(desc, out));
    bstk__terms_spec spec;
    BSTK_TRY(check(desc, &s, &spec));
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, OP, sizeof(attention_plan), &plan));
    plan->destroy = destroy;
    plan->schedule.imbalance = 1.0;
    ((attention_plan *)plan)->spec = spec;
    const bstk_status status = finish(desc, &s, (attention_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

static bstk_status check_overlaps(const bstk_score_terms *terms, const char *name, const bstk_tensor *out,
                                  const bstk_tensor *const inputs[], const char *const names[], int count) {
    for (int i = 0; i < count; i++)
        if (bstk__overlap(out, inputs[i]))
            return bstk__fail(BSTK_ERR_INVALID, "attention: %s overlaps %s", name, names[i]);
    return bstk__terms_check_overlap(OP, name, out, terms);
}

/* Everything that could fail is checked before the first part runs: o and lse are written whole or not at all. */
static bstk_status check_run(const attention_plan *plan, const bstk_tensor *q, const bstk_tensor *k,
                             const bstk_tensor *v, const bstk_score_terms *terms, const bstk_tensor *o,
                             const bstk_tensor *lse) {
    const bstk_tensor *const inputs[] = {q, k, v, o};
    static const char *const names[] = {"q", "k", "v", "o"};
    BSTK_TRY(bstk__check_same(OP, "q", &plan->q, q));
    BSTK_TRY(bstk__check_same(OP, "k", &plan->k, k));
    BSTK_TRY(bstk__check_same(OP, "v", &plan->v, v));
    BSTK_TRY(bstk__check_same(OP, "o", &plan->o, o));
    bstk__terms checked;
    BSTK_TRY(bstk__terms_run(OP, &plan->spec, terms, plan->default_scale, &checked));
    BSTK_TRY(check_overlaps(terms, "o", o, inputs, names, 3));
    if (plan->lse.ndim < 0)
        return lse ? bstk__fail(BSTK_ERR_MISMATCH, "attention: lse is given, but the plan was made without it")
                   : BSTK_OK;
    BSTK_TRY(bstk__check_same(OP, "lse", &plan->lse, lse));
    return check_overlaps(terms, "lse", lse, inputs, names, 4);
}

bstk_status bstk_attention_run(const bstk_plan *base, const bstk_tensor *q, const bstk_tensor *k, const bstk_tensor *v,
                               const bstk_score_terms *terms, const bstk_tensor *o, const bstk_tensor *lse,
                               const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "attention: plan is %s", base ? "for another op" : "NULL");
    const attention_plan *plan = (const attention_plan *)base;
    void *scratch;
    BSTK_TRY(check_run(plan, q, k, v, terms, o, lse));
    BSTK_TRY(bstk__plan_scratch(base, OP, exec, &scratch));
    bstk_tensor scores = plan->scores;
    scores.data = scratch;
    bstk_exec part = BSTK_EXEC_INIT;
    part.scratch = (char *)scratch + plan->scores_bytes;
    part.scratch_bytes = base->scratch_bytes - plan->scores_bytes - (ALIGN - 1);
    bstk_score_terms scaled = *terms;
    if (terms->scale != terms->scale) /* NaN: BSTK_SCALE_DEFAULT */
        scaled.scale = plan->default_scale;
    BSTK_TRY(bstk_matmul_run(plan->sdd, 1, q, k, 0, &scores, &part));
    BSTK_TRY(bstk_softmax_run(plan->softmax, &scores, &scaled, &scores, lse, NULL, &part));
    return bstk_matmul_run(plan->dsd, 1, &scores, v, 0, o, &part);
}

bstk_status bstk_attention(bstk_context *ctx, const bstk_attention_desc *desc) {
    bstk_plan *plan;
    bstk_exec exec;
    BSTK_TRY(bstk_attention_plan(ctx, desc, &plan));
    bstk_status status = bstk__plan_take_scratch(plan, OP, &exec);
    if (status == BSTK_OK)
        status = bstk_attention_run(plan, desc->q, desc->k, desc->v, &desc->terms, desc->o, desc->lse, &exec);
    bstk__free(plan->ctx, exec.scratch);
    bstk_plan_release(plan);
    return status;
}
