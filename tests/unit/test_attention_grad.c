/*
 * test_attention_grad.c: the gradient of attention against central differences of the forward in float64, through every
 * option; in all types, with incoming gradients of any strides; head sizes and grouped heads; what is not wanted is not
 * computed, and what is dropped is not looked at.
 */
#include "support/attention_case.h"
#include "support/cm.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bstk_layout *bernoulli(int64_t heads, int64_t m, int64_t n, int32_t block, double p, uint64_t seed) {
    const rule r = {.kind = RULE_BERNOULLI, .p = p, .seed = seed};
    return rule_layout(&r, heads, m, n, block);
}

static double at(const attention_case *c, int place, int64_t e) {
    const bstk_tensor *t = &c->a[place].t;
    return gen_load(t->dtype, t->data, gen_offset(t, e));
}

static void set(attention_case *c, int place, int64_t e, double value) {
    const bstk_tensor *t = &c->a[place].t;
    gen_store(t->dtype, t->data, gen_offset(t, e), value);
}

/* ---- central differences ----------------------------------------------------------------------------------------- */

/* The function whose gradient is taken: sum d_o . o + sum d_lse lse over the rows that keep something. */
static double loss(attention_case *c) {
    double sum = 0;
    attention_forward(c, NULL, NULL);
    for (int64_t e = 0; e < gen_count(&c->a[A_O].t); ++e)
        sum += at(c, A_D_O, e) * at(c, A_O, e);
    for (int64_t e = 0; e < gen_count(&c->a[A_LSE].t); ++e)
        sum += at(c, A_LSE, e) == -INFINITY ? 0 : at(c, A_D_LSE, e) * at(c, A_LSE, e);
    return sum;
}

/* Some elements of every input that has a gradient: steps of 1e-5 leave some 1e-9 of error in f64. */
static void check_differences(attention_case *c) {
    static const int pairs[][2] = {{A_Q, A_D_Q},       {A_K, A_D_K},        {A_V, A_D_V},
                                   {A_RPE, A_D_RPE},   {A_REL, A_D_REL},    {A_KEY_PADDING, A_D_KEY_PADDING},
                                   {A_ATTN, A_D_ATTN}, {A_SINKS, A_D_SINKS}};
    attention_forward(c, NULL, NULL);
    attention_backward(c, NULL);
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; ++k) {
        const int input = pairs[k][0], output = pairs[k][1];
        if (c->a[output].memory == NULL)
            continue;
        const int64_t count = gen_count(&c->a[input].t);
        double *grad = gen_doubles(&c->a[output].t); /* later runs do not touch it */
        assert_int_equal(count, gen_count(&c->a[output].t));
        bool moved = false;
        for (int64_t draw = 0; draw < (count < 16 ? count : 16); ++draw) {
            const int64_t e = count <= 16 ? draw : (int64_t)(gen_hash(c->seed, (uint64_t)draw) % (uint64_t)count);
            const double value = at(c, input, e), step = 1e-5;
            set(c, input, e, value + step);
            const double up = loss(c);
            set(c, input, e, value - step);
            const double down = loss(c), slope = (up - down) / (2 * step);
            set(c, input, e, value);
            if (!(fabs(slope - grad[e]) <= 3e-8 * (1 + fabs(slope))))
                fail_msg("%s: gradient %d, element %lld is %.12g, differences give %.12g", c->what, (int)k,
                         (long long)e, grad[e], slope);
            moved |= slope != 0;
        }
        if (!moved)
            fail_msg("%s: gradient %d is 0 in all places tried", c->what, (int)k);
        free(grad);
    }
}

static attention_case small(const char *what, uint64_t seed) {
    attention_case c = {.dtype = BSTK_F64,
                        .block = 8,
                        .z = 2,
                        .h = 4,
                        .kv_heads = 2,
                        .m = 26,
                        .n = 31,
                        .d = 5,
                        .dv = 3,
                        .k_batches = 1,
                        .seed = 100 * seed};
    snprintf(c.what, sizeof c.what, "differences %s", what);
    attention_make(&c, bernoulli(seed % 2 ? 4 : 1, c.m, c.n, 8, 0.7, seed + 1));
    return c;
}

static void test_differences(void **state) {
    (void)state;
    for (int option = 0; option < 16; ++option) {
        char what[32];
        snprintf(what, sizeof what, "option %d", option);
        attention_case c = small(what, (uint64_t)option);
        bstk_score_terms *t = &c.terms;
        const bool all = option == 15; /* together */
        if (option == 1 || all)
            t->causal = t->bottom_right = 1;
        if (option == 2)
            t->window_left = t->window_right = 6;
        if (option == 3 || all)
            t->softcap = 0.8;
        if (option == 4 || all)
            attention_add(&c, A_RPE, BSTK_F64, 4, shape(2, 4, 26, 31), GEN_CONTIGUOUS, true);
        if (option == 5)
            attention_add(&c, A_RPE, BSTK_F64, 3, shape(1, 26, 31), GEN_TRANSPOSED, true);
        if (option == 6 || all)
            attention_add(&c, A_REL, BSTK_F64, 4, shape(2, 4, 26, 30), GEN_CONTIGUOUS, true);
        if (option == 7)
            attention_add(&c, A_REL, BSTK_F64, 3, shape(4, 1, 40), GEN_CONTIGUOUS, true);
        if (option == 8 || all)
            attention_add(&c, A_ATTN, BSTK_F64, 3, shape(2, 26, 31), GEN_CONTIGUOUS, true);
        if (option == 9)
            attention_add(&c, A_ATTN, BSTK_F64, 4, shape(1, 4, 1, 31), GEN_CONTIGUOUS, true);
        if (option == 10 || all)
            attention_add(&c, A_KEY_PADDING, BSTK_F64, 2, shape(2, 31), GEN_CONTIGUOUS, true);
        if (option == 11 || all)
            attention_add(&c, A_SINKS, BSTK_F64, 1, shape(4), GEN_CONTIGUOUS, true);
        if (option == 12 || all) {
            t->dropout = 0.4;
            t->dropout_seed = 5;
        }
        if (option == 13 || all)
            attention_add(&c, A_SLOPES, BSTK_F64, 1, shape(4), GEN_CONTIGUOUS, false);
        if (option == 14)
            t->scale = 1.5;
        check_differences(&c);
        attention_free(&c);
    }
}

/* ---- types, strides, heads, head sizes --------------------------------------------------------------------------- */

/* d_o as a sum gives it (one element for all) and as a transposition gives it. */
static void test_incoming_strides(void **state) {
    (void)state;
    static const bstk_dtype types[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};
    for (int type = 0; type < 4; ++type)
        for (int way = 0; way < 4; ++way) {
            attention_case c = {.dtype = types[type],
                                .block = 16,
                                .z = 2,
                                .h = 3,
                                .kv_heads = 1,
                                .m = 50,
                                .n = 70,
                                .d = 24,
                                .dv = 16,
                                .seed = (uint64_t)way};
            snprintf(c.what, sizeof c.what, "incoming %d of %s", way, bstk_dtype_name(types[type]));
            attention_make(&c, bernoulli(3, c.m, c.n, 16, 0.5, 3));
            static const gen_style styles[] = {GEN_ZERO_FIRST, GEN_ZERO_SECOND, GEN_TRANSPOSED, GEN_SHUFFLED};
            gen_array_free(&c.a[A_D_O]);
            make_array(&c.a[A_D_O], c.dtype, 4, shape(2, 3, 50, 16), styles[way], GEN_UNIFORM, 8);
            if (way == 0) { /* stride 0 along every axis */
                memset(c.a[A_D_O].t.stride, 0, sizeof c.a[A_D_O].t.stride);
                memset(c.a[A_D_LSE].t.stride, 0, sizeof c.a[A_D_LSE].t.stride);
            }
            attention_check(&c);
            attention_free(&c);
        }
}

static void test_head_sizes(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 8, 24, 33, 64, 80, 129, 192, 256};
    static const bstk_dtype types[] = {BSTK_F32, BSTK_F16, BSTK_BF16, BSTK_F64};
    for (int k = 0; k < 9; ++k) {
        attention_case c = {.dtype = types[k % 4], .block = 16, .m = 40, .n = 36, .d = sizes[k], .dv = sizes[8 - k]};
        snprintf(c.what, sizeof c.what, "D %lld, Dv %lld", (long long)c.d, (long long)c.dv);
        attention_make(&c, bernoulli(1, c.m, c.n, 16, 0.8, 3));
        attention_check(&c);
        attention_free(&c);
    }
}

/* Blocks longer than a tile, and rows with several tiles in which the maximum rises. */
static void test_long_blocks(void **state) {
    (void)state;
    static const int32_t blocks[] = {64, 72, 128, 256};
    for (int k = 0; k < 8; ++k) {
        attention_case c = {
            .dtype = k % 2 ? BSTK_F32 : BSTK_F16, .block = blocks[k / 2], .m = 150, .n = 330, .d = 9, .size = 4};
        snprintf(c.what, sizeof c.what, "block %d", (int)c.block);
        attention_make(&c, bernoulli(1, c.m, c.n, c.block, 1, 3));
        c.terms.causal = k % 2;
        c.terms.bottom_right = 1;
        attention_check(&c);
        attention_free(&c);
    }
}

static void test_sizes_of_nothing(void **state) {
    (void)state;
    for (int k = 0; k < 5; ++k) {
        attention_case c = {.dtype = BSTK_F32, .block = 16, .z = 2, .h = 2, .m = 20, .n = 30, .d = 4};
        const rule ones = {.kind = RULE_ONES};
        if (k == 0)
            c.m = 0;
        if (k == 1)
            c.n = 0;
        attention_make(&c, rule_layout(&ones, 1, c.m, c.n, 16));
        if (k == 2) { /* no batch: gradients of shared k and v are sums of nothing */
            for (int place = A_Q; place < A_COUNT; ++place)
                if (place != A_K && place != A_V && place != A_D_K && place != A_D_V && c.a[place].memory)
                    c.a[place].t.shape[0] = 0;
            c.a[A_K].t.shape[0] = c.a[A_V].t.shape[0] = c.a[A_D_K].t.shape[0] = c.a[A_D_V].t.shape[0] = 1;
            c.z = 0;
        }
        snprintf(c.what, sizeof c.what, "nothing %d", k);
        if (k == 3)
            attention_add(&c, A_REL, BSTK_F32, 4, shape(2, 2, 20, 0), GEN_CONTIGUOUS, true);
        if (k == 4)
            attention_add(&c, A_REL, BSTK_F32, 4, shape(2, 2, 1, 0), GEN_CONTIGUOUS, true);
        attention_check(&c);
        attention_free(&c);
    }
}

/* Each gradient alone has the bits that it has beside the others. */
static void test_each_alone(void **state) {
    (void)state;
    attention_case c = {.dtype = BSTK_F32, .block = 16, .z = 2, .h = 2, .m = 60, .n = 50, .d = 8, .v_batches = 1};
    attention_make(&c, bernoulli(2, c.m, c.n, 16, 0.6, 3));
    attention_add(&c, A_RPE, BSTK_F32, 4, shape(2, 2, 60, 50), GEN_CONTIGUOUS, true);
    attention_add(&c, A_SINKS, BSTK_F32, 1, shape(2), GEN_CONTIGUOUS, true);
    attention_forward(&c, NULL, NULL);
    attention_backward(&c, NULL);
    unsigned char *all[A_COUNT] = {NULL};
    gen_array kept[A_COUNT];
    memcpy(kept, c.a, sizeof kept);
    for (int k = A_D_Q; k < A_COUNT; ++k)
        all[k] = c.a[k].memory ? gen_snapshot(&c.a[k]) : NULL;
    for (int k = A_D_Q; k < A_COUNT; ++k) {
        if (all[k] == NULL)
            continue;
        for (int other = A_D_Q; other < A_COUNT; ++other)
            c.a[other] = other == k ? kept[k] : (gen_array){.memory = NULL};
        attention_backward(&c, NULL);
        if (!gen_unchanged(&c.a[k], all[k]))
            fail_msg("gradient %d alone has other bits", k);
        memcpy(c.a, kept, sizeof kept);
        free(all[k]);
    }
    attention_free(&c);
}

/* ---- NaN --------------------------------------------------------------------------------------------------------- */

/* A NaN in a kept place spreads to what hangs on it, and to nothing else: the reference says where. */
static void test_live_nan(void **state) {
    (void)state;
    static const int places[] = {A_Q, A_K, A_V, A_D_O, A_D_LSE, A_RPE, A_SINKS};
    for (int k = 0; k < 7; ++k)
        for (int dropout = 0; dropout < 2; ++dropout) {
            attention_case c = {.dtype = BSTK_F32, .block = 16, .h = 2, .m = 40, .n = 40, .d = 8};
            snprintf(c.what, sizeof c.what, "NaN %d%s", k, dropout ? " with dropout" : "");
            attention_make(&c, bernoulli(2, c.m, c.n, 16, 0.7, 3));
            c.terms.causal = 1;
            c.terms.dropout = dropout ? 0.5 : 0;
            attention_add(&c, A_RPE, BSTK_F32, 2, shape(40, 40), GEN_CONTIGUOUS, true);
            attention_add(&c, A_SINKS, BSTK_F32, 1, shape(2), GEN_CONTIGUOUS, true);
            set(&c, places[k], places[k] == A_SINKS ? 1 : places[k] == A_RPE ? 20 * 40 + 9 : 7 * 8 + 3, NAN);
            attention_check(&c);
            attention_free(&c);
        }
}

/* Rows that keep nothing: their q, d_o and d_lse may hold anything. Keys that no row keeps: their k and v. */
static void test_dropped_nan(void **state) {
    (void)state;
    for (int sinks = 0; sinks < 2; ++sinks)
        for (int spoiled = 0; spoiled < 2; ++spoiled) {
            attention_case c = {.dtype = BSTK_F32, .block = 16, .h = 2, .kv_heads = 1, .m = 40, .n = 50, .d = 8};
            snprintf(c.what, sizeof c.what, "dropped NaN, sinks %d", sinks);
            attention_make(&c, bernoulli(2, c.m, c.n, 16, 1, 3));
            attention_add(&c, A_KEY_PADDING, BSTK_BOOL, 1, shape(50), GEN_CONTIGUOUS, false);
            attention_add(&c, A_ATTN, BSTK_F32, 2, shape(40, 50), GEN_CONTIGUOUS, true);
            if (sinks)
                attention_add(&c, A_SINKS, BSTK_F32, 1, shape(2), GEN_CONTIGUOUS, true);
            for (int64_t j = 0; j < 50; ++j) {
                set(&c, A_ATTN, 9 * 50 + j, -INFINITY);
                for (int64_t e = 0; spoiled && at(&c, A_KEY_PADDING, j) == 0 && e < 8; ++e) {
                    set(&c, A_K, j * 8 + e, e % 2 ? NAN : INFINITY);
                    set(&c, A_V, j * 8 + e, e % 2 ? NAN : -INFINITY);
                }
            }
            for (int64_t h = 0; spoiled && h < 2; ++h)
                for (int64_t e = 0; e < 8; ++e) { /* row 9 */
                    set(&c, A_Q, (h * 40 + 9) * 8 + e, NAN);
                    set(&c, A_D_O, (h * 40 + 9) * 8 + e, NAN);
                }
            for (int64_t h = 0; spoiled && !sinks && h < 2; ++h)
                set(&c, A_D_LSE, h * 40 + 9, NAN);
            attention_check(&c);
            attention_free(&c);
        }
}

/* A row whose scores are all -inf is dead too, though no mask drops anything of its blocks. */
static void test_dead_by_infinity(void **state) {
    (void)state;
    static const bstk_dtype dtypes[] = {BSTK_F32, BSTK_F64, BSTK_F16, BSTK_BF16};
    for (int k = 0; k < 4; ++k) {
        attention_case c = {.dtype = dtypes[k], .block = 16, .h = 2, .m = 40, .n = 30, .d = 8};
        snprintf(c.what, sizeof c.what, "dead by infinity");
        attention_make(&c, bernoulli(1, c.m, c.n, 16, 1, 3));
        for (int64_t j = 0; j < 30; ++j)
            set(&c, A_K, j * 8, INFINITY);
        set(&c, A_Q, 9 * 8, -1);
        attention_check(&c);
        for (int64_t e = 0; e < 8; ++e)
            assert_true(at(&c, A_D_Q, 9 * 8 + e) == 0);
        attention_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),      cmocka_unit_test(test_incoming_strides),
        cmocka_unit_test(test_head_sizes),       cmocka_unit_test(test_long_blocks),
        cmocka_unit_test(test_sizes_of_nothing), cmocka_unit_test(test_each_alone),
        cmocka_unit_test(test_live_nan),         cmocka_unit_test(test_dropped_nan),
        cmocka_unit_test(test_dead_by_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
