/*
 * attention_grad_plan.c: checks the gradient of an attention and cuts its passes (attention_kernel.h), each only where
 * it is wanted. Scratch of a run: delta [Z, H, M], for kernels with chunks shifts and the parts of d_q, then the
 * workers' tiles.
 */
#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/attention/attention_plan.h"
#include "ops/operand.h"

#include <math.h>
#include <stdio.h>

static const char OP[] = "attention_grad";
/* Chunks: enough for 16 units, each with 256 stored keys a query, so that its part of d_q costs a hundredth of its
 * work. Parts that would take more memory than this are done without. */
enum { ALIGN = 64, CHUNK_UNITS = 16, MAX_CHUNKS = 8, CHUNK_KEYS = 256 };
static const int64_t PARTS_LIMIT = INT64_C(1) << 30;

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/attention/attention.def"
#undef BSTK_KERNEL
};

/* The tensors of a descriptor beside the terms. */
enum { Q, K, V, O, LSE, D_O, D_LSE, INPUTS, D_Q = INPUTS, D_K, D_V, TERM, TENSORS = TERM + BSTK__TERM_GRADS };

static const char *const names[TENSORS] = {"q",
                                           "k",
                                           "v",
                                           "o",
                                           "lse",
                                           "d_o",
                                           "d_lse",
                                           "d_q",
                                           "d_k",
                                           "d_v",
                                           "d_rpe",
                                           "d_rel_logits",
                                           "d_key_padding_mask",
                                           "d_attn_mask",
                                           "d_sinks"};

typedef struct pass {
    bstk_plan *plan; /* its cut */
    bstk__attention_grad_args args;
    int dense;  /* D_Q, D_K, D_V or, in a pass for a term, the number of its tensor */
    bool both;  /* D_K, and d_v with it */
    bool parts; /* and d_q with them */
} pass;

enum { MAX_PASSES = 5 + BSTK__TERM_GRADS };

typedef struct grad_plan {
    bstk_plan base;
    bstk_tensor specs[TENSORS]; /* ndim -1: none */
    bstk__terms_spec spec;
    double default_scale;
    bstk__attention_grad_args args; /* what all passes have in common */
    bstk__attention_dense strides[TENSORS];
    pass passes[MAX_PASSES];
    int count;
    size_t delta_bytes; /* rounded up to ALIGN, as the others; 0: no delta */
    size_t shift_bytes, parts_bytes;
    int64_t *chunk_cols; /* as in the arguments; NULL: the kernel has no chunks */
    int64_t *chunk_ptr;  /* stored blocks before each chunk, of all heads of k where they have layouts of their own */
    const bstk__kernel *kernel;
    double stored; /* elements of stored blocks, of all batches and heads */
} grad_plan;

static void destroy(bstk_plan *plan) {
    grad_plan *g = (grad_plan *)plan;
    for (int i = 0; i < g->count; i++)
        bstk_plan_release(g->passes[i].plan);
    bstk__free(plan->ctx, g->chunk_cols);
    bstk__free(plan->ctx, g->chunk_ptr);
}

static void read_tensors(const bstk_attention_grad_desc *d, const bstk_tensor *out[TENSORS]) {
    const bstk_tensor *const all[TENSORS] = {d->q,
                                             d->k,
                                             d->v,
                                             d->o,
                                             d->lse,
                                             d->d_o,
                                             d->d_lse,
                                             d->d_q,
                                             d->d_k,
                                             d->d_v,
                                             d->d_rpe,
                                             d->d_rel_logits,
                                             d->d_key_padding_mask,
                                             d->d_attn_mask,
                                             d->d_sinks};
    for (int i = 0; i < TENSORS; i++)
        out[i] = all[i];
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bstk_status check_desc(const bstk_attention_grad_desc *desc) {
    if (desc == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "attention_grad: desc is NULL");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID,
                          "attention_grad: desc.struct_size is %zu, expected %zu (BSTK_ATTENTION_GRAD_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    return BSTK_OK;
}

/* The term that a wanted gradient belongs to must be there, and be one that is added. */
static bstk_status check_wanted(const bstk_attention_grad_desc *d) {
    static const char *const names_of_terms[] = {"rpe", "rel_logits", "key_padding_mask", "attn_mask", "sinks"};
    const bstk_tensor *const terms[] = {d->terms.rpe, d->terms.rel_logits, d->terms.key_padding_mask,
                                        d->terms.attn_mask, d->terms.sinks};
    const bstk_mask_mode modes[] = {BSTK_MASK_AUTO, BSTK_MASK_AUTO, d->terms.key_padding_mode, d->terms.attn_mode,
                                    BSTK_MASK_AUTO};
    const bstk_tensor *tensors[TENSORS];
    bool wanted = false;
    read_tensors(d, tensors);
    for (int i = D_Q; i < TENSORS; i++)
        wanted |= tensors[i] != NULL;
    if (!wanted)
        return bstk__fail(BSTK_ERR_INVALID, "attention_grad: no gradient is wanted, expected d_q, d_k, d_v or one of a "
                                            "term");
    for (int i = 0; i < BSTK__TERM_GRADS; i++) {
        if (tensors[TERM + i] == NULL)
            continue;
        if (terms[i] == NULL)
            return bstk__fail(BSTK_ERR_INVALID, "attention_grad: terms.%s is NULL, but %s needs it", names_of_terms[i],
                              names[TERM + i]);
        if (!bstk__is_float(terms[i]->dtype) || modes[i] == BSTK_MASK_MUL)
            return bstk__fail(BSTK_ERR_INVALID,
                              "attention_grad: %s is given, but %s keeps and drops; expected one that "
                              "is added",
                              names[TERM + i], names_of_terms[i]);
    }
    return BSTK_OK;
}

/* lse and d_lse, inputs here: any strides. */
static bstk_status check_rows(const bstk_tensor *t, int i, bstk_dtype q, const int64_t sizes[4],
                              bstk__attention_dense *out) {
    static const char *const axes[3] = {"batch size", "heads", "rows"};
    const bstk_dtype need = q == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    bstk__view v;
    BSTK_TRY(bstk__view_make(OP, names[i], t, 1, 3, &v));
    if (v.dtype != need)
        return bstk__fail(BSTK_ERR_TYPE, "attention_grad: %s is %s, expected %s beside q of %s", names[i],
                          bstk_dtype_name(v.dtype), bstk_dtype_name(need), bstk_dtype_name(q));
    for (int axis = 0; axis < 3; axis++)
        BSTK_TRY(bstk__check_size(OP, names[i], axes[axis], v.shape[axis + 1], sizes[axis]));
    *out = (bstk__attention_dense){.z = v.stride[1], .h = v.stride[2], .row = v.stride[3]};
    return BSTK_OK;
}

static bstk_status check_dense(const bstk_tensor *const tensors[TENSORS], int i, const int64_t sizes[4],
                               grad_plan *plan) {
    bstk__view view;
    if (tensors[i] == NULL && i >= INPUTS)
        return BSTK_OK;
    BSTK_TRY(bstk__attention_check_dense(OP, names[i], tensors[i], tensors[Q]->dtype, sizes, &view));
    if (i >= INPUTS)
        BSTK_TRY(bstk__check_output(OP, names[i], tensors[i]));
    plan->strides[i] = bstk__attention_strides(&view);
    plan->base.bytes += bstk__view_elements(&view) * (double)bstk_dtype_size(view.dtype);
    return BSTK_OK;
}

/* Everything but data pointers: the arguments that passes share, and the descriptions. */
static bstk_status fill(const bstk_attention_grad_desc *d, const bstk_tensor *const tensors[TENSORS],
                        bstk__attention_shape *s, grad_plan *plan) {
    const bstk_layout *l = d->layout;
    bstk__attention_grad_args *g = &plan->args;
    BSTK_TRY(bstk__attention_check(OP, l, d->q, d->k, d->v, s));
    const int64_t o[4] = {s->batches, s->heads, l->m, s->v.shape[3]};
    BSTK_TRY(check_dense(tensors, Q, s->q.shape, plan));
    BSTK_TRY(check_dense(tensors, K, s->k.shape, plan));
    BSTK_TRY(check_dense(tensors, V, s->v.shape, plan));
    BSTK_TRY(check_dense(tensors, O, o, plan));
    BSTK_TRY(check_rows(d->lse, LSE, d->q->dtype, o, &plan->strides[LSE]));
    BSTK_TRY(check_dense(tensors, D_O, o, plan));
    if (d->d_lse)
        BSTK_TRY(check_rows(d->d_lse, D_LSE, d->q->dtype, o, &plan->strides[D_LSE]));
    BSTK_TRY(check_dense(tensors, D_Q, s->q.shape, plan));
    BSTK_TRY(check_dense(tensors, D_K, s->k.shape, plan));
    BSTK_TRY(check_dense(tensors, D_V, s->v.shape, plan));
    *g = (bstk__attention_grad_args){.group = s->group,
                                     .row_ptr = l->row_ptr,
                                     .col_ptr = l->col_ptr,
                                     .col_idx = l->col_idx,
                                     .col_row_idx = l->col_row_idx,
                                     .col_perm = l->col_perm,
                                     .rows = l->rows,
                                     .cols = l->cols,
                                     .layout_heads = l->heads,
                                     .batches = s->batches,
                                     .heads = s->heads,
                                     .m = l->m,
                                     .n = l->n,
                                     .d = s->q.shape[3],
                                     .dv = s->v.shape[3],
                                     .edge = l->block,
                                     .parts = l->block / 8};
    BSTK_TRY(bstk__terms_plan(OP, &d->terms, s->batches, s->heads, l->m, l->n, &g->terms, &plan->spec));
    g->terms.partial_idx = l->partial_idx;
    g->terms.partial_masks = l->partial_masks;
    for (int i = 0; i < TENSORS; i++) {
        plan->specs[i].ndim = -1;
        if (tensors[i])
            plan->specs[i] = *tensors[i];
    }
    plan->default_scale = 1 / sqrt((double)g->d);
    plan->stored = (double)s->batches * (l->heads == 1 ? (double)s->heads : 1) * (double)l->nnz * l->block * l->block;
    return BSTK_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Blocks before each line of what `each` heads are summed into; NULL without memory. */
static int64_t *sum_over_heads(bstk_context *ctx, const int64_t *ptr, int64_t lines, int64_t heads, int64_t each) {
    int64_t *sums = bstk__alloc_zeroed(ctx, heads * lines + 1, sizeof *sums);
    for (int64_t i = 0; sums && i < heads * lines; i++) {
        sums[i + 1] = sums[i];
        for (int64_t h = i / lines * each; h < (i / lines + 1) * each; h++)
            sums[i + 1] += ptr[h * lines + i % lines + 1] - ptr[h * lines + i % lines];
    }
    return sums;
}

static bstk_status no_fit(const bstk__attention_grad_args *g) {
    return bstk__fail(BSTK_ERR_OVERFLOW, "attention_grad: %lld batches x %lld heads x %lld rows do not fit 64 bits",
                      (long long)g->batches, (long long)g->heads, (long long)g->m);
}

/* Cuts a pass of block rows or columns; the others have lines of equal cost. */
static bstk_status schedule(grad_plan *plan, pass *p, double cost, size_t scratch) {
    const bstk__attention_grad_args *g = &p->args;
    const bool columns = g->pass == BSTK__ATTENTION_COLUMNS;
    const int64_t lines = columns ? g->cols : g->rows;
    const bool shared = g->layout_heads == 1;
    int64_t *sums = NULL;
    bstk__work work = {
        .line_ptr = columns ? g->col_ptr : g->row_ptr, .lines = lines, .parts = g->parts, .line_cost = 1};
    bool fits = true;
    if (g->pass == BSTK__ATTENTION_DELTA || g->pass == BSTK__ATTENTION_JOIN) {
        work = (bstk__work){.lines = bstk__ceil_div(g->m, BSTK__ATTENTION_TILE), .parts = 1, .line_cost = 1};
        fits = bstk__mul(g->batches, g->heads, &work.repeats);
    } else if (g->pass == BSTK__ATTENTION_TERM_DIAGONALS) {
        work = (bstk__work){
            .lines = bstk__ceil_div(g->term.columns, BSTK__ATTENTION_DIAGONALS), .parts = 1, .line_cost = 1};
        fits = bstk__mul(g->out_batches, g->out_heads, &work.repeats);
    } else if (g->pass == BSTK__ATTENTION_SINKS)
        work = (bstk__work){.lines = g->heads, .repeats = 1, .parts = 1, .line_cost = 1};
    else if (g->pass == BSTK__ATTENTION_CHUNKS) {
        work = (bstk__work){
            .line_ptr = plan->chunk_ptr, .lines = g->chunks * (shared ? 1 : g->out_heads), .parts = 1, .line_cost = 1};
        fits = bstk__mul(g->out_batches, shared ? g->out_heads : 1, &work.repeats);
    } else {
        fits = bstk__mul(g->out_batches, shared ? g->out_heads : 1, &work.repeats);
        if (!shared) {
            work.lines *= g->out_heads;
            sums = sum_over_heads(p->plan->ctx, work.line_ptr, lines, g->out_heads, g->heads_each);
            if (sums == NULL)
                return bstk__fail(BSTK_ERR_NOMEM, "attention_grad: out of memory (%lld lines)", (long long)work.lines);
            work.line_ptr = sums;
        }
    }
    const bstk_status status = fits ? bstk__plan_schedule(p->plan, plan->kernel, &work, cost, scratch) : no_fit(g);
    bstk__free(p->plan->ctx, sums);
    return status;
}

/* Adds a pass; `out` are the batches and heads of what it writes. */
static bstk_status add_pass(grad_plan *plan, bstk__attention_pass kind, int tensor, int64_t out_batches,
                            int64_t out_heads, int64_t heads_each, const bstk__attention_term *term, pass **out) {
    pass *p = &plan->passes[plan->count];
    p->args = plan->args;
    p->args.pass = kind;
    p->args.out_batches = out_batches;
    p->args.out_heads = out_heads;
    p->args.heads_each = heads_each;
    if (term)
        p->args.term = *term;
    p->dense = tensor;
    BSTK_TRY(bstk__plan_new(plan->base.ctx, plan->base.layout, OP, sizeof(bstk_plan), &p->plan));
    plan->count++;
    *out = p;
    return BSTK_OK;
}

static bstk_status finish_pass(grad_plan *plan, pass *p, double cost) {
    const int64_t acc = plan->specs[Q].dtype == BSTK_F64 ? sizeof(double) : sizeof(float);
    int64_t scratch;
    if (!bstk__attention_grad_scratch_bytes(&p->args, acc, &scratch) || scratch > INT64_MAX / 2)
        return bstk__fail(BSTK_ERR_OVERFLOW, "attention_grad: scratch of %s with %lld columns does not fit 64 bits",
                          names[p->dense], (long long)p->args.term.columns);
    if (scratch > 0 && plan->chunk_cols) { /* of these kernels' arrays, in front of the sums of a term */
        const size_t bytes = plan->kernel->scratch_bytes(&p->args);
        if (bytes > INT64_MAX / 4)
            return no_fit(&plan->args);
        scratch = (int64_t)bytes + (p->dense < TERM ? 0 : scratch);
    }
    return schedule(plan, p, cost, (size_t)scratch);
}

static bstk_status add_term(const bstk_tensor *const tensors[TENSORS], const bstk_attention_grad_desc *d, int kind,
                            grad_plan *plan) {
    const bstk__attention_grad_args *g = &plan->args;
    const bstk_tensor *t = tensors[TERM + kind];
    bstk__view v;
    pass *p;
    if (t == NULL)
        return BSTK_OK;
    BSTK_TRY(bstk__term_grad_view(OP, (bstk__term_grad)kind, t, g->batches, g->heads, g->m, g->n, &v));
    if (kind == BSTK__D_REL)
        BSTK_TRY(bstk__check_size(OP, names[TERM + kind], "columns", v.shape[3],
                                  d->terms.rel_logits->shape[d->terms.rel_logits->ndim - 1]));
    const bstk__attention_term term = {
        .to = bstk__attention_strides(&v), .dtype = v.dtype, .rel = kind == BSTK__D_REL, .columns = v.shape[3]};
    bstk__attention_pass pass_kind = v.shape[2] == g->m    ? BSTK__ATTENTION_TERM_ROWS
                                     : kind == BSTK__D_REL ? BSTK__ATTENTION_TERM_DIAGONALS
                                                           : BSTK__ATTENTION_COLUMNS;
    if (kind == BSTK__D_KEY_PADDING)
        pass_kind = BSTK__ATTENTION_COLUMNS;
    if (kind == BSTK__D_SINKS)
        pass_kind = BSTK__ATTENTION_SINKS;
    const int64_t each = v.shape[1] == g->heads ? 1 : g->heads;
    plan->base.bytes += bstk__view_elements(&v) * (double)bstk_dtype_size(v.dtype);
    BSTK_TRY(add_pass(plan, pass_kind, TERM + kind, v.shape[0], v.shape[1], each, &term, &p));
    if (plan->chunk_cols && pass_kind == BSTK__ATTENTION_COLUMNS)
        p->args.parts = 1; /* the vector kernels take whole block columns */
    return finish_pass(plan, p, kind == BSTK__D_SINKS ? 0 : plan->stored * (double)(2 * (g->d + g->dv) + 20));
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* bytes = elements of a [Z, H, M, row] of the type of sums, rounded up to ALIGN. */
static bool scratch_of(const grad_plan *plan, int64_t row, int64_t *bytes) {
    const bstk__attention_grad_args *g = &plan->args;
    *bytes = plan->specs[Q].dtype == BSTK_F64 ? sizeof(double) : sizeof(float);
    if (!bstk__mul(*bytes, g->batches, bytes) || !bstk__mul(*bytes, g->heads, bytes) ||
        !bstk__mul(*bytes, g->m, bytes) || !bstk__mul(*bytes, row, bytes) || !bstk__add(*bytes, ALIGN, bytes))
        return false;
    *bytes = (*bytes - 1) / ALIGN * ALIGN;
    return true;
}

/* Cuts the block columns of each head of k into chunks of about as many blocks. Depends on the problem alone, also not
 * on which gradients are wanted: sums of d_q have the same bits whatever the threads. */
static bstk_status cut_chunks(const bstk__attention_shape *s, grad_plan *plan) {
    bstk__attention_grad_args *g = &plan->args;
    const int64_t room = bstk__ceil_div(g->d, BSTK__ATTENTION_ROOM) * BSTK__ATTENTION_ROOM;
    const int64_t kv_heads = s->k.shape[1], patterns = g->layout_heads == 1 ? 1 : kv_heads;
    const double rows = (double)g->batches * (double)g->heads * (double)g->m;
    const double keys = rows > 0 ? plan->stored / rows : 0, units = (double)s->k.shape[0] * (double)kv_heads;
    bstk_context *ctx = plan->base.ctx;
    int64_t bytes, chunks = MAX_CHUNKS;
    while (chunks > 1 && ((double)(chunks - 1) * units >= CHUNK_UNITS || keys < (double)chunks * CHUNK_KEYS ||
                          chunks > g->cols || !scratch_of(plan, chunks * room, &bytes) || bytes > PARTS_LIMIT))
        chunks--;
    g->chunks = chunks;
    plan->parts_bytes = scratch_of(plan, chunks * room, &bytes) && bytes <= PARTS_LIMIT && plan->specs[D_Q].ndim >= 0
                            ? (size_t)bytes
                            : 0;
    int64_t *sums = sum_over_heads(ctx, g->col_ptr, g->cols, patterns, patterns == 1 ? 1 : s->group);
    plan->chunk_cols = bstk__alloc_zeroed(ctx, patterns * (chunks + 1), sizeof *plan->chunk_cols);
    plan->chunk_ptr = bstk__alloc_zeroed(ctx, patterns * chunks + 1, sizeof *plan->chunk_ptr);
    if (sums && plan->chunk_cols && plan->chunk_ptr)
        for (int64_t h = 0; h < patterns; h++) {
            const int64_t *ptr = sums + h * g->cols;
            int64_t *cols = plan->chunk_cols + h * (chunks + 1), col = 0;
            for (int64_t chunk = 1; chunk <= chunks; chunk++) {
                const double end = (double)(ptr[g->cols] - ptr[0]) * (double)chunk / (double)chunks;
                while (col < g->cols && (chunk == chunks || (double)(ptr[col + 1] - ptr[0]) <= end))
                    col++;
                cols[chunk] = col;
                plan->chunk_ptr[h * chunks + chunk] = ptr[col];
            }
        }
    const bool made = sums && plan->chunk_cols && plan->chunk_ptr;
    bstk__free(ctx, sums);
    g->chunk_cols = plan->chunk_cols;
    return made ? BSTK_OK
                : bstk__fail(BSTK_ERR_NOMEM, "attention_grad: out of memory (%lld lines)", (long long)g->cols);
}

/* ---- all passes -------------------------------------------------------------------------------------------------- */

/* d_k and d_v share a pass unless one of them sums over the batches and the other one does not; d_q joins the first
 * one that it may, `with_q`. */
static bstk_status add_columns(const bstk_tensor *const tensors[TENSORS], const bstk__attention_shape *s, bool with_q,
                               grad_plan *plan) {
    const bstk__attention_grad_args *g = &plan->args;
    const bstk__attention_pass kind = plan->chunk_cols ? BSTK__ATTENTION_CHUNKS : BSTK__ATTENTION_COLUMNS;
    const bool both = tensors[D_K] && tensors[D_V] && s->k.shape[0] == s->v.shape[0];
    for (int i = D_K; i <= D_V; i++) {
        const bstk__view *v = i == D_K ? &s->k : &s->v;
        pass *p;
        if (tensors[i] == NULL || (both && i == D_V))
            continue;
        BSTK_TRY(add_pass(plan, kind, i, v->shape[0], v->shape[1], s->group, NULL, &p));
        p->both = both;
        p->parts = with_q;
        const int64_t flops = 2 * g->d + (i == D_K || with_q ? 2 * g->dv + 2 * g->d : 0) +
                              (i == D_K && with_q ? 2 * g->d : 0) + (i == D_V || both ? 2 * g->dv : 0);
        with_q = false;
        BSTK_TRY(finish_pass(plan, p, plan->stored * (double)(flops + 20)));
    }
    return BSTK_OK;
}

static bstk_status add_d_q(const bstk_tensor *const tensors[TENSORS], const bstk__attention_shape *s, grad_plan *plan) {
    const bstk__attention_grad_args *g = &plan->args;
    const double cost = plan->stored * (double)(4 * g->d + 2 * g->dv + 20);
    pass *p;
    if (tensors[D_Q] == NULL || (plan->parts_bytes && (tensors[D_K] || tensors[D_V])))
        return BSTK_OK;
    if (plan->parts_bytes) {
        BSTK_TRY(add_pass(plan, BSTK__ATTENTION_CHUNKS, D_Q, g->batches, s->k.shape[1], s->group, NULL, &p));
        p->parts = true;
        return finish_pass(plan, p, cost);
    }
    BSTK_TRY(add_pass(plan, BSTK__ATTENTION_ROWS, D_Q, g->batches, g->heads, 1, NULL, &p));
    if (plan->chunk_cols)
        p->args.parts = 1; /* the vector kernels take whole block rows */
    return finish_pass(plan, p, cost);
}

/* delta first, since all others but that of d_v alone read it. */
static bstk_status make_passes(const bstk_attention_grad_desc *d, const bstk_tensor *const tensors[TENSORS],
                               const bstk__attention_shape *s, grad_plan *plan) {
    const bstk__attention_grad_args *g = &plan->args;
    const double elements = (double)g->batches * (double)g->heads * (double)g->m;
    pass *p;
    int64_t bytes;
    bool needs_delta = false;
    for (int i = D_Q; i < TENSORS; i++)
        needs_delta |= i != D_V && tensors[i];
    if (!scratch_of(plan, 1, &bytes))
        return no_fit(g);
    if (plan->kernel->scratch_bytes) {
        BSTK_TRY(cut_chunks(s, plan));
        plan->shift_bytes = (size_t)bytes;
    }
    plan->delta_bytes = needs_delta ? (size_t)bytes : 0;
    if (plan->delta_bytes || plan->shift_bytes) {
        BSTK_TRY(add_pass(plan, BSTK__ATTENTION_DELTA, O, g->batches, g->heads, 1, NULL, &p));
        BSTK_TRY(finish_pass(plan, p, 2.0 * elements * (double)g->dv));
    }
    BSTK_TRY(add_d_q(tensors, s, plan));
    BSTK_TRY(add_columns(tensors, s, plan->parts_bytes > 0, plan));
    if (plan->parts_bytes) {
        BSTK_TRY(add_pass(plan, BSTK__ATTENTION_JOIN, D_Q, g->batches, g->heads, 1, NULL, &p));
        BSTK_TRY(finish_pass(plan, p, elements * (double)(g->chunks * g->d)));
    }
    for (int kind = 0; kind < BSTK__TERM_GRADS; kind++)
        BSTK_TRY(add_term(tensors, d, kind, plan));
    return BSTK_OK;
}

static bstk_status finish(const bstk_attention_grad_desc *d, grad_plan *plan) {
    const bstk_tensor *tensors[TENSORS];
    bstk__attention_shape shape;
    bstk_plan *base = &plan->base;
    read_tensors(d, tensors);
    BSTK_TRY(fill(d, tensors, &shape, plan));
    const bstk_dtype dtype = d->q->dtype;
    const bstk__question question = {.op = OP,
                                     .dtype = dtype,
                                     .packed_dtype = dtype,
                                     .block = plan->args.edge,
                                     .args = &plan->args,
                                     .forced = d->kernel};
    BSTK_TRY(bstk__select(base->ctx, kernels, sizeof kernels / sizeof *kernels, &question, &plan->kernel));
    BSTK_TRY(make_passes(d, tensors, &shape, plan));
    size_t largest = 0;
    for (int i = 0; i < plan->count; i++) {
        const bstk_plan *p = plan->passes[i].plan;
        const size_t bytes = p->worker_scratch * (size_t)p->workers; /* fits: checked with the schedule */
        largest = bytes > largest ? bytes : largest;
        base->schedule.tasks += p->schedule.tasks;
        base->schedule.imbalance = fmax(base->schedule.imbalance, p->schedule.imbalance);
    }
    const size_t before = plan->delta_bytes + plan->shift_bytes + plan->parts_bytes; /* a third of 64 bits at most */
    if (largest > SIZE_MAX / 2 - before)
        return no_fit(&plan->args);
    base->scratch_bytes = before + largest;
    if (base->scratch_bytes)
        base->scratch_bytes += ALIGN - 1; /* the caller's may be unaligned */
    /* Scores and d_o . v once, and each product that is wanted. */
    const double head = (double)plan->args.d, value = (double)plan->args.dv;
    base->flops =
        2 * plan->stored *
        (head + (plan->delta_bytes ? value : 0) + (d->d_q ? head : 0) + (d->d_k ? head : 0) + (d->d_v ? value : 0));
    snprintf(base->kernel, sizeof base->kernel, "%s", plan->kernel->name);
    return BSTK_OK;
}

bstk_status bstk_attention_grad_plan(bstk_context *ctx, const bstk_attention_grad_desc *desc, bstk_plan **out) {
    BSTK_TRY(check_desc(desc));
    if (out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "attention_grad: out is NULL");
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "attention_grad: layout is NULL");
    bstk_plan *plan;
    BSTK_TRY(check_wanted(desc));
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, OP, sizeof(grad_plan), &plan));
    plan->destroy = destroy;
    plan->schedule.imbalance = 1.0;
    const bstk_status status = finish(desc, (grad_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

/* No output may touch an input, a term or another output. */
static bstk_status check_outputs(const bstk_tensor *const tensors[TENSORS], const bstk_score_terms *terms) {
    for (int i = INPUTS; i < TENSORS; i++) {
        if (tensors[i] == NULL)
            continue;
        for (int k = 0; k < i; k++)
            if (tensors[k] && bstk__overlap(tensors[i], tensors[k]))
                return bstk__fail(BSTK_ERR_INVALID, "attention_grad: %s overlaps %s", names[i], names[k]);
        BSTK_TRY(bstk__terms_check_overlap(OP, names[i], tensors[i], terms));
    }
    return BSTK_OK;
}

static bstk_status check_run(const grad_plan *plan, const bstk_attention_grad_desc *desc,
                             const bstk_tensor *tensors[TENSORS], bstk__terms *terms) {
    BSTK_TRY(check_desc(desc));
    read_tensors(desc, tensors);
    BSTK_TRY(bstk__terms_run(OP, &plan->spec, &desc->terms, plan->default_scale, terms));
    for (int i = 0; i < TENSORS; i++) {
        if (plan->specs[i].ndim >= 0)
            BSTK_TRY(bstk__check_same(OP, names[i], &plan->specs[i], tensors[i]));
        else if (tensors[i])
            return bstk__fail(BSTK_ERR_MISMATCH, "attention_grad: %s is given, but the plan was made without it",
                              names[i]);
    }
    return check_outputs(tensors, &desc->terms);
}

static bstk__attention_dense operand(const grad_plan *plan, const bstk_tensor *const tensors[TENSORS], int i) {
    bstk__attention_dense dense = plan->strides[i];
    dense.data = tensors[i] ? tensors[i]->data : NULL;
    return dense;
}

bstk_status bstk_attention_grad_run(const bstk_plan *base, const bstk_attention_grad_desc *desc,
                                    const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "attention_grad: plan is %s", base ? "for another op" : "NULL");
    const grad_plan *plan = (const grad_plan *)base;
    const bstk_tensor *tensors[TENSORS];
    bstk__terms terms = plan->args.terms;
    void *scratch;
    BSTK_TRY(check_run(plan, desc, tensors, &terms));
    BSTK_TRY(bstk__plan_scratch(base, OP, exec, &scratch));
    for (int i = 0; i < plan->count; i++) {
        const pass *p = &plan->passes[i];
        bstk__attention_grad_args args = p->args;
        args.terms = terms;
        args.plain = bstk__attention_plain(&terms);
        args.q = operand(plan, tensors, Q);
        args.k = operand(plan, tensors, K);
        args.v = operand(plan, tensors, V);
        args.o = operand(plan, tensors, O);
        args.lse = operand(plan, tensors, LSE);
        args.d_o = operand(plan, tensors, D_O);
        args.d_lse = operand(plan, tensors, D_LSE);
        if (p->dense == D_Q && !p->parts)
            args.d_q = operand(plan, tensors, D_Q);
        if (p->dense == D_K)
            args.d_k = operand(plan, tensors, D_K);
        if (p->dense == D_V || p->both)
            args.d_v = operand(plan, tensors, D_V);
        if (p->dense >= TERM)
            args.term.to.data = tensors[p->dense]->data;
        /* d_v alone does not look at delta, nor then at v. */
        args.delta = plan->delta_bytes && (p->dense != D_V || p->parts) ? scratch : NULL;
        args.shift = plan->shift_bytes ? (char *)scratch + plan->delta_bytes : NULL;
        if (p->parts || args.pass == BSTK__ATTENTION_JOIN)
            args.d_q_parts = (char *)scratch + plan->delta_bytes + plan->shift_bytes;
        bstk__plan_run_tasks(p->plan, &args,
                             p->plan->worker_scratch
                                 ? (char *)scratch + plan->delta_bytes + plan->shift_bytes + plan->parts_bytes
                                 : NULL);
    }
    return BSTK_OK;
}

bstk_status bstk_attention_grad(bstk_context *ctx, const bstk_attention_grad_desc *desc) {
    bstk_plan *plan;
    bstk_exec exec;
    BSTK_TRY(bstk_attention_grad_plan(ctx, desc, &plan));
    bstk_status status = bstk__plan_take_scratch(plan, OP, &exec);
    if (status == BSTK_OK)
        status = bstk_attention_grad_run(plan, desc, &exec);
    bstk__free(plan->ctx, exec.scratch);
    bstk_plan_release(plan);
    return status;
}
