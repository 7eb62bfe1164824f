/* layout_index.h: how the files of this folder make a layout: check, new, row_ptr, blocks, index. Internal. */
#ifndef BSTK_LAYOUT_INDEX_H
#define BSTK_LAYOUT_INDEX_H

#include "layout/layout_impl.h"

#include <stdbool.h>

/* Checks block, sizes (0..INT32_MAX) and, unless NULL, shape {M, N}: ceil(M/block) = rows, ceil(N/block) = cols.
 * `who` starts each message. */
bstk_status bstk__layout_check(const char *who, int64_t heads, int64_t rows, int64_t cols, int32_t block,
                               const int64_t shape[2]);

/* Checks as above and makes a layout with row_ptr allocated but not filled. Drop it with bstk_layout_release. */
bstk_status bstk__layout_new(bstk_context *ctx, const char *who, int64_t heads, int64_t rows, int64_t cols,
                             int32_t block, const int64_t shape[2], bstk_layout **out);

/* Turns block counts in row_ptr[1..] into positions; false when their sum does not fit 64 bits. row_ptr[0] is set. */
bool bstk__layout_sum_rows(bstk_layout *layout);

/* Once row_ptr is filled: allocates the arrays of its blocks, and with `partial` > 0 zeroed element masks. */
bstk_status bstk__layout_alloc_blocks(bstk_layout *layout, const char *who, int64_t partial);

/* Once row_ptr and col_idx are filled: makes row_idx and the column order, in O(nnz + heads*(rows + cols)). */
void bstk__layout_index(bstk_layout *layout);

#endif
