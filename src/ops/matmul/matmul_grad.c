/*
 * matmul_grad.c: gradients of sdd, dsd and dds: up to two products of the same three ops (see matmul.h).
 *
 *   C = op(A) op(B), G = d_C      mode of d_A    trans of (G, B, d_A)    mode of d_B    trans of (A, G, d_B)
 *   sdd                           dsd            tc, !tb, ta             dds            !ta, tc, tb
 *   dsd                           sdd            tc, !tb, ta             dsd            !ta, tc, tb
 *   dds                           dds            tc, !tb, ta             sdd            !ta, tc, tb
 *
 * The layout stays that of the forward's sparse matrix, as it is stored. An operand that several batches or heads
 * shared has fewer of them than the product of its gradient: the kernels then sum over what it lacks (see
 * matmul_kernel.h).
 */
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/matmul/matmul_plan.h"
#include "plan/plan_impl.h"

#include <stdio.h>
#include <string.h>

static const char OP[] = "matmul_grad";

/* Operands, in the order of the arrays below. */
enum { A, B };

typedef struct grad_plan {
    bstk_plan base;
    const char *who;       /* "sdd_grad" ... */
    bstk_plan *product[2]; /* of d_a and d_b; NULL: not wanted */
    bstk_tensor in[2], d_c, out[2];
} grad_plan;

static const char *const in_names[2] = {"a", "b"}, *const out_names[2] = {"d_a", "d_b"};

static void destroy(bstk_plan *plan) {
    bstk_plan_release(((grad_plan *)plan)->product[A]);
    bstk_plan_release(((grad_plan *)plan)->product[B]);
}

/* A gradient has the type and shape of its operand. */
static bstk_status check_like(const char *who, int which, const bstk_tensor *operand, const bstk__view *like,
                              const bstk_tensor *out, bstk__view *view) {
    BSTK_TRY(bstk__view_make(who, out_names[which], out, 0, BSTK_MAX_NDIM, view));
    if (out->dtype != operand->dtype)
        return bstk__fail(BSTK_ERR_TYPE, "%s: %s is %s, expected %s as %s", who, out_names[which],
                          bstk_dtype_name(out->dtype), bstk_dtype_name(operand->dtype), in_names[which]);
    char got[96], expected[96];
    for (int axis = 0; axis < 4; axis++)
        if (view->shape[axis] != like->shape[axis])
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s is %s, expected %s as %s", who, out_names[which],
                              bstk__shape_text(out, got), bstk__shape_text(operand, expected), in_names[which]);
    return bstk__check_output(who, out_names[which], out);
}

/* d_A: the letters of the mode in the order 2, 1, 3; G op(B)^T is M x K, with inner size N. */
static bstk_status plan_d_a(bstk_context *ctx, const bstk_matmul_grad_desc *g, const bstk__matmul_problem *forward,
                            grad_plan *plan) {
    static const bstk_mode modes[] = {BSTK_DSD, BSTK_SDD, BSTK_DDS};
    const bstk_matmul_desc *f = &g->forward;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = modes[f->mode - BSTK_SDD];
    desc.trans_a = f->trans_c != 0;
    desc.trans_b = f->trans_b == 0;
    desc.trans_c = f->trans_a != 0;
    desc.layout = f->layout;
    desc.a = g->d_c;
    desc.b = f->b;
    desc.c = g->d_a;
    bstk__matmul_problem p = *forward;
    p.desc = &desc;
    p.c_name = out_names[A];
    p.a = forward->c;
    p.n = forward->k;
    p.k = forward->n;
    BSTK_TRY(check_like(p.who, A, f->a, &forward->a, g->d_a, &p.c));
    return bstk__matmul_plan_checked(ctx, &p, 0, &plan->product[A]);
}

/* d_B: the letters of the mode in the order 3, 2, 1; op(A)^T G is K x N, with inner size M. */
static bstk_status plan_d_b(bstk_context *ctx, const bstk_matmul_grad_desc *g, const bstk__matmul_problem *forward,
                            grad_plan *plan) {
    static const bstk_mode modes[] = {BSTK_DDS, BSTK_DSD, BSTK_SDD};
    const bstk_matmul_desc *f = &g->forward;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = modes[f->mode - BSTK_SDD];
    desc.trans_a = f->trans_a == 0;
    desc.trans_b = f->trans_c != 0;
    desc.trans_c = f->trans_b != 0;
    desc.layout = f->layout;
    desc.a = f->a;
    desc.b = g->d_c;
    desc.c = g->d_b;
    bstk__matmul_problem p = *forward;
    p.desc = &desc;
    p.c_name = out_names[B];
    p.b = forward->c;
    p.m = forward->k;
    p.k = forward->m;
    BSTK_TRY(check_like(p.who, B, f->b, &forward->b, g->d_b, &p.c));
    return bstk__matmul_plan_checked(ctx, &p, 0, &plan->product[B]);
}

static bstk_status finish(const bstk_matmul_grad_desc *g, const bstk__matmul_problem *forward, grad_plan *plan) {
    plan->who = forward->who;
    plan->in[A] = *g->forward.a;
    plan->in[B] = *g->forward.b;
    plan->d_c = *g->d_c;
    if (g->d_a) {
        plan->out[A] = *g->d_a;
        BSTK_TRY(plan_d_a(plan->base.ctx, g, forward, plan));
    }
    if (g->d_b) {
        plan->out[B] = *g->d_b;
        BSTK_TRY(plan_d_b(plan->base.ctx, g, forward, plan));
    }
    for (int i = A; i <= B; i++)
        if (plan->product[i]) {
            const bstk_plan *product = plan->product[i];
            const size_t used = strlen(plan->base.kernel);
            plan->base.flops += product->flops;
            plan->base.bytes += product->bytes;
            if (product->scratch_bytes > plan->base.scratch_bytes) /* one after the other: they share it */
                plan->base.scratch_bytes = product->scratch_bytes;
            snprintf(plan->base.kernel + used, sizeof plan->base.kernel - used, "%s%.126s", used ? "+" : "",
                     product->kernel);
        }
    return BSTK_OK;
}

static bstk_status check_desc(const bstk_matmul_grad_desc *desc) {
    if (desc == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "matmul_grad: desc is NULL");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID,
                          "matmul_grad: desc.struct_size is %zu, expected %zu (BSTK_MATMUL_GRAD_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    return BSTK_OK;
}

bstk_status bstk_matmul_grad_plan(bstk_context *ctx, const bstk_matmul_grad_desc *desc, bstk_plan **out) {
    BSTK_TRY(check_desc(desc));
    if (out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "matmul_grad: out is NULL");
    /* The gradient fits where the forward does, with d_c as its c. */
    bstk_matmul_desc with_d_c = desc->forward;
    with_d_c.c = desc->d_c;
    bstk__matmul_problem forward;
    BSTK_TRY(bstk__matmul_check(&with_d_c, 1, &forward));
    if (desc->d_a == NULL && desc->d_b == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: d_a and d_b are NULL, expected at least one", forward.who);
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->forward.layout, OP, sizeof(grad_plan), &plan));
    plan->destroy = destroy;
    plan->schedule.imbalance = 1.0;
    const bstk_status status = finish(desc, &forward, (grad_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

/* Both outputs, and what is read for either, are checked before the first product writes. */
static bstk_status check_run(const grad_plan *plan, const bstk_tensor *const in[2], const bstk_tensor *d_c,
                             const bstk_tensor *const out[2]) {
    const char *who = plan->who;
    BSTK_TRY(bstk__check_same(who, "d_c", &plan->d_c, d_c));
    for (int i = A; i <= B; i++) {
        if (plan->product[i]) {
            BSTK_TRY(bstk__check_same(who, out_names[i], &plan->out[i], out[i]));
            BSTK_TRY(bstk__check_same(who, in_names[!i], &plan->in[!i], in[!i]));
        } else if (out[i])
            return bstk__fail(BSTK_ERR_MISMATCH, "%s: %s is given, but the plan was made without it", who,
                              out_names[i]);
    }
    for (int i = A; i <= B; i++) {
        if (plan->product[i] == NULL)
            continue;
        if (bstk__overlap(out[i], d_c))
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s overlaps d_c", who, out_names[i]);
        for (int j = A; j <= B; j++)
            if (plan->product[!j] && bstk__overlap(out[i], in[j]))
                return bstk__fail(BSTK_ERR_INVALID, "%s: %s overlaps %s", who, out_names[i], in_names[j]);
    }
    if (plan->product[A] && plan->product[B] && bstk__overlap(out[A], out[B]))
        return bstk__fail(BSTK_ERR_INVALID, "%s: d_a overlaps d_b", who);
    return BSTK_OK;
}

bstk_status bstk_matmul_grad_run(const bstk_plan *base, const bstk_matmul_grad_desc *desc, double alpha,
                                 const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "matmul_grad: plan is %s", base ? "for another op" : "NULL");
    BSTK_TRY(check_desc(desc));
    const grad_plan *plan = (const grad_plan *)base;
    const bstk_tensor *const in[2] = {desc->forward.a, desc->forward.b}, *const out[2] = {desc->d_a, desc->d_b};
    void *scratch;
    BSTK_TRY(check_run(plan, in, desc->d_c, out));
    BSTK_TRY(bstk__plan_scratch(base, plan->who, exec, &scratch));
    if (plan->product[A])
        BSTK_TRY(bstk_matmul_run(plan->product[A], alpha, desc->d_c, in[B], 0, out[A], exec));
    return plan->product[B] ? bstk_matmul_run(plan->product[B], alpha, in[A], desc->d_c, 0, out[B], exec) : BSTK_OK;
}

bstk_status bstk_matmul_grad(bstk_context *ctx, const bstk_matmul_grad_desc *desc, double alpha) {
    bstk_plan *plan;
    bstk_exec exec;
    BSTK_TRY(bstk_matmul_grad_plan(ctx, desc, &plan));
    bstk_status status = bstk__plan_take_scratch(plan, OP, &exec);
    if (status == BSTK_OK)
        status = bstk_matmul_grad_run(plan, desc, alpha, &exec);
    bstk__free(plan->ctx, exec.scratch);
    bstk_plan_release(plan);
    return status;
}
