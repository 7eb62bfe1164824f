/* picture_cells.c: reduces a layout for the pictures, one row of cells at a time: memory grows with a row only. */
#include "io/io_internal.h"

#include <string.h>

void io__count_cells(const bstk_layout *layout, int64_t head, int64_t row, int64_t height, int64_t width,
                     int64_t *counts) {
    const int64_t rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(layout) + head * rows;
    const int32_t *col_idx = bstk_layout_col_idx(layout);
    const int64_t first = row * height, last = rows - first < height ? rows : first + height;
    memset(counts, 0, (size_t)io__ceil_div(cols, width) * sizeof *counts);
    for (int64_t n = row_ptr[first]; n < row_ptr[last]; n++) /* blocks of neighbouring rows lie one after the other */
        counts[col_idx[n] / width]++;
}
