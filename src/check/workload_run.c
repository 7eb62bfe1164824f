/* workload_run.c: plans and runs a workload through the library's calls, one pair of functions an op. */
#include "workload_impl.h"

#include <string.h>

bstk_norm_kind workload_norm(const problem *p) {
    return p->op == PROBLEM_LAYERNORM ? BSTK_LAYERNORM : BSTK_RMSNORM;
}

static const bstk_tensor *at(const workload *w, int which) {
    return workload_tensor(w, which);
}

/* d_a, d_x and d_q may lie in place of what comes in. */
static const bstk_tensor *first_gradient(const workload *w) {
    return at(w, w->out == WORKLOAD_D_OUT ? WORKLOAD_D_OUT : WORKLOAD_D_A);
}

static bstk_matmul_desc matmul_desc(const workload *w) {
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = (bstk_mode)w->p.op;
    desc.trans_a = w->p.trans_a;
    desc.trans_b = w->p.trans_b;
    desc.trans_c = w->p.trans_c;
    desc.layout = w->layout;
    desc.a = at(w, WORKLOAD_A);
    desc.b = at(w, WORKLOAD_B);
    desc.c = at(w, WORKLOAD_OUT);
    return desc;
}

static bstk_matmul_grad_desc matmul_grad_desc(const workload *w) {
    bstk_matmul_grad_desc desc = BSTK_MATMUL_GRAD_DESC_INIT;
    desc.forward = matmul_desc(w);
    desc.d_c = at(w, WORKLOAD_D_OUT);
    desc.d_a = at(w, WORKLOAD_D_A);
    desc.d_b = at(w, WORKLOAD_D_B);
    return desc;
}

static bstk_softmax_grad_desc softmax_grad_desc(const workload *w) {
    bstk_softmax_grad_desc desc = BSTK_SOFTMAX_GRAD_DESC_INIT;
    desc.layout = w->layout;
    desc.y = at(w, WORKLOAD_SAVED);
    desc.d_y = at(w, WORKLOAD_D_OUT);
    desc.d_lse = at(w, WORKLOAD_D_LSE);
    desc.x = at(w, WORKLOAD_A);
    desc.lse = at(w, WORKLOAD_SAVED_ROWS);
    desc.terms = w->terms;
    desc.d_x = first_gradient(w);
    desc.d_rpe = at(w, WORKLOAD_D_RPE);
    desc.d_rel_logits = at(w, WORKLOAD_D_REL);
    desc.d_key_padding_mask = at(w, WORKLOAD_D_KEY_PADDING);
    desc.d_attn_mask = at(w, WORKLOAD_D_ATTN);
    desc.d_sinks = at(w, WORKLOAD_D_SINKS);
    return desc;
}

static bstk_attention_grad_desc attention_grad_desc(const workload *w) {
    bstk_attention_grad_desc desc = BSTK_ATTENTION_GRAD_DESC_INIT;
    desc.layout = w->layout;
    desc.q = at(w, WORKLOAD_A);
    desc.k = at(w, WORKLOAD_B);
    desc.v = at(w, WORKLOAD_V);
    desc.o = at(w, WORKLOAD_SAVED);
    desc.lse = at(w, WORKLOAD_SAVED_ROWS);
    desc.d_o = at(w, WORKLOAD_D_OUT);
    desc.d_lse = at(w, WORKLOAD_D_LSE);
    desc.terms = w->terms;
    desc.d_q = first_gradient(w);
    desc.d_k = at(w, WORKLOAD_D_B);
    desc.d_v = at(w, WORKLOAD_D_V);
    desc.d_rpe = at(w, WORKLOAD_D_RPE);
    desc.d_rel_logits = at(w, WORKLOAD_D_REL);
    desc.d_key_padding_mask = at(w, WORKLOAD_D_KEY_PADDING);
    desc.d_attn_mask = at(w, WORKLOAD_D_ATTN);
    desc.d_sinks = at(w, WORKLOAD_D_SINKS);
    return desc;
}

static bstk_norm_desc norm_desc(const workload *w) {
    bstk_norm_desc desc = BSTK_NORM_DESC_INIT;
    desc.kind = workload_norm(&w->p);
    desc.layout = w->layout;
    desc.x = at(w, WORKLOAD_A);
    desc.weight = at(w, WORKLOAD_B);
    desc.bias = at(w, WORKLOAD_V);
    desc.y = at(w, w->out);
    desc.mean = at(w, WORKLOAD_MEAN);
    desc.rstd = at(w, WORKLOAD_LSE);
    desc.eps = w->eps;
    return desc;
}

static bstk_norm_grad_desc norm_grad_desc(const workload *w) {
    bstk_norm_grad_desc desc = BSTK_NORM_GRAD_DESC_INIT;
    desc.kind = workload_norm(&w->p);
    desc.layout = w->layout;
    desc.x = at(w, WORKLOAD_A);
    desc.weight = at(w, WORKLOAD_B);
    desc.mean = at(w, WORKLOAD_SAVED);
    desc.rstd = at(w, WORKLOAD_SAVED_ROWS);
    desc.d_y = at(w, WORKLOAD_D_OUT);
    desc.d_x = first_gradient(w);
    desc.d_weight = at(w, WORKLOAD_D_B);
    desc.d_bias = at(w, WORKLOAD_D_V);
    return desc;
}

static bstk_status plan_grad(const workload *w, bstk_context *ctx, const char *kernel, bstk_plan **plan) {
    if (w->p.op == PROBLEM_SOFTMAX) {
        bstk_softmax_grad_desc desc = softmax_grad_desc(w);
        desc.kernel = kernel;
        return bstk_softmax_grad_plan(ctx, &desc, plan);
    }
    if (w->p.op == PROBLEM_ATTENTION) {
        bstk_attention_grad_desc desc = attention_grad_desc(w);
        desc.kernel = kernel;
        return bstk_attention_grad_plan(ctx, &desc, plan);
    }
    if (problem_is_norm(w->p.op)) {
        bstk_norm_grad_desc desc = norm_grad_desc(w);
        desc.kernel = kernel;
        return bstk_norm_grad_plan(ctx, &desc, plan);
    }
    const bstk_matmul_grad_desc desc = matmul_grad_desc(w); /* of the products that dispatch chooses */
    return bstk_matmul_grad_plan(ctx, &desc, plan);
}

static bstk_status plan_forward(const workload *w, bstk_context *ctx, const char *kernel, bstk_plan **plan) {
    if (w->p.op == PROBLEM_SOFTMAX) {
        bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
        desc.layout = w->layout;
        desc.x = at(w, WORKLOAD_A);
        desc.y = at(w, w->out);
        desc.lse = at(w, WORKLOAD_LSE);
        desc.saved = at(w, WORKLOAD_MEAN);
        desc.terms = w->terms;
        desc.kernel = kernel;
        return bstk_softmax_plan(ctx, &desc, plan);
    }
    if (w->p.op == PROBLEM_ATTENTION) {
        bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
        desc.layout = w->layout;
        desc.q = at(w, WORKLOAD_A);
        desc.k = at(w, WORKLOAD_B);
        desc.v = at(w, WORKLOAD_V);
        desc.o = at(w, WORKLOAD_OUT);
        desc.lse = at(w, WORKLOAD_LSE);
        desc.terms = w->terms;
        desc.kernel = kernel;
        return bstk_attention_plan(ctx, &desc, plan);
    }
    if (problem_is_norm(w->p.op)) {
        bstk_norm_desc desc = norm_desc(w);
        desc.kernel = kernel;
        return bstk_norm_plan(ctx, &desc, plan);
    }
    if (problem_is_product(w->p.op)) {
        bstk_matmul_desc desc = matmul_desc(w);
        desc.kernel = kernel;
        return bstk_matmul_plan(ctx, &desc, plan);
    }
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.direction = w->p.op == PROBLEM_PACK ? BSTK_PACK : BSTK_UNPACK;
    desc.layout = w->layout;
    desc.x = at(w, WORKLOAD_A);
    desc.y = at(w, WORKLOAD_OUT);
    desc.kernel = kernel;
    return bstk_convert_plan(ctx, &desc, plan);
}

bstk_status workload_plan(workload *w, bstk_context *ctx, const char *kernel) {
    bstk_plan *plan = NULL;
    const bstk_status status = (w->p.backward ? plan_grad : plan_forward)(w, ctx, kernel, &plan);
    if (status != BSTK_OK)
        return status;
    bstk_plan_release(w->plan);
    w->plan = plan;
    gen_array_free(&w->scratch);
    const int64_t bytes[1] = {(int64_t)bstk_plan_scratch_bytes(plan)};
    return gen_array_make(&w->scratch, BSTK_U8, 1, bytes, GEN_PADDED, 0) ? BSTK_OK : BSTK_ERR_NOMEM;
}

static bstk_status run_grad(const workload *w, const bstk_exec *exec) {
    if (w->p.op == PROBLEM_SOFTMAX) {
        const bstk_softmax_grad_desc desc = softmax_grad_desc(w);
        return bstk_softmax_grad_run(w->plan, &desc, exec);
    }
    if (w->p.op == PROBLEM_ATTENTION) {
        const bstk_attention_grad_desc desc = attention_grad_desc(w);
        return bstk_attention_grad_run(w->plan, &desc, exec);
    }
    if (problem_is_norm(w->p.op)) {
        const bstk_norm_grad_desc desc = norm_grad_desc(w);
        return bstk_norm_grad_run(w->plan, &desc, exec);
    }
    const bstk_matmul_grad_desc desc = matmul_grad_desc(w);
    return bstk_matmul_grad_run(w->plan, &desc, w->alpha, exec);
}

bstk_status workload_run(workload *w) {
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = w->scratch.t.data;
    exec.scratch_bytes = (size_t)gen_count(&w->scratch.t);
    const bstk_tensor *a = at(w, WORKLOAD_A), *b = at(w, WORKLOAD_B), *out = at(w, w->out), *lse = at(w, WORKLOAD_LSE);
    if (w->p.backward)
        return run_grad(w, &exec);
    if (w->p.op == PROBLEM_SOFTMAX)
        return bstk_softmax_run(w->plan, a, &w->terms, out, lse, at(w, WORKLOAD_MEAN), &exec);
    if (w->p.op == PROBLEM_ATTENTION)
        return bstk_attention_run(w->plan, a, b, at(w, WORKLOAD_V), &w->terms, out, lse, &exec);
    if (problem_is_norm(w->p.op)) {
        const bstk_norm_desc desc = norm_desc(w);
        return bstk_norm_run(w->plan, &desc, &exec);
    }
    if (problem_is_product(w->p.op))
        return bstk_matmul_run(w->plan, w->alpha, a, b, w->beta, out, &exec);
    return bstk_convert_run(w->plan, a, out, &exec);
}
