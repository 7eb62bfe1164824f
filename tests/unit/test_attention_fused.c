/*
 * test_attention_fused.c: the fused attention and its gradient against a dense float64 reference and against the
 * composed way: every option alone, then random combinations of options, shapes, strides and types (a failure names its
 * seed).
 */
#include "support/attention_case.h"
#include "support/cm.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layout from a mask of elements in which `keep` of the elements are kept: partly kept blocks. */
static bstk_layout *element_layout(int64_t heads, int64_t m, int64_t n, int32_t block, double keep, uint64_t seed) {
    const int64_t count = heads * m * n;
    uint8_t *mask = malloc((size_t)count + 1);
    assert_non_null(mask);
    for (int64_t e = 0; e < count; ++e) {
        const int64_t i = e / n % m, j = e % n; /* whole 40 x 40 areas dropped, whole ones kept, some partly */
        const double area = gen_unit(seed, (uint64_t)(e / n / m * 1000 + i / 40 * 30 + j / 40));
        mask[e] = area < 0.3 ? 0 : area < 0.6 ? 1 : gen_unit(seed + 1, (uint64_t)e) < keep;
    }
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape(heads, m, n));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_dense_mask(NULL, &t, block, &layout));
    free(mask);
    return layout;
}

static bstk_layout *bernoulli(int64_t heads, int64_t m, int64_t n, int32_t block, double p, uint64_t seed) {
    const rule r = {.kind = RULE_BERNOULLI, .p = p, .seed = seed};
    return rule_layout(&r, heads, m, n, block);
}

/* ---- one option at a time ---------------------------------------------------------------------------------------- */

enum {
    PLAIN,
    CAUSAL,
    CAUSAL_BOTTOM,
    CAUSAL_UP,
    CAUSAL_DOWN,
    WINDOW,
    WINDOW_LEFT,
    WINDOW_RIGHT,
    ELEMENTS,
    BOOL_KEYS,
    ADD_KEYS,
    MUL_KEYS,
    BOOL_MASK,
    ADD_MASK,
    MUL_MASK,
    KEY_MASK, /* attn_mask of one row */
    RPE,
    RPE_KEYS, /* rpe of one row */
    REL,
    REL_SHORT,
    REL_SHARED, /* of one row */
    ALIBI,
    SOFTCAP,
    SINKS,
    DOCUMENTS,
    VARLEN,
    DROPOUT,
    DROP_ALL,
    SCALED,
    OPTIONS
};

static const char *const option_names[OPTIONS] = {
    "plain",     "causal",   "causal_bottom", "causal_up", "causal_down", "window",   "window_left", "window_right",
    "elements",  "keys",     "add_keys",      "mul_keys",  "mask",        "add_mask", "mul_mask",    "key_mask",
    "rpe",       "rpe_keys", "rel",           "rel_short", "rel_shared",  "alibi",    "softcap",     "sinks",
    "documents", "varlen",   "dropout",       "drop_all",  "scaled"};

/* Some values of an additive mask to -inf. */
static void drop_some(attention_case *c, int place, double share) {
    const bstk_tensor *t = &c->a[place].t;
    for (int64_t e = 0; e < gen_count(t); ++e)
        if (gen_unit(c->seed + 99, (uint64_t)e) < share)
            gen_store(t->dtype, t->data, gen_offset(t, e), -INFINITY);
}

/* Starts of sequences 0 <= ... <= size, some of them empty. */
static void set_starts(attention_case *c, int place, int64_t size) {
    const bstk_tensor *t = &c->a[place].t;
    const double cut[] = {0, 0.3, 0.3, 0.55, 0.9, 1, 1};
    for (int64_t s = 0; s < 7; ++s)
        gen_store(t->dtype, t->data, gen_offset(t, s),
                  floor(cut[s] * (double)size * (place == A_CU_Q || s != 3 ? 1 : 0.8)));
}

static void apply(attention_case *c, int option, gen_style style, uint64_t draw) {
    bstk_score_terms *t = &c->terms;
    const bstk_dtype real = draw % 3 == 0 ? BSTK_F32 : c->dtype;
    const int64_t z = draw % 2 ? c->z : 1, h = draw / 2 % 2 ? c->h : 1;
    const int64_t square[4] = {z, h, c->m, c->n}, key[4] = {z, h, 1, c->n};
    switch (option) {
    case CAUSAL:
        t->causal = 1;
        break;
    case CAUSAL_BOTTOM:
        t->causal = t->bottom_right = 1;
        break;
    case CAUSAL_UP:
        t->causal = 1;
        t->causal_offset = 5 + (int64_t)(draw % 40);
        break;
    case CAUSAL_DOWN:
        t->causal = 1;
        t->causal_offset = -5 - (int64_t)(draw % 40);
        break;
    case WINDOW:
        t->window_left = (int64_t)(draw % 30);
        t->window_right = (int64_t)(draw / 2 % 30);
        break;
    case WINDOW_LEFT:
        t->window_left = (int64_t)(draw % 50);
        break;
    case WINDOW_RIGHT:
        t->window_right = (int64_t)(draw % 50);
        t->bottom_right = 1;
        break;
    case BOOL_KEYS:
        attention_add(c, A_KEY_PADDING, BSTK_BOOL, 2, shape(z, c->n), style, false);
        break;
    case ADD_KEYS:
        attention_add(c, A_KEY_PADDING, real, 2, shape(z, c->n), style, true);
        drop_some(c, A_KEY_PADDING, 0.2);
        break;
    case MUL_KEYS:
        attention_add(c, A_KEY_PADDING, BSTK_I32, 1, shape(c->n), style, false);
        t->key_padding_mode = BSTK_MASK_MUL;
        break;
    case BOOL_MASK:
        attention_add(c, A_ATTN, BSTK_U8, 4, square, style, false);
        break;
    case ADD_MASK:
        attention_add(c, A_ATTN, real, draw % 5 ? 4 : 2, draw % 5 ? square : square + 2, style, true);
        drop_some(c, A_ATTN, 0.2);
        break;
    case MUL_MASK:
        attention_add(c, A_ATTN, BSTK_I64, 3, shape(z, c->m, c->n), style, false);
        t->attn_mode = BSTK_MASK_MUL;
        break;
    case KEY_MASK:
        attention_add(c, A_ATTN, real, 4, key, style, true);
        break;
    case RPE:
        attention_add(c, A_RPE, real, draw % 5 ? 4 : 3, draw % 5 ? square : square + 1, style, true);
        break;
    case RPE_KEYS:
        attention_add(c, A_RPE, real, 4, key, style, true);
        break;
    case REL:
        attention_add(c, A_REL, real, 4, shape(z, h, c->m, c->m + c->n - 1), style, true);
        break;
    case REL_SHORT:
        attention_add(c, A_REL, real, 3, shape(h, c->m, 1 + (int64_t)(draw % 20)), style, true);
        break;
    case REL_SHARED:
        attention_add(c, A_REL, real, 4, shape(z, h, 1, c->m + 7), style, true);
        break;
    case ALIBI:
        attention_add(c, A_SLOPES, real, 2, shape(z, h), style, false);
        break;
    case SOFTCAP:
        t->softcap = 0.7;
        break;
    case SINKS:
        attention_add(c, A_SINKS, real, 1, shape(c->h), style, true);
        break;
    case DOCUMENTS:
        attention_add(c, A_Q_DOCUMENTS, BSTK_I32, 2, shape(z, c->m), style, false);
        attention_add(c, A_K_DOCUMENTS, BSTK_I64, 1, shape(c->n), style, false);
        break;
    case VARLEN:
        attention_add(c, A_CU_Q, BSTK_I32, 1, shape(7), style, false);
        attention_add(c, A_CU_K, BSTK_I64, 1, shape(7), style, false);
        set_starts(c, A_CU_Q, c->m);
        set_starts(c, A_CU_K, c->n);
        break;
    case DROPOUT:
        t->dropout = 0.3;
        t->dropout_seed = draw;
        t->dropout_offset = 12345678901234u;
        break;
    case DROP_ALL:
        t->dropout = 1;
        break;
    case SCALED:
        t->scale = -0.75;
        break;
    default:
        break;
    }
}

static void test_options(void **state) {
    (void)state;
    for (int option = 0; option < OPTIONS; ++option)
        for (int type = 0; type < 2; ++type) {
            attention_case c = {.dtype = type ? BSTK_F64 : BSTK_F32,
                                .block = 16,
                                .z = 2,
                                .h = 2,
                                .m = 75,
                                .n = 90,
                                .d = 12,
                                .dv = 9,
                                .seed = (uint64_t)option};
            snprintf(c.what, sizeof c.what, "%s %s", option_names[option], bstk_dtype_name(c.dtype));
            attention_make(&c, option == ELEMENTS ? element_layout(2, c.m, c.n, 16, 0.5, 3)
                                                  : bernoulli(2, c.m, c.n, 16, 0.6, 3));
            apply(&c, option, GEN_CONTIGUOUS, 7);
            attention_check(&c);
            attention_free(&c);
        }
}

/* ---- combinations ------------------------------------------------------------------------------------------------ */

/* Options of which one excludes the other: at most one of each row. */
static const int choices[][6] = {{CAUSAL, CAUSAL_BOTTOM, CAUSAL_UP, CAUSAL_DOWN, PLAIN, PLAIN},
                                 {WINDOW, WINDOW_LEFT, WINDOW_RIGHT, PLAIN, PLAIN, PLAIN},
                                 {BOOL_KEYS, ADD_KEYS, MUL_KEYS, PLAIN, PLAIN, PLAIN},
                                 {BOOL_MASK, ADD_MASK, MUL_MASK, KEY_MASK, PLAIN, PLAIN},
                                 {RPE, RPE_KEYS, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {REL, REL_SHORT, REL_SHARED, PLAIN, PLAIN, PLAIN},
                                 {ALIBI, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {SOFTCAP, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {SINKS, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {DOCUMENTS, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {VARLEN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {DROPOUT, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN},
                                 {SCALED, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN}};

static void fuzz_one(uint64_t seed) {
    static const bstk_dtype types[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};
    static const int32_t blocks[] = {8, 16, 24, 32, 64, 72, 128};
    static const int64_t heads[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 2}, {3, 3}, {3, 1}};
    uint64_t drawn = 0;
#define DRAW(n) ((int64_t)(gen_hash(seed, drawn++) % (uint64_t)(n)))
    attention_case c = {.seed = 1000 * seed};
    c.dtype = types[DRAW(4)];
    c.block = blocks[DRAW(7)];
    const int64_t *h = heads[DRAW(6)];
    c.z = 1 + DRAW(2);
    c.h = h[0];
    c.kv_heads = h[1];
    c.m = 1 + DRAW(100);
    c.n = 1 + DRAW(100);
    c.d = 1 + DRAW(40);
    c.dv = DRAW(2) ? c.d : 1 + DRAW(40);
    c.k_batches = DRAW(4) ? c.z : 1;
    c.v_batches = DRAW(4) ? c.z : 1;
    c.in_style = (gen_style)DRAW(GEN_STYLES);
    c.out_style = (gen_style)DRAW(GEN_STYLES);
    const int64_t layout_heads = DRAW(2) ? 1 : c.h;
    const double p = 0.2 + 0.2 * (double)DRAW(5);
    attention_make(&c, DRAW(4) ? bernoulli(layout_heads, c.m, c.n, c.block, p, seed)
                               : element_layout(layout_heads, c.m, c.n, c.block, p, seed));
    int used = snprintf(c.what, sizeof c.what, "seed %llu %s b%d", (unsigned long long)seed, bstk_dtype_name(c.dtype),
                        (int)c.block);
    for (size_t k = 0; k < sizeof choices / sizeof *choices; ++k) {
        const int option = choices[k][DRAW(6)];
        if (option != PLAIN)
            used += snprintf(c.what + used, sizeof c.what - (size_t)used, " %s", option_names[option]);
        const gen_style style = (gen_style)DRAW(GEN_STYLES);
        apply(&c, option, style, (uint64_t)DRAW(1000));
    }
#undef DRAW
    attention_check(&c);
    attention_free(&c);
}

/* BSTK_FUZZ_SEEDS="first count" runs others than the usual ones. */
static void test_combinations(void **state) {
    (void)state;
    unsigned long long first = 0, count = 120;
    const char *range = getenv("BSTK_FUZZ_SEEDS");
    if (range)
        assert_int_equal(sscanf(range, "%llu %llu", &first, &count), 2);
    for (uint64_t seed = first; seed < first + count; ++seed)
        fuzz_one(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_combinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
