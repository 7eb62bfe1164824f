/*
 * norm_grad_plan.c: checks the gradient of a norm, chooses the kernel and cuts the work: d_x by block rows, d_weight
 * and d_bias by block columns over all heads, before d_x, which may overwrite the d_y that they need.
 */
#include "ops/norm/norm_plan.h"

#include "core/checked.h"
#include "core/error.h"
#include "ops/operand.h"

static const char *const ops[3] = {"norm_grad", "layernorm_grad", "rmsnorm_grad"}; /* by kind; compared by address */

enum { X, WEIGHT, MEAN, RSTD, D_Y, D_X, D_WEIGHT, D_BIAS, TENSORS };

static const char *const names[TENSORS] = {"x", "weight", "mean", "rstd", "d_y", "d_x", "d_weight", "d_bias"};
static const bstk__norm_operands operands = {
    .names = names, .count = TENSORS, .first_output = D_X, .in_place = D_X, .source = D_Y};

/* The base makes d_x; or, where that is not wanted, what the columns make. */
typedef struct norm_grad_plan {
    bstk_plan base;
    bstk_plan *columns; /* runs before the base; NULL when d_x, or nothing else, is wanted */
    int64_t *line_ptr;  /* [cols + 1]: blocks of the columns before, of all heads */
    bstk_norm_kind kind;
    bstk_tensor planned[TENSORS];
    bstk__norm_args args;
} norm_grad_plan;

static void destroy(bstk_plan *plan) {
    bstk_plan_release(((norm_grad_plan *)plan)->columns);
    bstk__free(plan->ctx, ((norm_grad_plan *)plan)->line_ptr);
}

static bstk_status check_desc(const bstk_norm_grad_desc *desc) {
    if (desc == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "norm_grad: desc is NULL");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID,
                          "norm_grad: desc.struct_size is %zu, expected %zu (BSTK_NORM_GRAD_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    if (desc->kind != BSTK_LAYERNORM && desc->kind != BSTK_RMSNORM)
        return bstk__fail(BSTK_ERR_INVALID, "norm_grad: kind is %d, expected BSTK_LAYERNORM or BSTK_RMSNORM",
                          (int)desc->kind);
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: layout is NULL", ops[desc->kind]);
    if (desc->d_x == NULL && desc->d_weight == NULL && desc->d_bias == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: d_x, d_weight and d_bias are NULL, expected at least one of them",
                          ops[desc->kind]);
    return BSTK_OK;
}

static bstk_status check_inputs(const bstk_norm_grad_desc *d, const bstk__norm_problem *p, bstk__norm_args *args) {
    BSTK_TRY(bstk__norm_check_columns(p, "weight", d->weight, &args->weight));
    if (d->kind == BSTK_LAYERNORM && d->mean == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: mean is NULL", p->who);
    if (d->kind != BSTK_LAYERNORM && d->mean)
        return bstk__fail(BSTK_ERR_INVALID, "%s: mean is given, expected NULL: only layernorm has a mean", p->who);
    if (d->rstd == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: rstd is NULL", p->who);
    BSTK_TRY(bstk__norm_check_rows(p, "mean", d->mean, &args->mean));
    BSTK_TRY(bstk__norm_check_rows(p, "rstd", d->rstd, &args->rstd));
    return bstk__norm_check_like_x(p, "d_y", d->d_y, &args->d_y);
}

static bstk_status check_outputs(const bstk_norm_grad_desc *d, const bstk__norm_problem *p, bstk__norm_args *args) {
    if (d->d_x) {
        BSTK_TRY(bstk__norm_check_like_x(p, "d_x", d->d_x, &args->d_x));
        BSTK_TRY(bstk__check_output(p->who, "d_x", d->d_x));
    }
    if (d->d_weight) {
        BSTK_TRY(bstk__norm_check_columns(p, "d_weight", d->d_weight, &args->d_weight));
        BSTK_TRY(bstk__check_output(p->who, "d_weight", d->d_weight));
        if (d->weight && args->d_weight.heads != args->weight.heads)
            return bstk__fail(BSTK_ERR_INVALID, "%s: d_weight has %lld heads, expected %lld as weight", p->who,
                              (long long)args->d_weight.heads, (long long)args->weight.heads);
    }
    if (d->d_bias) {
        BSTK_TRY(bstk__norm_check_columns(p, "d_bias", d->d_bias, &args->d_bias));
        BSTK_TRY(bstk__check_output(p->who, "d_bias", d->d_bias));
    }
    return BSTK_OK;
}

/* The tensors in the order of `names`. */
static void list(const bstk_norm_grad_desc *d, const bstk_tensor *given[TENSORS]) {
    const bstk_tensor *all[TENSORS] = {d->x, d->weight, d->mean, d->rstd, d->d_y, d->d_x, d->d_weight, d->d_bias};
    for (int i = 0; i < TENSORS; i++)
        given[i] = all[i];
}

/* Units by columns: a block column is as long as all heads and batch items make it. */
static bstk_status column_work(const bstk__norm_problem *p, norm_grad_plan *plan, bstk__work *work) {
    const bstk_layout *l = p->layout;
    plan->line_ptr = bstk__alloc_zeroed(plan->base.ctx, l->cols + 1, sizeof *plan->line_ptr);
    if (plan->line_ptr == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld block columns)", p->who, (long long)l->cols);
    for (int64_t j = 0; j < l->cols; j++) {
        plan->line_ptr[j + 1] = plan->line_ptr[j];
        for (int64_t h = 0; h < l->heads; h++)
            plan->line_ptr[j + 1] += l->col_ptr[h * l->cols + j + 1] - l->col_ptr[h * l->cols + j];
    }
    *work = (bstk__work){.line_ptr = plan->line_ptr,
                         .lines = l->cols,
                         .repeats = 1,
                         .parts = plan->args.parts,
                         .line_cost = 1}; /* a column without blocks still has its zeros to write */
    return BSTK_OK;
}

static bstk_status finish(const bstk_norm_grad_desc *d, const bstk__norm_problem *p, norm_grad_plan *plan) {
    const bool by_columns = d->d_weight || d->d_bias;
    const bstk_tensor *given[TENSORS];
    const bstk__kernel *kernel;
    bstk__work work;
    list(d, given);
    plan->kind = d->kind;
    bstk__norm_remember(&operands, given, plan->planned);
    BSTK_TRY(bstk__norm_select(plan->base.ctx, p, &plan->args, d->kernel, &kernel));
    const double elements = (double)p->batches * (double)p->blocks * p->layout->block * p->layout->block;
    /* d_x: 3 for g and xhat twice, 3 for the averages, 4 for the result; columns: 2 for xhat, 3 for the sums */
    const double row_flops = 13 * elements, column_flops = 5 * elements;
    plan->base.flops = (d->d_x ? row_flops : 0) + (by_columns ? column_flops : 0);
    plan->base.bytes = bstk__norm_bytes(given, TENSORS);
    if (by_columns) {
        bstk_plan *columns = &plan->base;
        BSTK_TRY(column_work(p, plan, &work));
        if (d->d_x) {
            BSTK_TRY(bstk__plan_new(plan->base.ctx, p->layout, p->who, sizeof(bstk_plan), &plan->columns));
            columns = plan->columns;
        }
        BSTK_TRY(bstk__plan_schedule(columns, kernel, &work, column_flops, 0));
    }
    if (d->d_x) {
        BSTK_TRY(bstk__norm_row_work(p, &plan->args, &work));
        BSTK_TRY(bstk__plan_schedule(&plan->base, kernel, &work, row_flops, 0));
    }
    return BSTK_OK;
}

bstk_status bstk_norm_grad_plan(bstk_context *ctx, const bstk_norm_grad_desc *desc, bstk_plan **out) {
    bstk__norm_problem p;
    bstk__norm_args args;
    BSTK_TRY(check_desc(desc));
    const char *who = ops[desc->kind];
    if (out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: out is NULL", who);
    BSTK_TRY(bstk__norm_begin(who, desc->layout, desc->x,
                              (const bstk_tensor *const[]){desc->rstd, desc->weight, desc->d_weight, desc->d_bias}, 4,
                              &p, &args));
    BSTK_TRY(check_inputs(desc, &p, &args));
    BSTK_TRY(check_outputs(desc, &p, &args));
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, who, sizeof(norm_grad_plan), &plan));
    plan->destroy = destroy;
    ((norm_grad_plan *)plan)->args = args;
    const bstk_status status = finish(desc, &p, (norm_grad_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

bstk_status bstk_norm_grad_run(const bstk_plan *base, const bstk_norm_grad_desc *desc, const bstk_exec *exec) {
    if (base == NULL || (base->op != ops[BSTK_LAYERNORM] && base->op != ops[BSTK_RMSNORM]))
        return bstk__fail(BSTK_ERR_INVALID, "norm_grad: plan is %s", base ? "for another op" : "NULL");
    const norm_grad_plan *plan = (const norm_grad_plan *)base;
    const bstk_tensor *given[TENSORS];
    bstk__norm_args args = plan->args;
    void *scratch;
    BSTK_TRY(check_desc(desc));
    if (desc->kind != plan->kind)
        return bstk__fail(BSTK_ERR_MISMATCH, "norm_grad: kind is %s, but the plan was made for %s", ops[desc->kind],
                          base->op);
    if (desc->layout != base->layout)
        return bstk__fail(BSTK_ERR_MISMATCH, "%s: layout is another one than the plan's", base->op);
    list(desc, given);
    BSTK_TRY(bstk__norm_check_run(base->op, &operands, plan->planned, given));
    BSTK_TRY(bstk__plan_scratch(base, base->op, exec, &scratch));
    args.x.data = desc->x->data;
    args.d_y.data = desc->d_y->data;
    args.rstd.data = desc->rstd->data;
    args.mean.data = desc->mean ? desc->mean->data : NULL;
    args.weight.data = desc->weight ? desc->weight->data : NULL;
    args.d_x.data = desc->d_x ? desc->d_x->data : NULL;
    args.d_weight.data = desc->d_weight ? desc->d_weight->data : NULL;
    args.d_bias.data = desc->d_bias ? desc->d_bias->data : NULL;
    args.by_columns = 1;
    if (plan->columns)
        bstk__plan_run_tasks(plan->columns, &args, scratch);
    args.by_columns = desc->d_x == NULL;
    bstk__plan_run_tasks(base, &args, scratch);
    return BSTK_OK;
}

bstk_status bstk_norm_grad(bstk_context *ctx, const bstk_norm_grad_desc *desc) {
    bstk_plan *plan;
    BSTK_TRY(bstk_norm_grad_plan(ctx, desc, &plan));
    const bstk_status status = bstk_norm_grad_run(plan, desc, NULL); /* without scratch */
    bstk_plan_release(plan);
    return status;
}
