/*
 * score_terms.h: the terms and masks of a score as kernels see them (contract of bstk_score_terms). Softmax uses them,
 * and so does every kernel that makes scores.
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
    int64_t rel_extent; /* E */
    int32_t causal;
    int64_t causal_offset;
    double scale;
    /* Element masks of partly kept blocks; NULL when the layout has none. */
    const int64_t *partial_idx;   /* [nnz] */
    const uint8_t *partial_masks; /* [count, b, b] */
} bstk__terms;

/* What a plan remembers of the terms, to compare with those of a run. */
typedef struct bstk__terms_spec {
    bstk_tensor rpe, rel_logits, key_padding_mask, attn_mask; /* ndim -1: absent */
    int32_t causal;
    int64_t causal_offset;
} bstk__terms_spec;

/*
 * Checks the terms of a plan for scores [batches, heads, m, n] and fills the strides of `terms` (data stays NULL) and
 * the descriptions.
 */
bstk_status bstk__terms_plan(const char *who, const bstk_score_terms *given, int64_t batches, int64_t heads, int64_t m,
                             int64_t n, bstk__terms *terms, bstk__terms_spec *spec);

/* Checks the terms of a run against the plan's and fills the data pointers and the scale of `terms`. */
bstk_status bstk__terms_run(const char *who, const bstk__terms_spec *spec, const bstk_score_terms *given,
                            double default_scale, bstk__terms *terms);

/* BSTK_ERR_INVALID when the output `out` overlaps one of the terms' tensors. */
bstk_status bstk__terms_check_overlap(const char *who, const char *name, const bstk_tensor *out,
                                      const bstk_score_terms *given);

#endif
