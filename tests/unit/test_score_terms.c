/*
 * test_score_terms.c: every term of a score, alone and together, against the formulas of bstk/softmax.h in float64;
 * the generator behind the dropout against published numbers; what dropout, windows and sinks have to hold.
 */
#include "support/cm.h"

#include "check/bound.h"
#include "core/philox.h"
#include "support/op_case.h"
#include "support/softmax_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the reference -------------------------------------------------------------------------------------------------
 */

static double term_at(const softmax_case *c, int kind, int64_t z, int64_t h, int64_t i, int64_t j) {
    const bstk_tensor *t = &c->terms_data[kind].t;
    return gen_load(t->dtype, t->data, term_offset(t, kind, z, h, i, j));
}

/* s(z, h, i, j) for the raw score x; `size` is the sum of the magnitudes that go into it. False: dropped. */
static bool score_of(const softmax_case *c, double x, int64_t z, int64_t h, int64_t i, int64_t j, double *s,
                     double *size) {
    const bstk_score_terms *t = &c->terms;
    const span q = sequence_span(c, i);
    const int64_t local_i = i - q.q_first, local_j = j - q.k_first, m = q.q_last - q.q_first, n = q.k_last - q.k_first;
    const int64_t diagonal = local_i + t->causal_offset + (t->bottom_right ? n - m : 0);
    double mask = 0;
    *s = (t->scale == t->scale ? t->scale : 1) * x;
    *size = fabs(*s);
    if (t->softcap > 0)
        *s = t->softcap * tanh(*s / t->softcap);
    bool kept = local_j >= 0 && local_j < n && !(t->causal && local_j > diagonal);
    kept = kept && !(t->window_left >= 0 && local_j < diagonal - t->window_left);
    kept = kept && !(t->window_right >= 0 && local_j > diagonal + t->window_right);
    if (t->q_documents)
        kept = kept && term_at(c, Q_DOCUMENTS, z, h, i, j) == term_at(c, K_DOCUMENTS, z, h, i, j);
    double terms[4] = {0};
    if (t->rpe)
        terms[0] = term_at(c, RPE, z, h, i, j);
    if (t->rel_logits) {
        const int64_t columns = t->rel_logits->shape[t->rel_logits->ndim - 1], e = columns - 1 - (local_i - local_j);
        if (e >= 0 && e < columns)
            terms[1] = term_at(c, REL, z, h, i, e);
    }
    if (t->alibi_slopes)
        terms[2] = -term_at(c, SLOPES, z, h, i, j) * fabs((double)(diagonal - local_j));
    if (t->key_padding_mask)
        mask += term_at(c, KEY_PADDING, z, h, i, j);
    if (t->attn_mask)
        mask += term_at(c, ATTN, z, h, i, j);
    terms[3] = mask;
    for (int e = 0; e < 4; ++e) {
        *s += terms[e];
        *size += fabs(terms[e]);
    }
    return kept && mask != -INFINITY;
}

typedef struct expected {
    double *y, *y_bound, *saved, *saved_bound, *lse, *lse_bound;
} expected;

static double *numbers(int64_t count) {
    double *a = calloc((size_t)count + 1, sizeof *a);
    assert_non_null(a);
    return a;
}

/* Every row as if dense: n scores and, last, the sink. */
static void expect(const softmax_case *c, expected *e) {
    const int64_t area = (int64_t)c->block * c->block, count = c->z * c->blocks * area, rows = c->z * c->h * c->m;
    const int64_t wide = c->n + 1;
    const double u = bound_sum_unit(c->dtype);
    *e = (expected){numbers(count), numbers(count), numbers(count), numbers(count), numbers(rows), numbers(rows)};
    double *s = numbers(rows * wide), *delta = numbers(rows * wide), *error = numbers(rows * wide);
    double *prob = numbers(rows * wide);
    uint8_t *kept = calloc((size_t)(rows * wide), 1);
    assert_non_null(kept);
    for (int64_t k = 0; k < count; ++k) {
        const place at = place_of(c, k / area % c->blocks, k / c->block % c->block, k % c->block);
        const int64_t z = k / area / c->blocks, to = ((z * c->h + at.h) * c->m + at.i) * wide + at.j;
        const uint8_t *mask = bstk_layout_partial_mask(c->layout, at.n);
        double size;
        if (!at.inside)
            continue;
        kept[to] =
            score_of(c, gen_load(c->dtype, c->x.t.data, gen_offset(&c->x.t, k)), z, at.h, at.i, at.j, &s[to], &size) &&
            (mask == NULL || mask[k % area]);
        /* Eight roundings of partial sums no larger than `size`, and four for a tanh. */
        delta[to] = 12 * u * size;
    }
    for (int64_t row = 0; row < rows; ++row) {
        double sum = 0, max = -INFINITY;
        if (c->flags & HAS_SINKS) {
            s[row * wide + c->n] = term_at(c, SINKS, 0, row / c->m % c->h, 0, 0);
            kept[row * wide + c->n] = 1;
        }
        for (int64_t j = row * wide; j < (row + 1) * wide; ++j)
            max = kept[j] ? fmax(max, s[j]) : max;
        for (int64_t j = row * wide; j < (row + 1) * wide; ++j)
            sum += kept[j] ? exp(s[j] - max) : 0;
        for (int64_t j = row * wide; j < (row + 1) * wide; ++j)
            prob[j] = kept[j] ? exp(s[j] - max) / sum : 0;
        e->lse[row] = sum > 0 ? max + log(sum) : -INFINITY;
        if (sum > 0)
            bound_softmax_row(c->dtype, wide, kept + row * wide, s + row * wide, delta + row * wide, error + row * wide,
                              &e->lse_bound[row]);
        e->lse_bound[row] = bound_stored(c->dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32, e->lse[row], e->lse_bound[row]);
    }
    for (int64_t k = 0; k < count; ++k) {
        const place at = place_of(c, k / area % c->blocks, k / c->block % c->block, k % c->block);
        const int64_t z = k / area / c->blocks, from = ((z * c->h + at.h) * c->m + at.i) * wide + at.j;
        if (!at.inside || !kept[from])
            continue;
        const double factor = dropout_factor(c, z, at.h, at.i, at.j);
        e->saved[k] = prob[from];
        e->saved_bound[k] = bound_stored(c->dtype, prob[from], error[from]);
        e->y[k] = factor * prob[from];
        if (factor != 0)
            e->y_bound[k] = bound_stored(c->dtype, e->y[k], factor * (error[from] + 3 * u * prob[from]));
    }
    free(s);
    free(delta);
    free(error);
    free(prob);
    free(kept);
}

static void forget(expected *e) {
    free(e->y);
    free(e->y_bound);
    free(e->saved);
    free(e->saved_bound);
    free(e->lse);
    free(e->lse_bound);
}

/* ---- drawn cases ---------------------------------------------------------------------------------------------------
 */

static bstk_context *context_of(int32_t threads) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = threads;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

static void check_case(bstk_context *ctx, bstk_dtype dtype, int flags, uint64_t seed) {
    softmax_case c;
    expected e;
    gen_array out[3]; /* y, saved, lse */
    unsigned char *gaps[3], *x;
    char text[96];
    softmax_case_draw(&c, dtype, flags, seed);
    expect(&c, &e);
    const gen_style style = (gen_style)(seed % GEN_STYLES);
    softmax_case_packed(&c, &out[0], style, GEN_NANS, 1);
    softmax_case_packed(&c, &out[1], GEN_CONTIGUOUS, GEN_NANS, 2);
    softmax_case_rows(&c, &out[2], style, GEN_NANS, 3);
    for (int i = 0; i < 3; ++i)
        gaps[i] = gen_snapshot(&out[i]);
    x = gen_snapshot(&c.x);
    softmax_case_run(&c, ctx, &out[0].t, &out[2].t, &out[1].t);
    const double *const want[] = {e.y, e.saved, e.lse}, *const bound[] = {e.y_bound, e.saved_bound, e.lse_bound};
    static const char *const names[] = {"y", "saved", "lse"};
    for (int i = 0; i < 3; ++i) {
        snprintf(text, sizeof text, "%s of %s, flags %#x, seed %d", names[i], bstk_dtype_name(dtype), (unsigned)flags,
                 (int)seed);
        assert_within(text, &out[i].t, want[i], bound[i]);
        assert_true(gen_gaps_unchanged(&out[i], gaps[i]));
        free(gaps[i]);
        gen_array_free(&out[i]);
    }
    assert_true(gen_unchanged(&c.x, x));
    free(x);
    forget(&e);
    softmax_case_free(&c);
}

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

/* Each term alone, and with what it works together. */
static void test_each_term(void **state) {
    (void)state;
    static const int flags[] = {0,
                                HAS_SCALE,
                                HAS_RPE,
                                HAS_REL,
                                HAS_KEY_PADDING,
                                HAS_ATTN,
                                HAS_SLOPES,
                                HAS_SINKS,
                                HAS_DOCUMENTS,
                                HAS_SEQUENCES,
                                HAS_CAUSAL,
                                HAS_CAUSAL | HAS_BOTTOM_RIGHT,
                                HAS_WINDOW,
                                HAS_WINDOW | HAS_CAUSAL | HAS_BOTTOM_RIGHT,
                                HAS_SOFTCAP,
                                HAS_SOFTCAP | HAS_SCALE,
                                HAS_DROPOUT,
                                HAS_SLOPES | HAS_BOTTOM_RIGHT,
                                HAS_SEQUENCES | HAS_CAUSAL | HAS_BOTTOM_RIGHT | HAS_WINDOW,
                                HAS_SEQUENCES | HAS_REL | HAS_SLOPES,
                                HAS_SINKS | HAS_DROPOUT | HAS_SOFTCAP};
    for (size_t f = 0; f < sizeof flags / sizeof *flags; ++f)
        for (int d = 0; d < 4; ++d)
            for (uint64_t seed = 0; seed < 6; ++seed)
                check_case(NULL, dtypes[d], flags[f], 100 * seed + f);
}

static void test_combinations(void **state) {
    (void)state;
    bstk_context *seven = context_of(7);
    for (uint64_t seed = 0; seed < 300; ++seed)
        check_case(seed % 2 ? seven : NULL, dtypes[seed % 4], (int)(gen_hash(9, seed) & gen_hash(8, seed) & HAS_ALL),
                   1000 + seed);
    for (uint64_t seed = 0; seed < 40; ++seed)
        check_case(NULL, dtypes[seed % 4], HAS_ALL, 2000 + seed);
    bstk_context_release(seven);
}

/* ---- one full block row by hand ------------------------------------------------------------------------------------
 */

enum { EDGE = 8 };

typedef struct tile {
    bstk_layout *layout;
    float x[EDGE * EDGE], y[EDGE * EDGE], lse[EDGE];
    bstk_tensor xt, yt, lse_t;
    bstk_score_terms terms;
} tile;

static void tile_make(tile *t, int64_t m, int64_t n) {
    uint8_t one = 1;
    const bstk_tensor mask = bstk_tensor_make(&one, BSTK_BOOL, 2, shape(1, 1));
    *t = (tile){.terms = BSTK_SCORE_TERMS_INIT};
    ok(bstk_layout_from_mask(NULL, &mask, EDGE, shape(m, n), &t->layout));
    t->xt = bstk_tensor_make(t->x, BSTK_F32, 4, shape(1, 1, EDGE, EDGE));
    t->yt = bstk_tensor_make(t->y, BSTK_F32, 4, shape(1, 1, EDGE, EDGE));
    t->lse_t = bstk_tensor_make(t->lse, BSTK_F32, 3, shape(1, 1, m));
}

static bstk_status tile_try(tile *t) {
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = t->layout;
    desc.x = &t->xt;
    desc.y = &t->yt;
    desc.lse = &t->lse_t;
    desc.terms = t->terms;
    return bstk_softmax(NULL, &desc);
}

/* Columns of row i that are kept, as bits: all scores are 0 there. */
static unsigned kept_bits(tile *t, int64_t i) {
    unsigned bits = 0;
    ok(tile_try(t));
    for (unsigned j = 0; j < EDGE; ++j)
        bits |= (unsigned)(t->y[i * EDGE + j] > 0) << j;
    return bits;
}

static void test_windows_by_hand(void **state) {
    (void)state;
    tile t;
    tile_make(&t, 5, 8);
    t.terms.window_left = 1;
    t.terms.window_right = 2;
    assert_int_equal(kept_bits(&t, 0), 0x07);
    assert_int_equal(kept_bits(&t, 3), 0x3c);
    t.terms.bottom_right = 1; /* diag(i) = i + 3 */
    assert_int_equal(kept_bits(&t, 0), 0x3c);
    assert_int_equal(kept_bits(&t, 4), 0xc0);
    t.terms.causal = 1;
    assert_int_equal(kept_bits(&t, 0), 0x0c);
    t.terms.causal_offset = -4;
    assert_int_equal(kept_bits(&t, 0), 0);
    assert_true(t.lse[0] == -INFINITY);
    assert_int_equal(kept_bits(&t, 1), 0x01);
    /* Offsets far outside of the matrix, and windows that reach back into it. */
    t.terms.causal = t.terms.bottom_right = 0;
    t.terms.causal_offset = 1000;
    t.terms.window_left = 998;
    assert_int_equal(kept_bits(&t, 0), 0xfc);
    t.terms.window_left = INT64_MAX;
    assert_int_equal(kept_bits(&t, 0), 0xff);
    t.terms.causal_offset = INT64_MIN;
    assert_int_equal(kept_bits(&t, 0), 0);
    bstk_layout_release(t.layout);
}

/* The distance of ALiBi is not cut at the matrix's size. */
static void test_far_slopes(void **state) {
    (void)state;
    tile t;
    double slope = 0.25;
    const bstk_tensor slopes = bstk_tensor_make(&slope, BSTK_F64, 1, shape(1));
    tile_make(&t, 8, 8);
    t.terms.alibi_slopes = &slopes;
    t.terms.causal_offset = 1000;
    ok(tile_try(&t));
    assert_true(fabs(t.lse[0] - (-0.25 * 1000 + log((exp(2) - 1) / (exp(0.25) - 1)))) < 1e-4);
    bstk_layout_release(t.layout);
}

/* A sink joins the sum only; -inf is none; NaN spreads; it alone gives lse. */
static void test_sinks_by_hand(void **state) {
    (void)state;
    tile t;
    float sink = 0;
    const bstk_tensor sinks = bstk_tensor_make(&sink, BSTK_F32, 1, shape(1));
    tile_make(&t, 8, 8);
    t.terms.sinks = &sinks;
    ok(tile_try(&t));
    for (int e = 0; e < EDGE * EDGE; ++e)
        assert_true(t.y[e] == 1 / 9.0F);
    sink = -INFINITY;
    ok(tile_try(&t));
    assert_true(t.y[0] == 0.125F);
    sink = 2;
    t.terms.window_left = 0;
    t.terms.causal_offset = 8; /* keeps nothing */
    ok(tile_try(&t));
    assert_true(t.y[3] == 0 && t.lse[3] == 2);
    t.terms.window_left = -1;
    sink = NAN;
    ok(tile_try(&t));
    assert_true(isnan(t.y[0]) && isnan(t.lse[0]));
    bstk_layout_release(t.layout);
}

/* What a document, a sequence or a window drops may be NaN; what is kept may not. */
static void test_nan(void **state) {
    (void)state;
    tile t;
    int32_t q[EDGE] = {0, 0, 0, 0, 1, 1, 1, 1}, cu[] = {0, 3, 8};
    const bstk_tensor documents = bstk_tensor_make(q, BSTK_I32, 1, shape(EDGE));
    const bstk_tensor sequences = bstk_tensor_make(cu, BSTK_I32, 1, shape(3));
    tile_make(&t, 8, 8);
    t.x[7] = NAN; /* (0, 7) */
    t.x[6] = INFINITY;
    t.terms.q_documents = t.terms.k_documents = &documents;
    assert_int_equal(kept_bits(&t, 0), 0x0f);
    t.terms.q_documents = t.terms.k_documents = NULL;
    t.terms.cu_seqlens_q = t.terms.cu_seqlens_k = &sequences;
    assert_int_equal(kept_bits(&t, 0), 0x07);
    t.terms.cu_seqlens_q = t.terms.cu_seqlens_k = NULL;
    t.terms.window_right = 5;
    assert_int_equal(kept_bits(&t, 0), 0x3f);
    t.terms.window_right = -1;
    ok(tile_try(&t));
    assert_true(isnan(t.y[0]) && isnan(t.lse[0]) && t.y[8] == 0.125F);
    /* A cap makes an infinity finite. */
    t.x[7] = 0;
    t.terms.softcap = 1;
    ok(tile_try(&t));
    assert_true(fabs(t.y[6] - exp(1) / (exp(1) + 7)) < 1e-6);
    bstk_layout_release(t.layout);
}

/* ---- dropout -------------------------------------------------------------------------------------------------------
 */

/* Known answers of Philox4x32-10, published with the generator. */
static void test_philox(void **state) {
    (void)state;
    static const uint32_t rows[3][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                                          0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
                                          0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int r = 0; r < 3; ++r) {
        uint32_t out[4];
        bstk__philox(rows[r], rows[r] + 4, out);
        assert_memory_equal(out, rows[r] + 6, sizeof out);
    }
}

/* Rows of 4 x 4096 x 64 places that all have the probability 1/64. */
enum { ROWS = 4096, COLS = 64 };

static void dropped(bstk_context *ctx, int32_t block, double p, uint64_t seed, uint64_t offset, float *dense) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    opts.rows = ROWS / block;
    opts.cols = COLS / block;
    opts.block = block;
    ok(bstk_layout_build(NULL, &opts, &layout));
    const int64_t nnz = bstk_layout_nnz(layout);
    float *values = calloc((size_t)(ROWS * COLS), sizeof *values);
    assert_non_null(values);
    const bstk_tensor x = bstk_tensor_make(values, BSTK_F32, 3, shape(nnz, block, block));
    const bstk_tensor y = bstk_tensor_make(dense, BSTK_F32, 2, shape(ROWS, COLS));
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = layout;
    desc.x = desc.y = &x;
    desc.terms.dropout = p;
    desc.terms.dropout_seed = seed;
    desc.terms.dropout_offset = offset;
    ok(bstk_softmax(ctx, &desc));
    bstk_convert_desc unpack = BSTK_CONVERT_DESC_INIT;
    unpack.direction = BSTK_UNPACK;
    unpack.layout = layout;
    unpack.x = &x;
    unpack.y = &y;
    ok(bstk_convert(NULL, &unpack));
    free(values);
    bstk_layout_release(layout);
}

static void test_dropout(void **state) {
    (void)state;
    bstk_context *seven = context_of(7);
    float *a = malloc(sizeof(float[ROWS * COLS])), *b = malloc(sizeof(float[ROWS * COLS]));
    assert_true(a && b);
    static const double chances[] = {0.1, 0.5, 0.9};
    for (int c = 0; c < 3; ++c) {
        const double p = chances[c], count = (double)ROWS * COLS, factor = 1 / (1 - p);
        int64_t zeros = 0, pairs = 0;
        double sum = 0;
        dropped(NULL, 16, p, 7, 1, a);
        for (int e = 0; e < ROWS * COLS; ++e) {
            assert_true(a[e] == 0 || fabs(a[e] - factor / COLS) < 1e-6);
            zeros += a[e] == 0;
            pairs += e > 0 && a[e] == 0 && a[e - 1] == 0;
            sum += a[e];
        }
        /* Six standard deviations: of the share dropped, of neighbours dropped together, of the mean of a row. */
        assert_true(fabs((double)zeros - p * count) < 6 * sqrt(count * p * (1 - p)));
        assert_true(fabs((double)pairs - p * p * count) < 12 * sqrt(count * p * p));
        assert_true(fabs(sum / ROWS - 1) < 6 * sqrt(p / (1 - p) / count));
        dropped(seven, 64, p, 7, 1, b); /* other threads, another layout: the same places */
        assert_memory_equal(a, b, sizeof(float[ROWS * COLS]));
        int64_t same = 0;
        for (int other = 0; other < 4; ++other) {
            static const uint64_t keys[4][2] = {{8, 1}, {7, 2}, {7 | UINT64_C(1) << 40, 1}, {7, 1 | UINT64_C(1) << 40}};
            dropped(NULL, 16, p, keys[other][0], keys[other][1], b);
            for (int e = 0; e < ROWS * COLS; ++e)
                same += (a[e] == 0) == (b[e] == 0);
        }
        assert_true(fabs((double)same - 4 * count * (p * p + (1 - p) * (1 - p))) < 12 * sqrt(count));
    }
    dropped(NULL, 16, 1, 7, 1, a);
    for (int e = 0; e < ROWS * COLS; ++e)
        assert_true(a[e] == 0);
    dropped(NULL, 16, 0, 7, 1, a);
    for (int e = 0; e < ROWS * COLS; ++e)
        assert_true(a[e] == 1.0F / COLS);
    free(a);
    free(b);
    bstk_context_release(seven);
}

/* Heads and batches have masks of their own, also when they share a layout. */
static void test_dropout_coordinates(void **state) {
    (void)state;
    uint8_t one = 1;
    bstk_layout *layout = NULL;
    const bstk_tensor mask = bstk_tensor_make(&one, BSTK_BOOL, 2, shape(1, 1));
    ok(bstk_layout_from_mask(NULL, &mask, 32, NULL, &layout));
    enum { AREA = 32 * 32 };
    float *values = calloc(6 * AREA, sizeof *values);
    assert_non_null(values);
    const bstk_tensor x = bstk_tensor_make(values, BSTK_F32, 4, shape(2, 3, 32, 32));
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = layout;
    desc.x = desc.y = &x;
    desc.terms.dropout = 0.5;
    ok(bstk_softmax(NULL, &desc));
    for (int k = 0; k < 6; ++k)
        for (int l = 0; l < k; ++l)
            assert_true(memcmp(values + k * AREA, values + l * AREA, sizeof(float[AREA])) != 0);
    free(values);
    bstk_layout_release(layout);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------
 */

static void test_refusals(void **state) {
    (void)state;
    tile t;
    int32_t cu[] = {0, 5, 4, 8}, few[] = {0, 4, 7}, documents[EDGE] = {0};
    bstk_tensor cu_t = bstk_tensor_make(cu, BSTK_I32, 1, shape(4)),
                few_t = bstk_tensor_make(few, BSTK_I32, 1, shape(3));
    const bstk_tensor documents_t = bstk_tensor_make(documents, BSTK_I32, 1, shape(EDGE));
    tile_make(&t, 8, 8);
    memset(t.y, 0x55, sizeof t.y);
    t.terms.softcap = -1;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: softcap is -1, expected 0 (none) or 1e-30 to 1e30");
    t.terms.softcap = 1e-40;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: softcap is 1e-40, expected 0 (none) or 1e-30 to 1e30");
    t.terms.softcap = 0;
    t.terms.dropout = 1.5;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: dropout is 1.5, expected 0 to 1");
    t.terms.dropout = 0;
    t.terms.window_left = -2;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: window_left is -2, expected 0 or more, or -1 for no limit");
    t.terms.window_left = -1;
    t.terms.q_documents = &documents_t;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: q_documents and k_documents must be given together, or neither");
    t.terms.q_documents = NULL;
    t.terms.cu_seqlens_k = &cu_t;
    refused(tile_try(&t), BSTK_ERR_INVALID,
            "softmax: cu_seqlens_q and cu_seqlens_k must be given together, or neither");
    t.terms.cu_seqlens_q = &cu_t;
    refused(tile_try(&t), BSTK_ERR_INVALID,
            "softmax: cu_seqlens_q[2] is 4, expected values that rise to the number of tokens");
    cu[2] = 9;
    refused(tile_try(&t), BSTK_ERR_INVALID,
            "softmax: cu_seqlens_q[2] is 9, expected values that rise to the number of tokens");
    cu[2] = 6;
    cu[0] = 1;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: cu_seqlens_q[0] is 1, expected 0");
    t.terms.cu_seqlens_q = t.terms.cu_seqlens_k = &few_t;
    refused(tile_try(&t), BSTK_ERR_INVALID, "softmax: cu_seqlens_q ends with 7, expected 8, the number of tokens");
    t.terms.cu_seqlens_k = &cu_t;
    refused(tile_try(&t), BSTK_ERR_INVALID,
            "softmax: cu_seqlens_k has elements 4, expected 3; accepted shapes: [S + 1]");
    for (size_t e = 0; e < sizeof t.y; ++e)
        assert_int_equal(((unsigned char *)t.y)[e], 0x55);
    bstk_layout_release(t.layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_term),
                                       cmocka_unit_test(test_combinations),
                                       cmocka_unit_test(test_windows_by_hand),
                                       cmocka_unit_test(test_far_slopes),
                                       cmocka_unit_test(test_sinks_by_hand),
                                       cmocka_unit_test(test_nan),
                                       cmocka_unit_test(test_philox),
                                       cmocka_unit_test(test_dropout),
                                       cmocka_unit_test(test_dropout_coordinates),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
