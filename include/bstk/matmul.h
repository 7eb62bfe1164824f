/*
 * matmul.h: products in which one matrix is block-sparse: C = alpha * op(A) . op(B) + beta * C.
 *
 *   mode  A                                B                                layout describes            C
 *   sdd   dense [Z,H,M,K] (t: [Z,H,K,M])   dense [Z,H,K,N] (t: [Z,H,N,K])   C   [H, M/b, N/b] (tc: C^T) packed
 *   dsd   packed                           dense                            A as stored [H, M/b, K/b]   dense [Z,H,M,N]
 *                                                                           (trans_a: [H, K/b, M/b])
 *   dds   dense                            packed                           B as stored [H, K/b, N/b]   dense [Z,H,M,N]
 *                                                                           (trans_b: [H, N/b, K/b])
 *
 * trans_c: C is written as its transpose; sdd's layout is then that of C^T [H, N/b, M/b].
 * Heads: H is the layout's, or with a layout of one head (shared by all) the largest of the operands'. Each operand may
 * have 1 head (shared), and B of sdd and dsd any number that divides H (grouped heads): head h then reads h / (H/H_b).
 * Packed values of a shared layout hold the blocks of head 0, then of head 1, ...: [Z, H*nnz, b, b], or [Z, nnz, b, b]
 * when the values are shared too. Batches: every operand has Z or 1.
 * Types: A, B and C are all f64, f32, f16 or bf16; the packed one may be f32 beside f16 or bf16 dense ones. Sums are
 * kept in f32 (f64 for f64) and rounded once, at the store. Past a ragged edge packed blocks are written as 0 and never
 * read. With beta = 0 C is not read, with alpha = 0 neither are A and B, as in BLAS.
 */
#ifndef BSTK_MATMUL_H
#define BSTK_MATMUL_H

#include <bstk/context.h>
#include <bstk/layout.h>
#include <bstk/plan.h>

BSTK_BEGIN_DECLS

typedef enum bstk_mode { BSTK_SDD = 1, BSTK_DSD = 2, BSTK_DDS = 3 } bstk_mode;

typedef struct bstk_matmul_desc {
    size_t struct_size; /* set by BSTK_MATMUL_DESC_INIT */
    bstk_mode mode;
    int32_t trans_a, trans_b, trans_c;
    const bstk_layout *layout;    /* the plan keeps a reference */
    const bstk_tensor *a, *b, *c; /* a plan reads types, shapes and strides; only bstk_matmul reads the data */
    const char *kernel;           /* NULL: the first row of the registry that accepts; else this row or an error */
} bstk_matmul_desc;

/* clang-format off */
#define BSTK_MATMUL_DESC_INIT { sizeof(bstk_matmul_desc), BSTK_SDD, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Plans a product.
 *
 * @return BSTK_OK; BSTK_ERR_INVALID for shapes, strides or heads that do not fit, naming the argument; BSTK_ERR_TYPE;
 *         BSTK_ERR_UNSUPPORTED when no kernel accepts; BSTK_ERR_OVERFLOW; BSTK_ERR_NOMEM
 * Threads: any number at once.  Allocates: the plan.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_matmul_plan(bstk_context *ctx, const bstk_matmul_desc *desc, bstk_plan **out);

/**
 * Runs a planned product.
 *
 * @param a,b,c  the same types, shapes and strides as in the plan's descriptor; c overlaps neither a nor b
 * @return BSTK_OK; BSTK_ERR_MISMATCH; BSTK_ERR_INVALID for a NULL pointer, an overlap or too little scratch: C is then
 *         untouched
 * Threads: any number on one plan, with a scratch and a C each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_matmul_run(const bstk_plan *plan, double alpha, const bstk_tensor *a,
                                                    const bstk_tensor *b, double beta, const bstk_tensor *c,
                                                    const bstk_exec *exec);

/** Plans, runs and drops the plan: the short form, on the data of the descriptor's tensors. Errors as above. */
BSTK_API BSTK_NODISCARD bstk_status bstk_matmul(bstk_context *ctx, const bstk_matmul_desc *desc, double alpha,
                                                double beta);

/* ---- gradient ---------------------------------------------------------------------------------------------------- */

/*
 * With G the gradient of C, each a product of the same three modes:
 *     d_A = alpha * G op(B)^T (as A is stored), mode of letters 2,1,3;  d_B = alpha * op(A)^T G, mode of letters 3,2,1
 * so that of sdd: d_A = dsd(G, B), d_B = dds(A, G); of dsd: d_A = sdd(G, B), d_B = dsd(A, G); of dds: d_A = dds(G, B),
 * d_B = sdd(A, G). An operand that was shared by batches or heads gets the sum over them. The gradient of the packed
 * one exists at its stored blocks only, in their order.
 */
typedef struct bstk_matmul_grad_desc {
    size_t struct_size;       /* set by BSTK_MATMUL_GRAD_DESC_INIT */
    bstk_matmul_desc forward; /* mode, flags, layout, a and b as in the forward; c and kernel are not looked at */
    const bstk_tensor *d_c;   /* as the forward's c, any strides, also 0 */
    const bstk_tensor *d_a;   /* NULL: not wanted; else as a, and b's data is read */
    const bstk_tensor *d_b;   /* NULL: not wanted; else as b, and a's data is read */
} bstk_matmul_grad_desc;

/* clang-format off */
#define BSTK_MATMUL_GRAD_DESC_INIT { sizeof(bstk_matmul_grad_desc), BSTK_MATMUL_DESC_INIT, 0, 0, 0 }
/* clang-format on */

/** Plans the gradients of a product. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_matmul_grad_plan(bstk_context *ctx, const bstk_matmul_grad_desc *desc,
                                                          bstk_plan **out);

/**
 * Runs planned gradients, on the data of `desc`, whose tensors have the planned descriptions.
 *
 * @param alpha  that of the forward
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_matmul_grad_run(const bstk_plan *plan, const bstk_matmul_grad_desc *desc,
                                                         double alpha, const bstk_exec *exec);

/** Plans, runs and drops the plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_matmul_grad(bstk_context *ctx, const bstk_matmul_grad_desc *desc,
                                                     double alpha);

BSTK_END_DECLS

#endif
