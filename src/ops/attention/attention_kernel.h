/*
 * attention_kernel.h: the contract of the fused attention kernels. With terms and masks as in bstk/softmax.h,
 *
 *     s(i,j) = scale * sum_d q(i,d) k(j,d) + terms;   p(i,j) = exp(s - max) / sum exp(s - max)   for the kept j
 *     o(i,c) = sum_j p(i,j) r(i,j) v(j,c);            lse(i) = max + log sum                     r: factor of dropout
 *
 * row by row over the stored blocks of the block row, without storing s: a running maximum, sum and o are scaled when
 * the maximum rises. In f32 (f64 for f64), one rounding at the store. A key that a row drops has no part in it, not
 * even as a NaN, and a p of exactly 0 leaves v(j) out. A row without kept scores gives o = 0 and lse = -inf (or the
 * sink); one with a kept NaN or +inf gives NaN for lse, and for o unless the dropout left it no key.
 */
#ifndef BSTK_ATTENTION_KERNEL_H
#define BSTK_ATTENTION_KERNEL_H

#include "ops/softmax/score_terms.h"
#include "plan/registry.h"

#include <stdbool.h>
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

/* ---- gradient ---------------------------------------------------------------------------------------------------- */

/*
 * With p = exp(s - lse) made anew from q, k and lse, r the factor of the dropout, g(i,j) = r * sum_c d_o(i,c) v(j,c):
 *
 *     delta(i) = sum_c d_o(i,c) o(i,c) - d_lse(i);   ds = p * (g - delta), exactly 0 where p is 0
 *     dx = (1 - tanh^2(scale * x / softcap)) * ds
 *     d_q(i) = scale * sum_j dx k(j);  d_k(j) = scale * sum_i dx q(i);  d_v(j) = sum_i p r d_o(i)
 *     d_term = sum of ds over the axes that the term broadcasts;  d_sinks = -sum of exp(sink - lse) * delta
 *
 * A row with lse = -inf has p = 0 and delta = 0; its q and d_o are not looked at. One kernel serves all passes; each
 * pass has a cut of its own, and no unit writes what another one writes. Sums over rows, heads of a group and batches
 * run in the order z, h, i, j, whatever the cut. Those of terms are in double.
 *
 * Kernels with scratch_bytes make scores and g only once for d_q, d_k and d_v (BSTK__ATTENTION_CHUNKS): they walk block
 * columns, and add what a chunk of these brings to d_q to a sum of its own, `parts`; BSTK__ATTENTION_JOIN adds up the
 * parts. The cut into chunks is the plan's and depends on the problem alone.
 */
typedef enum bstk__attention_pass {
    BSTK__ATTENTION_DELTA,          /* unit: 64 rows of (z, h); also shift where that is not NULL */
    BSTK__ATTENTION_ROWS,           /* d_q; units as in the forward */
    BSTK__ATTENTION_COLUMNS,        /* d_k, d_v, or a term without rows; unit: 8 columns of a block column of (z, h) */
    BSTK__ATTENTION_TERM_ROWS,      /* a term with rows; unit: 8 rows of a block row of (z, h) */
    BSTK__ATTENTION_TERM_DIAGONALS, /* rel_logits without rows; unit: 1024 of its columns of (z, h) */
    BSTK__ATTENTION_SINKS,          /* unit: a head */
    BSTK__ATTENTION_CHUNKS,         /* d_k, d_v, parts of d_q; unit: a chunk of (z, head of k) */
    BSTK__ATTENTION_JOIN            /* d_q from its parts; unit: 64 rows of (z, h) */
} bstk__attention_pass;

enum { BSTK__ATTENTION_DIAGONALS = 1024, BSTK__ATTENTION_ROOM = 16 /* rows of parts are padded to a multiple of it */ };

/* The gradient of a term, of any floating type; z, h, row, col as in bstk__attention_dense. */
typedef struct bstk__attention_term {
    bstk__attention_dense to; /* data NULL: the pass is not for a term */
    bstk_dtype dtype;
    int32_t rel;     /* 1: (i,j) belongs to column E - 1 - (i - j), 0: to column j */
    int64_t columns; /* E or N */
} bstk__attention_term;

typedef struct bstk__attention_grad_args {
    bstk__attention_pass pass;
    bstk__attention_dense q, k, v, o, d_o, lse, d_lse; /* d_lse.data NULL: 0 */
    bstk__attention_dense d_q, d_k, d_v;               /* data NULL: not of this pass */
    bstk__attention_term term;
    void *delta;     /* contiguous [Z, H, M] of f32 (f64 for f64) */
    void *shift;     /* the same of -lse; -inf: a dead row. NULL: not wanted */
    void *d_q_parts; /* [Z, H, chunks, M, D rounded up to ROOM]; NULL: d_q is not of this pass */
    int32_t flush;   /* 1: subnormal operands are taken as 0; between kernels only */
    int64_t chunks;
    const int64_t
        *chunk_cols; /* [chunks + 1] block columns, for each head of k where heads have layouts of their own */
    int64_t group;
    bstk__terms terms;
    int32_t plain; /* as in the forward */
    const int64_t *row_ptr, *col_ptr;
    const int32_t *col_idx, *col_row_idx;
    const int64_t *col_perm;
    int64_t rows, cols, layout_heads; /* blocks of one head */
    int64_t batches, heads, m, n, d, dv;
    int64_t out_batches, out_heads; /* of what the pass writes: batches or 1, heads, their groups or 1 */
    int64_t heads_each;             /* heads summed into one of out_heads */
    int32_t edge, parts;
} bstk__attention_grad_args;

/* Scratch of one worker for a pass; false when it does not fit 64 bits. */
bool bstk__attention_grad_scratch_bytes(const bstk__attention_grad_args *args, int64_t element, int64_t *bytes);

/* clang-format off */
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes) \
    void function(const void *args, int64_t begin, int64_t end, void *scratch);
#include "ops/attention/attention.def"
#undef BSTK_KERNEL

/* Scratch of one worker of the vector kernels; of the gradient, in the passes of q, k and v. */
#define SCRATCH(types) \
    size_t attention_scratch_##types(const void *args); \
    size_t attention_grad_scratch_##types(const void *args);
SCRATCH(f64_avx512) SCRATCH(f32_avx512) SCRATCH(f16_avx512) SCRATCH(bf16_avx512)
SCRATCH(bf16_avx512_bf16)
SCRATCH(f64_avx2) SCRATCH(f32_avx2) SCRATCH(f16_avx2) SCRATCH(bf16_avx2)
SCRATCH(f64_neon) SCRATCH(f32_neon) SCRATCH(f16_neon) SCRATCH(bf16_neon)
#undef SCRATCH
/* clang-format on */

#endif
