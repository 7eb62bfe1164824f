/*
 * layout_index.c: from the blocks in row order to everything else that a layout holds.
 *
 * Row order is (head, row, column); row_ptr and col_idx give it. Column order is (head, column, row): a counting sort
 * by (head, column), stable over row order, so rows rise within a column. col_perm maps it back to row order.
 */
#include "layout/layout_index.h"

#include "core/checked.h"
#include "core/context_impl.h"
#include "core/error.h"

#include <string.h>

bool bstk__layout_sum_rows(bstk_layout *layout) {
    const int64_t lines = layout->heads * layout->rows;
    layout->row_ptr[0] = 0;
    for (int64_t line = 0; line < lines; line++)
        if (!bstk__add(layout->row_ptr[line], layout->row_ptr[line + 1], &layout->row_ptr[line + 1]))
            return false;
    return true;
}

bstk_status bstk__layout_alloc_blocks(bstk_layout *layout, const char *who, int64_t partial) {
    bstk_context *ctx = layout->ctx;
    const int64_t nnz = layout->row_ptr[layout->heads * layout->rows];
    const int64_t area = (int64_t)layout->block * layout->block;
    layout->nnz = nnz;
    layout->col_ptr = bstk__alloc(ctx, layout->heads * layout->cols + 1, sizeof *layout->col_ptr);
    layout->row_idx = bstk__alloc(ctx, nnz, sizeof *layout->row_idx);
    layout->col_idx = bstk__alloc(ctx, nnz, sizeof *layout->col_idx);
    layout->col_row_idx = bstk__alloc(ctx, nnz, sizeof *layout->col_row_idx);
    layout->col_perm = bstk__alloc(ctx, nnz, sizeof *layout->col_perm);
    bool complete = layout->col_ptr && layout->row_idx && layout->col_idx && layout->col_row_idx && layout->col_perm;
    if (complete && partial > 0) {
        layout->partial_count = partial;
        layout->partial_idx = bstk__alloc(ctx, nnz, sizeof *layout->partial_idx);
        layout->partial_masks = bstk__alloc_zeroed(ctx, partial, (size_t)area);
        complete = layout->partial_idx && layout->partial_masks;
    }
    if (!complete)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld stored blocks, %lld of them partly kept)", who,
                          (long long)nnz, (long long)partial);
    return BSTK_OK;
}

void bstk__layout_index(bstk_layout *layout) {
    const int64_t rows = layout->rows, cols = layout->cols, lines = layout->heads * rows;
    int64_t *col_ptr = layout->col_ptr;
    memset(col_ptr, 0, (size_t)(layout->heads * cols + 1) * sizeof *col_ptr);
    for (int64_t line = 0; line < lines; line++) {
        int64_t *count = col_ptr + line / rows * cols + 1;
        for (int64_t n = layout->row_ptr[line]; n < layout->row_ptr[line + 1]; n++) {
            layout->row_idx[n] = (int32_t)(line % rows);
            count[layout->col_idx[n]]++;
        }
    }
    for (int64_t k = 0; k < layout->heads * cols; k++)
        col_ptr[k + 1] += col_ptr[k];
    /* col_ptr[k] serves as the cursor of column k, which leaves each entry at its column's end: shifted back below. */
    for (int64_t line = 0; line < lines; line++) {
        int64_t *cursor = col_ptr + line / rows * cols;
        for (int64_t n = layout->row_ptr[line]; n < layout->row_ptr[line + 1]; n++) {
            const int64_t k = cursor[layout->col_idx[n]]++;
            layout->col_row_idx[k] = layout->row_idx[n];
            layout->col_perm[k] = n;
        }
    }
    memmove(col_ptr + 1, col_ptr, (size_t)(layout->heads * cols) * sizeof *col_ptr);
    col_ptr[0] = 0;
}
