/*
 * test_cases_masks.c: cases that users of block-sparse software met, of the masks and terms of attention; the number is
 * the case's. Against the float64 reference, or against another way to say the same. See README.md.
 */
#include "support/cm.h"

#include "support/op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

static double out_at(const score_op *x, int64_t z, int64_t h, int64_t i, int64_t c) {
    const bstk_tensor *t = &x->out.t;
    return gen_load(t->dtype, t->data, gen_offset(t, ((z * t->shape[1] + h) * t->shape[2] + i) * t->shape[3] + c));
}

/* One element of a mask, term, key or value, by its row-major number. */
static void set(const gen_array *a, int64_t linear, double value) {
    gen_store(a->t.dtype, a->t.data, gen_offset(&a->t, linear), value);
}

/* Tokens of the same document, of four that start at 0, 37, 150 and 200. */
static bool same_document(int64_t i, int64_t j) {
    static const int64_t starts[] = {0, 37, 150, 200, 1000};
    int a = 0, b = 0;
    while (starts[a + 1] <= i)
        ++a;
    while (starts[b + 1] <= j)
        ++b;
    return a == b;
}

/* A block that is partly allowed is not wholly allowed: layout and token mask together, and the layout of tokens. */
static void test_bc_040(void **state) {
    (void)state;
    static const int32_t blocks[] = {64, 16, 128};
    for (size_t b = 0; b < 3; ++b)
        for (size_t d = 0; d < 4; ++d) {
            const score_case p = {
                .attention = true, .dtype = dtypes[d], .block = blocks[b], .m = 256, .n = 256, .d = 32};
            uint8_t *tokens = calloc(256 * 256, 1);
            assert_non_null(tokens);
            for (int64_t i = 0; i < 256; ++i)
                for (int64_t j = 0; j < 256; ++j)
                    tokens[i * 256 + j] = same_document(i, j);
            const bstk_tensor t = bstk_tensor_make(tokens, BSTK_U8, 2, shape(256, 256));
            bstk_layout *exact = NULL, *whole = NULL;
            ok(bstk_layout_from_dense_mask(NULL, &t, blocks[b], &exact));
            assert_true(bstk_layout_partial_count(exact) > 0);
            const int64_t grid = 256 / blocks[b];
            uint8_t *mask = malloc((size_t)(grid * grid));
            const bstk_tensor blocks_of = bstk_tensor_make(mask, BSTK_U8, 2, shape(grid, grid));
            ok(bstk_layout_to_mask(exact, &blocks_of));
            ok(bstk_layout_from_mask(NULL, &blocks_of, blocks[b], NULL, &whole));
            assert_true(bstk_layout_nnz(whole) == bstk_layout_nnz(exact) && bstk_layout_partial_count(whole) == 0);

            score_op x, y, z;
            score_make(&x, &p, exact); /* the tokens in the layout */
            score_check(&x);
            score_make(&y, &p, bstk_layout_retain(whole)); /* the tokens in a mask beside it */
            add_attn_mask(&y, BSTK_BOOL, 2, shape(256, 256), GEN_CONTIGUOUS, 1);
            memcpy(y.attn.t.data, tokens, 256 * 256);
            score_check(&y);
            assert_same_bits("partly kept blocks against a mask", &x.out.t, &y.out.t);
            score_make(&z, &p, whole); /* and without: whole blocks */
            score_check(&z);
            assert_true(fabs(out_at(&z, 0, 0, 40, 3) - out_at(&x, 0, 0, 40, 3)) > 1e-4);
            score_free(&x);
            score_free(&y);
            score_free(&z);
            free(tokens);
            free(mask);
        }
}

/* Causal, a causal mask, or both: the same bits at every length. */
static void test_bc_049(void **state) {
    (void)state;
    for (int64_t m = 16; m <= 640; m += 16)
        for (int32_t block = 16; block <= 64; block += 48) {
            score_op x;
            const score_case p = {.attention = true,
                                  .dtype = BSTK_F16,
                                  .block = block,
                                  .m = m,
                                  .n = m,
                                  .d = m <= 96 ? 64 : 8,
                                  .dv = 8,
                                  .seed = (uint64_t)m,
                                  .layout = {.kind = RULE_TRIL}};
            score_make(&x, &p, NULL);
            x.terms.causal = 1;
            m <= 96 ? score_check(&x) : score_run(&x);
            unsigned char *causal = gen_snapshot(&x.out);
            add_attn_mask(&x, BSTK_F16, 2, shape(m, m), GEN_CONTIGUOUS, 1);
            for (int64_t e = 0; e < m * m; ++e)
                set(&x.attn, e, e % m > e / m ? -INFINITY : 0);
            score_run(&x);
            assert_true(gen_unchanged(&x.out, causal));
            x.terms.causal = 0;
            score_run(&x);
            assert_true(gen_unchanged(&x.out, causal));
            for (int64_t i = 0; i < m; ++i)
                assert_true(isfinite(gen_load(BSTK_F32, x.lse.t.data, i)));
            free(causal);
            score_free(&x);
        }
    /* Offsets of the diagonal: any, also where every row or none is dropped. */
    static const int64_t offsets[] = {-1000, -48, -17, -1, 0, 1, 16, 29, 1000, INT64_MAX, INT64_MIN};
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; ++o) {
        score_op x;
        const score_case p = {.attention = true, .dtype = BSTK_F32, .block = 16, .h = 2, .m = 40, .n = 69, .d = 8};
        score_make(&x, &p, NULL);
        x.terms.causal = 1;
        x.terms.causal_offset = offsets[o];
        if (offsets[o] != INT64_MAX && offsets[o] != INT64_MIN) { /* the reference adds plainly */
            score_check(&x);
        } else {
            score_run(&x);
            assert_true((out_at(&x, 0, 0, 0, 0) == 0) == (offsets[o] == INT64_MIN));
        }
        score_free(&x);
    }
}

/* A padding mask is over keys, of its own batch item. */
static void test_bc_055(void **state) {
    (void)state;
    for (int type = 0; type < 2; ++type)
        for (size_t d = 0; d < 4; ++d) {
            score_op x;
            const score_case p = {
                .attention = true, .dtype = dtypes[d], .block = 16, .z = 2, .h = 2, .m = 32, .n = 48, .d = 16};
            score_make(&x, &p, NULL);
            add_key_padding(&x, type ? BSTK_F32 : BSTK_BOOL, 2, shape(2, 48), GEN_PADDED, 1);
            for (int64_t e = 0; e < 96; ++e)
                set(&x.key_padding, e, type ? (e < 48 + 30 ? 0 : -INFINITY) : e < 48 + 30);
            score_check(&x);
            /* Keys 30 .. 47 of item 1 do not matter, those of item 0 do. */
            unsigned char *before = gen_snapshot(&x.out);
            const int64_t last = gen_count(&x.v.t) - 1;
            set(&x.v, last, 1000);
            score_run(&x);
            assert_true(gen_unchanged(&x.out, before));
            set(&x.v, last / 2, 1000); /* the last key of item 0, head 1 */
            score_run(&x);
            assert_false(gen_unchanged(&x.out, before));
            free(before);
            score_free(&x);
        }
}

/* Masks that begin at odd addresses and have odd row strides. */
static void test_bc_057(void **state) {
    (void)state;
    static const bstk_dtype masks[] = {BSTK_F16, BSTK_BF16, BSTK_F32, BSTK_F64, BSTK_BOOL, BSTK_U8};
    for (size_t t = 0; t < 6; ++t)
        for (int64_t start = 1; start < 5; ++start) {
            score_op x;
            const score_case p = {
                .attention = true, .dtype = BSTK_F16, .block = 16, .h = 2, .m = 48, .n = 48, .d = 32, .dv = 8};
            score_make(&x, &p, NULL);
            gen_array big;
            make_array(&big, masks[t], 2, shape(48, 53), GEN_CONTIGUOUS, GEN_UNIFORM, 3);
            for (int64_t e = 0; e < 48 * 53; ++e) /* NaN, or dropped, wherever the slice does not reach */
                set(&big, e,
                    e % 53 < start || e % 53 >= start + 48 ? (t < 4 ? (double)NAN : 0)
                                                           : (t < 4 ? 4 * gen_unit(1, (uint64_t)e) : e % 5 != 0));
            bstk_tensor slice = big.t;
            slice.shape[1] = 48;
            slice.data = (char *)big.t.data + start * (int64_t)bstk_dtype_size(masks[t]);
            x.terms.attn_mask = &slice;
            score_check(&x);
            gen_array_free(&big);
            score_free(&x);
        }
}

/* A causal mask made for the longest input, cut to the length at hand, is the mask of that length. */
static void test_bc_058(void **state) {
    (void)state;
    gen_array big;
    make_array(&big, BSTK_F32, 2, shape(1024, 1024), GEN_CONTIGUOUS, GEN_ZEROS, 0);
    for (int64_t e = 0; e < 1024 * 1024; ++e)
        set(&big, e, e % 1024 > e / 1024 ? -INFINITY : 0);
    static const int64_t lengths[] = {1024, 512, 64};
    for (size_t i = 0; i < 3; ++i) {
        score_op x;
        const score_case p = {.attention = true,
                              .dtype = BSTK_F32,
                              .block = 16,
                              .h = 2,
                              .m = lengths[i],
                              .n = lengths[i],
                              .d = 32,
                              .layout = {.kind = RULE_BANDED, .reach = 1}};
        score_make(&x, &p, NULL);
        bstk_tensor part = big.t;
        part.shape[0] = part.shape[1] = lengths[i];
        x.terms.attn_mask = &part;
        score_check(&x);
        unsigned char *first = gen_snapshot(&x.out);
        x.terms.attn_mask = NULL;
        x.terms.causal = 1;
        score_run(&x);
        assert_true(gen_unchanged(&x.out, first));
        free(first);
        score_free(&x);
    }
    gen_array_free(&big);
}

/* A built pattern with a mask of its own, as examples show it. */
static void test_bc_059(void **state) {
    (void)state;
    for (int kind = BSTK_LAYOUT_DENSE; kind <= BSTK_LAYOUT_RANDOM; ++kind) {
        bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
        bstk_layout *layout = NULL;
        opts.kind = (bstk_layout_kind)kind;
        opts.heads = 2;
        opts.rows = opts.cols = 8;
        opts.block = 16;
        ok(bstk_layout_build(NULL, &opts, &layout));
        score_op x;
        const score_case p = {.attention = true, .dtype = BSTK_F32, .block = 16, .h = 2, .m = 128, .n = 128, .d = 32};
        score_make(&x, &p, layout);
        add_attn_mask(&x, BSTK_BOOL, 2, shape(128, 128), GEN_CONTIGUOUS, 1);
        for (int64_t e = 0; e < 128 * 128; ++e)
            set(&x.attn, e, e % 128 <= e / 128);
        score_check(&x);
        score_free(&x);
    }
}

/* The first n keys of each block are kept; the others hold 1e4, or NaN, and must not show. */
static void test_bc_060(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int poison = 0; poison < 2; ++poison) {
            score_op x;
            const score_case p = {.attention = true,
                                  .dtype = dtypes[d],
                                  .block = 64,
                                  .h = 2,
                                  .m = 256,
                                  .n = 512,
                                  .d = 32,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.5, .ensure_diag = true}};
            score_make(&x, &p, NULL);
            add_key_padding(&x, BSTK_BOOL, 1, shape(512), GEN_CONTIGUOUS, 1);
            for (int64_t j = 0; j < 512; ++j) {
                const bool keep = j % 64 < 16 + (int64_t)(gen_hash(3, (uint64_t)(j / 64)) % 49);
                set(&x.key_padding, j, keep);
                for (int64_t e = 0; !keep && e < 2 * 32; ++e) {
                    set(&x.k, (e / 32 * 512 + j) * 32 + e % 32, poison ? (double)NAN : 1e4);
                    set(&x.v, (e / 32 * 512 + j) * 32 + e % 32, poison ? (double)NAN : 1e4);
                }
            }
            score_check(&x);
            for (int64_t e = 0; e < gen_count(&x.out.t); ++e)
                assert_true(fabs(gen_load(dtypes[d], x.out.t.data, e)) <= 1);
            score_free(&x);
        }
}

/* NaN and infinities in keys and values that are not stored, masked, ahead of causal or past the edge never leak. */
static void test_bc_070(void **state) {
    (void)state;
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    static const uint8_t matrix[] = {1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1};
    for (size_t d = 0; d < 4; ++d)
        for (size_t n = 0; n < 3; ++n)
            for (int how = 0; how < 6; ++how) {
                score_op x;
                const score_case p = {.attention = true,
                                      .dtype = dtypes[d],
                                      .block = 16,
                                      .m = 64,
                                      .n = 64,
                                      .d = 16,
                                      .layout = {.kind = how == 0 ? RULE_MATRIX : RULE_ONES, .matrix = matrix}};
                score_make(&x, &p, NULL);
                const int64_t first = how == 0 ? 32 : how == 4 ? 63 : 5, last = how == 0 ? 47 : how == 4 ? 63 : 5;
                if (how == 1)
                    add_key_padding(&x, BSTK_BOOL, 1, shape(64), GEN_CONTIGUOUS, 1);
                if (how == 2 || how == 5)
                    add_key_padding(&x, BSTK_F32, 1, shape(64), GEN_CONTIGUOUS, 1);
                if (how == 3)
                    add_attn_mask(&x, BSTK_F16, 2, shape(64, 64), GEN_CONTIGUOUS, 1);
                for (int64_t j = 0; j < 64; ++j) {
                    if (how == 1 || how == 5)
                        set(&x.key_padding, j, j != 5);
                    if (how == 2)
                        set(&x.key_padding, j, j == 5 ? -INFINITY : 0);
                    for (int64_t i = 0; how == 3 && i < 64; ++i)
                        set(&x.attn, i * 64 + j, j == 5 ? -INFINITY : 0);
                }
                x.terms.key_padding_mode = how == 5 ? BSTK_MASK_MUL : BSTK_MASK_AUTO;
                if (how == 4) { /* key 63 is seen by no query but the last */
                    x.terms.causal = 1;
                    x.terms.causal_offset = -1;
                }
                score_run(&x);
                unsigned char *clean = gen_snapshot(&x.out);
                for (int64_t j = first; j <= last; ++j)
                    for (int64_t c = 0; c < 16; ++c) {
                        set(&x.k, j * 16 + c, poisons[n]);
                        set(&x.v, j * 16 + c, poisons[n]);
                    }
                score_check(&x);
                assert_true(gen_unchanged(&x.out, clean));
                free(clean);
                score_free(&x);
            }
}

/* A bias for one head, one batch item, or spread by stride 0. */
static void test_bc_084(void **state) {
    (void)state;
    static const int64_t shapes[][5] = {{3, 1, 64, 64},    {3, 3, 64, 64},    {2, 64, 64},       {4, 1, 3, 64, 64},
                                        {4, 8, 1, 64, 64}, {4, 8, 3, 64, 64}, {4, 1, 1, 64, 64}, {3, 3, 1, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s)
        for (int style = GEN_CONTIGUOUS; style <= GEN_ZERO_SECOND; ++style) {
            score_op x;
            const score_case p = {.attention = true,
                                  .dtype = dtypes[(s + (size_t)style) % 4],
                                  .block = 16,
                                  .z = 8,
                                  .h = 3,
                                  .m = 64,
                                  .n = 64,
                                  .d = 4,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.4}};
            score_make(&x, &p, NULL);
            add_rpe(&x, BSTK_F16, (int32_t)shapes[s][0], &shapes[s][1], (gen_style)style, s);
            score_check(&x);
            score_free(&x);
        }
}

/* Every term at once, in f64 to the last digits and in the other types. */
static void test_bc_109(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int style = GEN_CONTIGUOUS; style < GEN_STYLES; ++style) {
            score_op x;
            const score_case p = {.attention = true,
                                  .dtype = dtypes[d],
                                  .block = 16,
                                  .z = 2,
                                  .h = 4,
                                  .m = 39,
                                  .n = 50,
                                  .d = 16,
                                  .dv = 7,
                                  .kv_heads = 2,
                                  .in_style = (gen_style)style,
                                  .out_style = (gen_style)style,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.7}};
            score_make(&x, &p, NULL);
            x.terms.scale = -0.7;
            x.terms.causal = 1;
            x.terms.causal_offset = 11;
            add_rpe(&x, dtypes[d], 3, shape(4, 39, 50), (gen_style)style, 1);
            add_rel(&x, dtypes[3 - d], 4, shape(2, 1, 39, 20), (gen_style)style, 2);
            add_key_padding(&x, BSTK_U8, 2, shape(2, 50), (gen_style)style, 3);
            add_attn_mask(&x, dtypes[d], 4, shape(2, 4, 1, 50), (gen_style)style, 4);
            score_check(&x);
            score_free(&x);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bc_040), cmocka_unit_test(test_bc_049),
                                       cmocka_unit_test(test_bc_055), cmocka_unit_test(test_bc_057),
                                       cmocka_unit_test(test_bc_058), cmocka_unit_test(test_bc_059),
                                       cmocka_unit_test(test_bc_060), cmocka_unit_test(test_bc_070),
                                       cmocka_unit_test(test_bc_084), cmocka_unit_test(test_bc_109)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
