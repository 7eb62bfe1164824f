/* norm_plan.c: checks a norm, chooses the kernel and cuts the work by stored blocks. */
#include "ops/norm/norm_plan.h"

#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "ops/operand.h"

#include <math.h>

static const char *const ops[3] = {"norm", "layernorm", "rmsnorm"}; /* by kind; compared by address */

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/norm/norm.def"
#undef BSTK_KERNEL
};

enum { X, WEIGHT, BIAS, Y, MEAN, RSTD, TENSORS };

static const char *const names[TENSORS] = {"x", "weight", "bias", "y", "mean", "rstd"};
static const bstk__norm_operands operands = {
    .names = names, .count = TENSORS, .first_output = Y, .in_place = Y, .source = X};

typedef struct norm_plan {
    bstk_plan base;
    bstk_norm_kind kind;
    bstk_tensor planned[TENSORS];
    bstk__norm_args args;
} norm_plan;

/* ---- shared with the gradient --------------------------------------------------------------------------------------
 */

bstk_status bstk__norm_check_rows(const bstk__norm_problem *p, const char *name, const bstk_tensor *t,
                                  bstk__norm_rows *rows) {
    bstk__view v;
    if (t == NULL)
        return BSTK_OK;
    BSTK_TRY(
        bstk__check_rows(p->who, name, t, "x", p->dtype, (const int64_t[]){p->batches, p->heads, p->layout->m}, &v));
    *rows = (bstk__norm_rows){.z = v.stride[1], .h = v.stride[2], .row = v.stride[3]};
    return BSTK_OK;
}

bstk_status bstk__norm_check_columns(const bstk__norm_problem *p, const char *name, const bstk_tensor *t,
                                     bstk__norm_columns *columns) {
    bstk__view v;
    if (t == NULL)
        return BSTK_OK;
    BSTK_TRY(bstk__view_make(p->who, name, t, 1, 2, &v));
    BSTK_TRY(bstk__check_float(p->who, name, t->dtype));
    if (v.shape[2] != 1 && v.shape[2] != p->heads)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %lld heads, expected 1 or %lld", p->who, name,
                          (long long)v.shape[2], (long long)p->heads);
    BSTK_TRY(bstk__check_size(p->who, name, "columns", v.shape[3], p->layout->n));
    *columns = (bstk__norm_columns){.dtype = t->dtype, .heads = v.shape[2], .h = v.stride[2], .col = v.stride[3]};
    return BSTK_OK;
}

bstk_status bstk__norm_check_like_x(const bstk__norm_problem *p, const char *name, const bstk_tensor *t,
                                    bstk__norm_values *values) {
    bstk__view v;
    BSTK_TRY(bstk__view_make(p->who, name, t, 3, 4, &v));
    if (t->dtype != p->dtype)
        return bstk__fail(BSTK_ERR_TYPE, "%s: %s is %s, expected %s as x", p->who, name, bstk_dtype_name(t->dtype),
                          bstk_dtype_name(p->dtype));
    BSTK_TRY(bstk__check_packed(p->who, name, t, &v, p->layout));
    BSTK_TRY(bstk__check_size(p->who, name, "batch size", v.shape[0], p->batches));
    BSTK_TRY(bstk__check_size(p->who, name, "stored blocks", v.shape[1], p->blocks));
    *values = (bstk__norm_values){.z = v.stride[0], .block = v.stride[1], .row = v.stride[2], .col = v.stride[3]};
    return BSTK_OK;
}

bstk_status bstk__norm_begin(const char *who, const bstk_layout *layout, const bstk_tensor *x,
                             const bstk_tensor *const *hints, int count, bstk__norm_problem *p, bstk__norm_args *args) {
    bstk__view v;
    BSTK_TRY(bstk__view_make(who, "x", x, 3, 4, &v));
    BSTK_TRY(bstk__check_float(who, "x", x->dtype));
    *p = (bstk__norm_problem){.who = who,
                              .layout = layout,
                              .dtype = x->dtype,
                              .batches = v.shape[0],
                              .blocks = v.shape[1],
                              .heads = layout->heads};
    *args = (bstk__norm_args){.batches = p->batches,
                              .layout_heads = layout->heads,
                              .row_ptr = layout->row_ptr,
                              .col_ptr = layout->col_ptr,
                              .col_perm = layout->col_perm,
                              .col_idx = layout->col_idx,
                              .col_row_idx = layout->col_row_idx,
                              .partial_idx = layout->partial_idx,
                              .partial_masks = layout->partial_masks,
                              .rows = layout->rows,
                              .cols = layout->cols,
                              .nnz = layout->nnz,
                              .m = layout->m,
                              .n = layout->n,
                              .edge = layout->block,
                              .parts = layout->block / 8};
    BSTK_TRY(bstk__norm_check_like_x(p, "x", x, &args->x));
    if (layout->heads == 1 && layout->nnz)
        p->heads = v.shape[1] / layout->nnz;
    for (int i = 0; i < count && layout->heads == 1 && layout->nnz == 0 && p->heads == 1; i++)
        if (hints[i] && hints[i]->ndim >= 2 && hints[i]->ndim <= BSTK_MAX_NDIM)
            p->heads = bstk__max(1, hints[i]->shape[hints[i]->ndim - 2]);
    args->heads = p->heads;
    return BSTK_OK;
}

bstk_status bstk__norm_select(bstk_context *ctx, const bstk__norm_problem *p, const bstk__norm_args *args,
                              const char *forced, const bstk__kernel **kernel) {
    const bstk__question question = {
        .op = p->who, .dtype = p->dtype, .packed_dtype = p->dtype, .block = args->edge, .args = args, .forced = forced};
    return bstk__select(ctx, kernels, sizeof kernels / sizeof *kernels, &question, kernel);
}

bstk_status bstk__norm_row_work(const bstk__norm_problem *p, const bstk__norm_args *args, bstk__work *work) {
    *work = (bstk__work){
        .line_ptr = args->row_ptr, .lines = args->layout_heads * args->rows, .parts = args->parts, .line_cost = 1};
    if (!bstk__mul(p->batches, p->heads / bstk__max(1, args->layout_heads), &work->repeats))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %lld batches x %lld heads do not fit 64 bits", p->who,
                          (long long)p->batches, (long long)p->heads);
    return BSTK_OK;
}

double bstk__norm_bytes(const bstk_tensor *const *tensors, int count) {
    double bytes = 0;
    for (int i = 0; i < count; i++) {
        double size = tensors[i] ? (double)bstk_dtype_size(tensors[i]->dtype) : 0;
        for (int32_t axis = 0; tensors[i] && axis < tensors[i]->ndim; axis++)
            size *= (double)tensors[i]->shape[axis];
        bytes += size;
    }
    return bytes;
}

void bstk__norm_remember(const bstk__norm_operands *o, const bstk_tensor *const *given, bstk_tensor *planned) {
    for (int i = 0; i < o->count; i++) {
        planned[i].ndim = -1;
        if (given[i])
            planned[i] = *given[i];
    }
}

bstk_status bstk__norm_check_run(const char *who, const bstk__norm_operands *o, const bstk_tensor *planned,
                                 const bstk_tensor *const *given) {
    for (int i = 0; i < o->count; i++)
        if (planned[i].ndim >= 0)
            BSTK_TRY(bstk__check_same(who, o->names[i], &planned[i], given[i]));
        else if (given[i])
            return bstk__fail(BSTK_ERR_MISMATCH, "%s: %s is given, but the plan was made without it", who, o->names[i]);
    for (int out = o->first_output; out < o->count; out++)
        for (int i = 0; i < out; i++) {
            if (given[out] == NULL || given[i] == NULL || !bstk__overlap(given[out], given[i]))
                continue;
            const bool pair = out == o->in_place && i == o->source;
            if (!pair || !bstk__identical(given[out], given[i]))
                return bstk__fail(BSTK_ERR_INVALID, "%s: %s overlaps %s%s%s%s", who, o->names[out], o->names[i],
                                  pair ? "; expected " : "", pair ? o->names[i] : "",
                                  pair ? " itself (in place) or other memory" : "");
        }
    return BSTK_OK;
}

/* ---- forward -------------------------------------------------------------------------------------------------------
 */

static bstk_status check_eps(const char *who, double eps) {
    if (!(eps >= 0) || isinf(eps))
        return bstk__fail(BSTK_ERR_INVALID, "%s: eps is %g, expected a finite number of 0 or more", who, eps);
    return BSTK_OK;
}

static bstk_status check_desc(const bstk_norm_desc *desc) {
    if (desc == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "norm: desc is NULL");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID, "norm: desc.struct_size is %zu, expected %zu (BSTK_NORM_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    if (desc->kind != BSTK_LAYERNORM && desc->kind != BSTK_RMSNORM)
        return bstk__fail(BSTK_ERR_INVALID, "norm: kind is %d, expected BSTK_LAYERNORM or BSTK_RMSNORM",
                          (int)desc->kind);
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: layout is NULL", ops[desc->kind]);
    return check_eps(ops[desc->kind], desc->eps);
}

static bstk_status check_problem(const bstk_norm_desc *d, bstk__norm_problem *p, bstk__norm_args *args) {
    const char *who = ops[d->kind];
    BSTK_TRY(bstk__norm_begin(who, d->layout, d->x, (const bstk_tensor *const[]){d->rstd, d->mean, d->weight, d->bias},
                              4, p, args));
    BSTK_TRY(bstk__norm_check_like_x(p, "y", d->y, &args->y));
    BSTK_TRY(bstk__check_output(who, "y", d->y));
    if (d->mean && d->kind != BSTK_LAYERNORM)
        return bstk__fail(BSTK_ERR_INVALID, "rmsnorm: mean is given, expected NULL: only layernorm has a mean");
    BSTK_TRY(bstk__norm_check_columns(p, "weight", d->weight, &args->weight));
    BSTK_TRY(bstk__norm_check_columns(p, "bias", d->bias, &args->bias));
    BSTK_TRY(bstk__norm_check_rows(p, "mean", d->mean, &args->mean));
    BSTK_TRY(bstk__norm_check_rows(p, "rstd", d->rstd, &args->rstd));
    if (d->mean)
        BSTK_TRY(bstk__check_output(who, "mean", d->mean));
    return d->rstd ? bstk__check_output(who, "rstd", d->rstd) : BSTK_OK;
}

/* The tensors in the order of `names`. */
static void list(const bstk_norm_desc *d, const bstk_tensor *given[TENSORS]) {
    const bstk_tensor *all[TENSORS] = {d->x, d->weight, d->bias, d->y, d->mean, d->rstd};
    for (int i = 0; i < TENSORS; i++)
        given[i] = all[i];
}

static bstk_status finish(const bstk_norm_desc *d, const bstk__norm_problem *p, norm_plan *plan) {
    const bstk_tensor *given[TENSORS];
    const bstk__kernel *kernel;
    bstk__work work;
    list(d, given);
    plan->kind = d->kind;
    bstk__norm_remember(&operands, given, plan->planned);
    BSTK_TRY(bstk__norm_select(plan->base.ctx, p, &plan->args, d->kernel, &kernel));
    BSTK_TRY(bstk__norm_row_work(p, &plan->args, &work));
    const double elements = (double)p->batches * (double)p->blocks * p->layout->block * p->layout->block;
    /* layernorm: 1 for the mean, 3 for the variance, 4 for y; rmsnorm: 2 for the squares, 3 for y */
    plan->base.flops = (d->kind == BSTK_LAYERNORM ? 8 : 5) * elements;
    plan->base.bytes = bstk__norm_bytes(given, TENSORS);
    return bstk__plan_schedule(&plan->base, kernel, &work, 2 * plan->base.flops, 0);
}

bstk_status bstk_norm_plan(bstk_context *ctx, const bstk_norm_desc *desc, bstk_plan **out) {
    bstk__norm_problem p;
    bstk__norm_args args;
    BSTK_TRY(check_desc(desc));
    if (out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: out is NULL", ops[desc->kind]);
    BSTK_TRY(check_problem(desc, &p, &args));
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, p.who, sizeof(norm_plan), &plan));
    ((norm_plan *)plan)->args = args;
    const bstk_status status = finish(desc, &p, (norm_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

bstk_status bstk_norm_run(const bstk_plan *base, const bstk_norm_desc *desc, const bstk_exec *exec) {
    if (base == NULL || (base->op != ops[BSTK_LAYERNORM] && base->op != ops[BSTK_RMSNORM]))
        return bstk__fail(BSTK_ERR_INVALID, "norm: plan is %s", base ? "for another op" : "NULL");
    const norm_plan *plan = (const norm_plan *)base;
    const bstk_tensor *given[TENSORS];
    bstk__norm_args args = plan->args;
    void *scratch;
    BSTK_TRY(check_desc(desc));
    if (desc->kind != plan->kind)
        return bstk__fail(BSTK_ERR_MISMATCH, "norm: kind is %s, but the plan was made for %s", ops[desc->kind],
                          base->op);
    if (desc->layout != base->layout)
        return bstk__fail(BSTK_ERR_MISMATCH, "%s: layout is another one than the plan's", base->op);
    list(desc, given);
    BSTK_TRY(bstk__norm_check_run(base->op, &operands, plan->planned, given));
    BSTK_TRY(bstk__plan_scratch(base, base->op, exec, &scratch));
    args.x.data = desc->x->data;
    args.y.data = desc->y->data;
    args.weight.data = desc->weight ? desc->weight->data : NULL;
    args.bias.data = desc->bias ? desc->bias->data : NULL;
    args.mean.data = desc->mean ? desc->mean->data : NULL;
    args.rstd.data = desc->rstd ? desc->rstd->data : NULL;
    args.eps = desc->eps;
    bstk__plan_run_tasks(base, &args, scratch);
    return BSTK_OK;
}

bstk_status bstk_norm(bstk_context *ctx, const bstk_norm_desc *desc) {
    bstk_plan *plan;
    BSTK_TRY(bstk_norm_plan(ctx, desc, &plan));
    const bstk_status status = bstk_norm_run(plan, desc, NULL); /* without scratch */
    bstk_plan_release(plan);
    return status;
}
