/* layout_support.h: what the three layout tests share: pictures, comparisons, a counting allocator, random numbers. */
#ifndef BSTK_TESTS_LAYOUT_SUPPORT_H
#define BSTK_TESTS_LAYOUT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <bstk/layout.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- statuses and messages -------------------------------------------------------------------------------------- */

static inline void ok_at(bstk_status status, const char *file, int line) {
    if (status != BSTK_OK) {
        print_error("%s: %s\n", bstk_status_name(status), bstk_last_error());
        _fail(file, line);
    }
}
#define ASSERT_OK(call) ok_at((call), __FILE__, __LINE__)

/* The call fails with `status`, and its message is `text`. */
#define ASSERT_FAILS(call, status, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal((call), (status));                                                                            \
        assert_string_equal(bstk_last_error(), (text));                                                                \
    } while (0)

/* ---- random numbers --------------------------------------------------------------------------------------------- */

static uint64_t test_state = 1;

static inline void test_seed(uint64_t seed) {
    test_state = seed * 2862933555777941757u + 3037000493u;
}

static inline int64_t test_below(int64_t bound) {
    test_state ^= test_state << 13;
    test_state ^= test_state >> 7;
    test_state ^= test_state << 17;
    return (int64_t)(test_state >> 11) % bound;
}

/* ---- memory that is counted and can run out --------------------------------------------------------------------- */

typedef struct counted_memory {
    int64_t calls, fail_at, live; /* call number fail_at (from 1) gets nothing; 0: none fails */
} counted_memory;

static inline void *counted_alloc(void *user, size_t bytes, size_t align) {
    counted_memory *memory = user;
    void *ptr = NULL;
    if (++memory->calls == memory->fail_at || posix_memalign(&ptr, align, bytes) != 0)
        return NULL;
    memset(ptr, 0xa5, bytes); /* nothing may rely on fresh memory being zero */
    memory->live++;
    return ptr;
}

static inline void counted_free(void *user, void *ptr) {
    ((counted_memory *)user)->live--;
    free(ptr);
}

static inline bstk_context *counted_context(counted_memory *memory) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    *memory = (counted_memory){0};
    opts.alloc = counted_alloc;
    opts.free = counted_free;
    opts.alloc_user = memory;
    ASSERT_OK(bstk_context_create(&opts, &ctx));
    return ctx;
}

/* Runs make(ctx, arg, &layout) with the n-th allocation failing, for every n until it succeeds: each failure is NOMEM,
 * leaves `out` alone and leaks nothing. */
typedef bstk_status test_make(bstk_context *ctx, const void *arg, bstk_layout **out);

static inline void check_out_of_memory(test_make *make, const void *arg) {
    counted_memory memory;
    bstk_context *ctx = counted_context(&memory);
    for (int64_t n = 1;; n++) {
        bstk_layout *layout = NULL;
        memory.calls = 0;
        memory.fail_at = n;
        const bstk_status status = make(ctx, arg, &layout);
        if (status == BSTK_OK) {
            assert_true(n > 7); /* the layout alone is at least 7 arrays */
            bstk_layout_release(layout);
            assert_int_equal(memory.live, 1);
            break;
        }
        assert_int_equal(status, BSTK_ERR_NOMEM);
        assert_non_null(strstr(bstk_last_error(), "out of memory"));
        assert_null(layout);
        assert_int_equal(memory.live, 1); /* the context itself */
    }
    bstk_context_release(ctx);
    assert_int_equal(memory.live, 0);
}

/* ---- layouts ---------------------------------------------------------------------------------------------------- */

/* Its mask [heads, rows, cols]; free() it. */
static inline uint8_t *mask_of(const bstk_layout *layout) {
    const int64_t shape[3] = {bstk_layout_heads(layout), bstk_layout_rows(layout), bstk_layout_cols(layout)};
    uint8_t *mask = malloc((size_t)(shape[0] * shape[1] * shape[2]) + 1);
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape);
    ASSERT_OK(bstk_layout_to_mask(layout, &t));
    return mask;
}

/* Every array against the mask, by brute force. */
static inline void check_arrays(const bstk_layout *layout) {
    const int64_t heads = bstk_layout_heads(layout), rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    uint8_t *mask = mask_of(layout);
    int64_t n = 0;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows; i++) {
            assert_int_equal(bstk_layout_row_ptr(layout)[h * rows + i], n);
            for (int64_t j = 0; j < cols; j++)
                if (mask[(h * rows + i) * cols + j]) {
                    assert_true(n < bstk_layout_nnz(layout));
                    assert_int_equal(bstk_layout_row_idx(layout)[n], i);
                    assert_int_equal(bstk_layout_col_idx(layout)[n], j);
                    n++;
                }
        }
    assert_int_equal(bstk_layout_row_ptr(layout)[heads * rows], n);
    assert_int_equal(bstk_layout_nnz(layout), n);
    int64_t k = 0;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = 0; j < cols; j++) {
            assert_int_equal(bstk_layout_col_ptr(layout)[h * cols + j], k);
            for (int64_t i = 0; i < rows; i++)
                if (mask[(h * rows + i) * cols + j]) {
                    const int64_t number = bstk_layout_col_perm(layout)[k];
                    assert_int_equal(bstk_layout_col_row_idx(layout)[k], i);
                    assert_in_range(number, bstk_layout_row_ptr(layout)[h * rows + i],
                                    bstk_layout_row_ptr(layout)[h * rows + i + 1] - 1);
                    assert_int_equal(bstk_layout_col_idx(layout)[number], j);
                    k++;
                }
        }
    assert_int_equal(bstk_layout_col_ptr(layout)[heads * cols], k);
    assert_true(bstk_layout_density(layout) >= 0 && bstk_layout_density(layout) <= 1);
    free(mask);
}

/* The two are the same in every query. */
static inline void assert_same_layout(const bstk_layout *a, const bstk_layout *b) {
    const int64_t heads = bstk_layout_heads(a), rows = bstk_layout_rows(a), cols = bstk_layout_cols(a);
    const size_t nnz = (size_t)bstk_layout_nnz(a), block = (size_t)bstk_layout_block(a);
    assert_int_equal(heads, bstk_layout_heads(b));
    assert_int_equal(rows, bstk_layout_rows(b));
    assert_int_equal(cols, bstk_layout_cols(b));
    assert_int_equal(block, bstk_layout_block(b));
    assert_int_equal(bstk_layout_m(a), bstk_layout_m(b));
    assert_int_equal(bstk_layout_n(a), bstk_layout_n(b));
    assert_int_equal(nnz, bstk_layout_nnz(b));
    assert_int_equal(bstk_layout_partial_count(a), bstk_layout_partial_count(b));
    assert_memory_equal(bstk_layout_row_ptr(a), bstk_layout_row_ptr(b), (size_t)(heads * rows + 1) * 8);
    assert_memory_equal(bstk_layout_col_ptr(a), bstk_layout_col_ptr(b), (size_t)(heads * cols + 1) * 8);
    assert_memory_equal(bstk_layout_row_idx(a), bstk_layout_row_idx(b), nnz * 4);
    assert_memory_equal(bstk_layout_col_idx(a), bstk_layout_col_idx(b), nnz * 4);
    assert_memory_equal(bstk_layout_col_row_idx(a), bstk_layout_col_row_idx(b), nnz * 4);
    assert_memory_equal(bstk_layout_col_perm(a), bstk_layout_col_perm(b), nnz * 8);
    for (int64_t n = 0; n < (int64_t)nnz; n++) {
        const uint8_t *x = bstk_layout_partial_mask(a, n), *y = bstk_layout_partial_mask(b, n);
        assert_int_equal(x == NULL, y == NULL);
        if (x)
            assert_memory_equal(x, y, block * block);
    }
}

/* One head against its picture: rows of '#' and '.', each ending in a newline. */
static inline void assert_picture(const bstk_layout *layout, int64_t head, const char *picture) {
    const int64_t rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    uint8_t *mask = mask_of(layout);
    char *text = malloc((size_t)(rows * (cols + 1) + 1)), *at = text;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++)
            *at++ = mask[(head * rows + i) * cols + j] ? '#' : '.';
        *at++ = '\n';
    }
    *at = 0;
    assert_string_equal(text, picture);
    free(text);
    free(mask);
}

#endif
