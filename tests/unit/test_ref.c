/*
 * test_ref.c: the float64 reference itself, against numbers worked out by hand, against loops written another way, and
 * by properties that hold whatever the numbers are.
 */
#include "check/bound.h"
#include "check/gen.h"
#include "check/ref.h"
#include "support/cm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define B 8 /* block edge of every layout here */

static bstk_layout *mask_layout(const uint8_t *mask, int64_t heads, int64_t rows, int64_t cols, int64_t m, int64_t n) {
    const bstk_tensor t = bstk_tensor_make((void *)(uintptr_t)mask, BSTK_U8, 3, shape(heads, rows, cols));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &t, B, shape(m, n), &layout));
    return layout;
}

static void assert_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, expected %.17g within %g", got, want, tolerance);
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

static void known_halves(void **state) {
    (void)state;
    static const struct {
        bstk_dtype dtype;
        double value;
        uint16_t bits;
    } cases[] = {
        {BSTK_F16, 1, 0x3c00},           {BSTK_F16, -2, 0xc000},
        {BSTK_F16, 65504, 0x7bff},       {BSTK_F16, 65519.99, 0x7bff},
        {BSTK_F16, 65520, 0x7c00},       {BSTK_F16, -1e300, 0xfc00},
        {BSTK_F16, 0x1p-24, 0x0001},     {BSTK_F16, 0x1p-25, 0x0000}, /* half way to the smallest: to even, 0 */
        {BSTK_F16, 0x1.8p-24, 0x0002},   {BSTK_F16, 0x1p-14, 0x0400},
        {BSTK_F16, 1 + 0x1p-11, 0x3c00}, {BSTK_F16, 1 + 0x3p-11, 0x3c02},
        {BSTK_F16, -0.0, 0x8000},        {BSTK_BF16, 1, 0x3f80},
        {BSTK_BF16, 1 + 0x1p-8, 0x3f80}, {BSTK_BF16, 1 + 0x1.8p-7, 0x3f82},
        {BSTK_BF16, 0x1.fep127, 0x7f7f}, {BSTK_BF16, 0x1.ffp127, 0x7f80},
        {BSTK_BF16, 0x1p-133, 0x0001},   {BSTK_BF16, -0x1p-126, 0x8080}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        uint16_t bits = 0;
        gen_store(cases[i].dtype, &bits, 0, cases[i].value);
        assert_int_equal(bits, cases[i].bits);
    }
    uint16_t bits = 0;
    gen_store(BSTK_F16, &bits, 0, NAN);
    assert_true((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0);
    gen_store(BSTK_BF16, &bits, 0, NAN);
    assert_true((bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0);
}

/* Every number of both types survives, and every value between two neighbours goes to the nearer, ties to the even. */
static void all_halves(void **state) {
    (void)state;
    const bstk_dtype types[] = {BSTK_F16, BSTK_BF16};
    for (int t = 0; t < 2; ++t) {
        const uint16_t infinity = types[t] == BSTK_F16 ? 0x7c00 : 0x7f80;
        for (uint32_t i = 0; i < infinity; ++i) {
            const uint16_t low = (uint16_t)i, high = (uint16_t)(i + 1);
            const double x = gen_load(types[t], &low, 0), y = gen_load(types[t], &high, 0);
            uint16_t bits = 0;
            gen_store(types[t], &bits, 0, -x);
            assert_int_equal(bits, low | 0x8000);
            if (high == infinity)
                break;
            assert_true(y > x);
            const double middle = x + (y - x) / 2;
            gen_store(types[t], &bits, 0, middle);
            assert_int_equal(bits, i % 2 == 0 ? low : high);
            gen_store(types[t], &bits, 0, nextafter(middle, INFINITY));
            assert_int_equal(bits, high);
            gen_store(types[t], &bits, 0, nextafter(middle, 0));
            assert_int_equal(bits, low);
            assert_true(gen_round(types[t], nextafter(middle, 0)) == x);
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* [1 2; 3 4] . [5 6; 7 8] = [19 22; 43 50], with one block of 8 of which only 2 x 2 is inside. */
static void product_by_hand(void **state) {
    (void)state;
    const uint8_t one = 1;
    bstk_layout *layout = mask_layout(&one, 1, 1, 1, 2, 2);
    double packed[B * B], dense[4] = {5, 6, 7, 8}, c[4] = {1, 10, 100, 1000}, value[B * B], bound[B * B];
    for (int i = 0; i < B * B; ++i)
        packed[i] = NAN; /* past the edge: must not be read */
    packed[0] = 1, packed[1] = 2, packed[B] = 3, packed[B + 1] = 4;
    const bstk_tensor sparse = bstk_tensor_make(packed, BSTK_F64, 3, shape(1, B, B));
    const bstk_tensor b = bstk_tensor_make(dense, BSTK_F64, 2, shape(2, 2));
    const bstk_tensor out = bstk_tensor_make(c, BSTK_F64, 2, shape(2, 2));
    ref_product p = {.mode = BSTK_DSD,
                     .layout = layout,
                     .z = 1,
                     .h = 1,
                     .m = 2,
                     .n = 2,
                     .k = 2,
                     .a = &sparse,
                     .b = &b,
                     .c = &out,
                     .alpha = 1};
    assert_true(ref_matmul(&p, value, bound));
    const double plain[4] = {19, 22, 43, 50};
    for (int i = 0; i < 4; ++i) {
        assert_true(value[i] == plain[i]);
        assert_true(bound[i] > plain[i] * 0x1p-53 && bound[i] < plain[i] * 0x1p-48);
    }
    p.alpha = -2, p.beta = 0.5; /* -38 + 0.5, -44 + 5, -86 + 50, -100 + 500 */
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == -37.5 && value[1] == -39 && value[2] == -36 && value[3] == 400);
    p.alpha = 0, p.beta = 3;
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == 3 && value[3] == 3000);
    p.alpha = 1, p.beta = 0, p.trans_a = true; /* [1 3; 2 4] . B = [26 30; 38 44] */
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == 26 && value[1] == 30 && value[2] == 38 && value[3] == 44);
    p.trans_a = false, p.trans_c = true;
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == 19 && value[1] == 43 && value[2] == 22 && value[3] == 50);
    p.trans_c = false, p.mode = BSTK_DDS, p.a = &b, p.b = &sparse; /* [5 6; 7 8] . [1 2; 3 4] = [23 34; 31 46] */
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == 23 && value[1] == 34 && value[2] == 31 && value[3] == 46);
    p.trans_b = true; /* . [1 3; 2 4] = [17 39; 23 53] */
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == 17 && value[1] == 39 && value[2] == 23 && value[3] == 53);
    const bstk_tensor values = bstk_tensor_make(packed, BSTK_F64, 3, shape(1, B, B));
    p = (ref_product){.mode = BSTK_SDD,
                      .layout = layout,
                      .z = 1,
                      .h = 1,
                      .m = 2,
                      .n = 2,
                      .k = 2,
                      .a = &b,
                      .b = &b,
                      .c = &values,
                      .alpha = 1};
    assert_true(ref_matmul(&p, value, bound)); /* [67 78; 91 106] */
    assert_true(value[0] == 67 && value[1] == 78 && value[B] == 91 && value[B + 1] == 106);
    assert_true(value[2] == 0 && bound[2] == 0 && value[B * B - 1] == 0);
    bstk_layout_release(layout);
}

/* Number of stored places before [h, i, j] in packed order, or -1: by counting ones of the mask, block by block. */
static int64_t count_before(const uint8_t *mask, int64_t rows, int64_t cols, int64_t h, int64_t i, int64_t j) {
    const int64_t at = (h * rows + i / B) * cols + j / B;
    int64_t n = 0;
    if (!mask[at])
        return -1;
    for (int64_t k = 0; k < at; ++k)
        n += mask[k];
    return n * B * B + i % B * B + j % B;
}

/* All modes and transpositions, element by element with a dot product, where the operand's zeros are added too. */
static void products_another_way(void **state) {
    (void)state;
    enum { M = 13, N = 22, K = 9, H = 3, Z = 2 };
    for (int which = 0; which < 3 * 8; ++which) {
        const bstk_mode mode = (bstk_mode)(BSTK_SDD + which / 8);
        const bool ta = which % 2, tb = which / 2 % 2, tc = which / 4 % 2;
        int64_t r = mode == BSTK_DDS ? K : M, c = mode == BSTK_DSD ? K : N; /* the sparse matrix, untransposed */
        const bool transposed = mode == BSTK_SDD ? tc : mode == BSTK_DSD ? ta : tb;
        if (transposed) {
            const int64_t swap = r;
            r = c;
            c = swap;
        }
        const int64_t rows = (r + B - 1) / B, cols = (c + B - 1) / B;
        uint8_t mask[64];
        for (int64_t i = 0; i < H * rows * cols; ++i)
            mask[i] = gen_hash((uint64_t)which, (uint64_t)i) % 3 > 0;
        bstk_layout *layout = mask_layout(mask, H, rows, cols, r, c);
        const int64_t nnz = bstk_layout_nnz(layout);
        gen_array a = {0}, b = {0}, out = {0};
        const int64_t *packed = shape(Z, nnz, B, B);
        const int64_t a_dense[4] = {Z, 1, ta ? K : M, ta ? M : K}, b_dense[4] = {1, H, tb ? N : K, tb ? K : N};
        const int64_t c_dense[4] = {Z, H, tc ? N : M, tc ? M : N};
        assert_true(gen_array_make(&a, BSTK_F64, 4, mode == BSTK_DSD ? packed : a_dense, GEN_SHUFFLED, 1));
        assert_true(gen_array_make(&b, BSTK_F64, 4, mode == BSTK_DDS ? packed : b_dense, GEN_NEGATIVE, 2));
        assert_true(gen_array_make(&out, BSTK_F64, 4, mode == BSTK_SDD ? packed : c_dense, GEN_PADDED, 3));
        gen_fill(&a.t, GEN_UNIFORM, 4);
        gen_fill(&b.t, GEN_UNIFORM, 5);
        gen_fill(&out.t, GEN_UNIFORM, 6);
        const int64_t count = gen_count(&out.t);
        double *value = calloc((size_t)count + 1, sizeof *value), *bound = calloc((size_t)count + 1, sizeof *bound);
        double *x = gen_doubles(&a.t), *y = gen_doubles(&b.t), *before = gen_doubles(&out.t);
        assert_true(value && bound && x && y && before);
        const ref_product p = {.mode = mode,
                               .trans_a = ta,
                               .trans_b = tb,
                               .trans_c = tc,
                               .layout = layout,
                               .z = Z,
                               .h = H,
                               .m = M,
                               .n = N,
                               .k = K,
                               .a = &a.t,
                               .b = &b.t,
                               .c = &out.t,
                               .alpha = 0.5,
                               .beta = -1};
        assert_true(ref_matmul(&p, value, bound));
        int64_t seen = 0;
        for (int64_t e = 0; e < (int64_t)Z * H * M * N; ++e) {
            const int64_t z = e / (H * M * N), h = e / (M * N) % H, i = e / N % M, j = e % N;
            int64_t at = tc ? ((z * H + h) * N + j) * M + i : e;
            if (mode == BSTK_SDD) {
                at = tc ? count_before(mask, rows, cols, h, j, i) : count_before(mask, rows, cols, h, i, j);
                if (at < 0)
                    continue;
                at += z * nnz * B * B;
            }
            double dot = 0;
            for (int64_t k = 0; k < K; ++k) {
                double u, v;
                if (mode == BSTK_DSD) {
                    const int64_t from =
                        ta ? count_before(mask, rows, cols, h, k, i) : count_before(mask, rows, cols, h, i, k);
                    u = from < 0 ? 0 : x[z * nnz * B * B + from];
                } else {
                    u = ta ? x[(z * K + k) * M + i] : x[(z * M + i) * K + k];
                }
                if (mode == BSTK_DDS) {
                    const int64_t from =
                        tb ? count_before(mask, rows, cols, h, j, k) : count_before(mask, rows, cols, h, k, j);
                    v = from < 0 ? 0 : y[z * nnz * B * B + from];
                } else {
                    v = tb ? y[(h * N + j) * K + k] : y[(h * K + k) * N + j];
                }
                dot += u * v;
            }
            assert_near(value[at], 0.5 * dot - before[at], 1e-14);
            assert_true(bound[at] > 0 && bound[at] < 1e-13);
            ++seen;
        }
        assert_true(seen > 0);
        free(value);
        free(bound);
        free(x);
        free(y);
        free(before);
        gen_array_free(&a);
        gen_array_free(&b);
        gen_array_free(&out);
        bstk_layout_release(layout);
    }
}

/* 4 heads read B's 2: head h reads h / 2. A layout of one head serves all, with values of each head. */
static void grouped_and_shared(void **state) {
    (void)state;
    const uint8_t one = 1;
    bstk_layout *layout = mask_layout(&one, 1, 1, 1, 1, 1);
    double packed[4 * B * B] = {0}, dense[2] = {10, 100}, c[4], value[4], bound[4];
    for (int h = 0; h < 4; ++h)
        packed[h * B * B] = h + 1;
    const bstk_tensor a = bstk_tensor_make(packed, BSTK_F64, 4, shape(1, 4, B, B));
    const bstk_tensor b = bstk_tensor_make(dense, BSTK_F64, 4, shape(1, 2, 1, 1));
    const bstk_tensor out = bstk_tensor_make(c, BSTK_F64, 4, shape(1, 4, 1, 1));
    const ref_product p = {.mode = BSTK_DSD,
                           .layout = layout,
                           .z = 1,
                           .h = 4,
                           .m = 1,
                           .n = 1,
                           .k = 1,
                           .a = &a,
                           .b = &b,
                           .c = &out,
                           .alpha = 1};
    assert_true(ref_matmul(&p, value, bound));
    assert_true(value[0] == 10 && value[1] == 20 && value[2] == 300 && value[3] == 400);
    bstk_layout_release(layout);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* One row of up to 8 scores in a layout of one block. */
typedef struct line {
    bstk_layout *layout;
    double x[B * B], y[B * B], y_bound[B * B], lse, lse_bound;
    bstk_tensor t;
    bstk_score_terms terms;
    ref_scores p;
} line;

static void line_make(line *l, int64_t n, const double *x) {
    const uint8_t one = 1;
    memset(l, 0, sizeof *l);
    l->layout = mask_layout(&one, 1, 1, 1, 1, n);
    for (int i = 0; i < B * B; ++i)
        l->x[i] = NAN;
    memcpy(l->x, x, (size_t)n * sizeof *x);
    l->t = bstk_tensor_make(l->x, BSTK_F64, 3, shape(1, B, B));
    l->terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    l->p = (ref_scores){
        .layout = l->layout, .z = 1, .h = 1, .m = 1, .n = n, .dtype = BSTK_F64, .x = &l->t, .terms = &l->terms};
}

static void line_run(line *l) {
    assert_true(ref_softmax(&l->p, l->y, l->y_bound, &l->lse, &l->lse_bound));
}

static void softmax_by_hand(void **state) {
    (void)state;
    line l;
    line_make(&l, 3, (double[]){0, log(3), NAN});
    const double zeros[3] = {0, 0, -INFINITY}, one_half[3] = {log(2), 0, 5}, keep[3] = {1, 2, 0};
    const bstk_tensor padding = bstk_tensor_make((void *)(uintptr_t)zeros, BSTK_F64, 1, shape(3));
    l.terms.key_padding_mask = &padding; /* drops the NaN */
    line_run(&l);
    assert_near(l.y[0], 0.25, 1e-15);
    assert_near(l.y[1], 0.75, 1e-15);
    assert_true(l.y[2] == 0 && l.y_bound[2] == 0 && l.y[3] == 0);
    assert_near(l.lse, log(4), 1e-15);
    assert_true(l.y_bound[0] > 0 && l.y_bound[0] < 1e-14 && l.lse_bound > 0 && l.lse_bound < 1e-14);

    l.terms.scale = 2; /* e^0 : 9 */
    line_run(&l);
    assert_near(l.y[0], 0.1, 1e-15);
    l.terms.scale = 1;
    const bstk_tensor rpe = bstk_tensor_make((void *)(uintptr_t)one_half, BSTK_F64, 2, shape(1, 3));
    l.terms.rpe = &rpe; /* 2 : 3 */
    line_run(&l);
    assert_near(l.y[0], 0.4, 1e-15);
    assert_near(l.lse, log(5), 1e-15);
    l.terms.rpe = NULL;
    /* rel_logits of extent 2, row 0: column 1 - (0 - j): place 0 reads column 1, place 1 would read column 2: 0 */
    const bstk_tensor rel = bstk_tensor_make((void *)(uintptr_t)(double[]){99, log(6)}, BSTK_F64, 2, shape(1, 2));
    l.terms.rel_logits = &rel; /* 6 : 3 */
    line_run(&l);
    assert_near(l.y[0], 2.0 / 3, 1e-15);
    l.terms.rel_logits = NULL;
    l.terms.causal = 1; /* row 0 keeps place 0 only */
    line_run(&l);
    assert_true(l.y[0] == 1 && l.y[1] == 0 && l.y[2] == 0 && l.lse == 0);
    l.terms.causal_offset = 1;
    line_run(&l);
    assert_near(l.y[1], 0.75, 1e-15);
    l.terms.causal_offset = -1; /* nothing kept */
    line_run(&l);
    assert_true(l.y[0] == 0 && l.y[1] == 0 && l.lse == -INFINITY);
    l.terms.causal = 0;
    l.terms.key_padding_mask = NULL;
    const bstk_tensor mask = bstk_tensor_make((void *)(uintptr_t)keep, BSTK_F64, 2, shape(1, 3));
    l.terms.attn_mask = &mask;
    l.terms.attn_mode = BSTK_MASK_MUL; /* 0 drops the NaN, 1 and 2 only keep */
    line_run(&l);
    assert_near(l.y[1], 0.75, 1e-15);
    l.terms.attn_mode = BSTK_MASK_ADD; /* now the NaN is kept: all of the row is NaN */
    line_run(&l);
    assert_true(isnan(l.y[0]) && isnan(l.y[1]) && isnan(l.y[2]) && isnan(l.lse) && l.y[3] == 0);
    bstk_layout_release(l.layout);
}

static void softmax_special_rows(void **state) {
    (void)state;
    line l;
    line_make(&l, 2, (double[]){INFINITY, 0}); /* inf - inf: NaN, as in a dense softmax */
    line_run(&l);
    assert_true(isnan(l.y[0]) && isnan(l.y[1]) && isnan(l.lse));
    l.x[0] = l.x[1] = -INFINITY;
    line_run(&l);
    assert_true(l.y[0] == 0 && l.y[1] == 0 && l.lse == -INFINITY);
    l.x[1] = 7;
    line_run(&l);
    assert_true(l.y[0] == 0 && l.y_bound[0] == 0 && l.y[1] == 1 && l.lse == 7);
    /* Two sentinels: in f32 their sum is -inf and drops the place; in f64 it is a number. */
    const float low[2] = {-0x1.fffffep127f, 0};
    const bstk_tensor mask = bstk_tensor_make((void *)(uintptr_t)low, BSTK_F32, 1, shape(2));
    const bstk_tensor attn = bstk_tensor_make((void *)(uintptr_t)low, BSTK_F32, 2, shape(1, 2));
    l.x[0] = NAN;
    l.terms.key_padding_mask = &mask;
    l.terms.attn_mask = &attn;
    line_run(&l);
    assert_true(isnan(l.y[0]) && isnan(l.y[1]));
    l.p.dtype = BSTK_F32;
    line_run(&l);
    assert_true(l.y[0] == 0 && l.y[1] == 1);
    bstk_layout_release(l.layout);
}

typedef struct scene {
    bstk_layout *layout;
    gen_array x;
    int64_t count, lines;
    double *y, *y_bound, *lse, *lse_bound;
    bstk_score_terms terms;
} scene;

enum { SCENE_H = 2, SCENE_R = 4, SCENE_C = 5, SCENE_M = 30, SCENE_N = 37 };

static void scene_make(scene *s, const uint8_t *mask) {
    memset(s, 0, sizeof *s);
    s->layout = mask_layout(mask, SCENE_H, SCENE_R, SCENE_C, SCENE_M, SCENE_N);
    assert_true(gen_array_make(&s->x, BSTK_F64, 3, shape(bstk_layout_nnz(s->layout), B, B), GEN_SHUFFLED, 1));
    gen_fill(&s->x.t, GEN_UNIFORM, 2);
    s->count = gen_count(&s->x.t);
    s->lines = SCENE_H * SCENE_M;
    s->y = calloc((size_t)s->count + 1, sizeof(double));
    s->y_bound = calloc((size_t)s->count + 1, sizeof(double));
    s->lse = calloc((size_t)s->lines, sizeof(double));
    s->lse_bound = calloc((size_t)s->lines, sizeof(double));
    assert_true(s->y && s->y_bound && s->lse && s->lse_bound);
    s->terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
}

static void scene_run(scene *s) {
    const ref_scores p = {.layout = s->layout,
                          .z = 1,
                          .h = SCENE_H,
                          .m = SCENE_M,
                          .n = SCENE_N,
                          .dtype = BSTK_F64,
                          .x = &s->x.t,
                          .terms = &s->terms};
    assert_true(ref_softmax(&p, s->y, s->y_bound, s->lse, s->lse_bound));
}

static void scene_free(scene *s) {
    bstk_layout_release(s->layout);
    gen_array_free(&s->x);
    free(s->y);
    free(s->y_bound);
    free(s->lse);
    free(s->lse_bound);
}

static void random_mask(uint8_t *mask) {
    for (uint64_t i = 0; i < SCENE_H * SCENE_R * SCENE_C; ++i)
        mask[i] = gen_hash(9, i) % 2;
    for (int r = 0; r < SCENE_H * SCENE_R; ++r)
        mask[r * SCENE_C + r % SCENE_C] = 1;
    memset(mask, 0, SCENE_C); /* one empty block row */
}

static void softmax_properties(void **state) {
    (void)state;
    uint8_t mask[SCENE_H * SCENE_R * SCENE_C];
    random_mask(mask);
    scene s;
    scene_make(&s, mask);
    scene_run(&s);
    double sums[SCENE_H * SCENE_M] = {0};
    for (int64_t h = 0; h < SCENE_H; ++h) {
        for (int64_t i = 0; i < SCENE_M; ++i) {
            for (int64_t j = 0; j < SCENE_N; ++j) {
                const int64_t at = count_before(mask, SCENE_R, SCENE_C, h, i, j);
                sums[h * SCENE_M + i] += at < 0 ? 0 : s.y[at];
            }
        }
    }
    for (int i = 0; i < SCENE_H * SCENE_M; ++i) {
        const bool empty = i < B;
        assert_near(sums[i], empty ? 0 : 1, 1e-14);
        assert_true((s.lse[i] == -INFINITY) == empty);
    }
    /* Adding a constant to every score changes lse by it and y not at all. */
    double *y = malloc((size_t)s.count * sizeof *y), lse[SCENE_H * SCENE_M];
    assert_non_null(y);
    memcpy(y, s.y, (size_t)s.count * sizeof *y);
    memcpy(lse, s.lse, sizeof lse);
    for (int64_t e = 0; e < s.count; ++e) {
        const int64_t at = gen_offset(&s.x.t, e);
        gen_store(BSTK_F64, s.x.t.data, at, gen_load(BSTK_F64, s.x.t.data, at) + 3);
    }
    scene_run(&s);
    for (int64_t e = 0; e < s.count; ++e)
        assert_near(s.y[e], y[e], 1e-14);
    for (int i = B; i < SCENE_H * SCENE_M; ++i)
        assert_near(s.lse[i], lse[i] + 3, 1e-14);
    /* Block columns in reverse, values with them: y moves along. (Block columns are whole but for the last.) */
    scene t;
    uint8_t moved[sizeof mask];
    memcpy(moved, mask, sizeof mask);
    for (int64_t r = 0; r < SCENE_H * SCENE_R; ++r) {
        for (int64_t c = 0; c + 1 < SCENE_C; ++c)
            moved[r * SCENE_C + c] = mask[r * SCENE_C + SCENE_C - 2 - c];
    }
    scene_make(&t, moved);
    for (int pass = 0; pass < 2; ++pass) { /* first the values there, then the results back */
        for (int64_t h = 0; h < SCENE_H; ++h) {
            for (int64_t i = 0; i < SCENE_M; ++i) {
                for (int64_t j = 0; j < SCENE_N; ++j) {
                    const int64_t from = count_before(mask, SCENE_R, SCENE_C, h, i, j), last = (SCENE_C - 1) * B;
                    const int64_t to =
                        count_before(moved, SCENE_R, SCENE_C, h, i, j < last ? last - B - j / B * B + j % B : j);
                    assert_int_equal(from < 0, to < 0);
                    if (from >= 0 && pass == 0)
                        gen_store(BSTK_F64, t.x.t.data, gen_offset(&t.x.t, to),
                                  gen_load(BSTK_F64, s.x.t.data, gen_offset(&s.x.t, from)));
                    else if (from >= 0)
                        assert_near(t.y[to], s.y[from], 1e-14);
                }
            }
        }
        scene_run(&t);
    }
    free(y);
    scene_free(&s);
    scene_free(&t);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Against exp and sums without any maximum, over a dense matrix of flags; and q = 0, whose o is the mean of the v. */
static void attention_another_way(void **state) {
    (void)state;
    enum { D = 3, W = 2 };
    uint8_t mask[SCENE_H * SCENE_R * SCENE_C];
    random_mask(mask);
    bstk_layout *layout = mask_layout(mask, SCENE_H, SCENE_R, SCENE_C, SCENE_M, SCENE_N);
    gen_array q = {0}, k = {0}, v = {0};
    assert_true(gen_array_make(&q, BSTK_F64, 4, shape(1, SCENE_H, SCENE_M, D), GEN_SPREAD, 1));
    assert_true(gen_array_make(&k, BSTK_F64, 4, shape(1, 1, SCENE_N, D), GEN_TRANSPOSED, 2)); /* both heads' */
    assert_true(gen_array_make(&v, BSTK_F64, 4, shape(1, SCENE_H, SCENE_N, W), GEN_PADDED, 3));
    gen_fill(&k.t, GEN_UNIFORM, 5);
    gen_fill(&v.t, GEN_UNIFORM, 6);
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    terms.causal = 1;
    terms.causal_offset = SCENE_N - SCENE_M;
    const ref_scores p = {.layout = layout,
                          .z = 1,
                          .h = SCENE_H,
                          .m = SCENE_M,
                          .n = SCENE_N,
                          .d = D,
                          .dtype = BSTK_F64,
                          .q = &q.t,
                          .k = &k.t,
                          .terms = &terms};
    static double o[SCENE_H * SCENE_M * W], o_bound[SCENE_H * SCENE_M * W];
    static double lse[SCENE_H * SCENE_M], lse_bound[SCENE_H * SCENE_M];
    for (int zero = 0; zero < 2; ++zero) {
        gen_fill(&q.t, zero ? GEN_ZEROS : GEN_UNIFORM, 4);
        double *a = gen_doubles(&q.t), *b = gen_doubles(&k.t), *c = gen_doubles(&v.t);
        assert_true(ref_attention(&p, &v.t, o, o_bound, lse, lse_bound));
        for (int64_t row = 0; row < SCENE_H * SCENE_M; ++row) {
            const int64_t h = row / SCENE_M, i = row % SCENE_M;
            double sum = 0, weighted[W] = {0}, kept = 0;
            for (int64_t j = 0; j < SCENE_N; ++j) {
                if (!mask[(h * SCENE_R + i / B) * SCENE_C + j / B] || j > i + SCENE_N - SCENE_M)
                    continue;
                const double s = a[row * D] * b[j * D] + a[row * D + 1] * b[j * D + 1] + a[row * D + 2] * b[j * D + 2];
                const double e = exp(s / sqrt(3));
                sum += e;
                kept += 1;
                for (int w = 0; w < W; ++w)
                    weighted[w] += e * c[(h * SCENE_N + j) * W + w];
            }
            for (int w = 0; w < W; ++w) {
                assert_near(o[row * W + w], kept > 0 ? weighted[w] / sum : 0, 1e-14);
                assert_true(kept > 0 ? o_bound[row * W + w] > 0 && o_bound[row * W + w] < 1e-12
                                     : o_bound[row * W + w] == 0);
            }
            if (kept > 0)
                assert_near(lse[row], zero ? log(kept) : log(sum), 1e-14);
            else
                assert_true(lse[row] == -INFINITY);
        }
        free(a);
        free(b);
        free(c);
    }
    gen_array_free(&q);
    gen_array_free(&k);
    gen_array_free(&v);
    bstk_layout_release(layout);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static void copies(void **state) {
    (void)state;
    uint8_t mask[SCENE_H * SCENE_R * SCENE_C];
    random_mask(mask);
    bstk_layout *layout = mask_layout(mask, SCENE_H, SCENE_R, SCENE_C, SCENE_M, SCENE_N);
    gen_array x = {0};
    assert_true(gen_array_make(&x, BSTK_F32, 3, shape(SCENE_H, SCENE_M, SCENE_N), GEN_NEGATIVE, 1));
    gen_fill(&x.t, GEN_UNIFORM, 2);
    double *dense = gen_doubles(&x.t), *packed = malloc((size_t)bstk_layout_nnz(layout) * B * B * sizeof *packed);
    double *back = malloc((size_t)gen_count(&x.t) * sizeof *back);
    assert_true(dense && packed && back);
    assert_true(ref_pack(layout, 1, SCENE_H, &x.t, packed));
    const bstk_tensor values = bstk_tensor_make(packed, BSTK_F64, 3, shape(bstk_layout_nnz(layout), B, B));
    assert_true(ref_unpack(layout, 1, SCENE_H, &values, back));
    for (int64_t e = 0; e < gen_count(&x.t); ++e) {
        const int64_t h = e / (SCENE_M * SCENE_N), i = e / SCENE_N % SCENE_M, j = e % SCENE_N;
        const int64_t at = count_before(mask, SCENE_R, SCENE_C, h, i, j);
        assert_true(back[e] == (at < 0 ? 0 : dense[e]));
        assert_true(at < 0 || packed[at] == dense[e]);
    }
    for (int64_t e = 0; e < bstk_layout_nnz(layout) * B * B; ++e) {
        const int64_t n = e / (B * B);
        if (bstk_layout_row_idx(layout)[n] * B + e / B % B >= SCENE_M ||
            bstk_layout_col_idx(layout)[n] * B + e % B >= SCENE_N)
            assert_true(packed[e] == 0);
    }
    free(dense);
    free(packed);
    free(back);
    gen_array_free(&x);
    bstk_layout_release(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_halves),          cmocka_unit_test(all_halves),
        cmocka_unit_test(product_by_hand),       cmocka_unit_test(products_another_way),
        cmocka_unit_test(grouped_and_shared),    cmocka_unit_test(softmax_by_hand),
        cmocka_unit_test(softmax_special_rows),  cmocka_unit_test(softmax_properties),
        cmocka_unit_test(attention_another_way), cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests_name("ref", tests, NULL, NULL);
}
