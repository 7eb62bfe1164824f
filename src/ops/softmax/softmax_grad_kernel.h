/*
 * softmax_grad_kernel.h: the contract of the softmax gradient kernels. With g = d_y through the dropout, over the
 * stored blocks of each element row i:
 *
 *     delta(i) = sum over j of y(i,j) * g(i,j) - d_lse(i)
 *     ds(i,j)  = y * (g - delta), exactly 0 where y is 0: nothing that was dropped is looked at
 *     d_x      = scale * (1 - tanh^2(scale * x / softcap)) * ds, 0 past the edges
 *     d_term   = sum of ds over the axes that the term broadcasts;  d_sinks = -sum of exp(sink - lse) * delta
 *
 * One kernel serves all phases of a run; each phase has a cut of its own. The sums of a term are kept in double until
 * they are stored, and have one order: z, h, i, j rising. No unit writes what another one writes.
 */
#ifndef BSTK_SOFTMAX_GRAD_KERNEL_H
#define BSTK_SOFTMAX_GRAD_KERNEL_H

#include "ops/softmax/softmax_kernel.h"

/* What a run computes, and what unit u of its schedule is. */
typedef enum bstk__grad_phase {
    BSTK__GRAD_ROWS,      /* delta and d_x, as in softmax: 8 element rows of a block row */
    BSTK__GRAD_TERM_ROWS, /* a term with rows: 8 of its rows of a block row; repeats are its batches x shared heads */
    BSTK__GRAD_TERM_COLS, /* a term shared by all rows: 8 of its columns of a block column, in the same way */
    BSTK__GRAD_TERM_DIAGONALS, /* rel_logits shared by all rows: BSTK__GRAD_TILE of its columns of (z, h) */
    BSTK__GRAD_SINKS           /* one head */
} bstk__grad_phase;

/* Columns of a term that are summed at a time: 8 KiB of sums, which stay in the first cache. */
enum { BSTK__GRAD_TILE = 1024 };

/* A gradient [Z|1, H|1, M|1, columns], of any floating type. */
typedef struct bstk__grad_term {
    void *data;
    bstk_dtype dtype;
    int32_t rel; /* 1: (i,j) belongs to column E - 1 - (i - j), 0: to column j */
    int64_t batches, heads, rows, columns;
    int64_t z, h, row, col; /* strides */
} bstk__grad_term;

/* [Z, H, M], f32 (f64 for f64); data NULL: none. */
typedef struct bstk__grad_rows {
    const void *data;
    int64_t z, h, row;
} bstk__grad_rows;

typedef struct bstk__softmax_grad_args {
    bstk__grad_phase phase;
    bstk__softmax_values y, d_y, x, d_x; /* x.data NULL without softcap, d_x.data NULL when not wanted */
    bstk__grad_rows d_lse, lse;
    void *delta; /* NULL, or contiguous [Z, H, M] of f32 (f64 for f64): written by ROWS, read by the others */
    bstk__terms terms;
    bstk__grad_term term; /* of the TERM phases and SINKS */
    const int64_t *row_ptr, *col_ptr;
    const int32_t *col_idx, *col_row_idx;
    const int64_t *col_perm;
    int64_t nnz, rows, cols, layout_heads, batches, heads; /* rows and cols: blocks of one head */
    int64_t m, n;
    int64_t row_blocks; /* of the longest block row: sizes the scratch of ROWS, one `g` for each element */
    int32_t edge, parts;
} bstk__softmax_grad_args;

#endif
