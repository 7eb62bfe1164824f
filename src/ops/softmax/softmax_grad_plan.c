/*
 * softmax_grad_plan.c: checks the gradient of a softmax and cuts its phases (softmax_grad_kernel.h): the rows, then
 * each wanted term over its own elements. The rows' delta lies in the scratch of a run.
 */
#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/operand.h"
#include "ops/softmax/softmax_grad_kernel.h"
#include "plan/plan_impl.h"

static const char OP[] = "softmax_grad";
enum { ALIGN = 64 };

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/softmax/softmax.def"
#undef BSTK_KERNEL
};

/* A wanted gradient of a term: its cut, and what its phase adds to the arguments of the rows. */
typedef struct term_phase {
    bstk_plan *plan; /* NULL: not wanted */
    bstk__grad_phase phase;
    bstk__grad_term term;
} term_phase;

/* The tensors of a descriptor beside the terms. */
enum { Y, D_Y, D_LSE, X, LSE, INPUTS, D_X = INPUTS, TERM, TENSORS = TERM + BSTK__TERM_GRADS };

static const char *const names[TENSORS] = {
    "y", "d_y", "d_lse", "x", "lse", "d_x", "d_rpe", "d_rel_logits", "d_key_padding_mask", "d_attn_mask", "d_sinks"};

typedef struct grad_plan {
    bstk_plan base;
    bstk_tensor specs[TENSORS]; /* ndim -1: none, or not looked at */
    bstk__terms_spec spec;
    bstk__softmax_grad_args args; /* of the rows */
    term_phase terms[BSTK__TERM_GRADS];
    bool needs_delta;   /* some term is wanted */
    size_t delta_bytes; /* rounded up to ALIGN */
} grad_plan;

static void destroy(bstk_plan *plan) {
    for (int i = 0; i < BSTK__TERM_GRADS; i++)
        bstk_plan_release(((grad_plan *)plan)->terms[i].plan);
}

/* All tensors in the order of `names`, without those that the wanted gradients do not need. */
static void read_tensors(const bstk_softmax_grad_desc *d, const bstk_tensor *out[TENSORS]) {
    const bstk_tensor *const all[TENSORS] = {d->y,
                                             d->d_y,
                                             d->d_lse,
                                             d->terms.softcap != 0 && d->d_x ? d->x : NULL,
                                             d->d_sinks ? d->lse : NULL,
                                             d->d_x,
                                             d->d_rpe,
                                             d->d_rel_logits,
                                             d->d_key_padding_mask,
                                             d->d_attn_mask,
                                             d->d_sinks};
    for (int i = 0; i < TENSORS; i++)
        out[i] = all[i];
}

/* The terms without those that the wanted gradients do not need: masks and the like are all in y. */
static bstk_score_terms needed_terms(const bstk_softmax_grad_desc *d) {
    bstk_score_terms t = BSTK_SCORE_TERMS_INIT;
    t.struct_size = d->terms.struct_size;
    t.scale = d->terms.scale;
    t.softcap = d->terms.softcap;
    t.dropout = d->terms.dropout;
    t.dropout_seed = d->terms.dropout_seed;
    t.dropout_offset = d->terms.dropout_offset;
    if (d->d_sinks)
        t.sinks = d->terms.sinks;
    if (d->d_rel_logits) {
        t.cu_seqlens_q = d->terms.cu_seqlens_q;
        t.cu_seqlens_k = d->terms.cu_seqlens_k;
    }
    return t;
}

static bstk_status check_desc(const bstk_softmax_grad_desc *desc) {
    if (desc == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: desc is NULL");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID,
                          "softmax_grad: desc.struct_size is %zu, expected %zu (BSTK_SOFTMAX_GRAD_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    return BSTK_OK;
}

static bstk_status check_wanted(const bstk_softmax_grad_desc *d) {
    const bstk_tensor *tensors[TENSORS];
    bool wanted = false;
    read_tensors(d, tensors);
    for (int i = D_X; i < TENSORS; i++)
        wanted |= tensors[i] != NULL;
    if (!wanted)
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: no gradient is wanted, expected d_x or one of a term");
    if (d->terms.softcap != 0 && d->d_x && d->x == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: x is NULL, but d_x with a softcap needs it");
    if (d->d_sinks && (d->terms.sinks == NULL || d->lse == NULL))
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: %s is NULL, but d_sinks needs it",
                          d->lse ? "terms.sinks" : "lse");
    return BSTK_OK;
}

static bstk__softmax_values values(const bstk__view *v) {
    return (bstk__softmax_values){.z = v->stride[0], .block = v->stride[1], .row = v->stride[2], .col = v->stride[3]};
}

/* d_y, x and d_x: packed values like y. */
static bstk_status check_values(const bstk_layout *layout, const bstk_tensor *const tensors[TENSORS], int i,
                                const bstk__view *y, bstk__softmax_values *out) {
    bstk__view v;
    BSTK_TRY(bstk__view_make(OP, names[i], tensors[i], 3, 4, &v));
    if (v.dtype != y->dtype)
        return bstk__fail(BSTK_ERR_TYPE, "softmax_grad: %s is %s, expected %s as y", names[i], bstk_dtype_name(v.dtype),
                          bstk_dtype_name(y->dtype));
    BSTK_TRY(bstk__check_packed(OP, names[i], tensors[i], &v, layout));
    BSTK_TRY(bstk__check_size(OP, names[i], "batch size", v.shape[0], y->shape[0]));
    BSTK_TRY(bstk__check_size(OP, names[i], "stored blocks", v.shape[1], y->shape[1]));
    if (i >= INPUTS)
        BSTK_TRY(bstk__check_output(OP, names[i], tensors[i]));
    *out = values(&v);
    return BSTK_OK;
}

/* lse and d_lse, inputs here: any strides. */
static bstk_status check_rows(const bstk_tensor *const tensors[TENSORS], int i, const bstk__softmax_grad_args *g,
                              bstk__grad_rows *out) {
    static const char *const axes[3] = {"batch size", "heads", "rows"};
    const int64_t sizes[3] = {g->batches, g->heads, g->m};
    const bstk_dtype y = tensors[Y]->dtype, need = y == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    bstk__view v;
    if (tensors[i] == NULL)
        return BSTK_OK;
    BSTK_TRY(bstk__view_make(OP, names[i], tensors[i], 1, 3, &v));
    if (v.dtype != need)
        return bstk__fail(BSTK_ERR_TYPE, "softmax_grad: %s is %s, expected %s beside y of %s", names[i],
                          bstk_dtype_name(v.dtype), bstk_dtype_name(need), bstk_dtype_name(y));
    for (int axis = 0; axis < 3; axis++)
        BSTK_TRY(bstk__check_size(OP, names[i], axes[axis], v.shape[axis + 1], sizes[axis]));
    *out = (bstk__grad_rows){.z = v.stride[1], .h = v.stride[2], .row = v.stride[3]};
    return BSTK_OK;
}

/* With a shared layout the values tell the heads; where no block is stored, whatever else has heads does. */
static int64_t heads_of(const bstk_layout *l, const bstk_tensor *const tensors[TENSORS]) {
    static const struct {
        int tensor, axis, least; /* heads are this axis, from the last one, of tensors of at least so many axes */
    } with_heads[] = {{LSE, 2, 2},
                      {D_LSE, 2, 2},
                      {TERM + BSTK__D_SINKS, 1, 1},
                      {TERM + BSTK__D_RPE, 3, 3},
                      {TERM + BSTK__D_REL, 3, 3},
                      {TERM + BSTK__D_ATTN, 3, 4}}; /* of three axes: [Z, M, N] */
    if (l->heads != 1)
        return l->heads;
    if (l->nnz)
        return tensors[Y]->shape[tensors[Y]->ndim - 3] / l->nnz;
    for (size_t i = 0; i < sizeof with_heads / sizeof *with_heads; i++) {
        const bstk_tensor *t = tensors[with_heads[i].tensor];
        const int32_t axis = t && t->ndim >= with_heads[i].least ? t->ndim - with_heads[i].axis : -1;
        if (axis >= 0 && axis < BSTK_MAX_NDIM && t->shape[axis] != 1)
            return t->shape[axis];
    }
    return 1;
}

static bstk_status fill(const bstk_softmax_grad_desc *d, const bstk_tensor *const tensors[TENSORS], grad_plan *plan) {
    const bstk_layout *l = d->layout;
    bstk__softmax_grad_args *g = &plan->args;
    bstk__view y;
    BSTK_TRY(bstk__view_make(OP, "y", tensors[Y], 3, 4, &y));
    BSTK_TRY(bstk__check_float(OP, "y", y.dtype));
    BSTK_TRY(bstk__check_packed(OP, "y", tensors[Y], &y, l));
    *g = (bstk__softmax_grad_args){.phase = BSTK__GRAD_ROWS,
                                   .y = values(&y),
                                   .row_ptr = l->row_ptr,
                                   .col_ptr = l->col_ptr,
                                   .col_idx = l->col_idx,
                                   .col_row_idx = l->col_row_idx,
                                   .col_perm = l->col_perm,
                                   .nnz = l->nnz,
                                   .rows = l->rows,
                                   .cols = l->cols,
                                   .layout_heads = l->heads,
                                   .batches = y.shape[0],
                                   .heads = heads_of(l, tensors),
                                   .m = l->m,
                                   .n = l->n,
                                   .edge = l->block,
                                   .parts = l->block / 8};
    for (int64_t line = 0; line < l->heads * l->rows; line++)
        g->row_blocks = bstk__max(g->row_blocks, l->row_ptr[line + 1] - l->row_ptr[line]);
    BSTK_TRY(check_values(l, tensors, D_Y, &y, &g->d_y));
    if (tensors[X])
        BSTK_TRY(check_values(l, tensors, X, &y, &g->x));
    if (tensors[D_X])
        BSTK_TRY(check_values(l, tensors, D_X, &y, &g->d_x));
    BSTK_TRY(check_rows(tensors, D_LSE, g, &g->d_lse));
    BSTK_TRY(check_rows(tensors, LSE, g, &g->lse));
    const bstk_score_terms terms = needed_terms(d);
    BSTK_TRY(bstk__terms_plan(OP, &terms, g->batches, g->heads, g->m, g->n, &g->terms, &plan->spec));
    g->terms.dropout = terms.dropout; /* a run may have another one, above 0 all the same: sizes the scratch */
    for (int i = 0; i < TENSORS; i++) {
        plan->specs[i].ndim = -1;
        if (tensors[i])
            plan->specs[i] = *tensors[i];
    }
    return BSTK_OK;
}

static bstk__grad_phase phase_of(const bstk__softmax_grad_args *g, bstk__term_grad kind, const bstk__view *v) {
    if (kind == BSTK__D_SINKS)
        return BSTK__GRAD_SINKS;
    if (v->shape[2] == g->m)
        return BSTK__GRAD_TERM_ROWS;
    return kind == BSTK__D_REL ? BSTK__GRAD_TERM_DIAGONALS : BSTK__GRAD_TERM_COLS;
}

/* Blocks before each line of a term that all heads of the layout share; NULL without memory. */
static int64_t *sum_over_heads(bstk_context *ctx, const bstk_layout *l, const int64_t *ptr, int64_t lines) {
    int64_t *sums = bstk__alloc_zeroed(ctx, lines + 1, sizeof *sums);
    for (int64_t i = 0; sums && i < lines; i++) {
        sums[i + 1] = sums[i];
        for (int64_t h = 0; h < l->heads; h++)
            sums[i + 1] += ptr[h * lines + i + 1] - ptr[h * lines + i];
    }
    return sums;
}

/* Cuts the phase of a term: its lines cost the blocks that are summed into them. */
static bstk_status schedule_term(const bstk__softmax_grad_args *g, const bstk__kernel *kernel, double cost,
                                 term_phase *t) {
    const bstk_layout *l = t->plan->layout;
    const bool by_rows = t->phase == BSTK__GRAD_TERM_ROWS, by_lines = by_rows || t->phase == BSTK__GRAD_TERM_COLS;
    const int64_t *ptr = by_rows ? l->row_ptr : l->col_ptr;
    int64_t lines = by_rows ? l->rows : l->cols, *sums = NULL, shared = 1;
    bstk__work work = {.repeats = 1, .parts = 1, .lines = g->heads, .line_cost = 1}; /* sinks */
    if (t->phase == BSTK__GRAD_TERM_DIAGONALS) {
        work.lines = bstk__ceil_div(t->term.columns, BSTK__GRAD_TILE);
        shared = t->term.heads;
    } else if (by_lines && t->term.heads == 1 && l->heads > 1) {
        sums = sum_over_heads(t->plan->ctx, l, ptr, lines);
        if (sums == NULL)
            return bstk__fail(BSTK_ERR_NOMEM, "softmax_grad: out of memory (%lld lines of a term)", (long long)lines);
        ptr = sums;
    } else if (by_lines) {
        const int64_t heads = t->term.heads == 1 ? 1 : l->heads; /* 0: nothing to do, nor are there lines */
        lines *= heads;
        shared = t->term.heads / bstk__max(1, heads);
    }
    if (by_lines) {
        work.line_ptr = ptr;
        work.lines = lines;
        work.parts = g->parts;
    }
    const bool fits = t->phase == BSTK__GRAD_SINKS || bstk__mul(t->term.batches, shared, &work.repeats);
    bstk_status status =
        fits ? bstk__plan_schedule(t->plan, kernel, &work, cost, 0)
             : bstk__fail(BSTK_ERR_OVERFLOW, "softmax_grad: %lld batches x %lld heads do not fit 64 bits",
                          (long long)t->term.batches, (long long)shared);
    bstk__free(t->plan->ctx, sums);
    return status;
}

static bstk_status make_term(const bstk_tensor *tensor, bstk__term_grad kind, const bstk__kernel *kernel, double cost,
                             grad_plan *plan) {
    const bstk__softmax_grad_args *g = &plan->args;
    term_phase *t = &plan->terms[kind];
    bstk__view v;
    if (tensor == NULL)
        return BSTK_OK;
    BSTK_TRY(bstk__term_grad_view(OP, kind, tensor, g->batches, g->heads, g->m, g->n, &v));
    t->phase = phase_of(g, kind, &v);
    t->term = (bstk__grad_term){.dtype = v.dtype,
                                .rel = kind == BSTK__D_REL,
                                .batches = v.shape[0],
                                .heads = v.shape[1],
                                .rows = v.shape[2],
                                .columns = v.shape[3],
                                .z = v.stride[0],
                                .h = v.stride[1],
                                .row = v.stride[2],
                                .col = v.stride[3]};
    plan->needs_delta = true;
    plan->base.bytes += bstk__view_elements(&v) * (double)bstk_dtype_size(v.dtype);
    BSTK_TRY(bstk__plan_new(plan->base.ctx, plan->base.layout, OP, sizeof(bstk_plan), &t->plan));
    return schedule_term(g, kernel, cost, t);
}

/* Scratch of a run: delta, then the workers' rows. */
static bstk_status make_scratch(size_t acc, grad_plan *plan) {
    const bstk__softmax_grad_args *g = &plan->args;
    int64_t bytes = (int64_t)acc, all = (int64_t)plan->base.scratch_bytes;
    if (!plan->needs_delta)
        return BSTK_OK;
    if (!bstk__mul(bytes, g->batches, &bytes) || !bstk__mul(bytes, g->heads, &bytes) ||
        !bstk__mul(bytes, g->m, &bytes) || !bstk__add(bytes, ALIGN, &bytes) || !bstk__add(all, bytes, &all))
        return bstk__fail(BSTK_ERR_OVERFLOW,
                          "softmax_grad: scratch of %lld batches x %lld heads x %lld rows does not fit 64 bits",
                          (long long)g->batches, (long long)g->heads, (long long)g->m);
    plan->delta_bytes = (size_t)((bytes - 1) / ALIGN * ALIGN);
    if (plan->base.scratch_bytes == 0 && plan->delta_bytes) /* ALIGN - 1: the caller's may be unaligned */
        plan->base.scratch_bytes = ALIGN - 1;
    plan->base.scratch_bytes += plan->delta_bytes;
    return BSTK_OK;
}

static bstk_status finish(const bstk_softmax_grad_desc *d, grad_plan *plan) {
    const bstk_tensor *tensors[TENSORS];
    bstk__softmax_grad_args *g = &plan->args;
    read_tensors(d, tensors);
    BSTK_TRY(fill(d, tensors, plan));
    const bstk_dtype dtype = tensors[Y]->dtype;
    const size_t acc = dtype == BSTK_F64 ? sizeof(double) : sizeof(float);
    const bstk__question question = {
        .op = OP, .dtype = dtype, .packed_dtype = dtype, .block = g->edge, .args = g, .forced = d->kernel};
    const bstk__kernel *kernel;
    BSTK_TRY(bstk__select(plan->base.ctx, kernels, sizeof kernels / sizeof *kernels, &question, &kernel));
    const double elements = (double)g->batches * (double)tensors[Y]->shape[tensors[Y]->ndim - 3] * g->edge * g->edge;
    plan->base.bytes = (d->d_x ? 3 : 2) * elements * (double)bstk_dtype_size(dtype);
    const double cost = (g->terms.dropout > 0 ? 30 : 10) * elements; /* of any phase: loads, products, 40 for a tanh */
    for (int i = 0; i < BSTK__TERM_GRADS; i++)
        BSTK_TRY(make_term(tensors[TERM + i], (bstk__term_grad)i, kernel, cost, plan));
    bstk__work work = {.line_ptr = g->row_ptr, .lines = g->layout_heads * g->rows, .parts = g->parts, .line_cost = 1};
    if (!bstk__mul(g->batches, g->heads / bstk__max(1, g->layout_heads), &work.repeats))
        return bstk__fail(BSTK_ERR_OVERFLOW, "softmax_grad: %lld batches x %lld heads do not fit 64 bits",
                          (long long)g->batches, (long long)g->heads);
    plan->base.flops = 5 * elements; /* y * g and its sum, subtract, two products */
    BSTK_TRY(bstk__plan_schedule(&plan->base, kernel, &work, cost + (tensors[X] ? 40 * elements : 0),
                                 kernel->scratch_bytes ? kernel->scratch_bytes(g)
                                                       : (size_t)(g->row_blocks * g->edge) * acc));
    return make_scratch(acc, plan);
}

bstk_status bstk_softmax_grad_plan(bstk_context *ctx, const bstk_softmax_grad_desc *desc, bstk_plan **out) {
    BSTK_TRY(check_desc(desc));
    if (out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: out is NULL");
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: layout is NULL");
    BSTK_TRY(check_wanted(desc));
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, OP, sizeof(grad_plan), &plan));
    plan->destroy = destroy;
    const bstk_status status = finish(desc, (grad_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

/* No output may touch an input, a term or another output; d_x may be d_y itself. */
static bstk_status check_outputs(const bstk_tensor *const tensors[TENSORS], const bstk_score_terms *terms) {
    for (int i = D_X; i < TENSORS; i++) {
        if (tensors[i] == NULL)
            continue;
        for (int k = 0; k < i; k++) {
            if (tensors[k] == NULL || !bstk__overlap(tensors[i], tensors[k]))
                continue;
            if (i != D_X || k != D_Y)
                return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: %s overlaps %s", names[i], names[k]);
            if (!bstk__identical(tensors[i], tensors[k]))
                return bstk__fail(BSTK_ERR_INVALID,
                                  "softmax_grad: d_x overlaps d_y; expected d_y itself (in place) or other memory");
        }
        BSTK_TRY(bstk__terms_check_overlap(OP, names[i], tensors[i], terms));
    }
    return BSTK_OK;
}

static void *data_of(const bstk_tensor *t) {
    return t ? t->data : NULL;
}

static bstk_status check_run(const grad_plan *plan, const bstk_softmax_grad_desc *desc,
                             const bstk_tensor *tensors[TENSORS], bstk__terms *terms) {
    BSTK_TRY(check_desc(desc));
    read_tensors(desc, tensors);
    const bstk_score_terms needed = needed_terms(desc);
    BSTK_TRY(bstk__terms_run(OP, &plan->spec, &needed, 1.0, terms));
    for (int i = 0; i < TENSORS; i++) {
        const bool planned = plan->specs[i].ndim >= 0;
        if (planned)
            BSTK_TRY(bstk__check_same(OP, names[i], &plan->specs[i], tensors[i]));
        else if (tensors[i])
            return bstk__fail(BSTK_ERR_MISMATCH, "softmax_grad: %s is given, but the plan was made without it",
                              names[i]);
    }
    return check_outputs(tensors, &needed);
}

bstk_status bstk_softmax_grad_run(const bstk_plan *base, const bstk_softmax_grad_desc *desc, const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "softmax_grad: plan is %s", base ? "for another op" : "NULL");
    const grad_plan *plan = (const grad_plan *)base;
    const bstk_tensor *tensors[TENSORS];
    bstk__softmax_grad_args args = plan->args;
    void *scratch;
    BSTK_TRY(check_run(plan, desc, tensors, &args.terms));
    BSTK_TRY(bstk__plan_scratch(base, OP, exec, &scratch));
    void *const workers = base->worker_scratch ? (char *)scratch + plan->delta_bytes : NULL;
    args.y.data = data_of(tensors[Y]);
    args.d_y.data = data_of(tensors[D_Y]);
    args.x.data = data_of(tensors[X]);
    args.d_lse.data = data_of(tensors[D_LSE]);
    args.lse.data = data_of(tensors[LSE]);
    args.d_x.data = data_of(tensors[D_X]);
    args.delta = plan->needs_delta ? scratch : NULL;
    /* In place, d_x would take d_y away from the terms: then it is written last. */
    const bool last = plan->needs_delta && args.d_x.data == args.d_y.data;
    bstk__softmax_grad_args part = args;
    if (last)
        part.d_x.data = NULL;
    bstk__plan_run_tasks(base, &part, workers);
    for (int i = 0; i < BSTK__TERM_GRADS; i++) {
        if (plan->terms[i].plan == NULL)
            continue;
        part.phase = plan->terms[i].phase;
        part.term = plan->terms[i].term;
        part.term.data = tensors[TERM + i]->data;
        bstk__plan_run_tasks(plan->terms[i].plan, &part, NULL);
    }
    if (last)
        bstk__plan_run_tasks(base, &args, workers);
    return BSTK_OK;
}

bstk_status bstk_softmax_grad(bstk_context *ctx, const bstk_softmax_grad_desc *desc) {
    bstk_plan *plan;
    bstk_exec exec;
    BSTK_TRY(bstk_softmax_grad_plan(ctx, desc, &plan));
    bstk_status status = bstk__plan_take_scratch(plan, OP, &exec);
    if (status == BSTK_OK)
        status = bstk_softmax_grad_run(plan, desc, &exec);
    bstk__free(plan->ctx, exec.scratch);
    bstk_plan_release(plan);
    return status;
}
