/* test_layout.c: layouts from masks of blocks and of elements and from indices; queries; column order; life; errors. */
#include "layout_support.h"

/* A random mask of 0 and 1; `share` of 100 are 1. */
static uint8_t *random_mask(int64_t count, int64_t share) {
    uint8_t *mask = malloc((size_t)count + 1);
    for (int64_t k = 0; k < count; k++)
        mask[k] = test_below(100) < share;
    return mask;
}

static bstk_layout *layout_of(const uint8_t *mask, int64_t heads, int64_t rows, int64_t cols, int32_t block) {
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_U8, 3, (int64_t[]){heads, rows, cols});
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_mask(NULL, &t, block, NULL, &layout));
    return layout;
}

/* ---- masks of blocks -------------------------------------------------------------------------------------------- */

static void test_round_trip(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 5, 17, 40};
    for (uint64_t seed = 0; seed < 400; seed++) {
        test_seed(seed);
        const int64_t heads = test_below(4), rows = sizes[test_below(6)], cols = sizes[test_below(6)];
        uint8_t *mask = random_mask(heads * rows * cols, (int64_t[]){0, 3, 50, 97, 100}[test_below(5)]);
        if (heads > 1) /* one head without blocks among others that have some */
            memset(mask + rows * cols, 0, (size_t)(rows * cols));
        bstk_layout *layout = layout_of(mask, heads, rows, cols, 16);
        uint8_t *back = mask_of(layout);
        assert_memory_equal(back, mask, (size_t)(heads * rows * cols));
        assert_int_equal(bstk_layout_m(layout), rows * 16);
        assert_int_equal(bstk_layout_n(layout), cols * 16);
        assert_int_equal(bstk_layout_partial_count(layout), 0);
        assert_null(bstk_layout_partial_mask(layout, 0));
        check_arrays(layout);
        bstk_layout_release(layout);
        free(back);
        free(mask);
    }
}

static void test_order_of_heads(void **state) {
    (void)state;
    const uint8_t mask[8] = {0, 1, 1, 0, 1, 1, 0, 1};
    bstk_layout *layout = layout_of(mask, 2, 2, 2, 16);
    static const int32_t rows[] = {0, 1, 0, 0, 1}, cols[] = {1, 0, 0, 1, 1};
    assert_int_equal(bstk_layout_nnz(layout), 5);
    assert_memory_equal(bstk_layout_row_idx(layout), rows, sizeof rows);
    assert_memory_equal(bstk_layout_col_idx(layout), cols, sizeof cols);
    assert_true(bstk_layout_density(layout) == 5.0 / 8.0);
    bstk_layout_release(layout);
}

static void test_every_integer_type(void **state) {
    (void)state;
    test_seed(7);
    uint8_t *mask = random_mask(2 * 5 * 6, 40);
    bstk_layout *want = layout_of(mask, 2, 5, 6, 32);
    for (int dtype = BSTK_BOOL; dtype <= BSTK_I64; dtype++) {
        const size_t size = bstk_dtype_size((bstk_dtype)dtype);
        char *wide = calloc(60, size), *back = calloc(60, size);
        for (int k = 0; k < 60; k++) /* the low byte carries the value; on a big-endian host the last one */
            wide[(size_t)k * size + (*(const char *)&(int){1} ? 0 : size - 1)] = (char)mask[k];
        const bstk_tensor t = bstk_tensor_make(wide, (bstk_dtype)dtype, 3, (int64_t[]){2, 5, 6});
        const bstk_tensor b = bstk_tensor_make(back, (bstk_dtype)dtype, 3, (int64_t[]){2, 5, 6});
        bstk_layout *got = NULL;
        ASSERT_OK(bstk_layout_from_mask(NULL, &t, 32, NULL, &got));
        assert_same_layout(got, want);
        ASSERT_OK(bstk_layout_to_mask(got, &b));
        assert_memory_equal(back, wide, 60 * size);
        bstk_layout_release(got);
        free(wide);
        free(back);
    }
    bstk_layout_release(want);
    free(mask);
}

static void test_bool_bytes(void **state) {
    (void)state;
    const uint8_t mask[4] = {0, 1, 2, 255};
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_BOOL, 2, (int64_t[]){2, 2});
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_mask(NULL, &t, 16, NULL, &layout));
    assert_picture(layout, 0, ".#\n##\n");
    bstk_layout_release(layout);
}

/* from_mask and to_mask through the same view: transposed, reversed, spread, broadcast. */
static void test_strides(void **state) {
    (void)state;
    static const struct {
        int64_t offset, stride[3];
    } views[] = {{0, {20, 5, 1}}, {0, {20, 1, 4}}, {59, {-20, -5, -1}}, {4, {20, 5, -1}}, {0, {1, 15, 3}}};
    for (size_t v = 0; v < sizeof views / sizeof *views; v++) {
        test_seed(v);
        uint8_t *mask = random_mask(60, 50), back[60] = {0}, flat[60];
        bstk_tensor t = bstk_tensor_make(mask + views[v].offset, BSTK_U8, 3, (int64_t[]){3, 4, 5});
        memcpy(t.stride, views[v].stride, sizeof views[v].stride);
        for (int64_t k = 0; k < 60; k++)
            flat[k] = mask[views[v].offset + k / 20 * t.stride[0] + k / 5 % 4 * t.stride[1] + k % 5 * t.stride[2]];
        bstk_layout *got = NULL, *want = layout_of(flat, 3, 4, 5, 8);
        ASSERT_OK(bstk_layout_from_mask(NULL, &t, 8, NULL, &got));
        assert_same_layout(got, want);
        t.data = back + views[v].offset;
        ASSERT_OK(bstk_layout_to_mask(got, &t));
        assert_memory_equal(back, mask, 60);
        bstk_layout_release(got);
        bstk_layout_release(want);
        free(mask);
    }
    uint8_t row[3] = {1, 0, 1};
    bstk_tensor t = bstk_tensor_make(row, BSTK_U8, 2, (int64_t[]){4, 3});
    t.stride[0] = 0; /* every row is the same one */
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_mask(NULL, &t, 8, NULL, &layout));
    assert_picture(layout, 0, "#.#\n#.#\n#.#\n#.#\n");
    ASSERT_FAILS(bstk_layout_to_mask(layout, &t), BSTK_ERR_INVALID,
                 "layout: output mask has stride 0 on axis 0 of size 4: its elements share memory");
    bstk_layout_release(layout);
}

static void test_mask_errors(void **state) {
    (void)state;
    int32_t values[24] = {0};
    float floats[4] = {0};
    bstk_layout *const untouched = (bstk_layout *)values, *layout = untouched;
    const bstk_tensor t3 = bstk_tensor_make(values, BSTK_I32, 3, (int64_t[]){1, 4, 6});
    const bstk_tensor t2 = bstk_tensor_make(values, BSTK_I32, 2, (int64_t[]){4, 6});
    const bstk_tensor t4 = bstk_tensor_make(values, BSTK_I32, 4, (int64_t[]){1, 1, 4, 6});
    const bstk_tensor t1 = bstk_tensor_make(values, BSTK_I32, 1, (int64_t[]){24});
    const bstk_tensor tf = bstk_tensor_make(floats, BSTK_F32, 2, (int64_t[]){2, 2});
    const bstk_tensor none = bstk_tensor_make(NULL, BSTK_U8, 2, (int64_t[]){2, 2});
    const bstk_tensor wide = bstk_tensor_make(values, BSTK_U8, 2, (int64_t[]){(int64_t)1 << 31, 0});
    values[3 * 6 + 5] = 2;
    values[3 * 6 + 4] = 1;
#define REFUSED(t, block, shape, status, text)                                                                         \
    ASSERT_FAILS(bstk_layout_from_mask(NULL, t, block, shape, &layout), status, text);                                 \
    assert_ptr_equal(layout, untouched)
    REFUSED(&t3, 16, NULL, BSTK_ERR_INVALID, "layout: mask[0, 3, 5] is 2, expected 0 or 1");
    REFUSED(&t2, 16, NULL, BSTK_ERR_INVALID, "layout: mask[3, 5] is 2, expected 0 or 1");
    values[0] = -1;
    REFUSED(&t2, 16, NULL, BSTK_ERR_INVALID, "layout: mask[0, 0] is -1, expected 0 or 1");
    REFUSED(&t4, 16, NULL, BSTK_ERR_INVALID,
            "layout: mask has 4 axes, expected 2 or 3: a layout has heads, but is shared by the whole batch");
    REFUSED(&t1, 16, NULL, BSTK_ERR_INVALID, "layout: mask has 1 axes, expected 2 to 3");
    REFUSED(&tf, 16, NULL, BSTK_ERR_TYPE, "layout: mask is float32, expected bool or an integer type");
    REFUSED(&none, 16, NULL, BSTK_ERR_INVALID, "layout: mask.data is NULL");
    REFUSED(NULL, 16, NULL, BSTK_ERR_INVALID, "layout: mask is NULL");
    REFUSED(&wide, 16, NULL, BSTK_ERR_INVALID, "layout: rows is 2147483648, expected 0 to 2147483647");
    static const int32_t blocks[] = {12, 0, -8, 264, 4, INT32_MIN};
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
        char text[96];
        snprintf(text, sizeof text, "layout: block is %d, expected a multiple of 8 from 8 to 256", blocks[k]);
        REFUSED(&t2, blocks[k], NULL, BSTK_ERR_INVALID, text);
    }
    const bstk_tensor tall = bstk_tensor_make(values, BSTK_I32, 2, (int64_t[]){64, 0});
    REFUSED(&tall, 16, ((int64_t[]){1000, 0}), BSTK_ERR_INVALID,
            "layout: shape M is 1000, expected 1009 to 1024 (64 block rows of 16)");
    REFUSED(&tall, 16, ((int64_t[]){1024, 1}), BSTK_ERR_INVALID,
            "layout: shape N is 1, expected 0 to 0 (0 block cols of 16)");
#undef REFUSED
    assert_int_equal(bstk_layout_from_mask(NULL, &t2, 16, NULL, NULL), BSTK_ERR_INVALID);
}

static void test_shape(void **state) {
    (void)state;
    const uint8_t mask[6] = {1, 0, 1, 0, 0, 1};
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_U8, 2, (int64_t[]){2, 3});
    for (int64_t m = 15; m <= 34; m++) {
        bstk_layout *layout = NULL;
        const bstk_status status = bstk_layout_from_mask(NULL, &t, 16, (int64_t[]){m, 48 - (m & 15)}, &layout);
        assert_int_equal(status, m >= 17 && m <= 32 ? BSTK_OK : BSTK_ERR_INVALID);
        if (layout) {
            assert_int_equal(bstk_layout_m(layout), m);
            assert_int_equal(bstk_layout_n(layout), 48 - (m & 15));
        }
        bstk_layout_release(layout);
    }
}

static void test_to_mask_errors(void **state) {
    (void)state;
    const uint8_t mask[4] = {1, 0, 0, 1};
    bstk_layout *layout = layout_of(mask, 1, 2, 2, 16), *pair = layout_of(mask, 2, 1, 2, 16);
    uint8_t back[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    float floats[4];
    const bstk_tensor wrong = bstk_tensor_make(back, BSTK_U8, 3, (int64_t[]){2, 2, 2});
    const bstk_tensor flat = bstk_tensor_make(back, BSTK_U8, 2, (int64_t[]){2, 2});
    const bstk_tensor f32 = bstk_tensor_make(floats, BSTK_F32, 2, (int64_t[]){2, 2});
    const bstk_tensor none = bstk_tensor_make(NULL, BSTK_U8, 2, (int64_t[]){2, 2});
    ASSERT_FAILS(bstk_layout_to_mask(layout, &wrong), BSTK_ERR_INVALID,
                 "layout: mask is [2, 2, 2], expected [1, 2, 2]");
    ASSERT_FAILS(bstk_layout_to_mask(pair, &flat), BSTK_ERR_INVALID, "layout: mask is [2, 2], expected [2, 1, 2]");
    ASSERT_FAILS(bstk_layout_to_mask(layout, &f32), BSTK_ERR_TYPE,
                 "layout: mask is float32, expected bool or an integer type");
    ASSERT_FAILS(bstk_layout_to_mask(layout, &none), BSTK_ERR_INVALID, "layout: mask.data is NULL");
    ASSERT_FAILS(bstk_layout_to_mask(NULL, &flat), BSTK_ERR_INVALID, "layout: layout is NULL");
    ASSERT_FAILS(bstk_layout_to_mask(layout, NULL), BSTK_ERR_INVALID, "layout: mask is NULL");
    assert_int_equal(back[0], 9);
    ASSERT_OK(bstk_layout_to_mask(layout, &flat)); /* one head may go without its axis */
    assert_memory_equal(back, mask, 4);
    assert_int_equal(back[4], 9);
    bstk_layout_release(layout);
    bstk_layout_release(pair);
}

/* ---- masks of elements ------------------------------------------------------------------------------------------ */

static bstk_layout *layout_of_elements(const uint8_t *mask, int64_t heads, int64_t m, int64_t n, int32_t block) {
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_BOOL, 3, (int64_t[]){heads, m, n});
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_dense_mask(NULL, &t, block, &layout));
    return layout;
}

/* Each block against the elements that it covers. */
static void check_against_elements(const bstk_layout *layout, const uint8_t *mask, int64_t heads, int64_t m,
                                   int64_t n) {
    const int64_t b = bstk_layout_block(layout), rows = (m + b - 1) / b, cols = (n + b - 1) / b;
    int64_t number = 0, partial = 0;
    assert_int_equal(bstk_layout_m(layout), m);
    assert_int_equal(bstk_layout_n(layout), n);
    assert_int_equal(bstk_layout_rows(layout), rows);
    assert_int_equal(bstk_layout_cols(layout), cols);
    for (int64_t place = 0; place < heads * rows * cols; place++) {
        const int64_t h = place / (rows * cols), i = place / cols % rows, j = place % cols;
        uint8_t *want = calloc((size_t)(b * b), 1);
        int64_t kept = 0, inside = 0;
        for (int64_t p = i * b; p < m && p < (i + 1) * b; p++)
            for (int64_t q = j * b; q < n && q < (j + 1) * b; q++, inside++)
                kept += want[(p - i * b) * b + q - j * b] = mask[(h * m + p) * n + q] != 0;
        if (kept > 0) {
            assert_true(number < bstk_layout_nnz(layout));
            assert_int_equal(bstk_layout_row_idx(layout)[number], i);
            assert_int_equal(bstk_layout_col_idx(layout)[number], j);
            const uint8_t *got = bstk_layout_partial_mask(layout, number++);
            assert_int_equal(got != NULL, kept < inside);
            if (got)
                assert_memory_equal(got, want, (size_t)(b * b));
            partial += got != NULL;
        }
        free(want);
    }
    assert_int_equal(bstk_layout_nnz(layout), number);
    assert_int_equal(bstk_layout_partial_count(layout), partial);
}

static void test_elements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        test_seed(seed);
        const int64_t heads = test_below(3), m = test_below(70), n = test_below(70);
        const int32_t block = (int32_t[]){8, 16, 24, 64}[test_below(4)];
        uint8_t *mask = random_mask(heads * m * n, (int64_t[]){0, 1, 50, 99, 100}[test_below(5)]);
        if (seed % 3 == 0 && heads > 0 && m > 8 && n > 8) /* whole blocks beside partly kept ones */
            for (int64_t p = 0; p < 8; p++)
                memset(mask + p * n, 7, 8);
        bstk_layout *layout = layout_of_elements(mask, heads, m, n, block);
        check_against_elements(layout, mask, heads, m, n);
        check_arrays(layout);
        bstk_layout_release(layout);
        free(mask);
    }
}

/* A window of tokens off the grid, |p - q| <= 5 at block 8: the diagonal blocks and their neighbours, all cut. */
static void test_window_off_the_grid(void **state) {
    (void)state;
    uint8_t mask[32 * 32];
    for (int p = 0; p < 32; p++)
        for (int q = 0; q < 32; q++)
            mask[p * 32 + q] = abs(p - q) <= 5;
    bstk_layout *layout = layout_of_elements(mask, 1, 32, 32, 8);
    assert_picture(layout, 0, "##..\n###.\n.###\n..##\n");
    assert_int_equal(bstk_layout_partial_count(layout), 10);
    bstk_layout_release(layout);
}

static void test_elements_errors(void **state) {
    (void)state;
    uint8_t mask[4] = {0};
    bstk_layout *layout = NULL;
    const bstk_tensor f64 = bstk_tensor_make(mask, BSTK_F64, 2, (int64_t[]){0, 0});
    const bstk_tensor u8 = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){2, 2});
    const bstk_tensor wide = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){0, INT64_MAX});
    ASSERT_FAILS(bstk_layout_from_dense_mask(NULL, &f64, 16, &layout), BSTK_ERR_TYPE,
                 "layout: mask is float64, expected bool or an integer type");
    ASSERT_FAILS(bstk_layout_from_dense_mask(NULL, &u8, 20, &layout), BSTK_ERR_INVALID,
                 "layout: block is 20, expected a multiple of 8 from 8 to 256");
    ASSERT_FAILS(bstk_layout_from_dense_mask(NULL, &wide, 16, &layout), BSTK_ERR_INVALID,
                 "layout: cols is 9223372036854775807, expected 0 to 34359738352");
    assert_null(layout);
}

/* ---- indices ---------------------------------------------------------------------------------------------------- */

/* Kept squares of a mask as COO, shuffled, and as CSR, each row shuffled. */
typedef struct lists {
    int64_t count, *head, *row, *col, *csr_ptr, *csr_col;
} lists;

static lists lists_of(const uint8_t *mask, int64_t heads, int64_t rows, int64_t cols) {
    const size_t bytes = (size_t)(heads * rows * cols + 1) * sizeof(int64_t);
    lists l = {0, malloc(bytes), malloc(bytes), malloc(bytes), malloc((size_t)(heads * rows + 1) * 8), malloc(bytes)};
    l.csr_ptr[0] = 0;
    for (int64_t line = 0; line < heads * rows; line++) {
        for (int64_t j = 0; j < cols; j++)
            if (mask[line * cols + j]) {
                l.head[l.count] = line / rows;
                l.row[l.count] = line % rows;
                l.col[l.count] = l.csr_col[l.count] = j;
                l.count++;
            }
        l.csr_ptr[line + 1] = l.count;
        for (int64_t k = l.count - 1; k > l.csr_ptr[line]; k--) {
            const int64_t other = l.csr_ptr[line] + test_below(k - l.csr_ptr[line] + 1), kept = l.csr_col[k];
            l.csr_col[k] = l.csr_col[other];
            l.csr_col[other] = kept;
        }
    }
    for (int64_t k = l.count - 1; k > 0; k--) {
        const int64_t other = test_below(k + 1), h = l.head[k], r = l.row[k], c = l.col[k];
        l.head[k] = l.head[other];
        l.row[k] = l.row[other];
        l.col[k] = l.col[other];
        l.head[other] = h;
        l.row[other] = r;
        l.col[other] = c;
    }
    return l;
}

static void lists_free(lists *l) {
    free(l->head);
    free(l->row);
    free(l->col);
    free(l->csr_ptr);
    free(l->csr_col);
}

/* COO and CSR of squares of edge e, for every e that divides the block, give what the mask of elements gives. */
static void test_indices(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        test_seed(seed);
        const int32_t block = (int32_t[]){8, 16, 24}[test_below(3)];
        int32_t edge = 1 + (int32_t)test_below(block);
        while (block % edge != 0)
            edge--;
        const int64_t heads = 1 + test_below(3), rows = test_below(1 + 60 / edge), cols = test_below(1 + 60 / edge);
        const int64_t m = rows ? rows * edge - test_below(edge) : 0, n = cols ? cols * edge - test_below(edge) : 0;
        const int64_t shape[2] = {m, n};
        uint8_t *squares = random_mask(heads * rows * cols, (int64_t[]){0, 5, 50, 100}[test_below(4)]);
        uint8_t *elements = malloc((size_t)(heads * m * n) + 1);
        for (int64_t k = 0; k < heads * m * n; k++)
            elements[k] = squares[(k / (m * n) * rows + k / n % m / edge) * cols + k % n / edge];
        lists l = lists_of(squares, heads, rows, cols);
        bstk_layout *want = layout_of_elements(elements, heads, m, n, block), *coo = NULL, *csr = NULL;
        bstk_layout_indices x = BSTK_LAYOUT_INDICES_INIT;
        x.heads = heads;
        x.rows = rows;
        x.cols = cols;
        x.edge = edge == block ? 0 : edge;
        x.count = l.count;
        x.head = heads > 1 ? l.head : NULL;
        x.row = l.row;
        x.col = l.col;
        ASSERT_OK(bstk_layout_from_indices(NULL, &x, block, shape, &coo));
        assert_same_layout(coo, want);
        x.head = x.row = NULL;
        x.row_ptr = l.csr_ptr;
        x.col = l.csr_col;
        ASSERT_OK(bstk_layout_from_indices(NULL, &x, block, shape, &csr));
        assert_same_layout(csr, want);
        bstk_layout_release(want);
        bstk_layout_release(coo);
        bstk_layout_release(csr);
        lists_free(&l);
        free(squares);
        free(elements);
    }
}

static void test_indices_errors(void **state) {
    (void)state;
    static const int64_t row[3] = {0, 1, 1}, col[3] = {1, 0, 1}, head[3] = {0, 0, 0}, bad[3] = {0, 1, 2};
    static const int64_t negative[3] = {0, -1, 0}, twice[3] = {1, 0, 0}, ptr[3] = {0, 1, 3}, falling[3] = {0, 4, 3};
    static const int64_t late[3] = {1, 1, 3}, short_end[3] = {0, 1, 2};
    bstk_layout *layout = NULL;
    bstk_layout_indices coo = BSTK_LAYOUT_INDICES_INIT, csr, x;
    coo.rows = coo.cols = 2;
    coo.count = 3;
    coo.row = row;
    coo.col = col;
    csr = coo;
    csr.row = NULL;
    csr.row_ptr = ptr;
#define REFUSED(from, change, block, shape, text)                                                                      \
    x = from;                                                                                                          \
    x.change;                                                                                                          \
    ASSERT_FAILS(bstk_layout_from_indices(NULL, &x, block, shape, &layout), BSTK_ERR_INVALID, text);                   \
    assert_null(layout)
    REFUSED(coo, col = bad, 16, NULL, "layout: col[2] is 2, expected at least 0 and less than 2");
    REFUSED(coo, row = negative, 16, NULL, "layout: row[1] is -1, expected at least 0 and less than 2");
    REFUSED(coo, head = bad, 16, NULL, "layout: head[1] is 1, expected at least 0 and less than 1");
    REFUSED(coo, col = twice, 16, NULL, "layout: entry (head 0, row 1, col 0) is there twice, expected once");
    REFUSED(csr, col = twice, 16, NULL, "layout: entry (head 0, row 1, col 0) is there twice, expected once");
    REFUSED(csr, row_ptr = late, 16, NULL, "layout: row_ptr[0] is 1, expected 0");
    REFUSED(csr, row_ptr = falling, 16, NULL, "layout: row_ptr[2] is 3, expected at least row_ptr[1] = 4");
    REFUSED(csr, row_ptr = short_end, 16, NULL, "layout: row_ptr[2] is 2, expected count = 3");
    REFUSED(csr, count = 2, 16, NULL, "layout: row_ptr[2] is 3, expected count = 2");
    REFUSED(csr, row = row, 16, NULL, "layout: indices have row_ptr and row, expected one of the two forms");
    REFUSED(csr, head = head, 16, NULL, "layout: indices have row_ptr and head, expected one of the two forms");
    REFUSED(coo, col = NULL, 16, NULL, "layout: col is NULL, but count is 3");
    REFUSED(coo, row = NULL, 16, NULL, "layout: row and row_ptr are NULL, but count is 3");
    REFUSED(coo, heads = 2, 16, NULL, "layout: head is NULL, but heads is 2, expected 1");
    REFUSED(coo, count = -1, 16, NULL, "layout: count is -1, expected 0 or more");
    REFUSED(coo, rows = 0, 16, NULL, "layout: row[0] is 0, expected at least 0 and less than 0");
    REFUSED(coo, rows = -1, 16, NULL, "layout: rows is -1, expected 0 to 2147483647");
    REFUSED(coo, cols = (int64_t)1 << 31, 16, NULL, "layout: cols is 2147483648, expected 0 to 2147483647");
    REFUSED(coo, heads = -1, 16, NULL, "layout: heads is -1, expected 0 to 2147483647");
    REFUSED(coo, edge = 5, 16, NULL, "layout: edge is 5, expected a divisor of block = 16");
    REFUSED(coo, edge = 32, 16, NULL, "layout: edge is 32, expected a divisor of block = 16");
    REFUSED(coo, edge = -16, 16, NULL, "layout: edge is -16, expected a divisor of block = 16");
    REFUSED(coo, edge = 0, 0, NULL, "layout: block is 0, expected a multiple of 8 from 8 to 256");
    REFUSED(coo, edge = 8, 16, ((int64_t[]){8, 16}), "layout: shape M is 8, expected 9 to 16 (2 rows of 8)");
    REFUSED(coo, edge = 0, 16, ((int64_t[]){32, 33}), "layout: shape N is 33, expected 17 to 32 (2 cols of 16)");
    REFUSED(coo, struct_size = 8, 16, NULL, "layout: indices.struct_size is 8, expected 80 (BSTK_LAYOUT_INDICES_INIT)");
#undef REFUSED
    ASSERT_OK(bstk_layout_from_indices(NULL, &csr, 16, (int64_t[]){32, 32}, &layout));
    assert_picture(layout, 0, ".#\n##\n");
    bstk_layout_release(layout);
    bstk_layout_indices none = BSTK_LAYOUT_INDICES_INIT; /* no rows, no arrays */
    ASSERT_OK(bstk_layout_from_indices(NULL, &none, 16, NULL, &layout));
    assert_int_equal(bstk_layout_nnz(layout), 0);
    assert_true(bstk_layout_density(layout) == 0.0);
    bstk_layout_release(layout);
}

/* Sizes that no memory holds are refused, not tried with a wrapped number of bytes. */
static void test_too_large(void **state) {
    (void)state;
    bstk_layout *layout = NULL;
    bstk_layout_indices x = BSTK_LAYOUT_INDICES_INIT;
    x.heads = INT32_MAX;
    x.rows = INT32_MAX;
    x.cols = 1;
    assert_int_equal(bstk_layout_from_indices(NULL, &x, 16, NULL, &layout), BSTK_ERR_NOMEM);
    x.edge = 1;
    x.rows = (int64_t)INT32_MAX * 16;
    assert_int_equal(bstk_layout_from_indices(NULL, &x, 16, NULL, &layout), BSTK_ERR_OVERFLOW);
    uint8_t one = 1; /* one byte that stands for 2^62 blocks */
    bstk_tensor t = bstk_tensor_make(&one, BSTK_U8, 3, (int64_t[]){INT32_MAX, INT32_MAX, INT32_MAX});
    memset(t.stride, 0, sizeof t.stride);
    assert_int_equal(bstk_layout_from_mask(NULL, &t, 16, NULL, &layout), BSTK_ERR_NOMEM);
    assert_null(layout);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void test_references(void **state) {
    (void)state;
    counted_memory memory;
    bstk_context *ctx = counted_context(&memory);
    const uint8_t mask[4] = {1, 0, 0, 1};
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_U8, 2, (int64_t[]){2, 2});
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_mask(ctx, &t, 16, NULL, &layout));
    bstk_context_release(ctx); /* the layout keeps it */
    assert_ptr_equal(bstk_layout_retain(layout), layout);
    bstk_layout_release(layout);
    assert_int_equal(bstk_layout_nnz(layout), 2);
    bstk_layout_release(layout);
    assert_int_equal(memory.live, 0);
    bstk_layout_release(NULL);
    assert_null(bstk_layout_retain(NULL));
}

static bstk_status make_mask(bstk_context *ctx, const void *arg, bstk_layout **out) {
    return bstk_layout_from_mask(ctx, arg, 8, NULL, out);
}

static bstk_status make_elements(bstk_context *ctx, const void *arg, bstk_layout **out) {
    return bstk_layout_from_dense_mask(ctx, arg, 8, out);
}

static bstk_status make_indices(bstk_context *ctx, const void *arg, bstk_layout **out) {
    return bstk_layout_from_indices(ctx, arg, 8, NULL, out);
}

static void test_out_of_memory(void **state) {
    (void)state;
    test_seed(3);
    uint8_t *mask = random_mask(2 * 20 * 20, 30);
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, (int64_t[]){2, 20, 20});
    lists l = lists_of(mask, 2, 20, 20);
    bstk_layout_indices x = BSTK_LAYOUT_INDICES_INIT;
    x.heads = 2;
    x.rows = x.cols = 20;
    x.edge = 1;
    x.count = l.count;
    x.head = l.head;
    x.row = l.row;
    x.col = l.col;
    check_out_of_memory(make_mask, &t);
    check_out_of_memory(make_elements, &t);
    check_out_of_memory(make_indices, &x);
    lists_free(&l);
    free(mask);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_order_of_heads),
        cmocka_unit_test(test_every_integer_type),
        cmocka_unit_test(test_bool_bytes),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_mask_errors),
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_to_mask_errors),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_window_off_the_grid),
        cmocka_unit_test(test_elements_errors),
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_indices_errors),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
