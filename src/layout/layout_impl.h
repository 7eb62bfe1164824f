/* layout_impl.h: inside of a layout. Depends on core only; plans read these fields, kernels get plain arrays. */
#ifndef BSTK_LAYOUT_IMPL_H
#define BSTK_LAYOUT_IMPL_H

#include <bstk/layout.h>

#include <stdatomic.h>
#include <stdint.h>

struct bstk_layout {
    bstk_context *ctx; /* owns a reference; never NULL */
    atomic_int references;
    int64_t heads, rows, cols; /* in blocks */
    int64_t m, n;              /* in elements: ceil(m/block) = rows, ceil(n/block) = cols */
    int64_t nnz;
    int32_t block;

    int64_t *row_ptr; /* [heads*rows + 1] */
    int32_t *row_idx; /* [nnz] */
    int32_t *col_idx; /* [nnz], rising within a block row */

    int64_t *col_ptr;     /* [heads*cols + 1] */
    int32_t *col_row_idx; /* [nnz], rising within a block column */
    int64_t *col_perm;    /* [nnz]: number, in row order, of the k-th block in column order */

    int64_t partial_count;  /* blocks with an element mask */
    int64_t *partial_idx;   /* [nnz]: number of the block's element mask, -1 for a whole block; NULL when none */
    uint8_t *partial_masks; /* [partial_count, block, block], 0 or 1; at least one 0 and one 1 in each */
};

#endif
