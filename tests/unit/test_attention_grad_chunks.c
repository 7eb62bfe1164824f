/*
 * test_attention_grad_chunks.c: gradients of attention so wide that kernels which make scores once cut the block
 * columns into chunks, each with a part of d_q of its own; and one so tall that the parts would take more memory than
 * they may.
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

/* Two chunks need 512 stored keys a query. Bounds of the reference, and the same bits on 1, 2 and 7 threads. */
static void test_chunks(void **state) {
    (void)state;
    static const struct {
        attention_case c;
        int64_t patterns;
        int causal;
    } cases[] = {
        {{.dtype = BSTK_F32, .block = 8, .m = 50, .n = 1500, .d = 20}, 1, 0},
        {{.dtype = BSTK_F32, .block = 24, .h = 4, .kv_heads = 2, .m = 90, .n = 1400, .d = 16, .dv = 32}, 4, 0},
        {{.dtype = BSTK_BF16, .block = 16, .z = 2, .h = 2, .kv_heads = 1, .m = 70, .n = 1300, .d = 33, .k_batches = 1},
         1,
         0},
        {{.dtype = BSTK_F64, .block = 64, .h = 2, .m = 130, .n = 1290, .d = 24, .in_style = GEN_TRANSPOSED}, 2, 1},
        {{.dtype = BSTK_F16, .block = 256, .m = 300, .n = 1700, .d = 40}, 1, 0},
        {{.dtype = BSTK_F32, .block = 72, .z = 2, .m = 80, .n = 1400, .d = 8, .k_batches = 1, .v_batches = 1}, 1, 1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
        attention_case c = cases[k].c;
        c.seed = k;
        snprintf(c.what, sizeof c.what, "chunks %d", (int)k);
        attention_make(&c, bernoulli(cases[k].patterns, c.m, c.n, c.block, 0.8, k + 1));
        c.terms.causal = cases[k].causal;
        c.terms.bottom_right = 1;
        attention_check(&c);
        attention_free(&c);
    }
}

/* Each gradient alone has the bits that it has beside the others. */
static void test_alone(void **state) {
    (void)state;
    attention_case c = {.dtype = BSTK_F32, .block = 24, .h = 4, .kv_heads = 2, .m = 90, .n = 1400, .d = 20};
    attention_make(&c, bernoulli(4, c.m, c.n, 24, 0.7, 3));
    attention_forward(&c, NULL, NULL);
    attention_backward(&c, NULL);
    gen_array kept[A_COUNT];
    memcpy(kept, c.a, sizeof kept);
    for (int wanted = 1; wanted < 7; ++wanted) {
        unsigned char *bits[3];
        for (int k = 0; k < 3; ++k) {
            bits[k] = gen_snapshot(&kept[A_D_Q + k]);
            if (!(wanted >> k & 1))
                c.a[A_D_Q + k] = (gen_array){.memory = NULL};
        }
        attention_backward(&c, NULL);
        for (int k = 0; k < 3; ++k) {
            if (!gen_unchanged(&kept[A_D_Q + k], bits[k]))
                fail_msg("gradient %d has other bits in set %d", k, wanted);
            free(bits[k]);
        }
        memcpy(c.a, kept, sizeof kept);
    }
    attention_free(&c);
}

/* NaN in keys and values that a mask drops, and in one that it keeps. */
static void test_nan(void **state) {
    (void)state;
    for (int live = 0; live < 2; ++live) {
        attention_case c = {.dtype = BSTK_F32, .block = 16, .h = 2, .kv_heads = 1, .m = 40, .n = 1200, .d = 8};
        snprintf(c.what, sizeof c.what, "chunks, NaN %d", live);
        attention_make(&c, bernoulli(1, c.m, c.n, 16, 1, 3));
        attention_add(&c, A_KEY_PADDING, BSTK_BOOL, 1, shape(1200), GEN_CONTIGUOUS, false);
        const bstk_tensor *mask = &c.a[A_KEY_PADDING].t;
        for (int64_t j = 0; j < c.n; ++j) {
            const bool drop = j % 9 == 4;
            gen_store(mask->dtype, mask->data, gen_offset(mask, j), drop ? 0 : 1);
            for (int place = A_K; drop && place <= A_V; ++place)
                for (int64_t e = 0; e < 8; ++e)
                    gen_store(BSTK_F32, c.a[place].t.data, gen_offset(&c.a[place].t, j * 8 + e),
                              e % 2 ? (double)NAN : (double)INFINITY);
        }
        if (live)
            gen_store(BSTK_F32, c.a[A_K].t.data, gen_offset(&c.a[A_K].t, 700 * 8 + 3), (double)NAN);
        attention_check(&c);
        attention_free(&c);
    }
}

/* d_q of `rows` queries that are all alike, and the scratch that it takes; one key in eight numbers. */
static uint16_t *like_rows(int64_t rows, size_t *bytes) {
    static const uint16_t values[8] = {0x3c00, 0x3800, 0xb800, 0x3400, 0xbc00, 0x3a00, 0x2c00, 0x4000}; /* f16 */
    static const float lse = 2.5f;
    const int64_t one[4] = {1, 1, rows, 1}, keys[4] = {1, 1, 8, 1};
    const rule ones = {.kind = RULE_ONES};
    bstk_layout *layout = rule_layout(&ones, 1, rows, 8, 256);
    uint16_t *d_q = malloc((size_t)rows * sizeof *d_q);
    bstk_tensor q = bstk_tensor_make((void *)&values[5], BSTK_F16, 4, one), o = q, d_o = q;
    bstk_tensor k = bstk_tensor_make((void *)values, BSTK_F16, 4, keys), to = bstk_tensor_make(d_q, BSTK_F16, 4, one);
    bstk_tensor row_lse = bstk_tensor_make((void *)&lse, BSTK_F32, 3, one);
    o.data = (void *)&values[3];
    d_o.data = (void *)&values[1];
    q.stride[2] = o.stride[2] = d_o.stride[2] = row_lse.stride[2] = 0;
    bstk_attention_grad_desc d = BSTK_ATTENTION_GRAD_DESC_INIT;
    d.layout = layout;
    d.q = &q;
    d.k = d.v = &k;
    d.o = &o;
    d.lse = &row_lse;
    d.d_o = &d_o;
    d.d_q = &to;
    bstk_plan *plan = NULL;
    bstk_exec exec = BSTK_EXEC_INIT;
    assert_non_null(d_q);
    assert_int_equal(bstk_attention_grad_plan(NULL, &d, &plan), BSTK_OK);
    *bytes = exec.scratch_bytes = bstk_plan_scratch_bytes(plan);
    exec.scratch = malloc(exec.scratch_bytes);
    assert_non_null(exec.scratch);
    assert_int_equal(bstk_attention_grad_run(plan, &d, &exec), BSTK_OK);
    free(exec.scratch);
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    return d_q;
}

/* Parts of more than 1 GiB, 64 bytes a row here, are done without. */
static void test_memory(void **state) {
    (void)state;
    const int64_t rows = (INT64_C(1) << 24) + 100;
    size_t bytes, few;
    uint16_t *all = like_rows(rows, &bytes), *some = like_rows(300, &few);
    assert_true(bytes < (size_t)1 << 28);
    assert_true((some[0] & 0x7fff) != 0 && (some[0] & 0x7c00) != 0x7c00);
    for (int64_t i = 0; i < rows; ++i)
        if (abs(all[i] - some[0]) > 1) /* sums in another order may round another way */
            fail_msg("row %lld is %04x, expected %04x", (long long)i, all[i], some[0]);
    free(all);
    free(some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
