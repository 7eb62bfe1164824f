/*
 * attention.h: o = softmax(scale * q . k^T with terms) . v over the stored blocks of a layout, and its gradient.
 *
 * Fused: the scores are never stored. A row is summed block by block with a running maximum (the online softmax of
 * Milakov and Gimelshein, 2018, as in FlashAttention, Dao et al., 2022); memory is O(M * D). All sums and scores in f32
 * (f64 for f64), one rounding at the store. Every term of bstk_score_terms counts (bstk/softmax.h has the formulas,
 * with x = q . k^T before the scale), dropout too.
 *
 * Gradient, with p the softmax before dropout, r the factor of the dropout (0 or 1/(1-p)), g(i,j) = d_o(i) . v(j) * r
 * and delta(i) = d_o(i) . o(i) - d_lse(i): ds = p * (g - delta);  dx = scale * (1 - (c/softcap)^2) * ds;  d_q = dx . k;
 * d_k = dx^T . q;  d_v = (p * r)^T . d_o d_rpe, d_rel_logits, d_attn_mask, d_key_padding_mask, d_sinks: as in
 * bstk/softmax.h d_k and d_v of shared batches or grouped heads are sums over them. No atomics: same bits every run,
 * any thread count.
 */
#ifndef BSTK_ATTENTION_H
#define BSTK_ATTENTION_H

#include <bstk/context.h>
#include <bstk/layout.h>
#include <bstk/plan.h>
#include <bstk/softmax.h>

BSTK_BEGIN_DECLS

typedef struct bstk_attention_desc {
    size_t struct_size;        /* set by BSTK_ATTENTION_DESC_INIT */
    const bstk_layout *layout; /* [H|1, ceil(M/b), ceil(N/b)] */
    const bstk_tensor *q;      /* [Z, H, M, D], D from 1 to 256, f64, f32, f16 or bf16 */
    const bstk_tensor *k;      /* [Z|1, Hkv, N, D], Hkv divides H: head h reads h / (H/Hkv) */
    const bstk_tensor *v;      /* [Z|1, Hkv, N, Dv], Dv from 1 to 256 */
    const bstk_tensor *o;      /* [Z, H, M, Dv] */
    const bstk_tensor *lse;    /* NULL, or [Z, H, M] f32 (f64 for f64) */
    bstk_score_terms terms;    /* scale: 1/sqrt(D) by default */
    const char *kernel;        /* as in bstk_matmul_desc; "composed": sdd, softmax and dsd, the scores in scratch */
} bstk_attention_desc;

/* clang-format off */
#define BSTK_ATTENTION_DESC_INIT { sizeof(bstk_attention_desc), 0, 0, 0, 0, 0, 0, BSTK_SCORE_TERMS_INIT, 0 }
/* clang-format on */

/** Plans an attention. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_plan(bstk_context *ctx, const bstk_attention_desc *desc,
                                                        bstk_plan **out);

/**
 * Runs a planned attention. A key or value that a query's mask drops never reaches that query's output, not even a NaN.
 *
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_run(const bstk_plan *plan, const bstk_tensor *q,
                                                       const bstk_tensor *k, const bstk_tensor *v,
                                                       const bstk_score_terms *terms, const bstk_tensor *o,
                                                       const bstk_tensor *lse, const bstk_exec *exec);

/** Plans, runs and drops the plan, on the data of the descriptor's tensors. */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention(bstk_context *ctx, const bstk_attention_desc *desc);

/* ---- gradient ---------------------------------------------------------------------------------------------------- */

/* Gradients wanted are the non-NULL ones of d_...; each has the shape of what it is the gradient of. */
typedef struct bstk_attention_grad_desc {
    size_t struct_size; /* set by BSTK_ATTENTION_GRAD_DESC_INIT */
    const bstk_layout *layout;
    const bstk_tensor *q, *k, *v; /* the forward's */
    const bstk_tensor *o, *lse;   /* what the forward wrote */
    const bstk_tensor *d_o;       /* as o, any strides, also 0 */
    const bstk_tensor *d_lse;     /* NULL, or as lse */
    bstk_score_terms terms;       /* the forward's, with data; scale: 1/sqrt(D) by default */
    const bstk_tensor *d_q, *d_k, *d_v;
    const bstk_tensor *d_rpe, *d_rel_logits, *d_key_padding_mask, *d_attn_mask; /* any floating type */
    const bstk_tensor *d_sinks;                                                 /* [H], any floating type */
    const char *kernel;
} bstk_attention_grad_desc;

/* clang-format off */
#define BSTK_ATTENTION_GRAD_DESC_INIT { sizeof(bstk_attention_grad_desc), 0, 0, 0, 0, 0, 0, 0, 0, BSTK_SCORE_TERMS_INIT, \
    0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Plans the gradient of an attention. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_grad_plan(bstk_context *ctx, const bstk_attention_grad_desc *desc,
                                                             bstk_plan **out);

/**
 * Runs a planned gradient, on the data of `desc`, whose tensors and terms have the planned descriptions.
 *
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_grad_run(const bstk_plan *plan, const bstk_attention_grad_desc *desc,
                                                            const bstk_exec *exec);

/** Plans, runs and drops the plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_grad(bstk_context *ctx, const bstk_attention_grad_desc *desc);

BSTK_END_DECLS

#endif
