/*
 * softmax.h: softmax of each row over its stored blocks, and its gradient.
 *
 *     c(i,j) = scale * x(i,j), or softcap * tanh(scale * x(i,j) / softcap)
 *     s(i,j) = c + rpe(z,h,i,j) + rel(z,h,i,j) - slope(z,h) * |diag(i) - j| + key_padding(z,j) + attn(z,h,i,j)
 *     kept(i,j) = stored, inside the matrix, kept by causal, window, documents, sequences and masks
 *     y(i,j) = exp(s - max s) / (sum of exp(s - max s) over the kept j of row i + exp(sink(h) - max s)), 0 elsewhere
 *     lse(i) = log(sum exp(s) + exp(sink(h)))
 *     dropout: y -> y / (1 - p) with probability 1 - p, else 0 (bstk_score_terms)
 *
 * A row that keeps nothing has y = 0 and lse = -inf (or sink). NaN and +inf of a kept score spread over their row as in
 * a dense softmax; those of a dropped place never do. Sums in f32 (f64 for f64), one rounding at the store; rows of any
 * length.
 *
 * Gradient, with g = d_y (through the dropout) and delta(i) = sum_j y(i,j) * g(i,j) - d_lse(i):
 *     ds(i,j) = y * (g - delta);  d_x = scale * (1 - (c / softcap)^2) * ds (without softcap: scale * ds)
 *     d_rpe, d_rel_logits, d_key_padding_mask, d_attn_mask = ds, summed over the axes that the term broadcasts
 *     d_sinks(h) = -sum over z, i of exp(sink - lse) * delta
 */
#ifndef BSTK_SOFTMAX_H
#define BSTK_SOFTMAX_H

#include <math.h>

#include <bstk/context.h>
#include <bstk/layout.h>
#include <bstk/plan.h>

BSTK_BEGIN_DECLS

/*
 * What the values of a mask mean. AUTO: bool and u8 keep where nonzero; floating values are added, and -inf drops;
 * other integers are refused. MUL: 0 drops, anything else keeps, for every type. ADD: as AUTO, for callers who want to
 * say so.
 */
typedef enum bstk_mask_mode { BSTK_MASK_AUTO = 0, BSTK_MASK_ADD = 1, BSTK_MASK_MUL = 2 } bstk_mask_mode;

/* Stands for the op's own default: 1 for softmax, 1/sqrt(D) for attention. */
#define BSTK_SCALE_DEFAULT ((double)NAN)

/*
 * The terms of a score, shared by softmax and attention. A plan reads the types, shapes and strides of the tensors, a
 * run their data, which may be another tensor of the same description. Any strides, also 0. Floating types may differ
 * from that of x. NULL leaves a term out.
 */
typedef struct bstk_score_terms {
    size_t struct_size;                  /* set by BSTK_SCORE_TERMS_INIT */
    double scale;                        /* BSTK_SCALE_DEFAULT; run uses the value given to run */
    int32_t causal;                      /* 1: only j <= diag(i) */
    int64_t causal_offset;               /* 0: the diagonal starts in the top left corner; see diag(i) below */
    const bstk_tensor *rpe;              /* floating [M,N], [H|1,M,N] or [Z|1,H|1,M,N]; M may be 1, here and below */
    const bstk_tensor *rel_logits;       /* floating [Z|1,H|1,M,E], [H|1,M,E] or [M,E]: (i,j) reads column E-1-(i-j),
                                            and 0 when that is outside [0, E) */
    const bstk_tensor *key_padding_mask; /* [Z|1,N] or [N] */
    const bstk_tensor *attn_mask;        /* [M,N], [Z|1,M,N] or [Z|1,H|1,M,N] */
    bstk_mask_mode key_padding_mode, attn_mode;

    double softcap;       /* 0: none; else > 0 */
    int32_t bottom_right; /* 1: the diagonal ends in the bottom right corner; causal_offset is counted from there */
    int64_t window_left, window_right; /* keeps diag(i) - left <= j <= diag(i) + right; -1: no limit */
    const bstk_tensor *alibi_slopes;   /* floating [H] or [Z|1, H|1] */
    const bstk_tensor *sinks;          /* floating [H]: a logit that joins the sum of its head's rows only */
    /* Kept only where q_documents(z, i) = k_documents(z, j): i32 or i64, [M] or [Z|1, M], [N] or [Z|1, N]; both or
     * none. */
    const bstk_tensor *q_documents, *k_documents;
    /*
     * Sequences laid end to end: i32 or i64 [S + 1], rising from 0 to M and from 0 to N; both or none. Pairs of
     * different sequences are dropped, and i and j count from their sequence's start wherever a difference of them
     * matters.
     */
    const bstk_tensor *cu_seqlens_q, *cu_seqlens_k;
    /*
     * Probability of dropping, in [0, 1]; by Philox 4x32-10 with key (seed low, seed high ^ offset high) and counter
     * (j / 4, i, z * H + h, offset low), word j mod 4: independent of layout, threads and schedule.
     */
    double dropout;
    uint64_t dropout_seed, dropout_offset;
} bstk_score_terms;

/* diag(i) = i + causal_offset; with bottom_right i + N - M + causal_offset (N and M of the sequence, if there are any)
 */

/* clang-format off */
#define BSTK_SCORE_TERMS_INIT { sizeof(bstk_score_terms), BSTK_SCALE_DEFAULT, 0, 0, 0, 0, 0, 0, BSTK_MASK_AUTO, \
    BSTK_MASK_AUTO, 0.0, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0.0, 0, 0 }
/* clang-format on */

typedef struct bstk_softmax_desc {
    size_t struct_size; /* set by BSTK_SOFTMAX_DESC_INIT */
    const bstk_layout *layout;
    const bstk_tensor *x;   /* packed [Z, nnz, b, b] (shared layout: [Z, H*nnz, b, b]) f64, f32, f16 or bf16 */
    const bstk_tensor *y;   /* the same shape and type; may be x itself (in place), overlaps nothing else */
    const bstk_tensor *lse; /* NULL, or [Z, H, M] f32 (f64 for f64) */
    bstk_score_terms terms;
    const char *kernel;       /* as in bstk_matmul_desc */
    const bstk_tensor *saved; /* NULL, or y before the dropout, for the gradient: as y, overlaps nothing */
} bstk_softmax_desc;

/* clang-format off */
#define BSTK_SOFTMAX_DESC_INIT { sizeof(bstk_softmax_desc), 0, 0, 0, 0, BSTK_SCORE_TERMS_INIT, 0, 0 }
/* clang-format on */

/** Plans a softmax. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax_plan(bstk_context *ctx, const bstk_softmax_desc *desc,
                                                      bstk_plan **out);

/**
 * Runs a planned softmax.
 *
 * @param terms  the same description as in the plan, with data; its scale is the one used
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax_run(const bstk_plan *plan, const bstk_tensor *x,
                                                     const bstk_score_terms *terms, const bstk_tensor *y,
                                                     const bstk_tensor *lse, const bstk_tensor *saved,
                                                     const bstk_exec *exec);

/** Plans, runs and drops the plan, on the data of the descriptor's tensors. */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax(bstk_context *ctx, const bstk_softmax_desc *desc);

/* ---- gradient ---------------------------------------------------------------------------------------------------- */

/* Gradients wanted are the non-NULL ones of d_...; each has the shape of what it is the gradient of. */
typedef struct bstk_softmax_grad_desc {
    size_t struct_size; /* set by BSTK_SOFTMAX_GRAD_DESC_INIT */
    const bstk_layout *layout;
    const bstk_tensor *y;     /* the softmax before dropout (the forward's y, or saved) */
    const bstk_tensor *d_y;   /* packed like y, the same type, any strides, also 0 */
    const bstk_tensor *d_lse; /* NULL, or [Z, H, M] of lse's type */
    const bstk_tensor *x;     /* NULL; with softcap the forward's x */
    const bstk_tensor *lse;   /* NULL; for d_sinks the forward's lse */
    bstk_score_terms terms;   /* as in the forward: scale, softcap, sinks and dropout count, masks are not looked at */
    const bstk_tensor *d_x;   /* packed like y, overlaps nothing but d_y itself (in place) */
    const bstk_tensor *d_rpe, *d_rel_logits, *d_key_padding_mask, *d_attn_mask; /* any floating type */
    const bstk_tensor *d_sinks;                                                 /* [H], any floating type */
    const char *kernel;
} bstk_softmax_grad_desc;

/* clang-format off */
#define BSTK_SOFTMAX_GRAD_DESC_INIT { sizeof(bstk_softmax_grad_desc), 0, 0, 0, 0, 0, 0, BSTK_SCORE_TERMS_INIT, 0, 0, 0, \
    0, 0, 0, 0 }
/* clang-format on */

/** Plans the gradient of a softmax. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax_grad_plan(bstk_context *ctx, const bstk_softmax_grad_desc *desc,
                                                           bstk_plan **out);

/**
 * Runs a planned gradient, on the data of `desc`, whose tensors and terms have the planned descriptions.
 *
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax_grad_run(const bstk_plan *plan, const bstk_softmax_grad_desc *desc,
                                                          const bstk_exec *exec);

/** Plans, runs and drops the plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax_grad(bstk_context *ctx, const bstk_softmax_grad_desc *desc);

BSTK_END_DECLS

#endif
