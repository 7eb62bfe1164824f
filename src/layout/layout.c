/* layout.c: making, sharing and asking a layout; writing it out as a 0/1 mask. */
#include "layout/layout_index.h"

#include "core/checked.h"
#include "core/context_impl.h"
#include "core/error.h"
#include "core/tensor_view.h"

#include <string.h>

bstk_status bstk__layout_check(const char *who, int64_t heads, int64_t rows, int64_t cols, int32_t block,
                               const int64_t shape[2]) {
    static const char *const names[3] = {"heads", "rows", "cols"};
    const int64_t sizes[3] = {heads, rows, cols};
    if (block < BSTK_MIN_BLOCK || block > BSTK_MAX_BLOCK || block % 8 != 0)
        return bstk__fail(BSTK_ERR_INVALID, "%s: block is %d, expected a multiple of 8 from %d to %d", who, (int)block,
                          BSTK_MIN_BLOCK, BSTK_MAX_BLOCK);
    for (int axis = 0; axis < 3; axis++)
        if (sizes[axis] < 0 || sizes[axis] > INT32_MAX)
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s is %lld, expected 0 to %d", who, names[axis],
                              (long long)sizes[axis], INT32_MAX);
    for (int axis = 0; shape && axis < 2; axis++) {
        const int64_t blocks = sizes[axis + 1], high = blocks * block;
        const int64_t low = blocks == 0 ? 0 : high - block + 1;
        if (shape[axis] < low || shape[axis] > high)
            return bstk__fail(BSTK_ERR_INVALID, "%s: shape %c is %lld, expected %lld to %lld (%lld block %s of %d)",
                              who, "MN"[axis], (long long)shape[axis], (long long)low, (long long)high,
                              (long long)blocks, names[axis + 1], (int)block);
    }
    return BSTK_OK;
}

bstk_status bstk__layout_new(bstk_context *ctx, const char *who, int64_t heads, int64_t rows, int64_t cols,
                             int32_t block, const int64_t shape[2], bstk_layout **out) {
    BSTK_TRY(bstk__layout_check(who, heads, rows, cols, block, shape));
    ctx = bstk__context_retain(ctx);
    const int64_t lines = heads * rows; /* at most 2^62: both are below 2^31 */
    bstk_layout *layout = bstk__alloc_zeroed(ctx, 1, sizeof *layout);
    int64_t *row_ptr = layout ? bstk__alloc(ctx, lines + 1, sizeof *row_ptr) : NULL;
    if (row_ptr == NULL) {
        bstk__free(ctx, layout);
        bstk_context_release(ctx);
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld heads of %lld block rows)", who, (long long)heads,
                          (long long)rows);
    }
    layout->ctx = ctx;
    atomic_init(&layout->references, 1);
    layout->heads = heads;
    layout->rows = rows;
    layout->cols = cols;
    layout->block = block;
    layout->m = shape ? shape[0] : rows * block;
    layout->n = shape ? shape[1] : cols * block;
    layout->row_ptr = row_ptr;
    *out = layout;
    return BSTK_OK;
}

bstk_layout *bstk_layout_retain(const bstk_layout *layout) {
    bstk_layout *shared = (bstk_layout *)layout; /* only the count changes: to its users a layout is immutable */
    if (shared)
        atomic_fetch_add_explicit(&shared->references, 1, memory_order_relaxed);
    return shared;
}

void bstk_layout_release(bstk_layout *layout) {
    if (layout == NULL || atomic_fetch_sub_explicit(&layout->references, 1, memory_order_acq_rel) != 1)
        return;
    bstk_context *ctx = layout->ctx;
    bstk__free(ctx, layout->row_ptr);
    bstk__free(ctx, layout->row_idx);
    bstk__free(ctx, layout->col_idx);
    bstk__free(ctx, layout->col_ptr);
    bstk__free(ctx, layout->col_row_idx);
    bstk__free(ctx, layout->col_perm);
    bstk__free(ctx, layout->partial_idx);
    bstk__free(ctx, layout->partial_masks);
    bstk__free(ctx, layout);
    bstk_context_release(ctx);
}

int64_t bstk_layout_heads(const bstk_layout *layout) {
    return layout->heads;
}

int64_t bstk_layout_rows(const bstk_layout *layout) {
    return layout->rows;
}

int64_t bstk_layout_cols(const bstk_layout *layout) {
    return layout->cols;
}

int32_t bstk_layout_block(const bstk_layout *layout) {
    return layout->block;
}

int64_t bstk_layout_m(const bstk_layout *layout) {
    return layout->m;
}

int64_t bstk_layout_n(const bstk_layout *layout) {
    return layout->n;
}

int64_t bstk_layout_nnz(const bstk_layout *layout) {
    return layout->nnz;
}

double bstk_layout_density(const bstk_layout *layout) {
    const double places = (double)layout->heads * (double)layout->rows * (double)layout->cols;
    return places > 0 ? (double)layout->nnz / places : 0.0;
}

const int64_t *bstk_layout_row_ptr(const bstk_layout *layout) {
    return layout->row_ptr;
}

const int32_t *bstk_layout_row_idx(const bstk_layout *layout) {
    return layout->row_idx;
}

const int32_t *bstk_layout_col_idx(const bstk_layout *layout) {
    return layout->col_idx;
}

const int64_t *bstk_layout_col_ptr(const bstk_layout *layout) {
    return layout->col_ptr;
}

const int32_t *bstk_layout_col_row_idx(const bstk_layout *layout) {
    return layout->col_row_idx;
}

const int64_t *bstk_layout_col_perm(const bstk_layout *layout) {
    return layout->col_perm;
}

int64_t bstk_layout_partial_count(const bstk_layout *layout) {
    return layout->partial_count;
}

const uint8_t *bstk_layout_partial_mask(const bstk_layout *layout, int64_t n) {
    if (layout->partial_idx == NULL || n < 0 || n >= layout->nnz || layout->partial_idx[n] < 0)
        return NULL;
    return layout->partial_masks + layout->partial_idx[n] * layout->block * layout->block;
}

/* Element (head, row, col) of a mask of bytes, shorts, words or longs. */
static void store_integer(const bstk__view *view, char *data, int64_t head, int64_t row, int64_t col, int value) {
    const size_t size = bstk_dtype_size(view->dtype);
    char *at = data + (head * view->stride[1] + row * view->stride[2] + col * view->stride[3]) * (int64_t)size;
    switch (size) {
    case 1:
        *at = (char)value;
        break;
    case 2:
        memcpy(at, &(int16_t){(int16_t)value}, size);
        break;
    case 4:
        memcpy(at, &(int32_t){value}, size);
        break;
    default:
        memcpy(at, &(int64_t){value}, size);
        break;
    }
}

bstk_status bstk_layout_to_mask(const bstk_layout *layout, const bstk_tensor *mask) {
    bstk__view view;
    if (layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: layout is NULL");
    BSTK_TRY(bstk__view_make("layout", "mask", mask, 2, 3, &view));
    if (bstk__is_float(view.dtype))
        return bstk__fail(BSTK_ERR_TYPE, "layout: mask is %s, expected bool or an integer type",
                          bstk_dtype_name(view.dtype));
    if (view.shape[1] != layout->heads || view.shape[2] != layout->rows || view.shape[3] != layout->cols) {
        char text[96];
        return bstk__fail(BSTK_ERR_INVALID, "layout: mask is %s, expected [%lld, %lld, %lld]",
                          bstk__shape_text(mask, text), (long long)layout->heads, (long long)layout->rows,
                          (long long)layout->cols);
    }
    BSTK_TRY(bstk__check_output("layout", "mask", mask));
    const int64_t lines = layout->cols > 0 ? layout->heads * layout->rows : 0;
    if (mask->data == NULL && lines > 0)
        return bstk__fail(BSTK_ERR_INVALID, "layout: mask.data is NULL");
    for (int64_t line = 0; line < lines; line++) {
        const int64_t head = line / layout->rows, row = line % layout->rows;
        for (int64_t col = 0; col < layout->cols; col++)
            store_integer(&view, mask->data, head, row, col, 0);
        for (int64_t n = layout->row_ptr[line]; n < layout->row_ptr[line + 1]; n++)
            store_integer(&view, mask->data, head, row, layout->col_idx[n], 1);
    }
    return BSTK_OK;
}
