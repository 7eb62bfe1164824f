/*
 * test_norm.c: layernorm and rmsnorm and their gradients: types, heads, element masks, ragged edges, strides, empty
 * sizes, large means, exact and special values; gradients also against central differences.
 */
#include "support/cm.h"

#include "support/norm_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tests ---------------------------------------------------------------------------------------------------------
 */

static void test_plain(void **state) {
    (void)state;
    norm_check((norm_spec){.block = 16, .z = 1, .h = 1, .m = 32, .n = 48, .full = true, .eps = 1e-5});
    norm_check(
        (norm_spec){.block = 8, .z = 2, .h = 3, .m = 40, .n = 32, .weight_heads = 1, .bias_heads = 1, .eps = 1e-5});
}

static void test_heads(void **state) {
    (void)state;
    norm_spec s = {.block = 8, .z = 2, .h = 3, .m = 29, .n = 35, .eps = 1e-3};
    for (int shared = 0; shared < 2; shared++)
        for (int heads = 0; heads < 3; heads++) {
            s.shared = shared;
            s.weight_heads = heads == 2 ? 3 : heads;
            s.bias_heads = heads == 1 ? 3 : 1 - heads / 2;
            s.columns = heads == 2 ? BSTK_BF16 : heads == 1 ? BSTK_F64 : BSTK_F32;
            norm_check(s);
        }
}

static void test_element_masks(void **state) {
    (void)state;
    norm_spec s = {.block = 16, .z = 2, .h = 2, .m = 45, .n = 52, .weight_heads = 2, .bias_heads = 1, .eps = 1e-5};
    s.partial = true;
    norm_check(s);
    s.shared = true;
    s.columns = BSTK_F16;
    norm_check(s);
    s.full = true;
    norm_check(s);
}

static void test_blocks(void **state) {
    (void)state;
    norm_check((norm_spec){
        .dtype = BSTK_F32, .block = 256, .z = 1, .h = 1, .m = 260, .n = 300, .weight_heads = 1, .eps = 1e-5});
    norm_check(
        (norm_spec){.dtype = BSTK_BF16, .block = 24, .z = 1, .h = 2, .m = 49, .n = 23, .full = true, .eps = 0.1});
    norm_check((norm_spec){.dtype = BSTK_F16, .block = 64, .z = 1, .h = 2, .m = 3, .n = 1, .full = true, .eps = 0.1});
}

static void test_strides(void **state) {
    (void)state;
    norm_spec s = {.block = 8, .z = 2, .h = 2, .m = 21, .n = 19, .weight_heads = 2, .bias_heads = 2, .eps = 1e-5};
    for (int style = GEN_PADDED; style < GEN_STYLES; style++) {
        s.in = (gen_style)style;
        s.out = (gen_style)(GEN_STYLES - style);
        s.column_style = (gen_style)style;
        s.partial = style % 2;
        norm_check(s);
    }
    s.d_y = GEN_ZERO_FIRST;
    norm_check(s);
    s.d_y = GEN_ZERO_SECOND;
    s.column_style = GEN_ZERO_SECOND; /* one weight for all columns */
    norm_check(s);
    s.column_style = GEN_ZERO_FIRST;
    norm_check(s);
}

/* Sizes 0: no rows, no columns, no batch item, no stored block; columns must be zeros all the same. */
static void test_empty(void **state) {
    (void)state;
    norm_check((norm_spec){.block = 8, .z = 0, .h = 2, .m = 16, .n = 24, .full = true, .weight_heads = 2, .eps = 1e-5});
    norm_check((norm_spec){.block = 8, .z = 2, .h = 1, .m = 0, .n = 9, .full = true, .bias_heads = 1, .eps = 1e-5});
    norm_check((norm_spec){.block = 8, .z = 2, .h = 1, .m = 9, .n = 0, .full = true, .eps = 1e-5});
    norm_spec s = {.block = 8, .z = 2, .h = 3, .m = 5, .n = 9, .weight_heads = 3, .partial = true, .eps = 1e-5};
    for (int64_t m = 0; m < 4; m++) { /* a shared layout that keeps nothing takes its heads from the other tensors */
        s.m = m;
        s.shared = m > 1;
        norm_check(s);
    }
}

static void test_large_mean(void **state) {
    (void)state;
    norm_spec s = {.block = 32, .z = 1, .h = 2, .m = 70, .n = 300, .weight_heads = 1, .bias_heads = 1, .eps = 1e-5};
    s.dtype = BSTK_F32;
    s.offset = 1e4;
    norm_check(s);
    s.partial = true;
    norm_check(s);
    s.dtype = BSTK_F64;
    s.offset = 1e8;
    norm_check(s);
}

/* Powers of two: every number is exact, so results must be the exact ones rounded once. */
static void test_exact(void **state) {
    (void)state;
    norm_spec s = {.block = 16, .z = 2, .h = 2, .m = 32, .n = 64, .full = true, .values = NORM_EXACT};
    norm_check(s);
    s.weight_heads = s.bias_heads = 2;
    norm_check(s);
    s.weight_heads = 1;
    s.shared = true;
    norm_check(s);
}

/* NaN and infinities in kept places spread over their row, by the formulas, and no further. */
static void test_special(void **state) {
    (void)state;
    norm_spec s = {.block = 8, .z = 2, .h = 2, .m = 200, .n = 19, .weight_heads = 2, .bias_heads = 1, .eps = 1e-5};
    s.values = NORM_SPECIAL;
    s.dtype = BSTK_F32;
    norm_check(s);
    s.partial = true;
    norm_check(s);
}

/* eps 0 and a variance of 0: 1 / sqrt(0) times 0, a NaN as on a dense row; a row that keeps nothing stays 0. */
static void test_no_variance(void **state) {
    (void)state;
    norm_spec s = {.block = 8, .z = 1, .h = 1, .m = 16, .n = 8, .partial = true, .full = true, .dtype = BSTK_F64};
    norm_problem p = norm_make(BSTK_LAYERNORM, &s);
    norm_check_forward(&p); /* row 3 keeps one element, rows 8 and 13 none */
    double *y = gen_doubles(&p.y.t), *rstd = gen_doubles(&p.rstd.t);
    assert_true(isnan(y[3 * 8 + 3]) && y[3 * 8 + 2] == 0);
    assert_true(isinf(rstd[3]) && rstd[13] == 0);
    free(y);
    free(rstd);
    norm_free(&p);
}

/* A gradient of one number for all: what a sum hands down. */
static void test_broadcast_gradient(void **state) {
    (void)state;
    norm_spec s = {.block = 8, .z = 2, .h = 2, .m = 21, .n = 19, .weight_heads = 2, .partial = true, .eps = 1e-5};
    s.dtype = BSTK_F32;
    norm_problem p = norm_make(BSTK_LAYERNORM, &s);
    norm_check_forward(&p);
    float one = 1;
    for (int64_t e = 0; e < gen_count(&p.d_y.t); e++)
        gen_store(BSTK_F32, p.d_y.t.data, gen_offset(&p.d_y.t, e), 1);
    gen_array want[NORM_GRADIENTS], got[NORM_GRADIENTS];
    bstk_norm_grad_desc d = norm_backward_desc(&p);
    bstk_tensor ones = p.d_y.t;
    ones.data = &one;
    memset(ones.stride, 0, sizeof ones.stride);
    for (int run = 0; run < 2; run++) {
        gen_array *out = run ? got : want;
        norm_make_gradients(&p, out);
        d.d_y = run ? &ones : &p.d_y.t;
        d.d_x = &out[NORM_D_X].t;
        d.d_weight = &out[NORM_D_WEIGHT].t;
        d.d_bias = &out[NORM_D_BIAS].t;
        norm_run_backward(7, &d);
    }
    for (int o = 0; o < NORM_GRADIENTS; o++) {
        norm_assert_same(norm_gradient_names[o], &want[o].t, &got[o].t);
        gen_array_free(&want[o]);
        gen_array_free(&got[o]);
    }
    norm_free(&p);
}

/* Large enough for several tasks on several threads. */
static void test_tasks(void **state) {
    (void)state;
    norm_spec s = {
        .dtype = BSTK_F32, .block = 16, .z = 2, .h = 2, .m = 200, .n = 200, .weight_heads = 1, .bias_heads = 2};
    s.full = true;
    s.eps = 1e-5;
    norm_check(s);
    norm_problem p = norm_make(BSTK_LAYERNORM, &s);
    bstk_context *ctx = norm_context(7);
    bstk_plan *plan = NULL;
    bstk_norm_desc d = norm_forward_desc(&p);
    d.y = &p.x.t;
    ok(bstk_norm_plan(ctx, &d, &plan));
    assert_true(bstk_plan_tasks(plan) > 3);
    assert_int_equal(strncmp(bstk_plan_kernel(plan), "layernorm_f32_", 14), 0);
    assert_true(bstk_plan_flops(plan) > 0 && bstk_plan_bytes(plan) > 0);
    bstk_plan_release(plan);
    bstk_context_release(ctx);
    norm_free(&p);
}

/* ---- central differences -------------------------------------------------------------------------------------------
 */

/* sum of d_y * y over the kept places, through the library's own forward. */
static double loss(const norm_problem *p, const double *d_y) {
    bstk_norm_desc d = norm_forward_desc(p);
    d.y = &p->y.t;
    ok(bstk_norm(NULL, &d));
    double *y = gen_doubles(&p->y.t), sum = 0;
    for (int64_t e = 0; e < gen_count(&p->y.t); e++)
        sum += y[e] == 0 ? 0 : y[e] * d_y[e]; /* d_y is NaN where nothing is kept */
    free(y);
    return sum;
}

/* Moves each element of `a` both ways. The error of a difference is some h^2 = 1e-10 of the third derivative, and 1e-16
 * of the loss over h. */
static void check_differences(const norm_problem *p, const char *what, const bstk_tensor *a,
                              const bstk_tensor *gradient, const double *d_y) {
    const double h = 1e-5;
    for (int64_t e = 0; e < gen_count(a); e++) {
        const int64_t at = gen_offset(a, e);
        const double value = gen_load(a->dtype, a->data, at),
                     got = gen_load(BSTK_F64, gradient->data, gen_offset(gradient, e));
        gen_store(a->dtype, a->data, at, value + h);
        const double up = loss(p, d_y);
        gen_store(a->dtype, a->data, at, value - h);
        const double down = loss(p, d_y);
        gen_store(a->dtype, a->data, at, value);
        const double want = (up - down) / (2 * h);
        if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
            fail_msg("%s[%lld] is %.12g, by differences %.12g", what, (long long)e, got, want);
    }
}

static void test_differences(void **state) {
    (void)state;
    norm_spec s = {.dtype = BSTK_F64, .block = 8, .z = 2, .h = 2, .m = 21, .n = 19, .weight_heads = 2, .bias_heads = 1};
    s.partial = true;
    s.eps = 0.01;
    for (int kind = BSTK_LAYERNORM; kind <= BSTK_RMSNORM; kind++)
        for (int shared = 0; shared < 2; shared++) {
            s.shared = shared;
            s.weight_heads = 1 + shared;
            norm_problem p = norm_make((bstk_norm_kind)kind, &s);
            norm_check_forward(&p);
            gen_array out[NORM_GRADIENTS];
            norm_make_gradients(&p, out);
            bstk_norm_grad_desc d = norm_backward_desc(&p);
            d.d_x = &out[NORM_D_X].t;
            d.d_weight = &out[NORM_D_WEIGHT].t;
            d.d_bias = &out[NORM_D_BIAS].t;
            norm_run_backward(1, &d);
            double *d_y = gen_doubles(&p.d_y.t);
            check_differences(&p, "d_x", &p.x.t, &out[NORM_D_X].t, d_y);
            check_differences(&p, "d_weight", &p.weight.t, &out[NORM_D_WEIGHT].t, d_y);
            check_differences(&p, "d_bias", &p.bias.t, &out[NORM_D_BIAS].t, d_y);
            free(d_y);
            for (int o = 0; o < NORM_GRADIENTS; o++)
                gen_array_free(&out[o]);
            norm_free(&p);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_element_masks),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_large_mean),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_no_variance),
        cmocka_unit_test(test_broadcast_gradient),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_differences),
    };
    return cmocka_run_group_tests_name("norm", tests, NULL, NULL);
}
