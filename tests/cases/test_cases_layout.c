/*
 * test_cases_layout.c: cases that users of block-sparse software met, of layouts and their builders; the number is the
 * case's. See README.md.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/test_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of a kind on a square grid, other than dense and random. */
static bstk_layout_opts options(bstk_layout_kind kind, int64_t blocks, int32_t block) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    opts.kind = kind;
    opts.rows = opts.cols = blocks;
    opts.block = block;
    return opts;
}

static bstk_layout *build(const bstk_layout_opts *opts) {
    bstk_layout *layout = NULL;
    ok(bstk_layout_build(NULL, opts, &layout));
    return layout;
}

/* Whether block (i, j) of head h is stored. */
static bool stores(const bstk_layout *layout, int64_t h, int64_t i, int64_t j) {
    const int64_t *ptr = bstk_layout_row_ptr(layout) + h * bstk_layout_rows(layout) + i;
    for (int64_t n = ptr[0]; n < ptr[1]; ++n)
        if (bstk_layout_col_idx(layout)[n] == j)
            return true;
    return false;
}

/* Small blocks: 8 is taken, with just as many packed blocks as ones; others are refused (test_api_errors_scores.c). */
static void test_bc_003(void **state) {
    (void)state;
    static const int32_t blocks[] = {8, 16, 24, 200, 248, 256};
    for (size_t b = 0; b < 6; ++b) {
        const rule r = {.kind = RULE_BERNOULLI, .p = 0.3, .seed = 1};
        const int64_t grid = 8;
        uint8_t *mask = rule_mask(&r, 2, grid, grid);
        bstk_layout *layout = rule_layout(&r, 2, grid * blocks[b], grid * blocks[b], blocks[b]);
        int64_t ones = 0;
        for (int64_t e = 0; e < 2 * grid * grid; ++e)
            ones += mask[e];
        assert_int_equal(bstk_layout_nnz(layout), ones);
        free(mask);
        bstk_layout_release(layout);
    }
    check_product(&(product_case){.mode = BSTK_SDD,
                                  .dtype = BSTK_F32,
                                  .block = 8,
                                  .h = 2,
                                  .m = 64,
                                  .n = 64,
                                  .k = 32,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.3, .seed = 1}});
}

/* The layout's axes in each mode are those of the sparse operand as stored; two axes stand for all heads. */
static void test_bc_028(void **state) {
    (void)state;
    uint8_t mask[2 * 3] = {1, 0, 1, 0, 1, 1};
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_BOOL, 2, shape(2, 3));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &t, 16, NULL, &layout)); /* 32 x 48 */
    assert_true(bstk_layout_heads(layout) == 1 && bstk_layout_m(layout) == 32 && bstk_layout_n(layout) == 48);
    const bstk_tensor packed = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 4 * 5, 16, 16));
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode)
        for (int transposed = 0; transposed < 2; ++transposed) {
            const int64_t rows = transposed ? 48 : 32, cols = transposed ? 32 : 48;
            const bstk_tensor left = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 5, rows, 7));
            const bstk_tensor right = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 5, 7, cols));
            const bstk_tensor tall = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 5, cols, 7));
            const bstk_tensor wide = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 5, 7, rows));
            bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
            bstk_plan *plan = NULL;
            desc.mode = (bstk_mode)mode;
            desc.layout = layout;
            desc.a = mode == BSTK_SDD ? &left : mode == BSTK_DSD ? &packed : &wide;
            desc.b = mode == BSTK_SDD ? &right : mode == BSTK_DSD ? &tall : &packed;
            desc.c = mode == BSTK_SDD ? &packed : mode == BSTK_DSD ? &left : &right;
            desc.trans_a = mode == BSTK_DSD && transposed;
            desc.trans_b = mode == BSTK_DDS && transposed;
            desc.trans_c = mode == BSTK_SDD && transposed;
            ok(bstk_matmul_plan(NULL, &desc, &plan));
            bstk_plan_release(plan);
        }
    bstk_layout_release(layout);
}

/* Causal builders look at nothing ahead, in any head; and what they build gives outputs that later values leave alone.
 */
static void test_bc_035(void **state) {
    (void)state;
    for (int kind = BSTK_LAYOUT_DENSE; kind <= BSTK_LAYOUT_RANDOM; ++kind)
        for (uint64_t seed = 0; seed < 4; ++seed) {
            bstk_layout_opts opts = options((bstk_layout_kind)kind, 64, 16);
            opts.heads = 4;
            opts.causal = 1;
            opts.seed = seed;
            opts.window = kind == BSTK_LAYOUT_FIXED ? 4 : 3;
            opts.patterns = kind == BSTK_LAYOUT_FIXED ? 4 : 1;
            opts.global = 1;
            opts.global_last = kind == BSTK_LAYOUT_BIGBIRD ? 2 : 0;
            opts.random = kind == BSTK_LAYOUT_BIGBIRD || kind == BSTK_LAYOUT_VARIABLE ? 3 : -1;
            bstk_layout *layout = build(&opts);
            assert_true(bstk_layout_nnz(layout) > 0);
            for (int64_t n = 0; n < bstk_layout_nnz(layout); ++n)
                assert_true(bstk_layout_col_idx(layout)[n] <= bstk_layout_row_idx(layout)[n]);
            bstk_layout_release(layout);
        }
    /* d out[i] / d v[j] = 0 for j > i: an infinite v[j] would show. */
    for (int kind = BSTK_LAYOUT_DENSE; kind <= BSTK_LAYOUT_RANDOM; ++kind) {
        bstk_layout_opts opts = options((bstk_layout_kind)kind, 4, 16);
        opts.causal = 1;
        opts.heads = 2;
        score_op x;
        const score_case p = {.attention = true, .dtype = BSTK_F32, .block = 16, .h = 2, .m = 64, .n = 64, .d = 4};
        score_make(&x, &p, build(&opts));
        x.terms.causal = 1;
        score_run(&x);
        unsigned char *before = gen_snapshot(&x.out);
        for (int64_t e = 0; e < gen_count(&x.v.t); ++e)
            if (e / 4 % 64 >= 33)
                gen_store(BSTK_F32, x.v.t.data, e, INFINITY);
        score_run(&x);
        gen_array then = {.memory = before, .bytes = x.out.bytes};
        for (int64_t e = 0; e < gen_count(&x.out.t); ++e) {
            const size_t at = (size_t)((const unsigned char *)x.out.t.data - x.out.memory) + (size_t)e * 4;
            if (e / 4 % 64 < 33)
                assert_memory_equal(then.memory + at, x.out.memory + at, 4);
        }
        free(before);
        score_free(&x);
    }
}

/* BigBird on few blocks: no random blocks is fine, more than a row has is refused by name; never an endless draw. */
static void test_bc_037(void **state) {
    (void)state;
    static const int64_t blocks[] = {1, 2, 4, 5}, randoms[] = {0, 1, 3, 7}, windows[] = {1, 3, 5};
    for (size_t b = 0; b < 4; ++b)
        for (size_t r = 0; r < 4; ++r)
            for (size_t w = 0; w < 3; ++w)
                for (int64_t global = 0; global <= 2; ++global) {
                    bstk_layout_opts opts = options(BSTK_LAYOUT_BIGBIRD, blocks[b], 16);
                    bstk_layout *layout = NULL;
                    opts.random = randoms[r];
                    opts.window = windows[w];
                    opts.global = global;
                    if (randoms[r] > blocks[b]) {
                        char text[128];
                        snprintf(text, sizeof text, "bigbird: random is %lld, but a row has %lld blocks",
                                 (long long)randoms[r], (long long)blocks[b]);
                        refused(bstk_layout_build(NULL, &opts, &layout), BSTK_ERR_INVALID, text);
                        assert_null(layout);
                        continue;
                    }
                    layout = build(&opts);
                    opts.random = 0;
                    bstk_layout *plain = build(&opts);
                    /* Each row has its ruled columns and as many random ones as were asked for and fit. */
                    for (int64_t i = 0; i < blocks[b]; ++i) {
                        const int64_t ruled = bstk_layout_row_ptr(plain)[i + 1] - bstk_layout_row_ptr(plain)[i];
                        const int64_t all = bstk_layout_row_ptr(layout)[i + 1] - bstk_layout_row_ptr(layout)[i];
                        const int64_t fit = blocks[b] - ruled;
                        assert_int_equal(all, ruled + (randoms[r] < fit ? randoms[r] : fit));
                        for (int64_t j = 0; j < blocks[b]; ++j)
                            assert_true(!stores(plain, 0, i, j) || stores(layout, 0, i, j));
                    }
                    bstk_layout_release(layout);
                    bstk_layout_release(plain);
                }
}

/* A window of w: |i - j| <= w/2, an even one as the next odd one; a long one is everything. */
static void test_bc_039(void **state) {
    (void)state;
    static const int64_t windows[] = {0, 1, 2, 3, 4, 15, 16, 17, 30, 31, 32, 1000, INT64_MAX / 4};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; ++w)
        for (int causal = 0; causal < 2; ++causal) {
            bstk_layout_opts opts = options(BSTK_LAYOUT_LOCAL, 16, 16);
            opts.window = windows[w];
            opts.causal = causal;
            bstk_layout *layout = build(&opts);
            for (int64_t i = 0; i < 16; ++i)
                for (int64_t j = 0; j < 16; ++j) {
                    const bool near = llabs(i - j) <= windows[w] / 2;
                    assert_int_equal(stores(layout, 0, i, j), near && (!causal || j <= i));
                }
            if (windows[w] >= 31)
                assert_int_equal(bstk_layout_nnz(layout), causal ? 16 * 17 / 2 : 256);
            bstk_layout_release(layout);
        }
}

/* The density is the share of the grid's blocks, from 0 to 1, also of lengths below one block and of ragged ones. */
static void test_bc_042(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 7, 16, 100, 112};
    for (size_t i = 0; i < 5; ++i) {
        const int64_t grid = (lengths[i] + 15) / 16;
        bstk_layout *layout = rule_layout(&(rule){.kind = RULE_TRIL}, 1, lengths[i], lengths[i], 16);
        const double want = (double)(grid * (grid + 1) / 2) / (double)(grid * grid);
        assert_true(bstk_layout_density(layout) == want && want >= 0 && want <= 1);
        bstk_layout_stats stats = {.struct_size = sizeof stats};
        ok(bstk_layout_get_stats(layout, &stats));
        assert_true(stats.density == want);
        bstk_layout_release(layout);
    }
    static const rule_kind ends[] = {RULE_ZEROS, RULE_ONES};
    for (int full = 0; full < 2; ++full) {
        bstk_layout *layout = rule_layout(&(rule){.kind = ends[full]}, 2, 50, 40, 16);
        assert_true(bstk_layout_density(layout) == full);
        bstk_layout_release(layout);
        layout = rule_layout(&(rule){.kind = ends[full]}, 2, 0, 40, 16); /* no grid: 0, not 0/0 */
        assert_true(bstk_layout_density(layout) == 0);
        bstk_layout_release(layout);
    }
}

static bstk_status from_csr(const int64_t *ptr, const int64_t *col, int64_t count, int32_t block,
                            bstk_layout **layout) {
    bstk_layout_indices x = BSTK_LAYOUT_INDICES_INIT;
    x.rows = x.cols = 2;
    x.count = count;
    x.row_ptr = ptr;
    x.col = col;
    return bstk_layout_from_indices(NULL, &x, block, shape(32, 32), layout);
}

/* Values [n, b, b] beside CSR indices: the right ones are taken, each wrong one has a text of its own. */
static void test_bc_043(void **state) {
    (void)state;
    static const int64_t ptr[] = {0, 1, 3}, col[] = {1, 0, 1};
    bstk_layout *layout = NULL;
    ok(from_csr(ptr, col, 3, 16, &layout));
    assert_true(bstk_layout_nnz(layout) == 3 && stores(layout, 0, 0, 1) && stores(layout, 0, 1, 0));
    float dense_data[32 * 32], packed_data[3 * 256];
    for (int e = 0; e < 3 * 256; ++e)
        packed_data[e] = (float)e + 1;
    const bstk_tensor dense = bstk_tensor_make(dense_data, BSTK_F32, 2, shape(32, 32));
    bstk_tensor packed = bstk_tensor_make(packed_data, BSTK_F32, 3, shape(3, 16, 16));
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.direction = BSTK_UNPACK;
    desc.layout = layout;
    desc.x = &packed;
    desc.y = &dense;
    ok(bstk_convert(NULL, &desc));
    assert_true(dense_data[0] == 0 && dense_data[16] == 1 && dense_data[16 * 32] == 257 &&
                dense_data[31 * 32 + 31] == 768);
    packed = bstk_tensor_make(packed_data, BSTK_F32, 2, shape(3, 256));
    refused(bstk_convert(NULL, &desc), BSTK_ERR_INVALID, "unpack: x has 2 axes, expected 3 to 4");
    static const int64_t wrong[][3] = {{3, 0, 16}, {2, 16, 16}, {3, 16, 8}};
    for (size_t i = 0; i < 3; ++i) {
        char text[256];
        packed = bstk_tensor_make(packed_data, BSTK_F32, 3, wrong[i]);
        snprintf(text, sizeof text,
                 "unpack: x is [%lld, %lld, %lld], expected packed values [Z, 3, 16, 16], or that many blocks for each "
                 "head (3 stored blocks of 16); pack makes them from a dense matrix",
                 (long long)wrong[i][0], (long long)wrong[i][1], (long long)wrong[i][2]);
        refused(bstk_convert(NULL, &desc), BSTK_ERR_INVALID, text);
    }
    bstk_layout_release(layout);
    layout = NULL;
    refused(from_csr(ptr, col, 3, 0, &layout), BSTK_ERR_INVALID,
            "layout: block is 0, expected a multiple of 8 from 8 to 256");
    refused(from_csr(ptr, (const int64_t[]){1, 0, 2}, 3, 16, &layout), BSTK_ERR_INVALID,
            "layout: col[2] is 2, expected at least 0 and less than 2");
    refused(from_csr(ptr, (const int64_t[]){-1, 0, 1}, 3, 16, &layout), BSTK_ERR_INVALID,
            "layout: col[0] is -1, expected at least 0 and less than 2");
    refused(from_csr((const int64_t[]){0, 2, 1}, col, 1, 16, &layout), BSTK_ERR_INVALID,
            "layout: row_ptr[2] is 1, expected at least row_ptr[1] = 2");
    refused(from_csr((const int64_t[]){1, 1, 3}, col, 3, 16, &layout), BSTK_ERR_INVALID,
            "layout: row_ptr[0] is 1, expected 0");
    refused(from_csr(ptr, col, 2, 16, &layout), BSTK_ERR_INVALID, "layout: row_ptr[2] is 3, expected count = 2");
    refused(from_csr(ptr, (const int64_t[]){1, 1, 1}, 3, 16, &layout), BSTK_ERR_INVALID,
            "layout: entry (head 0, row 1, col 1) is there twice, expected once");
    assert_null(layout);
}

/* Long sequences in blocks of 16: memory follows the stored blocks, never tokens or blocks squared. */
static void test_bc_105(void **state) {
    (void)state;
    static const int64_t lengths[] = {93600, 1048576};
    for (size_t n = 0; n < 2; ++n)
        for (int kind = BSTK_LAYOUT_LOCAL; kind <= BSTK_LAYOUT_STRIDED; ++kind) {
            watch w = {0};
            bstk_context *ctx = watched_context(&w, NULL);
            bstk_layout_opts opts = options((bstk_layout_kind)kind, lengths[n] / 16, 16);
            bstk_layout *layout = NULL;
            opts.heads = 12;
            opts.random = kind == BSTK_LAYOUT_BIGBIRD ? 3 : -1;
            /* Fixed, variable and strided store a column in so many in every row: wide apart, so that what is stored,
             * not what the builder needs, stays small. */
            if (kind == BSTK_LAYOUT_FIXED)
                opts.window = 512;
            if (kind == BSTK_LAYOUT_STRIDED)
                opts.stride = 4096;
            if (kind == BSTK_LAYOUT_FIXED || (kind == BSTK_LAYOUT_STRIDED && n == 1))
                opts.heads = 1;
            ok(bstk_layout_build(ctx, &opts, &layout));
            const int64_t nnz = bstk_layout_nnz(layout), lines = opts.heads * opts.rows;
            assert_int_equal(bstk_layout_rows(layout), lengths[n] / 16);
            assert_true(atomic_load(&w.peak_bytes) <= 20 * nnz + 48 * lines + 65536);
            if (kind == BSTK_LAYOUT_LOCAL) { /* three blocks a row */
                assert_int_equal(nnz, 12 * (3 * opts.rows - 2));
                assert_true(atomic_load(&w.peak_bytes) < 1 << 30);
            }
            bstk_layout_release(layout);
            bstk_context_release(ctx);
            assert_int_equal(atomic_load(&w.live), 0);
        }
}

/* Rows of 256 and of 5 blocks: tasks are equal all the same. */
static void test_bc_125(void **state) {
    (void)state;
    bstk_layout_opts opts = options(BSTK_LAYOUT_LONGFORMER, 256, 64);
    opts.global = 2;
    opts.window = 3;
    opts.heads = 8;
    bstk_layout *layout = build(&opts);
    bstk_layout_stats stats = {.struct_size = sizeof stats};
    ok(bstk_layout_get_stats(layout, &stats));
    assert_true(stats.row_max == 256 && stats.row_imbalance > 30);
    assert_true(stats.task_imbalance < 1.1);
    bstk_context_opts four = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    bstk_plan *plan = NULL;
    four.num_threads = 8;
    ok(bstk_context_create(&four, &ctx));
    const bstk_tensor packed = bstk_tensor_make(NULL, BSTK_F16, 3, shape(bstk_layout_nnz(layout), 64, 64));
    const bstk_tensor dense = bstk_tensor_make(NULL, BSTK_F16, 3, shape(8, 16384, 64));
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode) {
        bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
        desc.mode = (bstk_mode)mode;
        desc.layout = layout;
        desc.a = mode == BSTK_DSD ? &packed : &dense;
        desc.b = mode == BSTK_DDS ? &packed : &dense;
        desc.c = mode == BSTK_SDD ? &packed : &dense;
        desc.trans_a = desc.trans_c = mode == BSTK_DDS;
        desc.trans_b = mode == BSTK_SDD;
        ok(bstk_matmul_plan(ctx, &desc, &plan));
        assert_true(bstk_plan_tasks(plan) >= 8 && bstk_plan_imbalance(plan) < 1.1);
        bstk_plan_release(plan);
    }
    bstk_softmax_desc softmax = BSTK_SOFTMAX_DESC_INIT;
    softmax.layout = layout;
    softmax.x = softmax.y = &packed;
    ok(bstk_softmax_plan(ctx, &softmax, &plan));
    assert_true(bstk_plan_tasks(plan) >= 8 && bstk_plan_imbalance(plan) < 1.1);
    bstk_plan_release(plan);
    bstk_context_release(ctx);
    bstk_layout_release(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bc_003), cmocka_unit_test(test_bc_028), cmocka_unit_test(test_bc_035),
        cmocka_unit_test(test_bc_037), cmocka_unit_test(test_bc_039), cmocka_unit_test(test_bc_042),
        cmocka_unit_test(test_bc_043), cmocka_unit_test(test_bc_105), cmocka_unit_test(test_bc_125)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
