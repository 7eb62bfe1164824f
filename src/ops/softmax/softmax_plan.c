/* softmax_plan.c: checks a softmax, chooses the kernel and cuts the work by stored blocks. */
#include "ops/softmax/softmax_plan.h"

#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/operand.h"
#include "ops/softmax/softmax_kernel.h"
#include "plan/plan_impl.h"

static const char OP[] = "softmax";

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/softmax/softmax.def"
#undef BSTK_KERNEL
};

typedef struct softmax_plan {
    bstk_plan base;
    bstk_tensor x, y, lse, saved; /* descriptions; ndim -1: none */
    bstk__terms_spec spec;
    bstk__softmax_args args;
} softmax_plan;

static bstk_status check_desc(const bstk_softmax_desc *desc, bstk_plan **out) {
    if (desc == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "softmax: %s is NULL", desc ? "out" : "desc");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID, "softmax: desc.struct_size is %zu, expected %zu (BSTK_SOFTMAX_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "softmax: layout is NULL");
    return BSTK_OK;
}

static bstk__softmax_values values(const bstk__view *v) {
    return (bstk__softmax_values){.z = v->stride[0], .block = v->stride[1], .row = v->stride[2], .col = v->stride[3]};
}

static bstk_status check_lse(const bstk_softmax_desc *desc, int64_t batches, softmax_plan *plan) {
    bstk__view v;
    bstk__softmax_args *g = &plan->args;
    plan->lse.ndim = -1;
    if (desc->lse == NULL)
        return BSTK_OK;
    BSTK_TRY(bstk__check_lse(OP, desc->lse, "x", desc->x->dtype, (const int64_t[]){batches, g->heads, g->m}, &v));
    plan->lse = *desc->lse;
    g->lse_z = v.stride[1];
    g->lse_h = v.stride[2];
    g->lse_row = v.stride[3];
    return BSTK_OK;
}

/* y before dropout: as y. */
static bstk_status check_saved(const bstk_softmax_desc *desc, const bstk__view *x, softmax_plan *plan) {
    bstk__view v;
    plan->saved.ndim = -1;
    if (desc->saved == NULL)
        return BSTK_OK;
    BSTK_TRY(bstk__view_make(OP, "saved", desc->saved, 3, 4, &v));
    if (desc->saved->dtype != desc->x->dtype)
        return bstk__fail(BSTK_ERR_TYPE, "softmax: saved is %s, expected %s as x", bstk_dtype_name(desc->saved->dtype),
                          bstk_dtype_name(desc->x->dtype));
    BSTK_TRY(bstk__check_packed(OP, "saved", desc->saved, &v, desc->layout));
    BSTK_TRY(bstk__check_size(OP, "saved", "batch size", v.shape[0], x->shape[0]));
    BSTK_TRY(bstk__check_size(OP, "saved", "stored blocks", v.shape[1], x->shape[1]));
    BSTK_TRY(bstk__check_output(OP, "saved", desc->saved));
    plan->saved = *desc->saved;
    plan->args.saved = values(&v);
    return BSTK_OK;
}

/* With a shared layout the values tell the heads; where no block is stored, lse or a term does, or the caller. */
static int64_t heads_of(const bstk_softmax_desc *desc, const bstk__view *x, int64_t heads) {
    const bstk_layout *l = desc->layout;
    if (l->heads != 1)
        return l->heads;
    if (heads)
        return heads;
    if (l->nnz)
        return x->shape[1] / l->nnz;
    if (desc->lse && desc->lse->ndim >= 2 && desc->lse->ndim <= 3)
        return desc->lse->shape[desc->lse->ndim - 2];
    return bstk__terms_heads(&desc->terms);
}

static bstk_status fill(const bstk_softmax_desc *desc, const bstk__view *x, const bstk__view *y, int64_t heads,
                        softmax_plan *plan) {
    const bstk_layout *l = desc->layout;
    bstk__softmax_args *g = &plan->args;
    plan->x = *desc->x;
    plan->y = *desc->y;
    *g = (bstk__softmax_args){.x = values(x),
                              .y = values(y),
                              .line_ptr = l->row_ptr,
                              .col_idx = l->col_idx,
                              .nnz = l->nnz,
                              .lines = l->heads * l->rows,
                              .head_lines = l->rows,
                              .layout_heads = l->heads,
                              .heads = heads_of(desc, x, heads),
                              .m = l->m,
                              .n = l->n,
                              .edge = l->block,
                              .parts = l->block / 8};
    for (int64_t line = 0; line < g->lines; line++)
        g->row_blocks = bstk__max(g->row_blocks, l->row_ptr[line + 1] - l->row_ptr[line]);
    BSTK_TRY(check_lse(desc, x->shape[0], plan));
    BSTK_TRY(check_saved(desc, x, plan));
    BSTK_TRY(bstk__terms_plan(OP, &desc->terms, x->shape[0], g->heads, g->m, g->n, &g->terms, &plan->spec));
    g->terms.partial_idx = l->partial_idx;
    g->terms.partial_masks = l->partial_masks;
    return BSTK_OK;
}

static bstk_status finish(const bstk_softmax_desc *desc, const bstk__view *x, const bstk__view *y, int64_t heads,
                          softmax_plan *plan) {
    BSTK_TRY(fill(desc, x, y, heads, plan));
    const bstk__softmax_args *g = &plan->args;
    const bstk_dtype dtype = desc->x->dtype;
    const bstk__question question = {
        .op = OP, .dtype = dtype, .packed_dtype = dtype, .block = g->edge, .args = g, .forced = desc->kernel};
    const bstk__kernel *kernel;
    BSTK_TRY(bstk__select(plan->base.ctx, kernels, sizeof kernels / sizeof *kernels, &question, &kernel));
    bstk__work work = {.line_ptr = g->line_ptr, .lines = g->lines, .parts = g->parts, .line_cost = 1};
    if (!bstk__mul(x->shape[0], g->heads / bstk__max(1, g->layout_heads), &work.repeats))
        return bstk__fail(BSTK_ERR_OVERFLOW, "softmax: %lld batches x %lld heads do not fit 64 bits",
                          (long long)x->shape[0], (long long)g->heads);
    const double elements = bstk__view_elements(x);
    plan->base.flops = 5 * elements; /* scale, max, subtract and exponential as one, sum, divide */
    plan->base.bytes = 2 * elements * (double)bstk_dtype_size(dtype);
    const size_t scratch = kernel->scratch_bytes
                               ? kernel->scratch_bytes(g)
                               : bstk__softmax_scratch_bytes(g, dtype == BSTK_F64 ? sizeof(double) : sizeof(float));
    return bstk__plan_schedule(&plan->base, kernel, &work, 16 * elements, scratch); /* an exponential is 12 of them */
}

bstk_status bstk__softmax_plan_make(bstk_context *ctx, const bstk_softmax_desc *desc, int64_t heads, bstk_plan **out) {
    bstk__view x, y;
    BSTK_TRY(check_desc(desc, out));
    BSTK_TRY(bstk__view_make(OP, "x", desc->x, 3, 4, &x));
    BSTK_TRY(bstk__view_make(OP, "y", desc->y, 3, 4, &y));
    BSTK_TRY(bstk__check_float(OP, "x", desc->x->dtype));
    if (desc->y->dtype != desc->x->dtype)
        return bstk__fail(BSTK_ERR_TYPE, "softmax: y is %s, expected %s as x", bstk_dtype_name(desc->y->dtype),
                          bstk_dtype_name(desc->x->dtype));
    BSTK_TRY(bstk__check_packed(OP, "x", desc->x, &x, desc->layout));
    BSTK_TRY(bstk__check_packed(OP, "y", desc->y, &y, desc->layout));
    BSTK_TRY(bstk__check_size(OP, "y", "batch size", y.shape[0], x.shape[0]));
    BSTK_TRY(bstk__check_size(OP, "y", "stored blocks", y.shape[1], x.shape[1]));
    BSTK_TRY(bstk__check_output(OP, "y", desc->y));
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, OP, sizeof(softmax_plan), &plan));
    const bstk_status status = finish(desc, &x, &y, heads, (softmax_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

bstk_status bstk_softmax_plan(bstk_context *ctx, const bstk_softmax_desc *desc, bstk_plan **out) {
    return bstk__softmax_plan_make(ctx, desc, 0, out);
}

/* An optional output of a run: there exactly if it was planned, and apart from all that the run reads or writes. */
static bstk_status check_optional(const char *name, const bstk_tensor *spec, const bstk_tensor *given,
                                  const bstk_tensor *const others[3], const bstk_score_terms *terms) {
    static const char *const names[3] = {"x", "y", "lse"};
    if (spec->ndim < 0)
        return given ? bstk__fail(BSTK_ERR_MISMATCH, "softmax: %s is given, but the plan was made without it", name)
                     : BSTK_OK;
    BSTK_TRY(bstk__check_same(OP, name, spec, given));
    for (int i = 0; i < 3; i++)
        if (others[i] && bstk__overlap(given, others[i]))
            return bstk__fail(BSTK_ERR_INVALID, "softmax: %s overlaps %s", name, names[i]);
    return bstk__terms_check_overlap(OP, name, given, terms);
}

static bstk_status check_outputs(const softmax_plan *plan, const bstk_tensor *x, const bstk_score_terms *terms,
                                 const bstk_tensor *y, const bstk_tensor *lse, const bstk_tensor *saved) {
    if (bstk__overlap(x, y) && !bstk__identical(x, y))
        return bstk__fail(BSTK_ERR_INVALID, "softmax: y overlaps x; expected x itself (in place) or other memory");
    BSTK_TRY(bstk__terms_check_overlap(OP, "y", y, terms));
    BSTK_TRY(check_optional("lse", &plan->lse, lse, (const bstk_tensor *const[3]){x, y, NULL}, terms));
    return check_optional("saved", &plan->saved, saved, (const bstk_tensor *const[3]){x, y, lse}, terms);
}

bstk_status bstk_softmax_run(const bstk_plan *base, const bstk_tensor *x, const bstk_score_terms *terms,
                             const bstk_tensor *y, const bstk_tensor *lse, const bstk_tensor *saved,
                             const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "softmax: plan is %s", base ? "for another op" : "NULL");
    const softmax_plan *plan = (const softmax_plan *)base;
    bstk__softmax_args args = plan->args;
    void *scratch;
    BSTK_TRY(bstk__check_same(OP, "x", &plan->x, x));
    BSTK_TRY(bstk__check_same(OP, "y", &plan->y, y));
    BSTK_TRY(bstk__terms_run(OP, &plan->spec, terms, 1.0, &args.terms));
    BSTK_TRY(check_outputs(plan, x, terms, y, lse, saved));
    BSTK_TRY(bstk__plan_scratch(base, OP, exec, &scratch));
    args.x.data = x->data;
    args.y.data = y->data;
    args.lse = lse ? lse->data : NULL;
    args.saved.data = saved ? saved->data : NULL;
    bstk__plan_run_tasks(base, &args, scratch);
    return BSTK_OK;
}

bstk_status bstk_softmax(bstk_context *ctx, const bstk_softmax_desc *desc) {
    bstk_plan *plan;
    bstk_exec exec;
    BSTK_TRY(bstk_softmax_plan(ctx, desc, &plan));
    bstk_status status = bstk__plan_take_scratch(plan, OP, &exec);
    if (status == BSTK_OK)
        status = bstk_softmax_run(plan, desc->x, &desc->terms, desc->y, desc->lse, desc->saved, &exec);
    bstk__free(plan->ctx, exec.scratch);
    bstk_plan_release(plan);
    return status;
}
