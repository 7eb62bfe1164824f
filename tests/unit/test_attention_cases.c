/*
 * test_attention_cases.c: problems that users of block-sparse attention met (their numbers stand beside each test),
 * forward and backward, and determinism on problems that are cut into many tasks.
 */
#include "support/attention_case.h"
#include "support/cm.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double at(const attention_case *c, int place, int64_t e) {
    const bstk_tensor *t = &c->a[place].t;
    return gen_load(t->dtype, t->data, gen_offset(t, e));
}

static void set(attention_case *c, int place, int64_t e, double value) {
    const bstk_tensor *t = &c->a[place].t;
    gen_store(t->dtype, t->data, gen_offset(t, e), value);
}

static bstk_layout *matrix_layout(const uint8_t *blocks, int64_t m, int64_t n, int32_t block) {
    const rule r = {.kind = RULE_MATRIX, .matrix = blocks};
    return rule_layout(&r, 1, m, n, block);
}

/* Snapshots of all outputs, and whether they are the same now. */
static void keep(attention_case *c, unsigned char *copies[A_COUNT]) {
    for (int k = A_OUTPUTS; k < A_COUNT; ++k)
        copies[k] = c->a[k].memory ? gen_snapshot(&c->a[k]) : NULL;
}

static void assert_kept(attention_case *c, unsigned char *copies[A_COUNT]) {
    for (int k = A_OUTPUTS; k < A_COUNT; ++k)
        if (copies[k] && !gen_unchanged(&c->a[k], copies[k]))
            fail_msg("%s: output %d has other bits", c->what, k);
}

static void drop(unsigned char *copies[A_COUNT]) {
    for (int k = A_OUTPUTS; k < A_COUNT; ++k)
        free(copies[k]);
}

/* BC-019: empty block rows are 0 with lse = -inf, the others dense attention. */
static void test_empty_rows(void **state) {
    (void)state;
    const uint8_t blocks[16] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    attention_case c = {.dtype = BSTK_F16, .block = 64, .m = 256, .n = 256, .d = 64, .what = "empty rows"};
    attention_make(&c, matrix_layout(blocks, 256, 256, 64));
    attention_check(&c);
    for (int64_t i = 64; i < 128; ++i) {
        assert_true(at(&c, A_LSE, i) == -INFINITY);
        for (int64_t e = 0; e < 64; ++e)
            assert_true(at(&c, A_O, i * 64 + e) == 0 && at(&c, A_D_Q, i * 64 + e) == 0);
    }
    attention_free(&c);
}

/* BC-021: d_o of empty rows is never looked at. */
static void test_empty_rows_backward(void **state) {
    (void)state;
    const uint8_t blocks[16] = {1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0};
    unsigned char *copies[A_COUNT];
    attention_case c = {.dtype = BSTK_F32, .block = 16, .m = 64, .n = 64, .d = 32, .what = "d_o of empty rows"};
    attention_make(&c, matrix_layout(blocks, 64, 64, 16));
    attention_check(&c);
    keep(&c, copies);
    for (int64_t i = 16; i < 32; ++i)
        for (int64_t e = 0; e < 32; ++e)
            set(&c, A_D_O, i * 32 + e, NAN);
    attention_backward(&c, NULL);
    assert_kept(&c, copies);
    drop(copies);
    attention_free(&c);
}

/* BC-023, BC-024: no block at all; one head without blocks beside others. */
static void test_empty_heads(void **state) {
    (void)state;
    static const rule rules[] = {{.kind = RULE_ZEROS}, {.kind = RULE_MIXED}};
    for (int k = 0; k < 4; ++k) {
        attention_case c = {
            .dtype = k % 2 ? BSTK_F32 : BSTK_F16, .block = 16, .z = 2, .h = 3, .m = 64, .n = 64, .d = 32};
        snprintf(c.what, sizeof c.what, "empty heads %d", k);
        attention_make(&c, rule_layout(&rules[k / 2], k % 2 ? 3 : k / 2 ? 3 : 1, 64, 64, 16));
        attention_check(&c);
        attention_free(&c);
    }
}

/* BC-040: blocks that a token mask touches are wholly kept without the mask, and partly with it. */
static void test_token_mask(void **state) {
    (void)state;
    static const int64_t starts[] = {0, 37, 150, 200, 256};
    uint8_t blocks[16] = {0}, *tokens = calloc(256, 256);
    assert_non_null(tokens);
    for (int s = 0; s < 4; ++s)
        for (int64_t i = starts[s]; i < starts[s + 1]; ++i)
            for (int64_t j = starts[s]; j < starts[s + 1]; ++j)
                tokens[i * 256 + j] = blocks[i / 64 * 4 + j / 64] = 1;
    double o[3];
    for (int k = 0; k < 3; ++k) {
        attention_case c = {.dtype = BSTK_F32, .block = 64, .m = 256, .n = 256, .d = 16, .seed = 4};
        snprintf(c.what, sizeof c.what, "token mask %d", k);
        const bstk_tensor mask = bstk_tensor_make(tokens, BSTK_U8, 2, shape(256, 256));
        bstk_layout *layout = NULL;
        if (k == 2)
            ok(bstk_layout_from_dense_mask(NULL, &mask, 64, &layout));
        attention_make(&c, k == 2 ? layout : matrix_layout(blocks, 256, 256, 64));
        if (k == 1) {
            attention_add(&c, A_ATTN, BSTK_U8, 2, shape(256, 256), GEN_CONTIGUOUS, false);
            memcpy(c.a[A_ATTN].t.data, tokens, (size_t)256 * 256);
        }
        attention_check(&c);
        o[k] = at(&c, A_O, 40 * 16);
        attention_free(&c);
    }
    assert_true(o[0] != o[1] && o[1] == o[2]);
    free(tokens);
}

/* BC-049: causal twice, by the flag and by an additive mask, is causal once. */
static void test_causal_twice(void **state) {
    (void)state;
    const rule tril = {.kind = RULE_TRIL};
    for (int64_t m = 16; m <= 640; m += 16)
        for (int32_t block = 16; block <= 64; block += 48) {
            unsigned char *copies[A_COUNT];
            attention_case c = {.dtype = BSTK_F16, .block = block, .m = m, .n = m, .d = 64, .seed = (uint64_t)m};
            snprintf(c.what, sizeof c.what, "causal twice, %lld", (long long)m);
            attention_make(&c, rule_layout(&tril, 1, m, m, block));
            c.terms.causal = 1;
            attention_forward(&c, NULL, NULL);
            keep(&c, copies);
            attention_add(&c, A_ATTN, BSTK_F16, 2, shape(m, m), GEN_CONTIGUOUS, false);
            for (int64_t e = 0; e < m * m; ++e)
                set(&c, A_ATTN, e, e % m > e / m ? -INFINITY : 0);
            for (int flag = 1; flag >= 0; --flag) {
                c.terms.causal = flag;
                attention_forward(&c, NULL, NULL);
                assert_kept(&c, copies);
            }
            drop(copies);
            attention_free(&c);
        }
}

/* BC-055: a padding mask is of keys, of its own batch item. */
static void test_padding(void **state) {
    (void)state;
    const rule ones = {.kind = RULE_ONES};
    attention_case c = {.dtype = BSTK_F32, .block = 16, .z = 2, .h = 2, .m = 32, .n = 48, .d = 16, .what = "padding"};
    attention_make(&c, rule_layout(&ones, 1, 32, 48, 16));
    attention_add(&c, A_KEY_PADDING, BSTK_U8, 2, shape(2, 48), GEN_CONTIGUOUS, false);
    for (int64_t e = 0; e < 96; ++e)
        set(&c, A_KEY_PADDING, e, e < 48 || e - 48 < 30);
    attention_check(&c);
    uint8_t rows[64] = {0};
    const bstk_tensor wrong = bstk_tensor_make(rows, BSTK_U8, 2, shape(2, 32));
    bstk_attention_desc d = attention_desc(&c);
    d.terms.key_padding_mask = &wrong;
    refused(bstk_attention(NULL, &d), BSTK_ERR_INVALID,
            "attention: key_padding_mask has columns 32, expected 48; accepted shapes: [N], [Z, N], [1, N]");
    attention_free(&c);
}

/* BC-057: a mask that is an odd slice of a larger one. */
static void test_sliced_mask(void **state) {
    (void)state;
    const rule ones = {.kind = RULE_ONES};
    static const bstk_dtype types[] = {BSTK_U8, BSTK_F16, BSTK_I16};
    for (int k = 0; k < 3; ++k) {
        attention_case c = {.dtype = BSTK_F16, .block = 16, .h = 2, .m = 48, .n = 48, .d = 32, .what = "sliced mask"};
        attention_make(&c, rule_layout(&ones, 1, 48, 48, 16));
        attention_add(&c, A_ATTN, types[k], 2, shape(48, 53), GEN_CONTIGUOUS, false);
        bstk_tensor *t = &c.a[A_ATTN].t;
        t->shape[1] = 48;
        t->data = (char *)t->data + bstk_dtype_size(types[k]);
        if (k == 2)
            c.terms.attn_mode = BSTK_MASK_MUL;
        attention_check(&c);
        attention_free(&c);
    }
}

/* BC-060: large values at masked keys; their gradients are exactly 0. */
static void test_masked_keys(void **state) {
    (void)state;
    const rule r = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = 0, .ensure_diag = true};
    attention_case c = {.dtype = BSTK_BF16, .block = 64, .h = 2, .m = 192, .n = 192, .d = 128, .what = "masked keys"};
    attention_make(&c, rule_layout(&r, 2, 192, 192, 64));
    attention_add(&c, A_KEY_PADDING, BSTK_BOOL, 1, shape(192), GEN_CONTIGUOUS, false);
    for (int64_t j = 0; j < 192; ++j) {
        const bool kept = j % 64 < 16 + j / 64 * 20;
        set(&c, A_KEY_PADDING, j, kept);
        for (int64_t h = 0; h < 2 && !kept; ++h)
            for (int64_t e = 0; e < 128; ++e)
                set(&c, A_K, (h * 192 + j) * 128 + e, 1e4);
    }
    attention_check(&c);
    for (int64_t e = 0; e < 2 * 192 * 128; ++e)
        if (at(&c, A_KEY_PADDING, e / 128 % 192) == 0)
            assert_true(at(&c, A_D_K, e) == 0 && at(&c, A_D_V, e) == 0);
    attention_free(&c);
}

/* BC-068: scores up to 1e4, rising, falling, constant, with one far above the rest. */
static void test_large_scores(void **state) {
    (void)state;
    const rule ones = {.kind = RULE_ONES};
    for (int k = 0; k < 10; ++k) {
        attention_case c = {.dtype = k % 2 ? BSTK_F32 : BSTK_F16, .block = 16, .h = 2, .m = 64, .n = 64, .d = 64};
        snprintf(c.what, sizeof c.what, "large scores %d", k);
        c.size = 60;
        attention_make(&c, rule_layout(&ones, 1, 64, 64, 16));
        c.terms.scale = 0.125;
        for (int64_t e = 0; k >= 2 && e < 2 * 64 * 64; ++e) {
            const double j = (double)(e / 64 % 64);
            set(&c, A_Q, e, 1);
            set(&c, A_K, e, k < 4 ? j * 16 : k < 6 ? 1000 - j * 16 : k < 8 ? 500 : j == 40 ? 1000 : 0);
        }
        attention_check(&c);
        attention_free(&c);
    }
}

/* BC-070: keys and values of absent blocks are not read, those of masked keys not used. */
static void test_nan_in_absent(void **state) {
    (void)state;
    const uint8_t blocks[16] = {1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1};
    for (int k = 0; k < 2; ++k) {
        unsigned char *copies[A_COUNT];
        const rule ones = {.kind = RULE_ONES};
        attention_case c = {.dtype = BSTK_F32, .block = 16, .m = 64, .n = 64, .d = 16};
        snprintf(c.what, sizeof c.what, "NaN in absent %d", k);
        attention_make(&c, k ? rule_layout(&ones, 1, 64, 64, 16) : matrix_layout(blocks, 64, 64, 16));
        if (k) {
            attention_add(&c, A_KEY_PADDING, BSTK_BOOL, 1, shape(64), GEN_CONTIGUOUS, false);
            set(&c, A_KEY_PADDING, 5, 0);
        }
        attention_check(&c);
        keep(&c, copies);
        for (int64_t j = k ? 5 : 32; j < (k ? 6 : 48); ++j)
            for (int64_t e = 0; e < 16; ++e) {
                set(&c, A_K, j * 16 + e, NAN);
                set(&c, A_V, j * 16 + e, NAN);
            }
        attention_check(&c);
        assert_kept(&c, copies);
        drop(copies);
        attention_free(&c);
    }
}

/* BC-074: 16384 equal weights add up to 1. */
static void test_many_keys(void **state) {
    (void)state;
    const rule ones = {.kind = RULE_ONES};
    for (int k = 0; k < 2; ++k) {
        attention_case c = {
            .dtype = k ? BSTK_F16 : BSTK_BF16, .block = 16, .m = 16, .n = 16384, .d = 64, .what = "many keys"};
        attention_make(&c, rule_layout(&ones, 1, 16, 16384, 16));
        for (int64_t e = 0; e < 16 * 64; ++e)
            set(&c, A_Q, e, 0);
        for (int64_t e = 0; e < 16384 * 64; ++e)
            set(&c, A_V, e, 1);
        attention_forward(&c, NULL, NULL);
        for (int64_t e = 0; e < 16 * 64; ++e)
            assert_true(at(&c, A_O, e) == 1);
        assert_true(fabs(at(&c, A_LSE, 3) - log(16384)) < 1e-5);
        attention_free(&c);
    }
}

/* BC-080: k a slice, q permuted, v contiguous: gradients as if all were contiguous. */
static void test_mixed_strides(void **state) {
    (void)state;
    const rule r = {.kind = RULE_BERNOULLI, .p = 0.3, .seed = 0, .ensure_row = true};
    attention_case c = {.dtype = BSTK_F16, .block = 64, .h = 4, .m = 256, .n = 192, .d = 64, .what = "mixed strides"};
    unsigned char *copies[A_COUNT];
    attention_make(&c, rule_layout(&r, 4, 256, 192, 64));
    attention_forward(&c, NULL, NULL);
    attention_backward(&c, NULL);
    keep(&c, copies);
    static const gen_style styles[] = {GEN_SHUFFLED, GEN_PADDED};
    for (int place = A_Q; place <= A_K; ++place) {
        gen_array moved;
        make_array(&moved, BSTK_F16, 4, c.a[place].t.shape, styles[place], GEN_ZEROS, 3);
        for (int64_t e = 0; e < gen_count(&moved.t); ++e)
            gen_store(BSTK_F16, moved.t.data, gen_offset(&moved.t, e), at(&c, place, e));
        gen_array_free(&c.a[place]);
        c.a[place] = moved;
    }
    attention_forward(&c, NULL, NULL);
    attention_backward(&c, NULL);
    assert_kept(&c, copies);
    drop(copies);
    attention_free(&c);
}

/* BC-084: biases of one batch item or head, and repeated by stride 0. */
static void test_broadcast_bias(void **state) {
    (void)state;
    const rule ones = {.kind = RULE_ONES};
    const int64_t shapes[4][4] = {{1, 1, 64, 64}, {1, 3, 64, 64}, {8, 3, 64, 64}, {8, 1, 64, 64}};
    for (int k = 0; k < 4; ++k) {
        attention_case c = {.dtype = BSTK_F16, .block = 16, .z = 8, .h = 3, .m = 64, .n = 64, .d = 16};
        snprintf(c.what, sizeof c.what, "broadcast bias %d", k);
        attention_make(&c, rule_layout(&ones, 1, 64, 64, 16));
        attention_add(&c, A_RPE, BSTK_F16, 4, shapes[k], k == 2 ? GEN_ZERO_FIRST : GEN_CONTIGUOUS, true);
        attention_check(&c);
        attention_free(&c);
    }
}

/* BC-089: lse and its gradient at one length after another. */
static void test_lengths(void **state) {
    (void)state;
    static const int64_t lengths[] = {124, 256, 300};
    for (int k = 0; k < 3; ++k) {
        const rule r = {.kind = RULE_BANDED, .reach = 1};
        attention_case c = {.dtype = BSTK_F32, .block = 64, .h = 2, .m = lengths[k], .n = lengths[k], .d = 64};
        snprintf(c.what, sizeof c.what, "length %lld", (long long)c.m);
        attention_make(&c, rule_layout(&r, 1, c.m, c.n, 64));
        attention_check(&c);
        attention_free(&c);
    }
}

/* BC-093: blocks only at an edge. */
static void test_extreme_layouts(void **state) {
    (void)state;
    static const rule rules[] = {{.kind = RULE_LAST_COLUMN},   {.kind = RULE_FIRST_COLUMN},
                                 {.kind = RULE_LAST_ROW},      {.kind = RULE_FIRST_ROW},
                                 {.kind = RULE_ANTI_DIAGONAL}, {.kind = RULE_SINGLE, .at_row = 3, .at_col = 0}};
    for (int k = 0; k < 6; ++k) {
        attention_case c = {.dtype = BSTK_F16, .block = 64, .h = 2, .m = 256, .n = 256, .d = 32};
        snprintf(c.what, sizeof c.what, "extreme layout %d", k);
        attention_make(&c, rule_layout(&rules[k], 1, 256, 256, 64));
        attention_check(&c);
        attention_free(&c);
    }
}

/* BC-096: the same bits on every run and for any number of threads, where each cuts the work otherwise. */
static void test_deterministic(void **state) {
    (void)state;
    const rule tril = {.kind = RULE_TRIL};
    const int32_t counts[] = {1, 2, 7, 7, 3};
    unsigned char *copies[A_COUNT];
    attention_case c = {.dtype = BSTK_BF16,
                        .block = 64,
                        .z = 2,
                        .h = 4,
                        .kv_heads = 2,
                        .m = 448,
                        .n = 448,
                        .d = 32,
                        .k_batches = 1,
                        .v_batches = 1,
                        .what = "deterministic"};
    attention_make(&c, rule_layout(&tril, 1, 448, 448, 64));
    c.terms.causal = 1;
    attention_add(&c, A_RPE, BSTK_F32, 3, shape(4, 448, 448), GEN_CONTIGUOUS, true);
    attention_add(&c, A_REL, BSTK_F32, 3, shape(4, 1, 2000), GEN_CONTIGUOUS, true);
    attention_add(&c, A_KEY_PADDING, BSTK_F32, 1, shape(448), GEN_CONTIGUOUS, true);
    attention_add(&c, A_SINKS, BSTK_F32, 1, shape(4), GEN_CONTIGUOUS, true);
    for (int k = 0; k < 5; ++k) {
        bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
        bstk_context *ctx = NULL;
        opts.num_threads = counts[k];
        ok(bstk_context_create(&opts, &ctx));
        attention_forward(&c, ctx, NULL);
        attention_backward(&c, ctx);
        bstk_context_release(ctx);
        if (k == 0)
            keep(&c, copies);
        else
            assert_kept(&c, copies);
    }
    drop(copies);
    attention_free(&c);
}

/* BC-114: the sparse answer is not the dense one. */
static void test_not_dense(void **state) {
    (void)state;
    static const rule rules[] = {{.kind = RULE_FIRST_COLUMN}, {.kind = RULE_ONES}};
    double o[2][2000], most = 0;
    for (int k = 0; k < 2; ++k) {
        attention_case c = {.dtype = BSTK_F16, .block = 64, .h = 2, .m = 512, .n = 512, .d = 64, .what = "not dense"};
        attention_make(&c, rule_layout(&rules[k], 1, 512, 512, 64));
        if (k == 0)
            attention_check(&c);
        else
            attention_forward(&c, NULL, NULL);
        for (int64_t e = 0; e < 2000; ++e)
            o[k][e] = at(&c, A_O, e);
        attention_free(&c);
    }
    for (int e = 0; e < 2000; ++e)
        most = fmax(most, fabs(o[0][e] - o[1][e]));
    assert_true(most > 0.1);
}

/*
 * Every kernel on blocks that are cut into steps or share one, ragged edges of an odd number of keys, and a NaN or an
 * infinity in each third key and value, which is dropped: what an earlier run with numbers there gave must come again.
 */
static void test_steps(void **state) {
    (void)state;
    static const bstk_dtype types[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};
    static const int32_t blocks[] = {8, 40, 136, 200, 256};
    for (int b = 0; b < 5; ++b)
        for (int type = 0; type < 4; ++type) {
            score_op x;
            const int64_t n = blocks[b] + 77;
            const score_case p = {.attention = true,
                                  .dtype = types[type],
                                  .block = blocks[b],
                                  .h = 2,
                                  .m = blocks[b] + 19,
                                  .n = n,
                                  .d = 33,
                                  .dv = 17,
                                  .seed = (uint64_t)(4 * b + type),
                                  .layout = {.kind = RULE_ONES}};
            score_make(&x, &p, NULL);
            add_key_padding(&x, BSTK_U8, 1, &n, GEN_CONTIGUOUS, 1);
            for (int64_t j = 0; j < n; ++j)
                gen_store(BSTK_U8, x.key_padding.t.data, j, j % 3 != 0);
            x.terms.causal = b % 2;
            x.terms.causal_offset = 50;
            x.terms.dropout = type % 2 ? 0.25 : 0;
            score_run(&x);
            unsigned char *clean = gen_snapshot(&x.out);
            for (int64_t e = 0; e < gen_count(&x.k.t); ++e)
                if (e / p.d % n % 3 == 0)
                    gen_store(p.dtype, x.k.t.data, gen_offset(&x.k.t, e), e % 2 ? NAN : INFINITY);
            for (int64_t e = 0; e < gen_count(&x.v.t); ++e)
                if (e / p.dv % n % 3 == 0)
                    gen_store(p.dtype, x.v.t.data, gen_offset(&x.v.t, e), e % 2 ? NAN : -INFINITY);
            score_check(&x);
            assert_true(gen_unchanged(&x.out, clean));
            free(clean);
            score_free(&x);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_rows),      cmocka_unit_test(test_empty_rows_backward),
        cmocka_unit_test(test_empty_heads),     cmocka_unit_test(test_token_mask),
        cmocka_unit_test(test_causal_twice),    cmocka_unit_test(test_padding),
        cmocka_unit_test(test_sliced_mask),     cmocka_unit_test(test_masked_keys),
        cmocka_unit_test(test_large_scores),    cmocka_unit_test(test_nan_in_absent),
        cmocka_unit_test(test_many_keys),       cmocka_unit_test(test_mixed_strides),
        cmocka_unit_test(test_broadcast_bias),  cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_extreme_layouts), cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_steps),           cmocka_unit_test(test_not_dense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
