/*
 * layout_from.c: layouts from what the caller has: a mask of blocks, a mask of elements, or sparse indices.
 *
 * All three are a grid of kept and dropped squares of `edge` x `edge` elements: edge = block for a mask of blocks,
 * 1 for a mask of elements. A block holds per x per squares, per = block/edge; it is stored when at least one of them
 * is kept, and gets an element mask when not all that lie in the matrix are. Time is O(grid) for a mask and
 * O(n log n) for n indices; memory is O(stored blocks) beside the grid's own lines.
 */
#include "layout/layout_index.h"

#include "core/checked.h"
#include "core/context_impl.h"
#include "core/error.h"
#include "core/tensor_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct grid {
    int64_t heads, rows, cols; /* in squares */
    int32_t edge;
    /* Either a mask ... */
    const bstk_tensor *mask; /* NULL for indices */
    bstk__view view;
    bool only_0_1;      /* refuse other values */
    int64_t *line_cols; /* [cols]: kept columns of the line read last */
    /* ... or lists: the columns of line k = head*rows + row are col[ptr[k]] .. col[ptr[k+1] - 1], rising. */
    const int64_t *ptr, *col;
} grid;

static bstk_status bad_value(const bstk_tensor *mask, int64_t head, int64_t row, int64_t col, const void *address) {
    char place[72]; /* a 2-D mask has no head to name */
    if (mask->ndim == 3)
        snprintf(place, sizeof place, "%lld, %lld, %lld", (long long)head, (long long)row, (long long)col);
    else
        snprintf(place, sizeof place, "%lld, %lld", (long long)row, (long long)col);
    if (mask->dtype == BSTK_U64) {
        uint64_t value;
        memcpy(&value, address, sizeof value);
        return bstk__fail(BSTK_ERR_INVALID, "layout: mask[%s] is %llu, expected 0 or 1", place,
                          (unsigned long long)value);
    }
    return bstk__fail(BSTK_ERR_INVALID, "layout: mask[%s] is %lld, expected 0 or 1", place,
                      (long long)bstk__load_integer(mask->dtype, address));
}

/* Kept columns of one line of the grid, rising. */
static bstk_status read_line(const grid *g, int64_t head, int64_t row, const int64_t **cols, int64_t *count) {
    if (g->mask == NULL) {
        const int64_t line = head * g->rows + row;
        *cols = g->col + g->ptr[line];
        *count = g->ptr[line + 1] - g->ptr[line];
        return BSTK_OK;
    }
    *cols = g->line_cols;
    *count = 0;
    if (g->cols == 0) /* there may be no data to point into */
        return BSTK_OK;
    const int64_t size = (int64_t)bstk_dtype_size(g->view.dtype), step = g->view.stride[3] * size;
    const char *at = (const char *)g->mask->data + (head * g->view.stride[1] + row * g->view.stride[2]) * size;
    int64_t kept = 0;
    for (int64_t col = 0; col < g->cols; col++) {
        const int64_t value = bstk__load_integer(g->view.dtype, at + col * step);
        if (g->only_0_1 && (uint64_t)value > 1)
            return bad_value(g->mask, head, row, col, at + col * step);
        g->line_cols[kept] = col;
        kept += value != 0;
    }
    *count = kept;
    return BSTK_OK;
}

static int compare_i32(const void *x, const void *y) {
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

static int compare_i64(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Scratch of one block row: how many squares of each block column are kept, and which columns have any. */
typedef struct tally {
    int64_t per;      /* squares along a block's edge */
    int64_t *kept;    /* [block cols], all 0 between block rows */
    int32_t *touched; /* [block cols] */
    int64_t count;    /* of touched */
} tally;

static bstk_status tally_row(const grid *g, tally *t, int64_t head, int64_t block_row) {
    const int64_t first = block_row * t->per, last = bstk__min(first + t->per, g->rows);
    t->count = 0;
    for (int64_t row = first; row < last; row++) {
        const int64_t *cols;
        int64_t n, block_col = 0, end = 0; /* end of block_col, so that the division is done once a block */
        BSTK_TRY(read_line(g, head, row, &cols, &n));
        for (int64_t k = 0; k < n; k++) {
            if (cols[k] >= end) {
                block_col = cols[k] / t->per;
                end = (block_col + 1) * t->per;
            }
            if (t->kept[block_col]++ == 0)
                t->touched[t->count++] = (int32_t)block_col;
        }
    }
    if (t->per > 1) /* several lines touched columns in turn; one line alone is in order */
        qsort(t->touched, (size_t)t->count, sizeof *t->touched, compare_i32);
    return BSTK_OK;
}

static void tally_clear(tally *t) {
    for (int64_t k = 0; k < t->count; k++)
        t->kept[t->touched[k]] = 0;
}

/* Some square of the block that lies in the grid is dropped. */
static bool is_partial(const grid *g, const tally *t, int64_t block_row, int64_t block_col) {
    const int64_t inside =
        bstk__min(t->per, g->rows - block_row * t->per) * bstk__min(t->per, g->cols - block_col * t->per);
    return t->kept[block_col] < inside;
}

/* First pass: blocks of each block row into row_ptr[1..], and how many of all are partly kept. */
static bstk_status count_blocks(const grid *g, tally *t, bstk_layout *layout, int64_t *partial) {
    const int64_t lines = layout->heads * layout->rows;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t block_row = line % layout->rows;
        BSTK_TRY(tally_row(g, t, line / layout->rows, block_row));
        layout->row_ptr[line + 1] = t->count;
        for (int64_t k = 0; k < t->count; k++)
            *partial += is_partial(g, t, block_row, t->touched[k]);
        tally_clear(t);
    }
    if (!bstk__layout_sum_rows(layout))
        return bstk__fail(BSTK_ERR_OVERFLOW, "layout: the number of stored blocks does not fit 64 bits");
    return BSTK_OK;
}

/* Marks the kept squares of a block row's partly kept blocks. t->kept[j] holds the element mask's number plus 1, or 0
 * for a whole block. Elements past the edge of the matrix stay 0. */
static bstk_status fill_masks(const grid *g, const tally *t, bstk_layout *layout, int64_t head, int64_t block_row) {
    const int64_t first = block_row * t->per, last = bstk__min(first + t->per, g->rows);
    const int64_t block = layout->block;
    for (int64_t row = first; row < last; row++) {
        const int64_t *cols;
        int64_t n;
        const int64_t height = bstk__min(g->edge, layout->m - row * g->edge);
        BSTK_TRY(read_line(g, head, row, &cols, &n));
        for (int64_t k = 0; k < n; k++) {
            const int64_t block_col = cols[k] / t->per, number = t->kept[block_col] - 1;
            if (number < 0)
                continue;
            const int64_t width = bstk__min(g->edge, layout->n - cols[k] * g->edge);
            uint8_t *mask = layout->partial_masks + number * block * block + (row - first) * g->edge * block +
                            (cols[k] - block_col * t->per) * g->edge;
            for (int64_t p = 0; p < height; p++)
                memset(mask + p * block, 1, (size_t)width);
        }
    }
    return BSTK_OK;
}

/* Second pass: col_idx and element masks. */
static bstk_status fill_blocks(const grid *g, tally *t, bstk_layout *layout) {
    const int64_t lines = layout->heads * layout->rows;
    int64_t partial = 0;
    for (int64_t line = 0; line < lines; line++) {
        const int64_t head = line / layout->rows, block_row = line % layout->rows, begin = layout->row_ptr[line];
        BSTK_TRY(tally_row(g, t, head, block_row));
        memcpy(layout->col_idx + begin, t->touched, (size_t)t->count * sizeof *t->touched);
        if (layout->partial_count > 0) {
            const int64_t before = partial;
            for (int64_t k = 0; k < t->count; k++) {
                const bool cut = is_partial(g, t, block_row, t->touched[k]);
                layout->partial_idx[begin + k] = cut ? partial++ : -1;
                t->kept[t->touched[k]] = cut ? partial : 0;
            }
            if (partial > before)
                BSTK_TRY(fill_masks(g, t, layout, head, block_row));
        }
        tally_clear(t);
    }
    return BSTK_OK;
}

static bstk_status fill_from_grid(const grid *g, tally *t, bstk_layout *layout) {
    int64_t partial = 0;
    BSTK_TRY(count_blocks(g, t, layout, &partial));
    BSTK_TRY(bstk__layout_alloc_blocks(layout, "layout", partial));
    BSTK_TRY(fill_blocks(g, t, layout));
    bstk__layout_index(layout);
    return BSTK_OK;
}

static bstk_status from_grid(bstk_context *ctx, grid *g, int32_t block, const int64_t shape[2], bstk_layout **out) {
    tally t = {.per = block / g->edge};
    bstk_layout *layout;
    const int64_t default_shape[2] = {g->rows * g->edge, g->cols * g->edge};
    const int64_t rows = bstk__ceil_div(g->rows, t.per), cols = bstk__ceil_div(g->cols, t.per);
    BSTK_TRY(bstk__layout_new(ctx, "layout", g->heads, rows, cols, block, shape ? shape : default_shape, &layout));
    ctx = layout->ctx;
    t.kept = bstk__alloc_zeroed(ctx, cols, sizeof *t.kept);
    t.touched = bstk__alloc(ctx, cols, sizeof *t.touched);
    g->line_cols = g->mask ? bstk__alloc(ctx, g->cols, sizeof *g->line_cols) : NULL;
    bstk_status status;
    if (t.kept && t.touched && (g->line_cols || g->mask == NULL))
        status = fill_from_grid(g, &t, layout);
    else
        status = bstk__fail(BSTK_ERR_NOMEM, "layout: out of memory (%lld block columns)", (long long)cols);
    bstk__free(ctx, t.kept);
    bstk__free(ctx, t.touched);
    bstk__free(ctx, g->line_cols);
    if (status == BSTK_OK)
        *out = layout;
    else
        bstk_layout_release(layout);
    return status;
}

/* ---- masks ------------------------------------------------------------------------------------------------------ */

static bstk_status open_mask(const bstk_tensor *mask, bstk_layout **out, grid *g) {
    if (mask == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s is NULL", mask ? "out" : "mask");
    if (mask->ndim == 4)
        return bstk__fail(BSTK_ERR_INVALID, "layout: mask has 4 axes, expected 2 or 3: a layout has heads, but is "
                                            "shared by the whole batch");
    BSTK_TRY(bstk__view_make("layout", "mask", mask, 2, 3, &g->view));
    if (bstk__is_float(mask->dtype))
        return bstk__fail(BSTK_ERR_TYPE, "layout: mask is %s, expected bool or an integer type",
                          bstk_dtype_name(mask->dtype));
    g->mask = mask;
    g->heads = g->view.shape[1];
    g->rows = g->view.shape[2];
    g->cols = g->view.shape[3];
    if (mask->data == NULL && g->heads > 0 && g->rows > 0 && g->cols > 0)
        return bstk__fail(BSTK_ERR_INVALID, "layout: mask.data is NULL");
    return BSTK_OK;
}

bstk_status bstk_layout_from_mask(bstk_context *ctx, const bstk_tensor *mask, int32_t block, const int64_t shape[2],
                                  bstk_layout **out) {
    grid g = {.edge = block, .only_0_1 = true};
    BSTK_TRY(open_mask(mask, out, &g));
    BSTK_TRY(bstk__layout_check("layout", g.heads, g.rows, g.cols, block, shape));
    return from_grid(ctx, &g, block, shape, out);
}

/* Squares along an axis that INT32_MAX blocks hold: what a grid may have. */
static bstk_status check_grid(const grid *g, int32_t block) {
    const int64_t limit = (int64_t)INT32_MAX * (block / g->edge);
    BSTK_TRY(bstk__layout_check("layout", g->heads, 0, 0, block, NULL));
    if (g->rows < 0 || g->rows > limit)
        return bstk__fail(BSTK_ERR_INVALID, "layout: rows is %lld, expected 0 to %lld", (long long)g->rows,
                          (long long)limit);
    if (g->cols < 0 || g->cols > limit)
        return bstk__fail(BSTK_ERR_INVALID, "layout: cols is %lld, expected 0 to %lld", (long long)g->cols,
                          (long long)limit);
    return BSTK_OK;
}

bstk_status bstk_layout_from_dense_mask(bstk_context *ctx, const bstk_tensor *mask, int32_t block, bstk_layout **out) {
    grid g = {.edge = 1};
    BSTK_TRY(open_mask(mask, out, &g));
    BSTK_TRY(check_grid(&g, block));
    return from_grid(ctx, &g, block, NULL, out);
}

/* ---- indices ---------------------------------------------------------------------------------------------------- */

static bstk_status check_index(const char *name, int64_t position, int64_t value, int64_t end) {
    if (value < 0 || value >= end)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s[%lld] is %lld, expected at least 0 and less than %lld", name,
                          (long long)position, (long long)value, (long long)end);
    return BSTK_OK;
}

static bstk_status check_row_ptr(const bstk_layout_indices *x, int64_t lines) {
    if (x->row_ptr[0] != 0)
        return bstk__fail(BSTK_ERR_INVALID, "layout: row_ptr[0] is %lld, expected 0", (long long)x->row_ptr[0]);
    for (int64_t line = 0; line < lines; line++)
        if (x->row_ptr[line + 1] < x->row_ptr[line])
            return bstk__fail(BSTK_ERR_INVALID, "layout: row_ptr[%lld] is %lld, expected at least row_ptr[%lld] = %lld",
                              (long long)(line + 1), (long long)x->row_ptr[line + 1], (long long)line,
                              (long long)x->row_ptr[line]);
    if (x->row_ptr[lines] != x->count)
        return bstk__fail(BSTK_ERR_INVALID, "layout: row_ptr[%lld] is %lld, expected count = %lld", (long long)lines,
                          (long long)x->row_ptr[lines], (long long)x->count);
    return BSTK_OK;
}

static bstk_status check_indices(const bstk_layout_indices *x, const grid *g) {
    if (x->count < 0)
        return bstk__fail(BSTK_ERR_INVALID, "layout: count is %lld, expected 0 or more", (long long)x->count);
    if (x->row_ptr && (x->row || x->head))
        return bstk__fail(BSTK_ERR_INVALID, "layout: indices have row_ptr and %s, expected one of the two forms",
                          x->row ? "row" : "head");
    if (x->count > 0 && x->col == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: col is NULL, but count is %lld", (long long)x->count);
    if (x->count > 0 && x->row == NULL && x->row_ptr == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: row and row_ptr are NULL, but count is %lld", (long long)x->count);
    if (x->count > 0 && x->row && x->head == NULL && x->heads != 1)
        return bstk__fail(BSTK_ERR_INVALID, "layout: head is NULL, but heads is %lld, expected 1", (long long)x->heads);
    if (x->row_ptr)
        BSTK_TRY(check_row_ptr(x, g->heads * g->rows));
    for (int64_t k = 0; k < x->count; k++) {
        BSTK_TRY(check_index("col", k, x->col[k], g->cols));
        if (x->row)
            BSTK_TRY(check_index("row", k, x->row[k], g->rows));
        if (x->head)
            BSTK_TRY(check_index("head", k, x->head[k], g->heads));
    }
    return BSTK_OK;
}

/* COO to lists: counts the entries of each line, then places them; ptr[line] is line's cursor meanwhile. */
static void place_entries(const bstk_layout_indices *x, const grid *g, int64_t *ptr, int64_t *col) {
    const int64_t lines = g->heads * g->rows;
    memset(ptr, 0, (size_t)(lines + 1) * sizeof *ptr);
    for (int64_t k = 0; k < x->count; k++)
        ptr[(x->head ? x->head[k] * g->rows : 0) + x->row[k] + 1]++;
    for (int64_t line = 0; line < lines; line++)
        ptr[line + 1] += ptr[line];
    for (int64_t k = 0; k < x->count; k++)
        col[ptr[(x->head ? x->head[k] * g->rows : 0) + x->row[k]]++] = x->col[k];
    memmove(ptr + 1, ptr, (size_t)lines * sizeof *ptr);
    ptr[0] = 0;
}

/* Sorts each line that is not in order; a column that comes twice is refused. */
static bstk_status sort_lines(const grid *g, const int64_t *ptr, int64_t *col) {
    for (int64_t line = 0; line < g->heads * g->rows; line++) {
        bool sorted = true;
        for (int64_t k = ptr[line] + 1; k < ptr[line + 1]; k++)
            sorted = sorted && col[k - 1] < col[k];
        if (sorted)
            continue;
        qsort(col + ptr[line], (size_t)(ptr[line + 1] - ptr[line]), sizeof *col, compare_i64);
        for (int64_t k = ptr[line] + 1; k < ptr[line + 1]; k++)
            if (col[k - 1] == col[k])
                return bstk__fail(BSTK_ERR_INVALID,
                                  "layout: entry (head %lld, row %lld, col %lld) is there twice, expected once",
                                  (long long)(line / g->rows), (long long)(line % g->rows), (long long)col[k]);
    }
    return BSTK_OK;
}

bstk_status bstk_layout_from_indices(bstk_context *ctx, const bstk_layout_indices *indices, int32_t block,
                                     const int64_t shape[2], bstk_layout **out) {
    if (indices == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s is NULL", indices ? "out" : "indices");
    const bstk_layout_indices *x = indices;
    if (x->struct_size != sizeof *x)
        return bstk__fail(BSTK_ERR_INVALID,
                          "layout: indices.struct_size is %zu, expected %zu (BSTK_LAYOUT_INDICES_INIT)", x->struct_size,
                          sizeof *x);
    grid g = {.heads = x->heads, .rows = x->rows, .cols = x->cols, .edge = x->edge ? x->edge : block};
    BSTK_TRY(bstk__layout_check("layout", 0, 0, 0, block, NULL));
    if (g.edge < 1 || block % g.edge != 0)
        return bstk__fail(BSTK_ERR_INVALID, "layout: edge is %d, expected a divisor of block = %d", (int)g.edge,
                          (int)block);
    BSTK_TRY(check_grid(&g, block));
    for (int axis = 0; shape && axis < 2; axis++) { /* finer than the layout's own check when edge < block */
        const int64_t high = (axis ? g.cols : g.rows) * g.edge, low = high ? high - g.edge + 1 : 0;
        if (shape[axis] < low || shape[axis] > high)
            return bstk__fail(BSTK_ERR_INVALID, "layout: shape %c is %lld, expected %lld to %lld (%lld %s of %d)",
                              "MN"[axis], (long long)shape[axis], (long long)low, (long long)high,
                              (long long)(axis ? g.cols : g.rows), axis ? "cols" : "rows", (int)g.edge);
    }
    int64_t lines;
    if (!bstk__mul(g.heads, g.rows, &lines))
        return bstk__fail(BSTK_ERR_OVERFLOW, "layout: %lld heads of %lld rows do not fit 64 bits", (long long)g.heads,
                          (long long)g.rows);
    BSTK_TRY(check_indices(x, &g));

    ctx = bstk__context_resolve(ctx);
    int64_t *ptr = bstk__alloc(ctx, lines + 1, sizeof *ptr), *col = bstk__alloc(ctx, x->count, sizeof *col);
    bstk_status status;
    if (ptr && col) {
        if (x->row_ptr == NULL) {
            place_entries(x, &g, ptr, col);
        } else {
            memcpy(ptr, x->row_ptr, (size_t)(lines + 1) * sizeof *ptr);
            if (x->count > 0)
                memcpy(col, x->col, (size_t)x->count * sizeof *col);
        }
        g.ptr = ptr;
        g.col = col;
        status = sort_lines(&g, ptr, col);
        if (status == BSTK_OK)
            status = from_grid(ctx, &g, block, shape, out);
    } else {
        status = bstk__fail(BSTK_ERR_NOMEM, "layout: out of memory (%lld entries in %lld rows)", (long long)x->count,
                            (long long)lines);
    }
    bstk__free(ctx, ptr);
    bstk__free(ctx, col);
    return status;
}
