/* layers.c: linear layers and norms of row-major activations on bstk: plans made once, runs that allocate nothing. */
#include <stdlib.h>

#include "charlm.h"

void charlm_env_open(charlm_env *env, bstk_dtype dtype, int32_t threads) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    opts.num_threads = threads;
    *env = (charlm_env){.dtype = dtype,
                        .size = bstk_dtype_size(dtype),
                        .rows = dtype == BSTK_F64 ? &charlm_rows_f64 : &charlm_rows_f32};
    charlm_must(bstk_context_create(&opts, &env->ctx));
}

void charlm_env_close(charlm_env *env) {
    free(env->scratch);
    bstk_context_release(env->ctx);
}

bstk_exec charlm_env_exec(charlm_env *env, const bstk_plan *plan) {
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch_bytes = bstk_plan_scratch_bytes(plan);
    if (exec.scratch_bytes > env->scratch_bytes) {
        free(env->scratch);
        env->scratch = charlm_alloc(exec.scratch_bytes, 1);
        env->scratch_bytes = exec.scratch_bytes;
    }
    exec.scratch = env->scratch;
    return exec;
}

/* Tensors are views whose data pointer is set for each run: bstk only writes to those that it is to write. */
static bstk_tensor view(const bstk_tensor *of, const void *data) {
    bstk_tensor t = *of;
    t.data = (void *)(uintptr_t)data;
    return t;
}

/* A dense layout of in x out elements; blocks of 64, or the largest power of two that divides both. */
static bstk_layout *dense_layout(charlm_env *env, int64_t in, int64_t out) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout;
    while (in % opts.block || out % opts.block)
        opts.block /= 2;
    opts.rows = in / opts.block;
    opts.cols = out / opts.block;
    charlm_must(bstk_layout_build(env->ctx, &opts, &layout));
    return layout;
}

void charlm_linear_open(charlm_env *env, charlm_linear *l, int64_t rows, int64_t in, int64_t out, bool train) {
    l->layout = dense_layout(env, in, out);
    const int64_t b = bstk_layout_block(l->layout);
    l->x = bstk_tensor_make(NULL, env->dtype, 2, (int64_t[]){rows, in});
    l->w = bstk_tensor_make(NULL, env->dtype, 3, (int64_t[]){bstk_layout_nnz(l->layout), b, b});
    l->y = bstk_tensor_make(NULL, env->dtype, 2, (int64_t[]){rows, out});
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = BSTK_DDS;
    desc.layout = l->layout;
    desc.a = &l->x;
    desc.b = &l->w;
    desc.c = &l->y;
    charlm_must(bstk_matmul_plan(env->ctx, &desc, &l->plan));
    l->grad = NULL;
    if (train) {
        bstk_matmul_grad_desc grad = BSTK_MATMUL_GRAD_DESC_INIT;
        grad.forward = desc;
        grad.d_c = &l->y;
        grad.d_a = &l->x;
        grad.d_b = &l->w;
        charlm_must(bstk_matmul_grad_plan(env->ctx, &grad, &l->grad));
    }
}

void charlm_linear_close(charlm_linear *l) {
    bstk_plan_release(l->plan);
    bstk_plan_release(l->grad);
    bstk_layout_release(l->layout);
}

void charlm_linear_run(charlm_env *env, const charlm_linear *l, const void *x, const void *w, double beta, void *y) {
    const bstk_tensor a = view(&l->x, x), b = view(&l->w, w), c = view(&l->y, y);
    const bstk_exec exec = charlm_env_exec(env, l->plan);
    charlm_must(bstk_matmul_run(l->plan, 1, &a, &b, beta, &c, &exec));
}

void charlm_linear_grad(charlm_env *env, const charlm_linear *l, const void *x, const void *w, const void *d_y,
                        void *d_x, void *d_w) {
    const bstk_tensor a = view(&l->x, x), b = view(&l->w, w), d_c = view(&l->y, d_y), d_a = view(&l->x, d_x),
                      d_b = view(&l->w, d_w);
    const bstk_exec exec = charlm_env_exec(env, l->grad);
    bstk_matmul_grad_desc desc = BSTK_MATMUL_GRAD_DESC_INIT;
    desc.forward.mode = BSTK_DDS;
    desc.forward.layout = l->layout;
    desc.forward.a = &a;
    desc.forward.b = &b;
    desc.d_c = &d_c;
    desc.d_a = &d_a;
    desc.d_b = &d_b;
    charlm_must(bstk_matmul_grad_run(l->grad, &desc, 1, &exec));
}

int64_t charlm_norm_rows(int64_t rows, int64_t width) {
    return (rows + width - 1) / width * width;
}

void charlm_norm_open(charlm_env *env, charlm_norm *n, int64_t rows, int64_t width, bool train) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    opts.block = (int32_t)width;
    opts.rows = (rows + width - 1) / width;
    opts.cols = 1;
    opts.shape[0] = rows;
    opts.shape[1] = width;
    charlm_must(bstk_layout_build(env->ctx, &opts, &n->layout));
    n->x = bstk_tensor_make(NULL, env->dtype, 3, (int64_t[]){opts.rows, width, width});
    n->weight = bstk_tensor_make(NULL, env->dtype, 1, &width);
    n->rstd = bstk_tensor_make(NULL, env->dtype, 3, (int64_t[]){1, 1, rows});
    bstk_norm_desc desc = BSTK_NORM_DESC_INIT;
    desc.kind = BSTK_RMSNORM;
    desc.layout = n->layout;
    desc.x = desc.y = &n->x;
    desc.weight = &n->weight;
    desc.rstd = &n->rstd;
    charlm_must(bstk_norm_plan(env->ctx, &desc, &n->plan));
    n->grad = NULL;
    if (train) {
        bstk_norm_grad_desc grad = BSTK_NORM_GRAD_DESC_INIT;
        grad.kind = BSTK_RMSNORM;
        grad.layout = n->layout;
        grad.x = grad.d_y = grad.d_x = &n->x;
        grad.weight = grad.d_weight = &n->weight;
        grad.rstd = &n->rstd;
        charlm_must(bstk_norm_grad_plan(env->ctx, &grad, &n->grad));
    }
}

void charlm_norm_close(charlm_norm *n) {
    bstk_plan_release(n->plan);
    bstk_plan_release(n->grad);
    bstk_layout_release(n->layout);
}

void charlm_norm_run(charlm_env *env, const charlm_norm *n, const void *x, const void *weight, void *y, void *rstd) {
    const bstk_tensor from = view(&n->x, x), w = view(&n->weight, weight), to = view(&n->x, y),
                      saved = view(&n->rstd, rstd);
    const bstk_exec exec = charlm_env_exec(env, n->plan);
    bstk_norm_desc desc = BSTK_NORM_DESC_INIT;
    desc.kind = BSTK_RMSNORM;
    desc.layout = n->layout;
    desc.x = &from;
    desc.weight = &w;
    desc.y = &to;
    desc.rstd = &saved;
    charlm_must(bstk_norm_run(n->plan, &desc, &exec));
}

void charlm_norm_grad(charlm_env *env, const charlm_norm *n, const void *x, const void *weight, const void *rstd,
                      const void *d_y, void *d_x, void *d_weight) {
    const bstk_tensor from = view(&n->x, x), w = view(&n->weight, weight), saved = view(&n->rstd, rstd),
                      down = view(&n->x, d_y), to = view(&n->x, d_x), d_w = view(&n->weight, d_weight);
    const bstk_exec exec = charlm_env_exec(env, n->grad);
    bstk_norm_grad_desc desc = BSTK_NORM_GRAD_DESC_INIT;
    desc.kind = BSTK_RMSNORM;
    desc.layout = n->layout;
    desc.x = &from;
    desc.weight = &w;
    desc.rstd = &saved;
    desc.d_y = &down;
    desc.d_x = &to;
    desc.d_weight = &d_w;
    charlm_must(bstk_norm_grad_run(n->grad, &desc, &exec));
}
