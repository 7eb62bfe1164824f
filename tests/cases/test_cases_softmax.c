/*
 * test_cases_softmax.c: cases that users of block-sparse software met, of softmax; the number is the case's. Each runs
 * over the sizes, types and blocks that its kind could hit, against the float64 reference. See README.md.
 */
#include "support/cm.h"

#include "support/op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

/* Offset in packed values of element (i, j) of batch z, head h; the block must be stored. */
static int64_t place(const score_op *x, int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t b = bstk_layout_block(x->layout), rows = bstk_layout_rows(x->layout);
    const bool shared = bstk_layout_heads(x->layout) == 1;
    const int64_t line = (shared ? 0 : h) * rows + i / b;
    for (int64_t n = bstk_layout_row_ptr(x->layout)[line]; n < bstk_layout_row_ptr(x->layout)[line + 1]; ++n)
        if (bstk_layout_col_idx(x->layout)[n] == j / b) {
            const int64_t number = (shared ? h * bstk_layout_nnz(x->layout) : 0) + n;
            return ((z * x->x.t.shape[1] + number) * b + i % b) * b + j % b;
        }
    fail_msg("block of (%lld, %lld) is not stored", (long long)i, (long long)j);
    return 0;
}

static void set_x(score_op *x, int64_t i, int64_t j, double value) {
    gen_store(x->p.dtype, x->x.t.data, gen_offset(&x->x.t, place(x, 0, 0, i, j)), value);
}

static double get_y(const score_op *x, int64_t z, int64_t h, int64_t i, int64_t j) {
    return gen_load(x->p.dtype, x->out.t.data, gen_offset(&x->out.t, place(x, z, h, i, j)));
}

static double row_sum(const score_op *x, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < x->p.n; ++j)
        sum += get_y(x, 0, 0, i, j);
    return sum;
}

/* Roughly normal: a sum of 12 uniform values. */
static double normal(uint64_t seed, uint64_t n) {
    double sum = -6;
    for (uint64_t k = 0; k < 12; ++k)
        sum += gen_unit(seed, 12 * n + k);
    return sum;
}

/* Rows longer than any tile, power of two or not. */
static void test_bc_010(void **state) {
    (void)state;
    static const int64_t lengths[] = {131072, 131088, 150016, 131077};
    for (size_t n = 0; n < 4; ++n) {
        score_op x;
        score_make(&x, &(score_case){.dtype = BSTK_F32, .block = 16, .m = 9, .n = lengths[n]}, NULL);
        score_check(&x);
        const int64_t cols = bstk_layout_cols(x.layout) * 16;
        double sum[9] = {0};
        for (int64_t e = 0; e < gen_count(&x.out.t); ++e) /* one block row: element e of block e / 256 */
            if (e / 16 % 16 < 9)
                sum[e / 16 % 16] += (double)((const float *)x.out.t.data)[e];
        for (int i = 0; i < 9; ++i)
            assert_true(fabs(sum[i] - 1) <= 1e-5);
        assert_true(cols >= lengths[n]);
        score_free(&x);
    }
    for (size_t d = 0; d < 4; ++d)
        check_scores(&(score_case){.dtype = dtypes[d], .block = 64, .m = 3, .n = 20001});
}

/* Empty rows: nothing is written for them but lse = -inf. */
static void test_bc_022(void **state) {
    (void)state;
    static const uint8_t matrix[] = {1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1};
    for (size_t d = 0; d < 4; ++d)
        for (int causal = 0; causal < 2; ++causal) {
            score_op x;
            score_make(&x,
                       &(score_case){.dtype = dtypes[d],
                                     .block = 16,
                                     .z = 2,
                                     .h = 2,
                                     .m = 64,
                                     .n = 64,
                                     .layout = {.kind = RULE_MATRIX, .matrix = matrix}},
                       NULL);
            x.terms.causal = causal;
            score_check(&x);
            for (int64_t i = 16; i < 32; ++i)
                assert_true(gen_load(x.lse.t.dtype, x.lse.t.data, i) == -INFINITY);
            score_free(&x);
        }
}

static void test_bc_023(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int shared = 0; shared < 2; ++shared)
            check_scores(&(score_case){.dtype = dtypes[d],
                                       .block = 16,
                                       .z = 2,
                                       .h = 2,
                                       .m = 64,
                                       .n = 64,
                                       .shared_layout = shared,
                                       .layout = {.kind = RULE_ZEROS}});
    check_scores(&(score_case){.dtype = BSTK_F32, .block = 16, .m = 0, .n = 64});
    check_scores(&(score_case){.dtype = BSTK_F32, .block = 16, .m = 64, .n = 0});
    check_scores(&(score_case){.dtype = BSTK_F32, .block = 16, .m = 1, .n = 1});
}

static void test_bc_024(void **state) {
    (void)state;
    static const int32_t blocks[] = {8, 16, 40};
    for (size_t d = 0; d < 4; ++d)
        for (size_t b = 0; b < 3; ++b)
            check_scores(&(score_case){.dtype = dtypes[d],
                                       .block = blocks[b],
                                       .z = 2,
                                       .h = 4,
                                       .m = 75,
                                       .n = 90,
                                       .layout = {.kind = RULE_MIXED}});
}

/* Masks of every type: bool and u8 keep, floating ones add, other integers only in mode mul. */
static void test_bc_053(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int dtype = BSTK_F64; dtype <= BSTK_I64; ++dtype)
            for (int mode = BSTK_MASK_AUTO; mode <= BSTK_MASK_MUL; ++mode) {
                const bool taken = dtype <= BSTK_U8 || mode == BSTK_MASK_MUL;
                score_op x;
                score_make(&x, &(score_case){.dtype = dtypes[d], .block = 16, .z = 2, .m = 32, .n = 41}, NULL);
                add_attn_mask(&x, (bstk_dtype)dtype, 2, shape(32, 41), GEN_SPREAD, 3);
                add_key_padding(&x, (bstk_dtype)dtype, 2, shape(2, 41), GEN_NEGATIVE, 4);
                x.terms.attn_mode = x.terms.key_padding_mode = (bstk_mask_mode)mode;
                if (taken) {
                    score_check(&x);
                } else {
                    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
                    desc.layout = x.layout;
                    desc.x = &x.x.t;
                    desc.y = &x.out.t;
                    desc.terms = x.terms;
                    assert_int_equal(bstk_softmax(NULL, &desc), BSTK_ERR_TYPE);
                    assert_non_null(strstr(bstk_last_error(), "key_padding_mask"));
                    assert_non_null(strstr(bstk_last_error(), bstk_dtype_name((bstk_dtype)dtype)));
                }
                score_free(&x);
            }
}

/* 0/1 masks: added, multiplied, boolean: three meanings, each as documented. */
static void test_bc_054(void **state) {
    (void)state;
    static const bstk_dtype masks[] = {BSTK_F32, BSTK_F16, BSTK_BOOL, BSTK_U8};
    for (size_t t = 0; t < 4; ++t)
        for (int mode = BSTK_MASK_ADD; mode <= BSTK_MASK_MUL; ++mode) {
            score_op x;
            score_make(&x, &(score_case){.dtype = BSTK_F32, .block = 16, .z = 2, .m = 32, .n = 32}, NULL);
            add_attn_mask(&x, masks[t], 2, shape(32, 32), GEN_CONTIGUOUS, 3);
            for (int64_t e = 0; e < 32 * 32; ++e)
                gen_store(masks[t], x.attn.t.data, e, e % 3 != 0);
            x.terms.attn_mode = (bstk_mask_mode)mode;
            score_check(&x);
            const bool added = mode == BSTK_MASK_ADD && t < 2;
            for (int64_t i = 0; i < 32; ++i)
                for (int64_t j = 0; j < 32; ++j) {
                    const double y = get_y(&x, 1, 0, i, j);
                    assert_true((i * 32 + j) % 3 != 0 || added ? y > 0 : y == 0);
                }
            /* Added, a 1 lifts a score by 1: the ratio of two weights tells. */
            const double r = log(get_y(&x, 0, 0, 0, 1) / get_y(&x, 0, 0, 0, 3));
            const double plain = gen_load(BSTK_F32, x.x.t.data, place(&x, 0, 0, 0, 1)) -
                                 gen_load(BSTK_F32, x.x.t.data, place(&x, 0, 0, 0, 3));
            if (added)
                assert_true(fabs(r - plain - 1) < 1e-5);
            score_free(&x);
        }
    /* The values of bool and u8 may be any nonzero byte. */
    score_op x;
    score_make(&x, &(score_case){.dtype = BSTK_F32, .block = 16, .m = 16, .n = 16}, NULL);
    add_attn_mask(&x, BSTK_BOOL, 2, shape(16, 16), GEN_CONTIGUOUS, 3);
    for (int64_t e = 0; e < 256; ++e)
        ((uint8_t *)x.attn.t.data)[e] = e % 2 ? 0 : (uint8_t)(e | 0x80);
    score_check(&x);
    assert_true(get_y(&x, 0, 0, 0, 0) > 0 && get_y(&x, 0, 0, 0, 1) == 0);
    score_free(&x);
}

/* Shapes of a mask; one batch item must agree with three. */
static void test_bc_056(void **state) {
    (void)state;
    static const int64_t shapes[][5] = {{2, 64, 64},       {3, 1, 64, 64},    {3, 3, 64, 64},
                                        {4, 3, 1, 64, 64}, {4, 3, 2, 64, 64}, {4, 1, 2, 64, 64},
                                        {4, 1, 1, 64, 64}, {2, 1, 64},        {4, 3, 2, 1, 64}};
    for (int64_t z = 1; z <= 3; z += 2)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s)
            for (int style = GEN_CONTIGUOUS; style < GEN_STYLES; ++style) {
                int64_t sizes[4];
                memcpy(sizes, &shapes[s][1], sizeof sizes);
                for (int axis = 0; axis < 4; ++axis) /* Z of the list */
                    sizes[axis] = sizes[axis] == 3 ? z : sizes[axis];
                for (int boolean = 0; boolean < 2; ++boolean) {
                    score_op x;
                    score_make(&x, &(score_case){.dtype = BSTK_F32, .block = 16, .z = z, .h = 2, .m = 64, .n = 64},
                               NULL);
                    add_attn_mask(&x, boolean ? BSTK_U8 : BSTK_F32, (int32_t)shapes[s][0], sizes, (gen_style)style, s);
                    score_check(&x);
                    score_free(&x);
                }
            }
}

/* The scale belongs to x alone; 0 and negative ones are fine. */
static void test_bc_062(void **state) {
    (void)state;
    static const double scales[] = {1, 0.125, -0.5, 0, 3};
    for (size_t d = 0; d < 4; ++d)
        for (size_t s = 0; s < 5; ++s)
            for (int which = 0; which < 8; ++which) { /* every set of terms */
                score_op x;
                score_make(&x, &(score_case){.dtype = dtypes[d], .block = 16, .m = 32, .n = 32}, NULL);
                x.terms.scale = scales[s];
                if (which & 1)
                    add_rpe(&x, BSTK_F32, 2, shape(32, 32), GEN_CONTIGUOUS, 1);
                if (which & 2)
                    add_attn_mask(&x, BSTK_F32, 2, shape(32, 32), GEN_CONTIGUOUS, 2);
                if (which & 4) {
                    add_key_padding(&x, BSTK_F32, 1, shape(32), GEN_CONTIGUOUS, 3);
                    for (int64_t j = 0; j < 32; ++j)
                        gen_store(BSTK_F32, x.key_padding.t.data, j, j % 4 ? 0 : -INFINITY);
                }
                score_check(&x);
                for (int64_t j = 0; which == 4 && scales[s] == 0 && j < 32; ++j)
                    assert_true(get_y(&x, 0, 0, 5, j) == (j % 4 ? gen_round(dtypes[d], 1.0 / 24) : 0));
                score_free(&x);
            }
}

/* Scores far below any finite stand-in for minus infinity. */
static void test_bc_063(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; ++causal) {
        static const double shifts[] = {-1e5, 1e5, -1e30, -3e38, 3e38};
        score_op x;
        score_make(&x, &(score_case){.dtype = BSTK_F32, .block = 16, .m = 32, .n = 64}, NULL);
        for (int64_t i = 0; i < 32; ++i)
            for (int64_t j = 0; j < 64; ++j)
                set_x(&x, i, j, shifts[i % 5] + normal(1, (uint64_t)(i * 64 + j)));
        x.terms.causal = causal;
        score_run(&x);
        for (int64_t i = 0; i < 32; ++i) {
            const int64_t kept = causal ? i + 1 : 64;
            double value[64], max = -INFINITY, sum = 0;
            for (int64_t j = 0; j < kept; ++j) {
                value[j] = gen_load(BSTK_F32, x.x.t.data, place(&x, 0, 0, i, j)); /* as rounded to f32 */
                max = fmax(max, value[j]);
            }
            for (int64_t j = 0; j < kept; ++j)
                sum += exp(value[j] - max);
            for (int64_t j = 0; j < 64; ++j)
                assert_true(fabs(get_y(&x, 0, 0, i, j) - (j < kept ? exp(value[j] - max) / sum : 0)) <= 1e-6);
        }
        score_free(&x);
    }
}

/* Half scores with masks at and beyond the end of f16: sums are made in f32. */
static void test_bc_067(void **state) {
    (void)state;
    static const double values[] = {-65504, -1e4, -1e9, -INFINITY};
    static const bstk_dtype masks[] = {BSTK_F16, BSTK_BF16, BSTK_F32, BSTK_F64};
    for (size_t d = 0; d < 4; ++d)
        for (size_t m = 0; m < 4; ++m)
            for (size_t v = 0; v < 4; ++v) {
                score_op x;
                score_make(&x, &(score_case){.dtype = dtypes[d], .block = 16, .m = 16, .n = 32}, NULL);
                for (int64_t e = 0; e < 512; ++e)
                    gen_store(dtypes[d], x.x.t.data, e, 80 * gen_unit(2, (uint64_t)e) - 40);
                add_attn_mask(&x, masks[m], 2, shape(16, 32), GEN_CONTIGUOUS, 1);
                for (int64_t i = 0; i < 16; ++i)
                    for (int64_t j = 0; j < 32; ++j) /* row 15 keeps nothing: all its places are masked alike */
                        gen_store(masks[m], x.attn.t.data, i * 32 + j, i == 15 || j % 3 == 1 ? values[v] : 0);
                score_check(&x);
                for (int64_t i = 0; i < 15; ++i)
                    for (int64_t j = 1; j < 32; j += 3)
                        assert_true(get_y(&x, 0, 0, i, j) < 1e-7);
                const double sum = row_sum(&x, 15); /* -inf: nothing is left; a finite value: only a shift */
                assert_true(isinf(gen_round(masks[m], values[v])) ? sum == 0 : fabs(sum - 1) < 0.05);
                score_free(&x);
            }
    /* Two finite values whose sum is -inf drop like -inf. */
    score_op x;
    score_make(&x, &(score_case){.dtype = BSTK_F32, .block = 16, .m = 16, .n = 16}, NULL);
    add_attn_mask(&x, BSTK_F32, 2, shape(16, 16), GEN_CONTIGUOUS, 1);
    add_key_padding(&x, BSTK_F32, 1, shape(16), GEN_CONTIGUOUS, 2);
    for (int64_t e = 0; e < 256; ++e)
        gen_store(BSTK_F32, x.attn.t.data, e, -3.4e38);
    for (int64_t j = 0; j < 16; ++j)
        gen_store(BSTK_F32, x.key_padding.t.data, j, j == 7 ? 0 : -3.4e38);
    score_check(&x);
    for (int64_t i = 0; i < 16; ++i)
        assert_true(get_y(&x, 0, 0, i, 7) == 1 && get_y(&x, 0, 0, i, 6) == 0);
    score_free(&x);
}

/* Large logits, ascending, descending, constant, and one alone: no overflow whatever the order. */
static void test_bc_068(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d) {
        score_op x;
        score_make(&x, &(score_case){.dtype = dtypes[d], .block = 16, .m = 64, .n = 64}, NULL);
        for (int64_t i = 0; i < 64; ++i)
            for (int64_t j = 0; j < 64; ++j) {
                const double kinds[] = {normal(4, (uint64_t)(i * 64 + j)) * 3000, (double)j * 300,
                                        (double)(63 - j) * 300, 9000, j == 37 ? 1e4 : 0};
                set_x(&x, i, j, kinds[i % 5]);
            }
        x.terms.scale = 0.125; /* exact: the scores are the rounded x, and the result is as sharp as one exponential */
        score_run(&x);
        for (int64_t i = 0; i < 64; ++i) {
            double s[64], max = -INFINITY, sum = 0, total = 0;
            for (int64_t j = 0; j < 64; ++j) {
                s[j] = gen_load(dtypes[d], x.x.t.data, place(&x, 0, 0, i, j)) / 8;
                max = fmax(max, s[j]);
            }
            for (int64_t j = 0; j < 64; ++j)
                sum += exp(s[j] - max);
            for (int64_t j = 0; j < 64; ++j) {
                const double want = exp(s[j] - max) / sum, got = get_y(&x, 0, 0, i, j);
                const double unit = dtypes[d] == BSTK_BF16 ? 0x1p-8 : dtypes[d] == BSTK_F16 ? 0x1p-11 : 0;
                assert_true(fabs(got - want) <= 1e-5 + unit * want);
                total += got;
            }
            assert_true(fabs(total - 1) < 0.02);
            if (i % 5 == 4)
                assert_true(get_y(&x, 0, 0, i, 37) == 1);
        }
        score_free(&x);
    }
}

/* A NaN or +inf among kept scores spreads; one in a dropped place does not; a row of -inf is empty. */
static void test_bc_069(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d) {
        score_op x;
        score_make(&x, &(score_case){.dtype = dtypes[d], .block = 16, .m = 32, .n = 32}, NULL);
        add_attn_mask(&x, dtypes[d], 2, shape(32, 32), GEN_CONTIGUOUS, 1);
        x.terms.attn_mode = BSTK_MASK_MUL;
        for (int64_t e = 0; e < 32 * 32; ++e)
            gen_store(dtypes[d], x.attn.t.data, e, e % 32 == 20 ? 0 : 1);
        set_x(&x, 3, 4, NAN);
        set_x(&x, 5, 20, NAN);
        set_x(&x, 7, 4, INFINITY);
        set_x(&x, 11, 20, INFINITY);
        set_x(&x, 13, 9, -INFINITY);
        for (int64_t j = 0; j < 32; ++j)
            set_x(&x, 9, j, -INFINITY);
        for (int64_t j = 0; j < 32; ++j) { /* nothing but NaN, and NaN beside -inf: no number that could be a maximum */
            set_x(&x, 15, j, NAN);
            set_x(&x, 17, j, j == 30 ? (double)NAN : -INFINITY);
        }
        score_check(&x);
        for (int64_t j = 0; j < 32; ++j) {
            const bool kept = j != 20;
            assert_true(kept ? isnan(get_y(&x, 0, 0, 3, j)) : get_y(&x, 0, 0, 3, j) == 0);
            assert_true(kept ? isnan(get_y(&x, 0, 0, 7, j)) : get_y(&x, 0, 0, 7, j) == 0);
            assert_true(kept ? get_y(&x, 0, 0, 5, j) > 0 : get_y(&x, 0, 0, 5, j) == 0);
            assert_true(kept ? get_y(&x, 0, 0, 11, j) > 0 : get_y(&x, 0, 0, 11, j) == 0);
            assert_true(get_y(&x, 0, 0, 9, j) == 0);
            assert_true(!kept || (isnan(get_y(&x, 0, 0, 15, j)) && isnan(get_y(&x, 0, 0, 17, j))));
        }
        assert_true(get_y(&x, 0, 0, 13, 9) == 0);
        const bstk_tensor *lse = &x.lse.t;
        assert_true(isnan(gen_load(lse->dtype, lse->data, 3)) && isnan(gen_load(lse->dtype, lse->data, 7)));
        assert_true(gen_load(lse->dtype, lse->data, 9) == -INFINITY);
        score_free(&x);
    }
}

/* Many equal small weights: sums kept in a half type would stall. */
static void test_bc_074(void **state) {
    (void)state;
    static const int64_t lengths[] = {16384, 10000};
    for (size_t d = 0; d < 4; ++d)
        for (size_t n = 0; n < 2; ++n) {
            score_op x;
            score_make(&x,
                       &(score_case){.dtype = dtypes[d], .block = 16, .m = 16, .n = lengths[n], .values = GEN_ZEROS},
                       NULL);
            score_check(&x);
            const double want = gen_round(dtypes[d], 1.0 / (double)lengths[n]);
            for (int64_t j = 0; j < lengths[n]; j += 97)
                assert_true(fabs(get_y(&x, 0, 0, 3, j) - want) <= want * 0x1p-10);
            score_free(&x);
        }
}

/* Relative positions: as a table for each place, and by distance. */
static void test_bc_091(void **state) {
    (void)state;
    static const int64_t rpe[][5] = {{3, 2, 64, 64}, {2, 64, 64}, {4, 4, 2, 64, 64}, {3, 1, 64, 64}, {4, 1, 1, 64, 64}};
    for (size_t s = 0; s < 5; ++s)
        for (size_t d = 0; d < 4; ++d) {
            score_op x;
            const score_case p = {.dtype = dtypes[d],
                                  .block = 16,
                                  .z = 4,
                                  .h = 2,
                                  .m = 64,
                                  .n = 64,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = 1, .ensure_row = true}};
            score_make(&x, &p, NULL);
            add_rpe(&x, dtypes[(d + s) % 4], (int32_t)rpe[s][0], &rpe[s][1], GEN_SHUFFLED, s);
            score_check(&x);
            score_free(&x);
        }
    static const int64_t extents[] = {0, 1, 7, 64, 100, 127, 200};
    for (size_t e = 0; e < 7; ++e)
        for (int shared = 0; shared < 2; ++shared) {
            score_op x;
            const score_case p = {.dtype = BSTK_F32,
                                  .block = 16,
                                  .z = 2,
                                  .h = 3,
                                  .m = 60,
                                  .n = 71,
                                  .shared_layout = shared,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.6, .seed = 1}};
            score_make(&x, &p, NULL);
            add_rel(&x, BSTK_F16, 4, shape(2, 3, 60, extents[e]), GEN_PADDED, e);
            x.terms.causal = (int32_t)(e % 2);
            x.terms.causal_offset = 11;
            score_check(&x);
            score_free(&x);
        }
}

/* The input is left alone, bit for bit (score_check compares it), also where it holds NaN; in place gives the same. */
static void test_bc_092(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int style = GEN_CONTIGUOUS; style < GEN_STYLES; ++style) {
            score_op x;
            score_make(&x,
                       &(score_case){.dtype = dtypes[d],
                                     .block = 16,
                                     .h = 2,
                                     .m = 64,
                                     .n = 64,
                                     .values = GEN_SPECIAL,
                                     .in_style = (gen_style)style,
                                     .out_style = (gen_style)style,
                                     .seed = 5},
                       NULL);
            score_check(&x);
            bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
            desc.layout = x.layout;
            desc.x = desc.y = &x.x.t;
            ok(bstk_softmax(NULL, &desc));
            assert_same_bits("in place", &x.x.t, &x.out.t);
            score_free(&x);
        }
}

/* f64 throughout, with every term at once. */
static void test_bc_109(void **state) {
    (void)state;
    static const uint8_t matrix[] = {1, 0, 1, 1};
    for (int style = GEN_CONTIGUOUS; style < GEN_STYLES; ++style) {
        score_op x;
        const score_case p = {.dtype = BSTK_F64,
                              .block = 16,
                              .h = 2,
                              .m = 32,
                              .n = 32,
                              .in_style = (gen_style)style,
                              .out_style = (gen_style)style,
                              .layout = {.kind = RULE_MATRIX, .matrix = matrix}};
        score_make(&x, &p, NULL);
        x.terms.causal = 1;
        add_rpe(&x, BSTK_F64, 3, shape(2, 32, 32), (gen_style)style, 1);
        add_rel(&x, BSTK_F64, 2, shape(32, 20), (gen_style)style, 2);
        add_key_padding(&x, BSTK_BOOL, 1, shape(32), GEN_CONTIGUOUS, 3);
        add_attn_mask(&x, BSTK_F64, 4, shape(1, 2, 32, 32), (gen_style)style, 4);
        score_check(&x);
        score_free(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bc_010), cmocka_unit_test(test_bc_022), cmocka_unit_test(test_bc_023),
        cmocka_unit_test(test_bc_024), cmocka_unit_test(test_bc_053), cmocka_unit_test(test_bc_054),
        cmocka_unit_test(test_bc_056), cmocka_unit_test(test_bc_062), cmocka_unit_test(test_bc_063),
        cmocka_unit_test(test_bc_067), cmocka_unit_test(test_bc_068), cmocka_unit_test(test_bc_069),
        cmocka_unit_test(test_bc_074), cmocka_unit_test(test_bc_091), cmocka_unit_test(test_bc_092),
        cmocka_unit_test(test_bc_109)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
