/*
 * matmul_plan.c: checks a product, brings it into one of the two kernel forms (see matmul_kernel.h), chooses the kernel
 * and cuts the work.
 */
#include "ops/matmul/matmul_plan.h"

#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/operand.h"
#include "plan/plan_impl.h"

static const char OP[] = "matmul";

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/matmul/matmul.def"
#undef BSTK_KERNEL
};

typedef struct matmul_plan {
    bstk_plan base;
    bstk_mode mode;
    int32_t trans_c;
    bstk_tensor a, b, c; /* descriptions */
    int64_t *head_ptr;   /* sdd: first block of each head */
    int64_t *cost;       /* of sums over batches or heads: blocks before each line of C */
    union {
        bstk__sdd_args sdd;
        bstk__spmm_args spmm;
    } args;
} matmul_plan;

typedef bstk__matmul_problem problem;

static const char *mode_name(bstk_mode mode) {
    return mode == BSTK_SDD ? "sdd" : mode == BSTK_DSD ? "dsd" : "dds";
}

static void destroy(bstk_plan *plan) {
    bstk__free(plan->ctx, ((matmul_plan *)plan)->head_ptr);
    bstk__free(plan->ctx, ((matmul_plan *)plan)->cost);
}

/* Dense operands have 2 to 4 axes, packed ones 3 or 4. */
static bstk_status read_views(problem *p) {
    const bstk_matmul_desc *d = p->desc;
    const bool packed[3] = {d->mode == BSTK_DSD, d->mode == BSTK_DDS, d->mode == BSTK_SDD};
    const bstk_tensor *tensors[3] = {d->a, d->b, d->c};
    bstk__view *views[3] = {&p->a, &p->b, &p->c};
    const char *const names[3] = {"a", "b", p->c_name};
    for (int i = 0; i < 3; i++) {
        BSTK_TRY(bstk__view_make(p->who, names[i], tensors[i], packed[i] ? 3 : 2, 4, views[i]));
        BSTK_TRY(bstk__check_float(p->who, names[i], tensors[i]->dtype));
        if (packed[i])
            BSTK_TRY(bstk__check_packed(p->who, names[i], tensors[i], views[i], p->layout));
    }
    return BSTK_OK;
}

/* All one type; the packed operand may be f32 beside f16 or bf16. */
static bstk_status check_types(const problem *p) {
    const bstk_matmul_desc *d = p->desc;
    const bstk_dtype a = d->a->dtype, b = d->b->dtype, c = d->c->dtype;
    const bstk_dtype packed = d->mode == BSTK_SDD ? c : d->mode == BSTK_DSD ? a : b;
    const bstk_dtype dense = d->mode == BSTK_DSD ? b : a;
    const bstk_dtype other = d->mode == BSTK_SDD ? b : c;
    const bool wide = packed == BSTK_F32 && (dense == BSTK_F16 || dense == BSTK_BF16);
    if (dense != other || (packed != dense && !wide))
        return bstk__fail(BSTK_ERR_TYPE,
                          "%s: a is %s, b is %s and %s is %s, expected one type for all (packed values may "
                          "be float32 beside float16 or bfloat16)",
                          p->who, bstk_dtype_name(a), bstk_dtype_name(b), p->c_name, bstk_dtype_name(c));
    return BSTK_OK;
}

/* Swaps the last two axes of a view: a transposition. */
static void transpose(bstk__view *view) {
    const int64_t rows = view->shape[2], stride = view->stride[2];
    view->shape[2] = view->shape[3];
    view->stride[2] = view->stride[3];
    view->shape[3] = rows;
    view->stride[3] = stride;
}

/* Size of op(X)'s rows (axis 0) or columns (axis 1), where `view` is X as given; and what that axis of X is called. */
static int64_t extent(const bstk__view *view, int32_t trans, int axis) {
    return view->shape[2 + (axis ^ (trans != 0))];
}
static const char *axis_name(int32_t trans, int axis) {
    return (axis ^ (trans != 0)) ? "columns" : "rows";
}

static bstk_status check_inner(const problem *p, int64_t a_cols, int64_t b_rows) {
    if (a_cols == b_rows)
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_INVALID, "%s: a has %lld %s and b has %lld %s, expected the same inner size", p->who,
                      (long long)a_cols, axis_name(p->desc->trans_a, 1), (long long)b_rows,
                      axis_name(p->desc->trans_b, 0));
}

static bstk_status check_sdd_shape(problem *p) {
    const bstk_matmul_desc *d = p->desc;
    const bstk_layout *l = p->layout;
    p->m = extent(&p->a, d->trans_a, 0);
    p->k = extent(&p->a, d->trans_a, 1);
    p->n = extent(&p->b, d->trans_b, 1);
    const bool t = d->trans_c != 0;
    BSTK_TRY(bstk__check_extent(p->who, "a", axis_name(d->trans_a, 0), p->m, t ? l->n : l->m, t ? l->cols : l->rows,
                                l->block));
    BSTK_TRY(bstk__check_extent(p->who, "b", axis_name(d->trans_b, 1), p->n, t ? l->m : l->n, t ? l->rows : l->cols,
                                l->block));
    return check_inner(p, p->k, extent(&p->b, d->trans_b, 0));
}

/* dsd and dds: the sparse operand's sizes come from the layout. */
static bstk_status check_spmm_shape(problem *p) {
    const bstk_matmul_desc *d = p->desc;
    const bstk_layout *l = p->layout;
    const bool dsd = d->mode == BSTK_DSD, t = (dsd ? d->trans_a : d->trans_b) != 0;
    const int64_t s_rows = t ? l->n : l->m, s_cols = t ? l->m : l->n;
    const int64_t row_blocks = t ? l->cols : l->rows, col_blocks = t ? l->rows : l->cols;
    if (dsd) {
        p->m = s_rows;
        p->k = s_cols;
        p->n = extent(&p->b, d->trans_b, 1);
        BSTK_TRY(bstk__check_extent(p->who, "b", axis_name(d->trans_b, 0), extent(&p->b, d->trans_b, 0), p->k,
                                    col_blocks, l->block));
    } else {
        p->m = extent(&p->a, d->trans_a, 0);
        p->k = s_rows;
        p->n = s_cols;
        BSTK_TRY(bstk__check_extent(p->who, "a", axis_name(d->trans_a, 1), extent(&p->a, d->trans_a, 1), p->k,
                                    row_blocks, l->block));
    }
    BSTK_TRY(bstk__check_size(p->who, p->c_name, axis_name(d->trans_c, 0), extent(&p->c, d->trans_c, 0), p->m));
    return bstk__check_size(p->who, p->c_name, axis_name(d->trans_c, 1), extent(&p->c, d->trans_c, 1), p->n);
}

/* Heads that a packed operand has values for: 1 means shared by all. Without a stored block it goes with any number,
 * and C tells how many there are. */
static int64_t packed_heads(const problem *p, const bstk__view *view) {
    if (p->layout->heads != 1)
        return p->layout->heads;
    return p->layout->nnz ? view->shape[1] / p->layout->nnz : p->desc->mode == BSTK_SDD ? 1 : p->c.shape[1];
}

/* Heads of a dense operand must be 1, all, or for `grouped` a divisor of all. */
static bstk_status check_heads(const problem *p, const char *name, int64_t heads, bool grouped) {
    if (heads == 1 || heads == p->heads || (grouped && heads > 0 && p->heads % heads == 0))
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %lld heads, but the %s %lld; expected 1%s or %lld", p->who, name,
                      (long long)heads, p->layout->heads == 1 ? "other operand has" : "layout has", (long long)p->heads,
                      grouped ? ", a divisor" : "", (long long)p->heads);
}

static bstk_status check_batches_and_heads(problem *p) {
    const bstk_mode mode = p->desc->mode;
    const bstk__view *sparse = mode == BSTK_DSD ? &p->a : mode == BSTK_DDS ? &p->b : &p->c;
    p->batches = p->a.shape[0];
    BSTK_TRY(bstk__broadcast(p->who, "b", "batch size", p->b.shape[0], &p->batches));
    BSTK_TRY(bstk__check_size(p->who, p->c_name, "batch size", p->c.shape[0], p->batches));
    const int64_t a_heads = mode == BSTK_DSD ? packed_heads(p, sparse) : p->a.shape[1];
    const int64_t b_heads = mode == BSTK_DDS ? packed_heads(p, sparse) : p->b.shape[1];
    p->heads = p->layout->heads;
    if (p->heads == 1) {
        p->heads = a_heads == 1 ? b_heads : a_heads;
        if (mode == BSTK_DDS && b_heads != 1) /* the packed one says how many; a dense one may be shared */
            p->heads = b_heads;
    }
    BSTK_TRY(check_heads(p, "a", a_heads, false));
    BSTK_TRY(check_heads(p, "b", b_heads, mode != BSTK_DDS));
    if (mode != BSTK_SDD)
        return bstk__check_size(p->who, p->c_name, "heads", p->c.shape[1], p->heads);
    int64_t blocks;
    if (!bstk__mul(p->layout->nnz, p->heads / bstk__max(1, p->layout->heads), &blocks))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %lld blocks x %lld heads do not fit 64 bits", p->who,
                          (long long)p->layout->nnz, (long long)p->heads);
    return bstk__check_size(p->who, p->c_name, "stored blocks", p->c.shape[1], blocks);
}

static bstk__dense dense_operand(const problem *p, const bstk__view *v) {
    /* Head h reads head h / group: group 1 for all heads, `heads` for one that is shared. */
    const int64_t group = v->shape[1] > 0 ? bstk__max(1, p->heads / v->shape[1]) : 1;
    return (bstk__dense){
        .data = NULL, .z = v->stride[0], .h = v->stride[1], .row = v->stride[2], .col = v->stride[3], .group = group};
}

static bstk__packed packed_operand(const problem *p, const bstk__view *v, bool transposed) {
    const bool a_head_each = p->layout->heads == 1 && p->heads > 1 && packed_heads(p, v) == p->heads;
    return (bstk__packed){.data = NULL,
                          .z = v->stride[0],
                          .block = v->stride[1],
                          .row = v->stride[transposed ? 3 : 2],
                          .col = v->stride[transposed ? 2 : 3],
                          .head_blocks = a_head_each ? p->layout->nnz : 0};
}

/* How many batch items or heads, of `all`, add up to one of an output that has `own`. */
static int64_t sum_count(int64_t all, int64_t own) {
    return own == all ? 1 : all / own;
}

/* Columns of B that a task works on, as a share of all that is even: so many that its rows, of `bytes` an element, fill
 * half of an L2 cache of 1 MiB, but never less than 256 bytes of a row, or its lines of S and C would be too short. A B
 * of up to 128 columns is not cut.
 *
 * A worker packs all rows of a group of which it has any lines. So that packing is shared out as well, the groups of
 * all `items` (batch items and heads of C) are a multiple of the threads while they are few, down to 32 columns; but a
 * B that is read in place stays whole. Returns what packing a group costs. */
static double column_groups(bstk__spmm_args *g, size_t bytes, int64_t items, int64_t threads) {
    const int64_t size = (int64_t)bytes, half = (int64_t)512 << 10;
    int64_t cols = half / size / bstk__max(1, g->k) / 32 * 32;
    cols = g->n <= 128 ? 128 : bstk__max(256 / size, bstk__min(256, cols));
    g->groups = bstk__max(1, bstk__ceil_div(g->n, cols));
    const bool in_place = g->n <= 128 && g->n % 16 == 0 && g->b.col == 1 && size >= 4;
    if (!in_place && items > 0 && items < 4 * threads && items * g->groups < 4 * threads) {
        const int64_t even = bstk__ceil_div(items * g->groups, threads) * threads;
        g->groups = bstk__max(g->groups, bstk__min(bstk__ceil_div(even, items), bstk__ceil_div(g->n, 32)));
    }
    g->group_cols = bstk__ceil_div(bstk__ceil_div(g->n, g->groups), 32) * 32;
    g->groups = bstk__max(1, bstk__ceil_div(g->n, bstk__max(1, g->group_cols)));
    return in_place ? 0 : 24.0 * (double)g->k * (double)bstk__min(g->group_cols, g->n); /* 0.3 ns an element */
}

/* The same lines again for each batch item of C, each of the `copies` of its heads that share the layout, and each
 * column group. */
static bstk_status repeat(const problem *p, int64_t copies, int64_t groups, bstk__work *work) {
    if (bstk__mul(p->c.shape[0], copies, &work->repeats) && bstk__mul(work->repeats, groups, &work->repeats))
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %lld batches x %lld heads x %lld column groups do not fit 64 bits",
                      p->who, (long long)p->c.shape[0], (long long)copies, (long long)groups);
}

/* C^T = op(B)^T op(A)^T: with trans_c the operands swap and all three are transposed, so that C is as stored. */
static bstk_status fill_sdd(const problem *p, matmul_plan *plan, bstk__work *work) {
    const bstk_layout *l = p->layout;
    const bool swap = p->desc->trans_c != 0;
    bstk__view a = p->a, b = p->b;
    if ((p->desc->trans_a != 0) != swap)
        transpose(&a);
    if ((p->desc->trans_b != 0) != swap)
        transpose(&b);
    plan->head_ptr = bstk__alloc(plan->base.ctx, l->heads + 1, sizeof *plan->head_ptr);
    if (plan->head_ptr == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld heads)", p->who, (long long)l->heads);
    for (int64_t h = 0; h <= l->heads; h++)
        plan->head_ptr[h] = l->row_ptr[h * l->rows];
    const int64_t copies = l->heads == 1 ? packed_heads(p, &p->c) : 1;
    plan->args.sdd = (bstk__sdd_args){.a = dense_operand(p, swap ? &b : &a),
                                      .b = dense_operand(p, swap ? &a : &b),
                                      .c = packed_operand(p, &p->c, false),
                                      .row_idx = l->row_idx,
                                      .col_idx = l->col_idx,
                                      .head_ptr = plan->head_ptr,
                                      .nnz = l->nnz,
                                      .copies = copies,
                                      .sum_z = sum_count(p->batches, p->c.shape[0]),
                                      .sum_h = l->heads == 1 ? sum_count(p->heads, copies) : 1,
                                      .m = l->m,
                                      .n = l->n,
                                      .k = p->k,
                                      .edge = l->block,
                                      .parts = l->block / 8};
    *work = (bstk__work){.line_ptr = NULL, .lines = l->nnz, .parts = l->block / 8};
    return repeat(p, copies, 1, work);
}

/* Blocks that are added up for each line of C, as prefix sums over all heads of C: with sums over batches or heads. */
static bstk_status sum_costs(const problem *p, matmul_plan *plan) {
    const bstk__spmm_args *g = &plan->args.spmm;
    int64_t lines, most;
    if (!bstk__mul(g->heads, g->head_lines, &lines) || !bstk__mul(p->layout->nnz, p->batches, &most) ||
        !bstk__mul(most, g->line_shift ? 1 : p->heads, &most))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %lld blocks x %lld batches x %lld heads do not fit 64 bits", p->who,
                          (long long)p->layout->nnz, (long long)p->batches, (long long)p->heads);
    plan->cost = lines == INT64_MAX ? NULL : bstk__alloc(plan->base.ctx, lines + 1, sizeof *plan->cost);
    if (plan->cost == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld lines)", p->who, (long long)lines);
    plan->cost[0] = 0;
    for (int64_t i = 0; i < lines; i++) {
        const int64_t h0 = i / g->head_lines * g->sum_h;
        int64_t blocks = 0;
        for (int64_t head = h0; head < h0 + g->sum_h; head++) {
            const int64_t *at = g->line_ptr + head * g->line_shift + i % g->head_lines;
            blocks += at[1] - at[0];
        }
        plan->cost[i + 1] = plan->cost[i] + blocks * g->sum_z;
    }
    return BSTK_OK;
}

/* dds becomes dsd of the transposes; a transposed sparse operand is walked in the other order of the index. */
static bstk_status fill_spmm(const problem *p, matmul_plan *plan, bstk__work *work) {
    const bstk_layout *l = p->layout;
    const bool dds = p->desc->mode == BSTK_DDS, by_cols = dds ? !p->desc->trans_b : p->desc->trans_a != 0;
    bstk__view dense = dds ? p->a : p->b, c = p->c;
    if ((dds ? p->desc->trans_a == 0 : p->desc->trans_b != 0))
        transpose(&dense);
    if ((p->desc->trans_c != 0) != dds)
        transpose(&c);
    const int64_t head_lines = by_cols ? l->cols : l->rows;
    plan->args.spmm = (bstk__spmm_args){.s = packed_operand(p, dds ? &p->b : &p->a, by_cols),
                                        .b = dense_operand(p, &dense),
                                        .c = dense_operand(p, &c),
                                        .line_ptr = by_cols ? l->col_ptr : l->row_ptr,
                                        .inner = by_cols ? l->col_row_idx : l->col_idx,
                                        .perm = by_cols ? l->col_perm : NULL,
                                        .head_lines = head_lines,
                                        .line_shift = l->heads == 1 ? 0 : head_lines,
                                        .heads = c.shape[1],
                                        .sum_z = sum_count(p->batches, c.shape[0]),
                                        .sum_h = sum_count(p->heads, c.shape[1]),
                                        .m = by_cols ? l->n : l->m,
                                        .k = by_cols ? l->m : l->n,
                                        .n = dds ? p->m : p->n,
                                        .edge = l->block,
                                        .parts = l->block / 8};
    bstk__spmm_args *g = &plan->args.spmm;
    int64_t items;
    if (!bstk__mul(c.shape[0], c.shape[1], &items))
        items = INT64_MAX;
    plan->base.entry_cost = column_groups(g, bstk_dtype_size(c.dtype), items, plan->base.ctx->num_threads);
    *work = (bstk__work){.line_ptr = g->line_ptr,
                         .lines = l->heads * head_lines,
                         .parts = l->block / 8,
                         .line_cost = 1}; /* an empty line still has its zeros to write */
    if (g->sum_z == 1 && g->sum_h == 1)
        return repeat(p, l->heads == 1 ? g->heads : 1, g->groups, work);
    BSTK_TRY(sum_costs(p, plan));
    work->line_ptr = plan->cost;
    work->lines = g->heads * head_lines;
    return repeat(p, 1, g->groups, work);
}

bstk_status bstk__matmul_check(const bstk_matmul_desc *desc, int32_t gradient, problem *p) {
    static const char *const grad_names[] = {"sdd_grad", "dsd_grad", "dds_grad"};
    const char *op = gradient ? "matmul_grad" : OP, *field = gradient ? "desc.forward" : "desc";
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s.struct_size is %zu, expected %zu (BSTK_MATMUL_DESC_INIT)", op,
                          field, desc->struct_size, sizeof *desc);
    if (desc->mode != BSTK_SDD && desc->mode != BSTK_DSD && desc->mode != BSTK_DDS)
        return bstk__fail(BSTK_ERR_INVALID, "%s: mode is %d, expected BSTK_SDD, BSTK_DSD or BSTK_DDS", op,
                          (int)desc->mode);
    *p = (problem){.who = gradient ? grad_names[desc->mode - BSTK_SDD] : mode_name(desc->mode),
                   .c_name = gradient ? "d_c" : "c",
                   .desc = desc,
                   .layout = desc->layout};
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: layout is NULL", p->who);
    BSTK_TRY(read_views(p));
    BSTK_TRY(desc->mode == BSTK_SDD ? check_sdd_shape(p) : check_spmm_shape(p));
    BSTK_TRY(check_batches_and_heads(p));
    BSTK_TRY(check_types(p));
    return gradient ? BSTK_OK : bstk__check_output(p->who, p->c_name, desc->c);
}

static bstk_status finish(const problem *p, int32_t skip_zeros, matmul_plan *plan) {
    const bstk_matmul_desc *d = p->desc;
    bstk__work work;
    plan->mode = d->mode;
    plan->trans_c = d->trans_c != 0;
    plan->a = *d->a;
    plan->b = *d->b;
    plan->c = *d->c;
    if (d->mode == BSTK_SDD)
        BSTK_TRY(fill_sdd(p, plan, &work));
    else {
        BSTK_TRY(fill_spmm(p, plan, &work));
        plan->args.spmm.skip_zeros = skip_zeros;
    }
    const double blocks = (double)p->layout->nnz * p->layout->block * p->layout->block;
    const double repeats = (double)p->batches * (double)(p->heads / bstk__max(1, p->layout->heads));
    const int64_t dense_side = d->mode == BSTK_SDD ? p->k : d->mode == BSTK_DSD ? p->n : p->m;
    plan->base.flops = 2 * blocks * repeats * (double)dense_side;
    plan->base.bytes = bstk__view_elements(&p->a) * (double)bstk_dtype_size(d->a->dtype) +
                       bstk__view_elements(&p->b) * (double)bstk_dtype_size(d->b->dtype) +
                       bstk__view_elements(&p->c) * (double)bstk_dtype_size(d->c->dtype);
    const bstk_tensor *packed = d->mode == BSTK_SDD ? d->c : d->mode == BSTK_DSD ? d->a : d->b;
    const bstk__question question = {.op = mode_name(d->mode),
                                     .dtype = d->mode == BSTK_DSD ? d->b->dtype : d->a->dtype,
                                     .packed_dtype = packed->dtype,
                                     .block = p->layout->block,
                                     .args = &plan->args,
                                     .forced = d->kernel};
    const bstk__kernel *kernel;
    BSTK_TRY(bstk__select(plan->base.ctx, kernels, sizeof kernels / sizeof *kernels, &question, &kernel));
    return bstk__plan_schedule(&plan->base, kernel, &work, plan->base.flops + blocks * repeats,
                               kernel->scratch_bytes ? kernel->scratch_bytes(&plan->args) : 0);
}

bstk_status bstk__matmul_plan_checked(bstk_context *ctx, const problem *p, int32_t skip_zeros, bstk_plan **out) {
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, p->layout, OP, sizeof(matmul_plan), &plan));
    plan->destroy = destroy;
    const bstk_status status = finish(p, skip_zeros, (matmul_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

bstk_status bstk__matmul_plan_make(bstk_context *ctx, const bstk_matmul_desc *desc, int32_t skip_zeros,
                                   bstk_plan **out) {
    problem p;
    if (desc == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "matmul: %s is NULL", desc ? "out" : "desc");
    BSTK_TRY(bstk__matmul_check(desc, 0, &p));
    return bstk__matmul_plan_checked(ctx, &p, skip_zeros, out);
}

bstk_status bstk_matmul_plan(bstk_context *ctx, const bstk_matmul_desc *desc, bstk_plan **out) {
    return bstk__matmul_plan_make(ctx, desc, 0, out);
}

bstk_status bstk_matmul_run(const bstk_plan *base, double alpha, const bstk_tensor *a, const bstk_tensor *b,
                            double beta, const bstk_tensor *c, const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "matmul: plan is %s", base ? "for another op" : "NULL");
    const matmul_plan *plan = (const matmul_plan *)base;
    const char *who = mode_name(plan->mode);
    void *scratch;
    BSTK_TRY(bstk__check_same(who, "a", &plan->a, a));
    BSTK_TRY(bstk__check_same(who, "b", &plan->b, b));
    BSTK_TRY(bstk__check_same(who, "c", &plan->c, c));
    if (bstk__overlap(c, a) || bstk__overlap(c, b))
        return bstk__fail(BSTK_ERR_INVALID, "%s: c overlaps %s", who, bstk__overlap(c, a) ? "a" : "b");
    BSTK_TRY(bstk__plan_scratch(base, who, exec, &scratch));
    if (plan->mode == BSTK_SDD) {
        bstk__sdd_args args = plan->args.sdd;
        args.a.data = plan->trans_c ? b->data : a->data;
        args.b.data = plan->trans_c ? a->data : b->data;
        args.c.data = c->data;
        args.alpha = alpha;
        args.beta = beta;
        bstk__plan_run_tasks(base, &args, scratch);
    } else {
        bstk__spmm_args args = plan->args.spmm;
        args.s.data = plan->mode == BSTK_DSD ? a->data : b->data;
        args.b.data = plan->mode == BSTK_DSD ? b->data : a->data;
        args.c.data = c->data;
        args.alpha = alpha;
        args.beta = beta;
        bstk__plan_run_tasks(base, &args, scratch);
    }
    return BSTK_OK;
}

bstk_status bstk_matmul(bstk_context *ctx, const bstk_matmul_desc *desc, double alpha, double beta) {
    bstk_plan *plan;
    bstk_exec exec;
    BSTK_TRY(bstk_matmul_plan(ctx, desc, &plan));
    bstk_status status = bstk__plan_take_scratch(plan, "matmul", &exec);
    if (status == BSTK_OK)
        status = bstk_matmul_run(plan, alpha, desc->a, desc->b, beta, desc->c, &exec);
    bstk__free(plan->ctx, exec.scratch);
    bstk_plan_release(plan);
    return status;
}
