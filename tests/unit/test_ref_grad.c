/*
 * test_ref_grad.c: the gradients of the float64 reference against central differences of its forward: for each input x
 * and a loss L = sum of d_out * out (+ d_lse * lse), gradient = (L(x + h) - L(x - h)) / 2h.
 */
#include "check/bound.h"
#include "check/gen.h"
#include "check/ref.h"
#include "support/cm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 8, Z = 2, H = 2, M = 12, N = 14 };

/* f64 values, contiguous. */
static gen_array make(int ndim, const int64_t *sizes, uint64_t seed) {
    gen_array a;
    assert_true(gen_array_make(&a, BSTK_F64, ndim, sizes, GEN_CONTIGUOUS, 0));
    gen_fill(&a.t, GEN_UNIFORM, seed);
    return a;
}

static double *numbers(const gen_array *a) {
    return a->t.data;
}

static double sum_of_products(const gen_array *a, const gen_array *b) {
    double sum = 0;
    for (int64_t e = 0; e < gen_count(&a->t); ++e)
        sum += isfinite(numbers(b)[e]) ? numbers(a)[e] * numbers(b)[e] : 0; /* lse of an empty row */
    return sum;
}

/* Two heads of 2 x 2 blocks, ragged, three of them partly kept, one absent; row 9 of head 1 keeps nothing. */
static bstk_layout *make_layout(void) {
    static uint8_t keep[H * M * N];
    for (int e = 0; e < H * M * N; ++e) {
        const int h = e / (M * N), i = e / N % M, j = e % N;
        const bool absent = h == 0 && i < B && j >= B, whole = h == 0 && i >= B && j < B;
        keep[e] = !absent && !(h == 1 && i == 9) && (whole || gen_hash(5, (uint64_t)e) % 4 > 0);
    }
    const bstk_tensor t = bstk_tensor_make(keep, BSTK_U8, 3, shape(H, M, N));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_dense_mask(NULL, &t, B, &layout));
    return layout;
}

typedef double (*loss_function)(void *user);

/* Gradient `g` of the input `x` against differences of the loss. */
static void differences(const char *what, loss_function loss, void *user, const gen_array *x, const ref_output *g) {
    const double h = 1e-5;
    double largest = 0;
    for (int64_t e = 0; e < gen_count(&x->t); ++e) {
        double *value = numbers(x) + e;
        const double before = *value;
        *value = before + h;
        const double up = loss(user);
        *value = before - h;
        const double difference = (up - loss(user)) / (2 * h);
        *value = before;
        if (!(fabs(difference - g->value[e]) <= 1e-8 * (1 + fabs(difference))))
            fail_msg("%s: element %d of the gradient is %.12g, by differences %.12g", what, (int)e, g->value[e],
                     difference);
        assert_true(g->bound[e] >= 0 && g->bound[e] < 1e-10 && (g->bound[e] > 0 || g->value[e] == 0));
        largest = fmax(largest, fabs(g->value[e]));
    }
    if (largest < 1e-3)
        fail_msg("%s: no element of the gradient is away from 0", what);
}

static ref_output output_like(const gen_array *x) {
    const size_t count = (size_t)gen_count(&x->t) + 1;
    const ref_output out = {&x->t, calloc(count, sizeof(double)), calloc(count, sizeof(double))};
    assert_true(out.value != NULL && out.bound != NULL);
    return out;
}

static void output_free(ref_output *out) {
    free(out->value);
    free(out->bound);
    *out = (ref_output){0};
}

/* ---- softmax and attention --------------------------------------------------------------------------------------- */

enum { RPE, REL, KEY_PADDING, ATTN, SLOPES, SINKS, TERMS };
enum { HAS_MATRICES = 1, HAS_CAP = 2, HAS_WINDOWS = 4, HAS_TOKENS = 8, HAS_SINKS = 16, HAS_DROPOUT = 32, ALL = 63 };

typedef struct scene {
    bstk_layout *layout;
    gen_array term[TERMS];
    bstk_score_terms terms;
    gen_array x, q, k, v; /* x: softmax; else q, k and v */
    gen_array out, lse, d_out, d_lse;
    double *bounds; /* not looked at here */
    ref_scores scores;
} scene;

static void make_terms(scene *s, int flags) {
    static const int64_t q_documents[M] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2};
    static const int32_t k_documents[N] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2}, q_starts[3] = {0, 7, M};
    static const int64_t k_starts[3] = {0, 9, N};
    static bstk_tensor documents[2], starts[2];
    bstk_score_terms *t = &s->terms;
    *t = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    s->term[RPE] = make(4, shape(Z, 1, M, N), 11);
    s->term[REL] = make(3, shape(H, 1, 9), 12);
    s->term[KEY_PADDING] = make(2, shape(Z, N), 13);
    s->term[ATTN] = make(3, shape(1, M, N), 14);
    s->term[SLOPES] = make(1, shape(H), 15);
    s->term[SINKS] = make(1, shape(H), 16);
    numbers(&s->term[KEY_PADDING])[3] = -INFINITY;
    numbers(&s->term[ATTN])[40] = -INFINITY;
    t->scale = 0.8;
    if (flags & HAS_MATRICES) {
        t->rpe = &s->term[RPE].t;
        t->rel_logits = &s->term[REL].t;
        t->key_padding_mask = &s->term[KEY_PADDING].t;
        t->attn_mask = &s->term[ATTN].t;
        t->alibi_slopes = &s->term[SLOPES].t;
    }
    if (flags & HAS_CAP)
        t->softcap = 0.6;
    if (flags & HAS_WINDOWS) {
        t->causal = 1;
        t->causal_offset = 1;
        t->bottom_right = 1;
        t->window_left = 9;
        t->window_right = 3;
    }
    if (flags & HAS_TOKENS) {
        documents[0] = bstk_tensor_make((void *)(uintptr_t)q_documents, BSTK_I64, 1, shape(M));
        documents[1] = bstk_tensor_make((void *)(uintptr_t)k_documents, BSTK_I32, 1, shape(N));
        starts[0] = bstk_tensor_make((void *)(uintptr_t)q_starts, BSTK_I32, 1, shape(3));
        starts[1] = bstk_tensor_make((void *)(uintptr_t)k_starts, BSTK_I64, 1, shape(3));
        t->q_documents = &documents[0];
        t->k_documents = &documents[1];
        t->cu_seqlens_q = &starts[0];
        t->cu_seqlens_k = &starts[1];
    }
    if (flags & HAS_SINKS)
        t->sinks = &s->term[SINKS].t;
    if (flags & HAS_DROPOUT) {
        t->dropout = 0.3;
        t->dropout_seed = UINT64_C(0x123456789abcdef0);
        t->dropout_offset = UINT64_C(0x0fedcba987654321);
    }
}

static scene *scene_make(bool attention, int flags) {
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->layout = make_layout();
    make_terms(s, flags);
    const int64_t *rows = shape(Z, H, M);
    s->lse = make(3, rows, 1);
    s->d_lse = make(3, rows, 2);
    s->scores =
        (ref_scores){.layout = s->layout, .z = Z, .h = H, .m = M, .n = N, .dtype = BSTK_F64, .terms = &s->terms};
    if (attention) {
        s->q = make(4, shape(Z, H, M, 3), 3);
        s->k = make(4, shape(1, 1, N, 3), 4);
        s->v = make(4, shape(Z, 1, N, 2), 5);
        s->out = make(4, shape(Z, H, M, 2), 6);
        s->d_out = make(4, shape(Z, H, M, 2), 7);
        s->scores.d = 3;
        s->scores.q = &s->q.t;
        s->scores.k = &s->k.t;
    } else {
        const int64_t nnz = bstk_layout_nnz(s->layout);
        s->x = make(4, shape(Z, nnz, B, B), 3);
        s->out = make(4, shape(Z, nnz, B, B), 6);
        s->d_out = make(4, shape(Z, nnz, B, B), 7);
        s->scores.x = &s->x.t;
    }
    s->bounds = calloc((size_t)(gen_count(&s->out.t) + gen_count(&s->lse.t)), sizeof *s->bounds);
    assert_non_null(s->bounds);
    return s;
}

static void scene_free(scene *s) {
    gen_array *const all[] = {&s->x, &s->q, &s->k, &s->v, &s->out, &s->lse, &s->d_out, &s->d_lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        gen_array_free(all[i]);
    for (int i = 0; i < TERMS; ++i)
        gen_array_free(&s->term[i]);
    bstk_layout_release(s->layout);
    free(s->bounds);
    free(s);
}

static double scores_loss(void *user) {
    scene *s = user;
    double *lse_bounds = s->bounds + gen_count(&s->out.t);
    assert_true(s->scores.x != NULL
                    ? ref_softmax(&s->scores, numbers(&s->out), s->bounds, numbers(&s->lse), lse_bounds)
                    : ref_attention(&s->scores, &s->v.t, numbers(&s->out), s->bounds, numbers(&s->lse), lse_bounds));
    return sum_of_products(&s->d_out, &s->out) + sum_of_products(&s->d_lse, &s->lse);
}

static void check_scores(bool attention, int flags) {
    static const char *const names[REF_GRADIENTS] = {
        "d_x or d_q", "d_k", "d_v", "d_rpe", "d_rel_logits", "d_key_padding_mask", "d_attn_mask", "d_sinks"};
    scene *s = scene_make(attention, flags);
    const gen_array *const inputs[REF_GRADIENTS] = {
        attention ? &s->q : &s->x, &s->k,          &s->v,          &s->term[RPE], &s->term[REL],
        &s->term[KEY_PADDING],     &s->term[ATTN], &s->term[SINKS]};
    ref_scores_grad g = {.scores = s->scores,
                         .v = &s->v.t,
                         .out = &s->out.t,
                         .lse = &s->lse.t,
                         .d_out = &s->d_out.t,
                         .d_lse = &s->d_lse.t};
    for (int i = 0; i < REF_GRADIENTS; ++i) {
        const bool matrix = i >= REF_D_RPE && i <= REF_D_ATTN;
        if ((matrix && !(flags & HAS_MATRICES)) || (i == REF_D_SINKS && !(flags & HAS_SINKS)) ||
            (!attention && (i == REF_D_K || i == REF_D_V)))
            continue;
        g.gradients[i] = output_like(inputs[i]);
    }
    scores_loss(s);
    if (!attention) { /* it takes y as it was before the dropout */
        s->terms.dropout = 0;
        scores_loss(s);
        s->terms.dropout = flags & HAS_DROPOUT ? 0.3 : 0;
    }
    assert_true(attention ? ref_attention_grad(&g) : ref_softmax_grad(&g));
    for (int i = 0; i < REF_GRADIENTS; ++i) {
        if (g.gradients[i].t == NULL)
            continue;
        differences(names[i], scores_loss, s, inputs[i], &g.gradients[i]);
        output_free(&g.gradients[i]);
    }
    scene_free(s);
}

static const int scenes[] = {0,         HAS_MATRICES, HAS_CAP, HAS_WINDOWS,   HAS_TOKENS,
                             HAS_SINKS, HAS_DROPOUT,  ALL,     ALL ^ HAS_CAP, ALL ^ HAS_TOKENS};

static void softmax_by_differences(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; ++i)
        check_scores(false, scenes[i]);
}

static void attention_by_differences(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; ++i)
        check_scores(true, scenes[i]);
}

/* ---- forward terms by hand --------------------------------------------------------------------------------------- */

/* One row of 3 scores, all 0 but for what the options do. */
static void terms_by_hand(void **state) {
    (void)state;
    static uint8_t one[1] = {1};
    static double x[B * B], y[B * B], bound[B * B], lse, lse_bound;
    const bstk_tensor mask = bstk_tensor_make(one, BSTK_U8, 3, shape(1, 1, 1));
    const bstk_tensor packed = bstk_tensor_make(x, BSTK_F64, 3, shape(1, B, B));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &mask, B, shape(1, 3), &layout));
    bstk_score_terms t = BSTK_SCORE_TERMS_INIT;
    const ref_scores p = {
        .layout = layout, .z = 1, .h = 1, .m = 1, .n = 3, .dtype = BSTK_F64, .x = &packed, .terms = &t};
    double sink = log(5), slope = log(2);
    const bstk_tensor sinks = bstk_tensor_make(&sink, BSTK_F64, 1, shape(1));
    const bstk_tensor slopes = bstk_tensor_make(&slope, BSTK_F64, 1, shape(1));
    t.sinks = &sinks; /* 1 : 1 : 1 beside 5 */
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(fabs(y[0] - 0.125) < 1e-15 && fabs(y[2] - 0.125) < 1e-15 && fabs(lse - log(8)) < 1e-15);
    t.sinks = NULL;
    t.alibi_slopes = &slopes; /* the diagonal is column 0: 1 : 1/2 : 1/4 */
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(fabs(y[0] - 4.0 / 7) < 1e-15 && fabs(y[1] - 2.0 / 7) < 1e-15 && fabs(y[2] - 1.0 / 7) < 1e-15);
    t.bottom_right = 1; /* now it is column 2 */
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(fabs(y[0] - 1.0 / 7) < 1e-15 && fabs(y[2] - 4.0 / 7) < 1e-15);
    t.alibi_slopes = NULL;
    t.window_left = 1; /* columns 1 and 2 */
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(y[0] == 0 && y[1] == 0.5 && y[2] == 0.5);
    t.bottom_right = 0; /* column 0 and what is right of it: no limit there */
    t.window_right = 1;
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(y[0] == 0.5 && y[1] == 0.5 && y[2] == 0);
    t.window_left = t.window_right = -1;
    x[1] = 1e9; /* tanh is 1: 1 : e : 1 */
    t.softcap = 1;
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(fabs(y[1] - exp(1) / (2 + exp(1))) < 1e-15);
    x[1] = 0;
    t.softcap = 0;
    t.dropout = 1;
    assert_true(ref_softmax(&p, y, bound, &lse, &lse_bound));
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0 && bound[0] == 0 && fabs(lse - log(3)) < 1e-15);
    bstk_layout_release(layout);
}

/* The generator's published answers: counter and key of zeros, of ones, and of the digits of pi. */
static void dropout_words(void **state) {
    (void)state;
    /* Word 0 of counter 0 and key 0 is 0x6627e8d5, word 1 0xe169c58d, word 2 0xbc57ac4c, word 3 0x9b00dbd8: a place
     * survives when its word / 2^32 is at least the probability. */
    static const double words[4] = {0x6627e8d5p-32, 0xe169c58dp-32, 0xbc57ac4cp-32, 0x9b00dbd8p-32};
    static uint8_t one[1] = {1};
    static double x[B * B], y[B * B], bound[B * B];
    const bstk_tensor mask = bstk_tensor_make(one, BSTK_U8, 3, shape(1, 1, 1));
    const bstk_tensor packed = bstk_tensor_make(x, BSTK_F64, 3, shape(1, B, B));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &mask, B, shape(1, 4), &layout));
    bstk_score_terms t = BSTK_SCORE_TERMS_INIT;
    const ref_scores p = {
        .layout = layout, .z = 1, .h = 1, .m = 1, .n = 4, .dtype = BSTK_F64, .x = &packed, .terms = &t};
    for (int j = 0; j < 4; ++j) {
        for (int above = 0; above < 2; ++above) {
            t.dropout = words[j] + above * 0x1p-32;
            assert_true(ref_softmax(&p, y, bound, NULL, NULL));
            for (int c = 0; c < 4; ++c)
                assert_true((y[c] != 0) == (words[c] >= t.dropout));
        }
    }
    bstk_layout_release(layout);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

typedef struct norm_scene {
    ref_norm p;
    gen_array x, weight, bias, y, d_y, mean, rstd;
    ref_output out[3];
} norm_scene;

static double norm_loss(void *user) {
    norm_scene *s = user;
    assert_true(ref_norm_forward(&s->p, &s->out[0], &s->out[1], &s->out[2]));
    double sum = 0;
    for (int64_t e = 0; e < gen_count(&s->y.t); ++e)
        sum += s->out[0].value[e] * numbers(&s->d_y)[e];
    return sum;
}

static void norms_by_differences(void **state) {
    (void)state;
    for (int kind = BSTK_LAYERNORM; kind <= BSTK_RMSNORM; ++kind) {
        norm_scene s;
        memset(&s, 0, sizeof s);
        bstk_layout *layout = make_layout();
        const int64_t nnz = bstk_layout_nnz(layout);
        s.x = make(4, shape(Z, nnz, B, B), 1);
        s.y = make(4, shape(Z, nnz, B, B), 2);
        s.d_y = make(4, shape(Z, nnz, B, B), 3);
        s.weight = make(2, shape(H, N), 4);
        s.bias = make(1, shape(N), 5);
        s.mean = make(3, shape(Z, H, M), 6);
        s.rstd = make(3, shape(Z, H, M), 7);
        s.p = (ref_norm){.kind = (bstk_norm_kind)kind,
                         .layout = layout,
                         .z = Z,
                         .h = H,
                         .x = &s.x.t,
                         .weight = &s.weight.t,
                         .bias = &s.bias.t,
                         .eps = 0.01,
                         .mean = &s.mean.t,
                         .rstd = &s.rstd.t,
                         .d_y = &s.d_y.t};
        s.out[0] = output_like(&s.y);
        s.out[1] = output_like(&s.mean);
        s.out[2] = output_like(&s.rstd);
        norm_loss(&s);
        for (int64_t e = 0; e < Z * H * M; ++e) {
            numbers(&s.mean)[e] = s.out[1].value[e];
            numbers(&s.rstd)[e] = s.out[2].value[e];
            const bool empty = e / M % H == 1 && e % M == 9;
            assert_true((s.out[2].value[e] == 0) == empty && (!empty || s.out[1].value[e] == 0));
        }
        ref_output d_x = output_like(&s.x), d_weight = output_like(&s.weight), d_bias = output_like(&s.bias);
        assert_true(ref_norm_grad(&s.p, &d_x, &d_weight, &d_bias));
        differences("d_x", norm_loss, &s, &s.x, &d_x);
        differences("d_weight", norm_loss, &s, &s.weight, &d_weight);
        differences("d_bias", norm_loss, &s, &s.bias, &d_bias);
        gen_array *const all[] = {&s.x, &s.y, &s.d_y, &s.weight, &s.bias, &s.mean, &s.rstd};
        for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
            gen_array_free(all[i]);
        ref_output *const outputs[] = {&s.out[0], &s.out[1], &s.out[2], &d_x, &d_weight, &d_bias};
        for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i)
            output_free(outputs[i]);
        bstk_layout_release(layout);
    }
}

/* The row 1, 3: mean 2, variance 1; 2 and 14: root of the mean square 10. */
static void norms_by_hand(void **state) {
    (void)state;
    static uint8_t one[1] = {1};
    double x[B * B] = {1, 3}, y[B * B], bound[B * B], mean, mean_bound, rstd, rstd_bound, weight[2] = {2, 5};
    const bstk_tensor mask = bstk_tensor_make(one, BSTK_U8, 3, shape(1, 1, 1));
    const bstk_tensor packed = bstk_tensor_make(x, BSTK_F64, 3, shape(1, B, B));
    const bstk_tensor weights = bstk_tensor_make(weight, BSTK_F64, 1, shape(2));
    const bstk_tensor row = bstk_tensor_make(NULL, BSTK_F64, 3, shape(1, 1, 1));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &mask, B, shape(1, 2), &layout));
    ref_norm p = {.kind = BSTK_LAYERNORM, .layout = layout, .z = 1, .h = 1, .x = &packed, .weight = &weights};
    const ref_output out = {&packed, y, bound}, means = {&row, &mean, &mean_bound}, rstds = {&row, &rstd, &rstd_bound};
    assert_true(ref_norm_forward(&p, &out, &means, &rstds));
    assert_true(y[0] == -2 && y[1] == 5 && y[2] == 0 && bound[2] == 0 && mean == 2 && rstd == 1);
    assert_true(bound[0] > 0 && bound[0] < 1e-14 && mean_bound > 0 && rstd_bound > 0);
    p.exact = true;
    assert_true(ref_norm_forward(&p, &out, &means, &rstds));
    assert_true(bound[0] == 0 && mean_bound == 0 && rstd_bound == 0);
    x[0] = 2;
    x[1] = 14;
    p.kind = BSTK_RMSNORM;
    assert_true(ref_norm_forward(&p, &out, &means, &rstds));
    assert_true(fabs(y[0] - 0.4) < 1e-15 && fabs(y[1] - 7) < 1e-15 && mean == 0 && fabs(rstd - 0.1) < 1e-16);
    bstk_layout_release(layout);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct product_scene {
    ref_product p;
    gen_array a, b, c, d_c;
    ref_output out;
} product_scene;

static double product_loss(void *user) {
    product_scene *s = user;
    assert_true(ref_matmul(&s->p, s->out.value, s->out.bound));
    double sum = 0;
    for (int64_t e = 0; e < gen_count(&s->c.t); ++e)
        sum += s->out.value[e] * numbers(&s->d_c)[e];
    return sum;
}

/* Every mode and transposition; a has one batch, b one head. */
static void products_by_differences(void **state) {
    (void)state;
    enum { K = 5 };
    for (int which = 0; which < 3 * 8; ++which) {
        const bstk_mode mode = (bstk_mode)(BSTK_SDD + which / 8);
        const bool ta = which % 2, tb = which / 2 % 2, tc = which / 4 % 2;
        int64_t size[2] = {mode == BSTK_DDS ? K : M, mode == BSTK_DSD ? K : N}; /* of the sparse matrix */
        if (mode == BSTK_SDD ? tc : mode == BSTK_DSD ? ta : tb) {
            const int64_t swap = size[0];
            size[0] = size[1];
            size[1] = swap;
        }
        const int64_t rows = (size[0] + B - 1) / B, cols = (size[1] + B - 1) / B;
        uint8_t blocks[H * 4];
        for (int64_t e = 0; e < H * rows * cols; ++e)
            blocks[e] = e == 0 || gen_hash((uint64_t)which, (uint64_t)e) % 3 > 0;
        const bstk_tensor mask = bstk_tensor_make(blocks, BSTK_U8, 3, shape(H, rows, cols));
        bstk_layout *layout = NULL;
        ok(bstk_layout_from_mask(NULL, &mask, B, size, &layout));
        const int64_t nnz = bstk_layout_nnz(layout);
        product_scene s;
        memset(&s, 0, sizeof s);
        s.a = mode == BSTK_DSD ? make(4, shape(1, nnz, B, B), 1) : make(4, shape(1, H, ta ? K : M, ta ? M : K), 1);
        s.b = mode == BSTK_DDS ? make(4, shape(Z, nnz, B, B), 2) : make(4, shape(Z, 1, tb ? N : K, tb ? K : N), 2);
        s.c = mode == BSTK_SDD ? make(4, shape(Z, nnz, B, B), 3) : make(4, shape(Z, H, tc ? N : M, tc ? M : N), 3);
        s.d_c = make(4, s.c.t.shape, 4);
        s.p = (ref_product){.mode = mode,
                            .trans_a = ta,
                            .trans_b = tb,
                            .trans_c = tc,
                            .layout = layout,
                            .z = Z,
                            .h = H,
                            .m = M,
                            .n = N,
                            .k = K,
                            .a = &s.a.t,
                            .b = &s.b.t,
                            .c = &s.c.t,
                            .alpha = -0.5};
        s.out = output_like(&s.c);
        ref_product grad = s.p;
        grad.c = &s.d_c.t;
        ref_output d_a = output_like(&s.a), d_b = output_like(&s.b);
        assert_true(ref_matmul_grad(&grad, false, &d_a, &d_b));
        differences("d_a", product_loss, &s, &s.a, &d_a);
        differences("d_b", product_loss, &s, &s.b, &d_b);
        gen_array_free(&s.a);
        gen_array_free(&s.b);
        gen_array_free(&s.c);
        gen_array_free(&s.d_c);
        output_free(&s.out);
        output_free(&d_a);
        output_free(&d_b);
        bstk_layout_release(layout);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_by_hand),           cmocka_unit_test(dropout_words),
        cmocka_unit_test(softmax_by_differences),  cmocka_unit_test(attention_by_differences),
        cmocka_unit_test(norms_by_differences),    cmocka_unit_test(norms_by_hand),
        cmocka_unit_test(products_by_differences),
    };
    return cmocka_run_group_tests_name("ref_grad", tests, NULL, NULL);
}
