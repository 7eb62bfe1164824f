/*
 * score_terms.h: the terms and masks of a score as kernels see them (contract of bstk_score_terms). Softmax uses them,
 * and so does every kernel that makes scores; score_segment.inc evaluates them.
 */
#ifndef BSTK_SCORE_TERMS_H
#define BSTK_SCORE_TERMS_H

#include "core/tensor_view.h"

#include <bstk/softmax.h>

/* One term [Z, H, M, N] (rel_logits: [Z, H, M, E]); a broadcast axis has stride 0. */
typedef struct bstk__term {
    const void *data; /* NULL: there is no such term */
    bstk_dtype dtype;
    int32_t keeps; /* 1: nonzero keeps, 0: added */
    int64_t z, h, row, col;
} bstk__term;

typedef struct bstk__terms {
    bstk__term rpe, rel, key_padding, attn;
    bstk__term slopes, sinks;              /* [Z, H], [H]: z and h strides */
    bstk__term q_documents, k_documents;   /* [Z, M], [Z, N]: z and col strides; both or none */
    bstk__term cu_seqlens_q, cu_seqlens_k; /* [S + 1]: col stride; both or none */
    int64_t rel_extent;                    /* E */
    int64_t sequences;                     /* S */
    int64_t m, n, heads;                   /* of the scores */
    int32_t causal, bottom_right;
    int64_t causal_offset, window_left, window_right; /* windows: -1 without limit */
    double scale, softcap;                            /* softcap 0: none */
    double dropout;
    uint64_t dropout_seed, dropout_offset;
    /* Element masks of partly kept blocks; NULL when the layout has none. */
    const int64_t *partial_idx;   /* [nnz] */
    const uint8_t *partial_masks; /* [count, b, b] */
} bstk__terms;

/* What holds for a whole row of scores. */
typedef struct bstk__score_row {
    int64_t z, h, i;
    int64_t first, last; /* columns [first, last) that causal, window and sequence keep */
    int64_t diagonal;    /* diag(i) as a column */
    int64_t rel_origin;  /* column where i - j, counted within the sequence, is 0 */
    int64_t document;
} bstk__score_row;

/* What a plan remembers of the terms, to compare with those of a run. */
typedef struct bstk__terms_spec {
    bstk_tensor tensors[10]; /* in the order of the public struct; ndim -1: absent */
    int32_t causal, bottom_right;
    int64_t causal_offset, window_left, window_right;
    int32_t has_softcap, has_dropout;
} bstk__terms_spec;

/*
 * Checks the terms of a plan for scores [batches, heads, m, n] and fills the strides of `terms` (data stays NULL) and
 * the descriptions.
 */
bstk_status bstk__terms_plan(const char *who, const bstk_score_terms *given, int64_t batches, int64_t heads, int64_t m,
                             int64_t n, bstk__terms *terms, bstk__terms_spec *spec);

/* The most heads that a term has: for layouts of one head without blocks, whose values cannot tell. 1 without terms. */
int64_t bstk__terms_heads(const bstk_score_terms *given);

/* Checks the terms of a run against the plan's and fills the data pointers and the scale of `terms`. */
bstk_status bstk__terms_run(const char *who, const bstk__terms_spec *spec, const bstk_score_terms *given,
                            double default_scale, bstk__terms *terms);

/* BSTK_ERR_INVALID when the output `out` overlaps one of the terms' tensors. */
bstk_status bstk__terms_check_overlap(const char *who, const char *name, const bstk_tensor *out,
                                      const bstk_score_terms *given);

/*
 * The gradient `t` of a term, an output of any floating type, seen as [Z|1, H|1, M|1, N]: the shapes are those of the
 * term itself. d_rel_logits has E columns; d_sinks is seen as [1, 1, 1, H].
 */
typedef enum bstk__term_grad {
    BSTK__D_RPE,
    BSTK__D_REL,
    BSTK__D_KEY_PADDING,
    BSTK__D_ATTN,
    BSTK__D_SINKS,
    BSTK__TERM_GRADS
} bstk__term_grad;
bstk_status bstk__term_grad_view(const char *who, bstk__term_grad kind, const bstk_tensor *t, int64_t batches,
                                 int64_t heads, int64_t m, int64_t n, bstk__view *view);

/* The columns that row i of (z, h) keeps, and its diagonals. */
bstk__score_row bstk__score_row_make(const bstk__terms *terms, int64_t z, int64_t h, int64_t i);

/* Element `index` of a term, as a double; of an integer term as an integer. */
double bstk__term_float(const bstk__term *term, int64_t index);
int64_t bstk__term_integer(const bstk__term *term, int64_t index);

/* True when element `index` of a term that keeps by nonzero keeps. Floating: -0 does not, NaN does. */
bool bstk__term_keeps(const bstk__term *term, int64_t index);

/* Dropout of `count` columns from j0 on: keep[q] is 1 with probability 1 - p. */
void bstk__dropout_mask(const bstk__terms *terms, int64_t z, int64_t h, int64_t i, int64_t j0, int64_t count,
                        uint8_t *keep);

/* What a kept value is multiplied with: 1 / (1 - p), 1 without dropout, 0 for p = 1. */
double bstk__dropout_factor(const bstk__terms *terms);

#endif
