/* fuzz_layout_file.c: any bytes as a saved layout: refused, or a layout whose indexes agree with each other. */
#include <bstk/bstk.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bstk_layout *layout = NULL;
    if (bstk_layout_parse(NULL, data, size, &layout) != BSTK_OK) {
        need(layout == NULL && bstk_last_error()[0] != '\0');
        return 0;
    }
    const int64_t heads = bstk_layout_heads(layout), rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    const int64_t nnz = bstk_layout_nnz(layout), *row_ptr = bstk_layout_row_ptr(layout);
    const int64_t *col_ptr = bstk_layout_col_ptr(layout), *perm = bstk_layout_col_perm(layout);
    need(row_ptr[0] == 0 && row_ptr[heads * rows] == nnz && col_ptr[0] == 0 && col_ptr[heads * cols] == nnz);
    for (int64_t i = 0; i < heads * rows; i++) {
        need(row_ptr[i] <= row_ptr[i + 1]);
        for (int64_t n = row_ptr[i]; n < row_ptr[i + 1]; n++) {
            const int32_t col = bstk_layout_col_idx(layout)[n];
            need(bstk_layout_row_idx(layout)[n] == i % rows && col >= 0 && col < cols);
            need(n == row_ptr[i] || bstk_layout_col_idx(layout)[n - 1] < col);
        }
    }
    for (int64_t k = 0; k < nnz; k++) {
        need(perm[k] >= 0 && perm[k] < nnz);
        need(bstk_layout_col_row_idx(layout)[k] == bstk_layout_row_idx(layout)[perm[k]]);
    }
    const int64_t elements = (int64_t)bstk_layout_block(layout) * bstk_layout_block(layout);
    volatile unsigned char sum = 0;
    for (int64_t n = 0; n < nnz && bstk_layout_partial_count(layout) > 0; n++) {
        const uint8_t *mask = bstk_layout_partial_mask(layout, n);
        for (int64_t i = 0; mask && i < elements; i++)
            sum = (unsigned char)(sum + mask[i]);
    }
    bstk_layout_release(layout);
    return 0;
}
