/*
 * attention_kernel.h: the contract of the fused attention kernels. With terms and masks as in bstk/softmax.h,
 *
 *     s(i,j) = scale * sum_d q(i,d) k(j,d) + terms;   p(i,j) = exp(s - max) / sum exp(s - max)   for the kept j
 *     o(i,c) = sum_j p(i,j) r(i,j) v(j,c);            lse(i) = max + log sum                     r: factor of dropout
 *
 * row by row over the stored blocks of the block row, without storing s: a running maximum, sum and o are scaled when
 * the maximum rises. In f32 (f64 for f64), one rounding at the store. A key that a row drops has no part in it, not
 * even as a NaN, and a p of exactly 0 leaves v(j) out. A row without kept scores gives o = 0 and lse = -inf (or the
 * sink); one with a kept NaN or +inf gives NaN for o and lse.
 */
#ifndef BSTK_ATTENTION_KERNEL_H
#define BSTK_ATTENTION_KERNEL_H

#include "ops/softmax/score_terms.h"
#include "plan/registry.h"

#include <stdint.h>

/* A tile is at most this many rows and columns; rows come in parts of 8. */
enum { BSTK__ATTENTION_TILE = 64, BSTK__ATTENTION_PART = 8 };

/* A dense operand [Z, heads, rows, cols]. */
typedef struct bstk__attention_dense {
    void *data;
    int64_t z, h, row, col; /* strides */
} bstk__attention_dense;

/* Unit u: part u % parts (8 element rows) of block row u / parts % lines, of repeat u / (parts * lines). */
typedef struct bstk__attention_args {
    bstk__attention_dense q, k, v, o; /* k and v: head h of the scores reads head h / group */
    bstk__attention_dense lse;        /* data NULL: not wanted */
    int64_t group;
    bstk__terms terms;
    int32_t plain;           /* 1: a wholly kept block needs the scale only: no terms beyond intervals of columns */
    const int64_t *line_ptr; /* [lines + 1] */
    const int32_t *col_idx;  /* [nnz] */
    int64_t lines, head_lines, layout_heads, heads;
    int64_t m, n, d, dv;
    int32_t edge, parts;
} bstk__attention_args;

/* Scratch of one worker: rows of q and o, columns of k and v. */
size_t bstk__attention_scratch_bytes(const bstk__attention_args *args, size_t element);

/* clang-format off */
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts) \
    void function(const void *args, int64_t begin, int64_t end, void *scratch);
#include "ops/attention/attention.def"
#undef BSTK_KERNEL
/* clang-format on */

#endif
