/*
 * test_cases_products.c: cases that users of block-sparse software met, of products; the number is the case's. Each
 * runs over the sizes, types and blocks that its kind could hit, against the float64 reference. See README.md.
 */
#include "support/cm.h"

#include "check/ref.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

static void all_modes(product_case p) {
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode) {
        p.mode = (bstk_mode)mode;
        check_product(&p);
    }
}

static void all_transpositions(product_case p) {
    for (int t = 0; t < 8; ++t) {
        p.ta = t & 1;
        p.tb = t & 2;
        p.tc = t & 4;
        all_modes(p);
    }
}

/* Inner and outer sizes that are odd multiples of the block, in all modes and transpositions. */
static void test_bc_001(void **state) {
    (void)state;
    product_case p = {.block = 16, .z = 3, .h = 2, .m = 32, .n = 48, .layout = {.kind = RULE_BERNOULLI, .p = 0.5}};
    for (size_t d = 0; d < 4; ++d)
        for (p.k = 16; p.k <= 80; p.k += d == 1 ? 16 : 32) {
            p.dtype = dtypes[d];
            all_transpositions(p);
        }
    p.dtype = BSTK_F32;
    p.z = 1;
    static const int32_t blocks[] = {8, 24, 32, 64, 128};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b) {
        p.block = blocks[b];
        p.m = 2 * p.block;
        p.n = 3 * p.block;
        p.k = 1 * p.block;
        all_transpositions(p);
    }
    p.dtype = BSTK_F16; /* f32 values beside half operands */
    p.packed = BSTK_F32;
    p.block = 16;
    p.m = 32;
    p.n = 48;
    p.k = 80;
    all_transpositions(p);
}

/* Each dimension that does not fit is blamed alone, and by its own name. */
static void test_bc_007(void **state) {
    (void)state;
    bstk_layout *layout = rule_layout(&(rule){.kind = RULE_ONES}, 1, 64, 96, 32); /* 64 features in, 3 blocks out */
    const bstk_tensor packed = bstk_tensor_make(NULL, BSTK_F32, 3, shape(6, 32, 32));
    bstk_tensor a = bstk_tensor_make(NULL, BSTK_F32, 2, shape(10, 64));
    bstk_tensor c = bstk_tensor_make(NULL, BSTK_F32, 2, shape(10, 72));
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    bstk_plan *plan = NULL;
    desc.mode = BSTK_DDS;
    desc.layout = layout;
    desc.a = &a;
    desc.b = &packed;
    desc.c = &c;
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID, "dds: c has columns 72, expected 96");
    c = bstk_tensor_make(NULL, BSTK_F32, 2, shape(10, 96));
    a = bstk_tensor_make(NULL, BSTK_F32, 2, shape(10, 72));
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID,
            "dds: a has 72 columns, but the layout needs 64 (2 blocks of 32)");
    a = bstk_tensor_make(NULL, BSTK_F32, 2, shape(11, 64));
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID, "dds: c has rows 10, expected 11");
    bstk_layout_release(layout);
    /* 72 features out are three blocks of which the last is cut: allowed when the layout knows it. */
    check_product(&(product_case){.mode = BSTK_DDS, .dtype = BSTK_F32, .block = 32, .m = 10, .n = 72, .k = 64});
}

/* An inner size that no tile divides; NaN lies behind each row and behind the whole array. */
static void test_bc_008(void **state) {
    (void)state;
    static const int64_t inner[] = {0, 1, 7, 8, 24, 31, 32, 33, 65};
    static const int32_t blocks[] = {16, 64, 128};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; ++i)
        for (size_t b = 0; b < 3; ++b)
            for (size_t d = 1; d < 3; ++d)
                for (int style = GEN_CONTIGUOUS; style <= GEN_PADDED; ++style)
                    check_product(&(product_case){.mode = BSTK_SDD,
                                                  .dtype = dtypes[d],
                                                  .block = blocks[b],
                                                  .m = 128,
                                                  .n = 128,
                                                  .k = inner[i],
                                                  .a_style = (gen_style)style,
                                                  .b_style = (gen_style)style,
                                                  .tb = style == GEN_PADDED});
    /* 20 runs with the same bits */
    product x;
    product_make(&x, &(product_case){.mode = BSTK_SDD, .dtype = BSTK_F16, .block = 64, .m = 128, .n = 128, .k = 7});
    unsigned char *first = NULL;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.layout = x.layout;
    desc.a = &x.a.t;
    desc.b = &x.b.t;
    desc.c = &x.c.t;
    for (int run = 0; run < 20; ++run) {
        gen_fill(&x.c.t, GEN_NANS, 0);
        ok(bstk_matmul(NULL, &desc, 1, 0));
        if (first == NULL)
            first = gen_snapshot(&x.c);
        assert_true(gen_unchanged(&x.c, first));
    }
    free(first);
    product_free(&x);
}

/* A free dimension of one row, and others that are no multiple of anything; many batches. */
static void test_bc_012(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 15, 17, 31};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (size_t d = 0; d < 4; ++d) {
            const product_case dds = {
                .mode = BSTK_DDS, .dtype = dtypes[d], .block = 16, .z = 3, .h = 2, .m = sizes[i], .n = 96, .k = 80};
            const product_case dsd = {
                .mode = BSTK_DSD, .dtype = dtypes[d], .block = 16, .z = 3, .h = 2, .m = 96, .n = sizes[i], .k = 80};
            check_product(&dds);
            check_product(&dsd);
        }
    /* The sizes of the report, with 100 batches at K = 32 (at K = 512 their values alone take 800 MB). */
    check_product(&(product_case){
        .mode = BSTK_DDS, .dtype = BSTK_F32, .block = 16, .z = 100, .h = 2, .m = 1, .n = 2048, .k = 32});
    check_product(
        &(product_case){.mode = BSTK_DDS, .dtype = BSTK_F32, .block = 16, .h = 2, .m = 1, .n = 2048, .k = 512});
}

/* No block at all. */
static void test_bc_023(void **state) {
    (void)state;
    product_case p = {.z = 2, .h = 2, .m = 64, .n = 64, .k = 64, .layout = {.kind = RULE_ZEROS}};
    static const int32_t blocks[] = {16, 64};
    for (size_t b = 0; b < 2; ++b)
        for (size_t d = 0; d < 4; ++d)
            for (int shared = 0; shared < 2; ++shared) {
                p.block = blocks[b];
                p.dtype = dtypes[d];
                p.shared_layout = shared;
                all_transpositions(p);
            }
    p.b_heads = 1; /* grouped heads: no value tells how many heads there are */
    p.mode = BSTK_DSD;
    check_product(&p);
    p.beta = 0.5; /* zeros are added to what C holds */
    p.alpha = 2;
    check_product(&p);
    p.mode = BSTK_SDD;
    check_product(&p);
    /* No rows, no columns, no inner size, no heads, no batch. */
    for (int axis = 0; axis < 3; ++axis) {
        product_case e = {.dtype = BSTK_F32, .block = 16, .z = 2, .h = 2, .m = 32, .n = 32, .k = 32};
        *(axis == 0 ? &e.m : axis == 1 ? &e.n : &e.k) = 0;
        all_transpositions(e);
    }
}

/* Heads with all, no and some blocks: the order is head, row, column. */
static void test_bc_024(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        all_transpositions((product_case){.dtype = dtypes[d],
                                          .block = 16,
                                          .z = 2,
                                          .h = 3,
                                          .m = 64,
                                          .n = 64,
                                          .k = 64,
                                          .layout = {.kind = RULE_MIXED}});
    all_transpositions((product_case){
        .dtype = BSTK_F32, .block = 16, .z = 2, .h = 7, .m = 64, .n = 32, .k = 48, .layout = {.kind = RULE_MIXED}});
}

/* As many packed blocks as ones in the layout, each in its place, for 100 random layouts. */
static void test_bc_026(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 100; ++seed) {
        const rule r = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = seed};
        uint8_t *mask = rule_mask(&r, 8, 64, 64);
        bstk_layout *layout = rule_layout(&r, 8, 1024, 1024, 16);
        int64_t ones = 0;
        for (int64_t e = 0; e < 8 * 64 * 64; ++e)
            ones += mask[e];
        assert_int_equal(bstk_layout_nnz(layout), ones);
        bstk_layout_release(layout);
        free(mask);
        check_product(&(product_case){.mode = BSTK_SDD,
                                      .dtype = BSTK_F32,
                                      .block = 16,
                                      .z = 2,
                                      .h = 2,
                                      .m = 128,
                                      .n = 112,
                                      .k = 24,
                                      .tb = true,
                                      .layout = r,
                                      .seed = seed});
    }
    check_product(&(product_case){.mode = BSTK_SDD,
                                  .dtype = BSTK_F32,
                                  .block = 16,
                                  .h = 2,
                                  .m = 1024,
                                  .n = 1024,
                                  .k = 64,
                                  .tb = true,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = 7}});
}

/* The operands that a mode has, filled by `value`(row, column). */
static void fill_by(const bstk_tensor *t, double (*value)(int64_t row, int64_t col)) {
    const int64_t cols = t->shape[t->ndim - 1], rows = t->shape[t->ndim - 2], count = gen_count(t);
    for (int64_t e = 0; e < count; ++e)
        gen_store(t->dtype, t->data, gen_offset(t, e), value(e / cols % rows, e % cols));
}

static double one(int64_t row, int64_t col) {
    (void)row;
    (void)col;
    return 1;
}

static double ramp(int64_t row, int64_t col) {
    return (double)(row * 256 + col) / 65536;
}

static double one_hot(int64_t row, int64_t col) {
    return col == row * 7 % 16;
}

/* Ones, ramps and one-hot rows show a tile that is left out. */
static void test_bc_071(void **state) {
    (void)state;
    static const int32_t blocks[] = {8, 16, 32, 64, 128, 256};
    double (*const left[])(int64_t, int64_t) = {one, one_hot, ramp};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b)
        for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode)
            for (size_t kind = 0; kind < 3; ++kind) {
                product x;
                product_make(
                    &x,
                    &(product_case){
                        .mode = (bstk_mode)mode, .dtype = BSTK_F32, .block = blocks[b], .m = 256, .n = 256, .k = 256});
                fill_by(&x.a.t, left[kind]);
                fill_by(&x.b.t, ramp);
                product_check(&x);
                product_free(&x);
            }
    product x; /* the reported sums: column n of ones . ramp */
    product_make(&x, &(product_case){.mode = BSTK_DSD, .dtype = BSTK_F32, .block = 16, .m = 256, .n = 256, .k = 256});
    fill_by(&x.a.t, one);
    fill_by(&x.b.t, ramp);
    product_check(&x);
    for (int64_t e = 0; e < 256 * 256; ++e) {
        const double want = (256.0 * 255 / 2 * 256 + 256.0 * (double)(e % 256)) / 65536;
        assert_true(fabs(gen_load(BSTK_F32, x.c.t.data, e) - want) <= 1e-5 * want);
    }
    product_free(&x);
}

static double uniform(int64_t row, int64_t col) {
    return gen_unit(5, (uint64_t)(row * 4096 + col));
}

/* Plain f32, no shortened products: values around 0.5, whose errors would add up. */
static void test_bc_073(void **state) {
    (void)state;
    static const int32_t blocks[] = {16, 64};
    for (size_t b = 0; b < 2; ++b)
        for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode) {
            product x;
            const product_case p = {.mode = (bstk_mode)mode,
                                    .dtype = BSTK_F32,
                                    .block = blocks[b],
                                    .h = 2,
                                    .m = 512,
                                    .n = 512,
                                    .k = 512,
                                    .layout = {.kind = RULE_BERNOULLI, .p = 0.5}};
            product_make(&x, &p);
            fill_by(&x.a.t, uniform);
            fill_by(&x.b.t, uniform);
            product_check(&x);
            const ref_product ref = {.mode = p.mode,
                                     .layout = x.layout,
                                     .z = 1,
                                     .h = 2,
                                     .m = 512,
                                     .n = 512,
                                     .k = 512,
                                     .a = &x.a.t,
                                     .b = &x.b.t,
                                     .c = &x.c.t,
                                     .alpha = 1};
            const int64_t count = gen_count(&x.c.t);
            double *want = malloc((size_t)count * sizeof *want), *bound = malloc((size_t)count * sizeof *bound);
            assert_true(want && bound && ref_matmul(&ref, want, bound));
            for (int64_t e = 0; e < count; ++e)
                assert_true(fabs(gen_load(BSTK_F32, x.c.t.data, e) - want[e]) <= 1e-5 * want[e]);
            free(want);
            free(bound);
            product_free(&x);
        }
}

/* Outputs with transposed and other strides: filled in place, gaps left alone. */
static void test_bc_077(void **state) {
    (void)state;
    for (int style = GEN_CONTIGUOUS; style < GEN_STYLES; ++style)
        for (size_t d = 0; d < 4; ++d)
            all_transpositions((product_case){.dtype = dtypes[d],
                                              .block = 16,
                                              .z = 2,
                                              .h = 3,
                                              .m = 40,
                                              .n = 23,
                                              .k = 16,
                                              .c_style = (gen_style)style,
                                              .seed = d,
                                              .layout = {.kind = RULE_BERNOULLI, .p = 0.7}});
    product x; /* the report: ones, c a transposed view, 16 everywhere */
    product_make(
        &x,
        &(product_case){
            .mode = BSTK_DSD, .dtype = BSTK_F16, .block = 16, .m = 16, .n = 16, .k = 16, .c_style = GEN_TRANSPOSED});
    fill_by(&x.a.t, one);
    fill_by(&x.b.t, one);
    product_check(&x);
    for (int64_t e = 0; e < 256; ++e)
        assert_true(gen_load(BSTK_F16, x.c.t.data, e) == 16);
    product_free(&x);
}

/* Each batch item and head has values of its own. */
static void test_bc_082(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode)
        for (size_t d = 0; d < 4; ++d) {
            product x;
            product_make(&x, &(product_case){.mode = (bstk_mode)mode,
                                             .dtype = dtypes[d],
                                             .block = 16,
                                             .z = 3,
                                             .h = 2,
                                             .m = 32,
                                             .n = 32,
                                             .k = 32});
            gen_array *const sides[] = {&x.a, &x.b};
            for (int side = 0; side < 2; ++side) {
                const int64_t item = gen_count(&sides[side]->t) / 6; /* of one head of one batch item */
                for (int64_t e = 0; e < 6 * item; ++e)
                    gen_store(dtypes[d], sides[side]->t.data, e, (double)(e / item / 2 + 1));
            }
            product_check(&x);
            for (int64_t e = 0; e < gen_count(&x.c.t); ++e) {
                const double z = (double)(e / (gen_count(&x.c.t) / 3) + 1);
                assert_true(gen_load(dtypes[d], x.c.t.data, e) == 32 * z * z);
            }
            product_free(&x);
        }
    /* Any strides between batches and heads, shared layouts, shared and grouped operands. */
    for (int style = GEN_CONTIGUOUS; style <= GEN_ZERO_SECOND; ++style) {
        product_case p = {.dtype = BSTK_F32,
                          .block = 16,
                          .z = 3,
                          .h = 4,
                          .m = 32,
                          .n = 48,
                          .k = 32,
                          .a_style = (gen_style)style,
                          .b_style = (gen_style)style,
                          .seed = 3,
                          .layout = {.kind = RULE_BERNOULLI, .p = 0.6}};
        all_modes(p);
        p.shared_layout =
            style < GEN_ZERO_SECOND; /* there the second axis of packed values is the blocks of all heads */
        all_modes(p);
        p.b_heads = 2;
        p.mode = BSTK_SDD;
        check_product(&p);
        p.mode = BSTK_DSD;
        check_product(&p);
    }
}

/* The three products that forward and both gradients are made of, on one layout with M != N. */
static void test_bc_086(void **state) {
    (void)state;
    product_case p = {.dtype = BSTK_F32, .block = 64, .m = 1024, .n = 768, .k = 64};
    for (int seed = -1; seed < 3; ++seed) {
        p.layout = seed < 0 ? (rule){.kind = RULE_ONES}
                            : (rule){.kind = RULE_BERNOULLI, .p = 0.5, .seed = (uint64_t)seed, .no_empty = true};
        p.mode = BSTK_SDD; /* C = A B; dA = dC B^T is dsd with n = k; dB = A^T dC is dds with m = k */
        p.tb = false;
        check_product(&p);
        product_case da = p, db = p;
        da.mode = BSTK_DSD;
        da.n = p.k;
        da.k = p.n;
        da.tb = true;
        check_product(&da);
        db.mode = BSTK_DDS;
        db.m = p.k;
        db.k = p.m;
        db.ta = true;
        check_product(&db);
    }
}

/* f64 operands, summed in f64. */
static void test_bc_109(void **state) {
    (void)state;
    static const uint8_t matrix[] = {1, 0, 1, 1};
    for (int style = GEN_CONTIGUOUS; style < GEN_STYLES; ++style)
        all_transpositions((product_case){.dtype = BSTK_F64,
                                          .block = 16,
                                          .h = 2,
                                          .m = 32,
                                          .n = 32,
                                          .k = 32,
                                          .a_style = (gen_style)style,
                                          .b_style = (gen_style)style,
                                          .layout = {.kind = RULE_MATRIX, .matrix = matrix}});
}

/* A linear layer: [64, 4096] . W, not the other way round; and three different sizes. */
static void test_bc_115(void **state) {
    (void)state;
    product x;
    product_make(&x, &(product_case){.mode = BSTK_DDS, .dtype = BSTK_F32, .block = 32, .m = 64, .n = 4096, .k = 4096});
    for (int64_t e = 0; e < gen_count(&x.a.t); ++e)
        ((float *)x.a.t.data)[e] = 1;
    for (int64_t e = 0; e < gen_count(&x.b.t); ++e)
        ((float *)x.b.t.data)[e] = 1;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = BSTK_DDS;
    desc.layout = x.layout;
    desc.a = &x.a.t;
    desc.b = &x.b.t;
    desc.c = &x.c.t;
    ok(bstk_matmul(NULL, &desc, 1, 0));
    for (int64_t e = 0; e < 64 * 4096; ++e)
        assert_true(((const float *)x.c.t.data)[e] == 4096);
    product_free(&x);
    all_transpositions((product_case){.dtype = BSTK_F32, .block = 32, .m = 64, .n = 160, .k = 96});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bc_001), cmocka_unit_test(test_bc_007), cmocka_unit_test(test_bc_008),
        cmocka_unit_test(test_bc_012), cmocka_unit_test(test_bc_023), cmocka_unit_test(test_bc_024),
        cmocka_unit_test(test_bc_026), cmocka_unit_test(test_bc_071), cmocka_unit_test(test_bc_073),
        cmocka_unit_test(test_bc_077), cmocka_unit_test(test_bc_082), cmocka_unit_test(test_bc_086),
        cmocka_unit_test(test_bc_109), cmocka_unit_test(test_bc_115)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
