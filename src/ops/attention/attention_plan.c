/*
 * attention_plan.c: checks an attention, chooses the fused kernel (or the composed way, when asked for) and cuts the
 * work by stored blocks.
 */
#include "ops/attention/attention_plan.h"

#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/operand.h"

#include <math.h>
#include <string.h>

static const char OP[] = "attention";
enum { MAX_HEAD_SIZE = 256 };

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/attention/attention.def"
#undef BSTK_KERNEL
};

static void destroy(bstk_plan *plan) {
    bstk__attention_composed_destroy((bstk__attention_plan_impl *)plan);
}

/* ---- checks that the gradient shares ----------------------------------------------------------------------------- */

static bstk_status check_head_size(const char *who, const char *name, int64_t size) {
    if (size < 1 || size > MAX_HEAD_SIZE)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s has head size %lld, expected 1 to %d", who, name, (long long)size,
                          (int)MAX_HEAD_SIZE);
    return BSTK_OK;
}

static bstk_status check_heads(const char *who, const bstk_layout *l, const bstk__attention_shape *s) {
    const int64_t heads = s->q.shape[1], kv = s->k.shape[1];
    if (l->heads != 1 && heads != l->heads)
        return bstk__fail(BSTK_ERR_INVALID,
                          "%s: q has %lld heads, but the layout has %lld; expected the same, or a layout of 1 head",
                          who, (long long)heads, (long long)l->heads);
    if (kv != s->v.shape[1])
        return bstk__fail(BSTK_ERR_INVALID, "%s: k has %lld heads and v has %lld, expected the same", who,
                          (long long)kv, (long long)s->v.shape[1]);
    if (kv != heads && (kv == 0 || heads % kv != 0))
        return bstk__fail(BSTK_ERR_INVALID, "%s: k has %lld heads, expected a divisor of q's %lld", who, (long long)kv,
                          (long long)heads);
    return BSTK_OK;
}

static bstk_status check_kv_batch(const char *who, const char *name, int64_t got, int64_t need) {
    return got == 1 ? BSTK_OK : bstk__check_size(who, name, "batch size", got, need);
}

static bstk_status check_type(const char *who, const char *name, bstk_dtype got, bstk_dtype need) {
    BSTK_TRY(bstk__check_float(who, name, got));
    if (got != need)
        return bstk__fail(BSTK_ERR_TYPE, "%s: %s is %s, expected %s as q", who, name, bstk_dtype_name(got),
                          bstk_dtype_name(need));
    return BSTK_OK;
}

bstk_status bstk__attention_check(const char *who, const bstk_layout *l, const bstk_tensor *q, const bstk_tensor *k,
                                  const bstk_tensor *v, bstk__attention_shape *s) {
    const bstk_tensor *const tensors[] = {q, k, v};
    bstk__view *const views[] = {&s->q, &s->k, &s->v};
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        BSTK_TRY(bstk__view_make(who, names[i], tensors[i], 2, 4, views[i]));
        BSTK_TRY(check_type(who, names[i], tensors[i]->dtype, q->dtype));
    }
    BSTK_TRY(bstk__check_extent(who, "q", "rows", s->q.shape[2], l->m, l->rows, l->block));
    BSTK_TRY(bstk__check_extent(who, "k", "rows", s->k.shape[2], l->n, l->cols, l->block));
    BSTK_TRY(bstk__check_extent(who, "v", "rows", s->v.shape[2], l->n, l->cols, l->block));
    BSTK_TRY(check_head_size(who, "q", s->q.shape[3]));
    BSTK_TRY(bstk__check_size(who, "k", "head size", s->k.shape[3], s->q.shape[3]));
    BSTK_TRY(check_head_size(who, "v", s->v.shape[3]));
    BSTK_TRY(check_heads(who, l, s));
    BSTK_TRY(check_kv_batch(who, "k", s->k.shape[0], s->q.shape[0]));
    BSTK_TRY(check_kv_batch(who, "v", s->v.shape[0], s->q.shape[0]));
    s->batches = s->q.shape[0];
    s->heads = s->q.shape[1];
    s->group = s->k.shape[1] ? s->heads / s->k.shape[1] : 1;
    return BSTK_OK;
}

bstk_status bstk__attention_check_dense(const char *who, const char *name, const bstk_tensor *t, bstk_dtype dtype,
                                        const int64_t sizes[4], bstk__view *view) {
    static const char *const axes[4] = {"batch size", "heads", "rows", "head size"};
    BSTK_TRY(bstk__view_make(who, name, t, 2, 4, view));
    BSTK_TRY(check_type(who, name, t->dtype, dtype));
    for (int axis = 0; axis < 4; axis++)
        BSTK_TRY(bstk__check_size(who, name, axes[axis], view->shape[axis], sizes[axis]));
    return BSTK_OK;
}

bstk__attention_dense bstk__attention_strides(const bstk__view *v) {
    return (bstk__attention_dense){.z = v->stride[0], .h = v->stride[1], .row = v->stride[2], .col = v->stride[3]};
}

int32_t bstk__attention_plain(const bstk__terms *t) {
    return t->softcap == 0 && !t->rpe.data && !t->rel.data && !t->slopes.data && !t->key_padding.data &&
           !t->attn.data && !t->k_documents.data;
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

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

/* All but the data pointers of the kernel's arguments, and the descriptions. */
static bstk_status fill(const bstk_attention_desc *d, const bstk__attention_shape *s, bstk__attention_plan_impl *plan) {
    const bstk_layout *l = d->layout;
    bstk__attention_args *g = &plan->args;
    bstk__view o, lse = {.stride = {0}};
    const int64_t sizes[4] = {s->batches, s->heads, l->m, s->v.shape[3]};
    BSTK_TRY(bstk__attention_check_dense(OP, "o", d->o, d->q->dtype, sizes, &o));
    BSTK_TRY(bstk__check_output(OP, "o", d->o));
    BSTK_TRY(bstk__terms_plan(OP, &d->terms, s->batches, s->heads, l->m, l->n, &g->terms, &plan->spec));
    if (d->lse)
        BSTK_TRY(bstk__check_lse(OP, d->lse, "q", d->q->dtype, sizes, &lse));
    g->terms.partial_idx = l->partial_idx;
    g->terms.partial_masks = l->partial_masks;
    g->q = bstk__attention_strides(&s->q);
    g->k = bstk__attention_strides(&s->k);
    g->v = bstk__attention_strides(&s->v);
    g->o = bstk__attention_strides(&o);
    g->lse = (bstk__attention_dense){.z = lse.stride[1], .h = lse.stride[2], .row = lse.stride[3]};
    g->group = s->group;
    g->line_ptr = l->row_ptr;
    g->col_idx = l->col_idx;
    g->lines = l->heads * l->rows;
    g->head_lines = l->rows;
    g->layout_heads = l->heads;
    g->heads = s->heads;
    g->m = l->m;
    g->n = l->n;
    g->d = s->q.shape[3];
    g->dv = s->v.shape[3];
    g->edge = l->block;
    g->parts = l->block / 8;
    plan->q = *d->q;
    plan->k = *d->k;
    plan->v = *d->v;
    plan->o = *d->o;
    plan->lse.ndim = -1;
    if (d->lse)
        plan->lse = *d->lse;
    plan->default_scale = 1 / sqrt((double)g->d);
    return BSTK_OK;
}

static bstk_status finish_fused(const bstk_attention_desc *d, const bstk__attention_shape *s,
                                bstk__attention_plan_impl *plan) {
    const bstk__attention_args *g = &plan->args;
    const bstk_dtype dtype = d->q->dtype;
    const bstk__question question = {
        .op = OP, .dtype = dtype, .packed_dtype = dtype, .block = g->edge, .args = g, .forced = d->kernel};
    const bstk__kernel *kernel;
    BSTK_TRY(bstk__select(plan->base.ctx, kernels, sizeof kernels / sizeof *kernels, &question, &kernel));
    bstk__work work = {.line_ptr = g->line_ptr,
                       .lines = g->lines,
                       .parts = g->parts,
                       .line_cost = 1,
                       .grain = 4, /* 32 rows: two vectors of queries */
                       .whole = true};
    if (!bstk__mul(s->batches, g->heads / bstk__max(1, g->layout_heads), &work.repeats))
        return bstk__fail(BSTK_ERR_OVERFLOW, "attention: %lld batches x %lld heads do not fit 64 bits",
                          (long long)s->batches, (long long)g->heads);
    const double stored = (double)d->layout->nnz * g->edge * g->edge * (double)work.repeats;
    const double rows = (double)s->batches * (double)g->heads * (double)g->m;
    const size_t accumulator = dtype == BSTK_F64 ? sizeof(double) : sizeof(float);
    plan->base.flops = 2 * stored * (double)(g->d + g->dv);
    plan->base.bytes =
        (bstk__view_elements(&s->q) + bstk__view_elements(&s->k) + bstk__view_elements(&s->v) + rows * (double)g->dv) *
            (double)bstk_dtype_size(dtype) +
        (d->lse ? rows * (double)accumulator : 0);
    return bstk__plan_schedule(&plan->base, kernel, &work, plan->base.flops + 10 * stored,
                               kernel->scratch_bytes ? kernel->scratch_bytes(g)
                                                     : bstk__attention_scratch_bytes(g, accumulator));
}

bstk_status bstk_attention_plan(bstk_context *ctx, const bstk_attention_desc *desc, bstk_plan **out) {
    bstk__attention_shape shape;
    BSTK_TRY(check_desc(desc, out));
    BSTK_TRY(bstk__attention_check(OP, desc->layout, desc->q, desc->k, desc->v, &shape));
    bstk_plan *base;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, OP, sizeof(bstk__attention_plan_impl), &base));
    bstk__attention_plan_impl *plan = (bstk__attention_plan_impl *)base;
    base->destroy = destroy;
    base->schedule.imbalance = 1.0;
    bstk_status status = fill(desc, &shape, plan);
    if (status == BSTK_OK)
        status = desc->kernel && strcmp(desc->kernel, "composed") == 0
                     ? bstk__attention_composed_plan(desc, &shape, plan)
                     : finish_fused(desc, &shape, plan);
    if (status != BSTK_OK)
        bstk_plan_release(base);
    else
        *out = base;
    return status;
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

static bstk_status check_overlaps(const bstk_score_terms *terms, const char *name, const bstk_tensor *out,
                                  const bstk_tensor *const inputs[], const char *const names[], int count) {
    for (int i = 0; i < count; i++)
        if (bstk__overlap(out, inputs[i]))
            return bstk__fail(BSTK_ERR_INVALID, "attention: %s overlaps %s", name, names[i]);
    return bstk__terms_check_overlap(OP, name, out, terms);
}

/* Everything that could fail is checked before the first output is written: o and lse are written whole or not at all.
 * Fills the terms of `args`. */
static bstk_status check_run(const bstk__attention_plan_impl *plan, const bstk_tensor *q, const bstk_tensor *k,
                             const bstk_tensor *v, const bstk_score_terms *terms, const bstk_tensor *o,
                             const bstk_tensor *lse, bstk__attention_args *args) {
    const bstk_tensor *const inputs[] = {q, k, v, o};
    static const char *const names[] = {"q", "k", "v", "o"};
    BSTK_TRY(bstk__check_same(OP, "q", &plan->q, q));
    BSTK_TRY(bstk__check_same(OP, "k", &plan->k, k));
    BSTK_TRY(bstk__check_same(OP, "v", &plan->v, v));
    BSTK_TRY(bstk__check_same(OP, "o", &plan->o, o));
    BSTK_TRY(bstk__terms_run(OP, &plan->spec, terms, plan->default_scale, &args->terms));
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
    const bstk__attention_plan_impl *plan = (const bstk__attention_plan_impl *)base;
    bstk__attention_args args = plan->args;
    void *scratch;
    BSTK_TRY(check_run(plan, q, k, v, terms, o, lse, &args));
    BSTK_TRY(bstk__plan_scratch(base, OP, exec, &scratch));
    if (plan->sdd)
        return bstk__attention_composed_run(plan, q, k, v, terms, args.terms.scale, o, lse, scratch);
    args.q.data = q->data;
    args.k.data = k->data;
    args.v.data = v->data;
    args.o.data = o->data;
    args.lse.data = lse ? lse->data : NULL;
    args.plain = bstk__attention_plain(&args.terms);
    bstk__plan_run_tasks(base, &args, scratch);
    return BSTK_OK;
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
