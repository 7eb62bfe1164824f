/*
 * softmax.h: softmax of each row over its stored blocks.
 *
 *     s(i,j) = scale * x(i,j) + rpe(z,h,i,j) + rel(z,h,i,j) + key_padding(z,j) + attn(z,h,i,j)
 *     kept(i,j) = stored, and j <= i + causal_offset if causal, and the masks keep it, and (i,j) inside the matrix
 *     y(i,j) = exp(s - max s) / sum exp(s - max s) over the kept j of row i;  0 elsewhere in the stored blocks
 *     lse(i) = log(sum exp(s)) over the kept j
 *
 * A row that keeps nothing has y = 0 and lse = -inf. NaN and +inf of a kept score spread over their row as in a dense
 * softmax; those of a dropped place never do. Sums in f32 (f64 for f64), one rounding at the store; rows of any length.
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
    int32_t causal;                      /* 1: only j <= i + causal_offset */
    int64_t causal_offset;               /* 0: top-left; N - M: bottom-right */
    const bstk_tensor *rpe;              /* floating [M,N], [H|1,M,N] or [Z|1,H|1,M,N] */
    const bstk_tensor *rel_logits;       /* floating [Z|1,H|1,M,E], [H|1,M,E] or [M,E]: (i,j) reads column E-1-(i-j),
                                            and 0 when that is outside [0, E) */
    const bstk_tensor *key_padding_mask; /* [Z|1,N] or [N] */
    const bstk_tensor *attn_mask;        /* [M,N], [Z|1,M,N] or [Z|1,H|1,M,N] */
    bstk_mask_mode key_padding_mode, attn_mode;
} bstk_score_terms;

/* clang-format off */
#define BSTK_SCORE_TERMS_INIT { sizeof(bstk_score_terms), BSTK_SCALE_DEFAULT, 0, 0, 0, 0, 0, 0, BSTK_MASK_AUTO, \
    BSTK_MASK_AUTO }
/* clang-format on */

typedef struct bstk_softmax_desc {
    size_t struct_size; /* set by BSTK_SOFTMAX_DESC_INIT */
    const bstk_layout *layout;
    const bstk_tensor *x;   /* packed [Z, nnz, b, b] (shared layout: [Z, H*nnz, b, b]) f64, f32, f16 or bf16 */
    const bstk_tensor *y;   /* the same shape and type; may be x itself (in place), overlaps nothing else */
    const bstk_tensor *lse; /* NULL, or [Z, H, M] f32 (f64 for f64) */
    bstk_score_terms terms;
    const char *kernel; /* as in bstk_matmul_desc */
} bstk_softmax_desc;

/* clang-format off */
#define BSTK_SOFTMAX_DESC_INIT { sizeof(bstk_softmax_desc), 0, 0, 0, 0, BSTK_SCORE_TERMS_INIT, 0 }
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
                                                     const bstk_tensor *lse, const bstk_exec *exec);

/** Plans, runs and drops the plan, on the data of the descriptor's tensors. */
BSTK_API BSTK_NODISCARD bstk_status bstk_softmax(bstk_context *ctx, const bstk_softmax_desc *desc);

BSTK_END_DECLS

#endif
