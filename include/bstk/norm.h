/*
 * norm.h: layernorm and rmsnorm of each row over its stored (kept) elements, and their gradients.
 *
 * With n the kept elements of row i (stored, inside the matrix, kept by the layout's element masks):
 *     layernorm: mean = sum x / n, var = sum (x - mean)^2 / n (biased);  rmsnorm: mean = 0, var = sum x^2 / n
 *     rstd = 1 / sqrt(var + eps);  xhat = (x - mean) * rstd;  y = xhat * weight(h, j) + bias(h, j);  0 where not kept
 * A row with n = 0 has mean = rstd = 0. Sums in f32 (f64 for f64), one rounding at the store.
 *
 * Gradient, with g = d_y * weight and averages over the kept elements of the row:
 *     d_x = rstd * (g - avg(g) - xhat * avg(g * xhat))   (rmsnorm: without avg(g))
 *     d_weight(h, j) = sum over z, i of d_y * xhat;  d_bias(h, j) = sum over z, i of d_y   (over h too where shared)
 */
#ifndef BSTK_NORM_H
#define BSTK_NORM_H

#include <bstk/context.h>
#include <bstk/layout.h>
#include <bstk/plan.h>

BSTK_BEGIN_DECLS

typedef enum bstk_norm_kind { BSTK_LAYERNORM = 1, BSTK_RMSNORM = 2 } bstk_norm_kind;

typedef struct bstk_norm_desc {
    size_t struct_size; /* set by BSTK_NORM_DESC_INIT */
    bstk_norm_kind kind;
    const bstk_layout *layout;
    const bstk_tensor *x;      /* packed [Z, nnz, b, b] (shared layout: [Z, H*nnz, b, b]) f64, f32, f16 or bf16 */
    const bstk_tensor *weight; /* NULL: 1; [N] or [H|1, N], any floating type */
    const bstk_tensor *bias;   /* NULL: 0; [N] or [H|1, N], any floating type */
    const bstk_tensor *y;      /* as x; may be x itself (in place), overlaps nothing else */
    const bstk_tensor *mean;   /* NULL, or [Z, H, M] f32 (f64 for f64), for the gradient; layernorm only */
    const bstk_tensor *rstd;   /* NULL, or [Z, H, M] f32 (f64 for f64), for the gradient */
    double eps;                /* >= 0; 1e-5 by default */
    const char *kernel;        /* as in bstk_matmul_desc */
} bstk_norm_desc;

/* clang-format off */
#define BSTK_NORM_DESC_INIT { sizeof(bstk_norm_desc), BSTK_LAYERNORM, 0, 0, 0, 0, 0, 0, 0, 1e-5, 0 }
/* clang-format on */

/** Plans a norm. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_norm_plan(bstk_context *ctx, const bstk_norm_desc *desc, bstk_plan **out);

/**
 * Runs a planned norm, on the data of `desc`, whose tensors have the planned descriptions; its eps is the one used.
 *
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_norm_run(const bstk_plan *plan, const bstk_norm_desc *desc,
                                                  const bstk_exec *exec);

/** Plans, runs and drops the plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_norm(bstk_context *ctx, const bstk_norm_desc *desc);

/* Gradients wanted are the non-NULL ones of d_x, d_weight and d_bias. */
typedef struct bstk_norm_grad_desc {
    size_t struct_size; /* set by BSTK_NORM_GRAD_DESC_INIT */
    bstk_norm_kind kind;
    const bstk_layout *layout;
    const bstk_tensor *x, *weight; /* the forward's */
    const bstk_tensor *mean;       /* what the forward wrote; layernorm only */
    const bstk_tensor *rstd;       /* what the forward wrote */
    const bstk_tensor *d_y;        /* as y, any strides, also 0 */
    const bstk_tensor *d_x;        /* as x */
    const bstk_tensor *d_weight;   /* as weight; [N] or [H|1, N], any floating type */
    const bstk_tensor *d_bias;     /* [N] or [H|1, N], any floating type */
    const char *kernel;
} bstk_norm_grad_desc;

/* clang-format off */
#define BSTK_NORM_GRAD_DESC_INIT { sizeof(bstk_norm_grad_desc), BSTK_LAYERNORM, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Plans the gradient of a norm. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_norm_grad_plan(bstk_context *ctx, const bstk_norm_grad_desc *desc,
                                                        bstk_plan **out);

/** Runs a planned gradient, on the data of `desc`, whose tensors have the planned descriptions. */
BSTK_API BSTK_NODISCARD bstk_status bstk_norm_grad_run(const bstk_plan *plan, const bstk_norm_grad_desc *desc,
                                                       const bstk_exec *exec);

/** Plans, runs and drops the plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_norm_grad(bstk_context *ctx, const bstk_norm_grad_desc *desc);

BSTK_END_DECLS

#endif
