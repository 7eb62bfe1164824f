/*
 * test_softmax_grad_rules.c: what the gradient of the softmax has to hold beside its numbers: rows that keep nothing,
 * NaN in dropped places, incoming gradients of any strides, exact scratch, refusals, memory that runs out.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/softmax_case.h"
#include "support/test_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All gradients of one softmax in f32, with everything that they need. */
enum { Z = 2, H = 3, M = 20, N = 28, B = 8, E = 9 };
enum { D_X, D_RPE, D_REL, D_KEY, D_ATTN, D_SINKS, GRADS };

typedef struct fixture {
    bstk_layout *layout;
    gen_array x, y, lse, d_y, d_lse, sinks, out[GRADS];
    bstk_softmax_grad_desc desc;
} fixture;

static bstk_layout *full_layout(int64_t heads) {
    const rule ones = {.kind = RULE_ONES};
    return rule_layout(&ones, heads, M, N, B);
}

/* `terms`: those of the forward; the fixture adds sinks. Takes over `layout`, of H heads. */
static void setup(fixture *f, bstk_layout *layout, const bstk_score_terms *terms) {
    *f = (fixture){.layout = layout, .desc = BSTK_SOFTMAX_GRAD_DESC_INIT};
    const int64_t nnz = bstk_layout_nnz(layout);
    gen_array *const packed[] = {&f->x, &f->y, &f->d_y, &f->out[D_X]};
    for (uint64_t i = 0; i < 4; ++i)
        make_array(packed[i], BSTK_F32, 4, shape(Z, nnz, B, B), GEN_CONTIGUOUS, GEN_UNIFORM, i);
    make_array(&f->lse, BSTK_F32, 3, shape(Z, H, M), GEN_CONTIGUOUS, GEN_UNIFORM, 5);
    make_array(&f->d_lse, BSTK_F32, 3, shape(Z, H, M), GEN_CONTIGUOUS, GEN_UNIFORM, 6);
    make_array(&f->sinks, BSTK_F32, 1, shape(H), GEN_CONTIGUOUS, GEN_UNIFORM, 7);
    make_array(&f->out[D_RPE], BSTK_F32, 3, shape(H, M, N), GEN_PADDED, GEN_NANS, 0);
    make_array(&f->out[D_REL], BSTK_F16, 3, shape(H, 1, E), GEN_SPREAD, GEN_NANS, 0);
    make_array(&f->out[D_KEY], BSTK_F64, 2, shape(Z, N), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&f->out[D_ATTN], BSTK_F32, 3, shape(Z, M, N), GEN_TRANSPOSED, GEN_NANS, 0);
    make_array(&f->out[D_SINKS], BSTK_F32, 1, shape(H), GEN_NEGATIVE, GEN_NANS, 0);
    bstk_softmax_grad_desc *d = &f->desc;
    d->layout = layout;
    if (terms)
        d->terms = *terms;
    d->terms.sinks = &f->sinks.t;
    d->y = &f->y.t;
    d->d_y = &f->d_y.t;
    d->d_lse = &f->d_lse.t;
    d->x = &f->x.t;
    d->lse = &f->lse.t;
    d->d_x = &f->out[D_X].t;
    d->d_rpe = &f->out[D_RPE].t;
    d->d_rel_logits = &f->out[D_REL].t;
    d->d_key_padding_mask = &f->out[D_KEY].t;
    d->d_attn_mask = &f->out[D_ATTN].t;
    d->d_sinks = &f->out[D_SINKS].t;
}

static void forward(fixture *f) {
    gen_array y;
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    make_array(&y, BSTK_F32, 4, f->x.t.shape, GEN_CONTIGUOUS, GEN_NANS, 0);
    desc.layout = f->layout;
    desc.x = &f->x.t;
    desc.y = &y.t;
    desc.saved = &f->y.t;
    desc.lse = &f->lse.t;
    desc.terms = f->desc.terms;
    ok(bstk_softmax(NULL, &desc));
    gen_array_free(&y);
}

static void teardown(fixture *f) {
    gen_array *const all[] = {&f->x, &f->y, &f->lse, &f->d_y, &f->d_lse, &f->sinks};
    bstk_layout_release(f->layout);
    for (int i = 0; i < 6; ++i)
        gen_array_free(all[i]);
    for (int i = 0; i < GRADS; ++i)
        gen_array_free(&f->out[i]);
}

static void reset(fixture *f) {
    for (int i = 0; i < GRADS; ++i)
        gen_fill(&f->out[i].t, GEN_NANS, 0);
}

static double element(const gen_array *a, int64_t e) {
    return gen_load(a->t.dtype, a->t.data, gen_offset(&a->t, e));
}

/* The packed place of (z, h, i, j) in a full layout of H heads. */
static int64_t packed_at(int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t rows = (M + B - 1) / B, cols = (N + B - 1) / B;
    return ((((z * H + h) * rows + i / B) * cols + j / B) * B + i % B) * B + j % B;
}

/* ---- rows that keep nothing ----------------------------------------------------------------------------------------
 */

/* BC-022: an empty block row; and rows that a mask empties, whose d_y and d_lse are NaN. */
static void test_bc_022(void **state) {
    (void)state;
    static const uint8_t stored[] = {1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1};
    const rule matrix = {.kind = RULE_MATRIX, .matrix = stored};
    bstk_layout *layout = rule_layout(&matrix, 2, 64, 64, 16);
    const int64_t nnz = bstk_layout_nnz(layout);
    gen_array x, y, d_y, d_x, d_lse, d_rpe, d_key;
    make_array(&x, BSTK_F32, 4, shape(2, nnz, 16, 16), GEN_CONTIGUOUS, GEN_UNIFORM, 1);
    make_array(&y, BSTK_F32, 4, shape(2, nnz, 16, 16), GEN_CONTIGUOUS, GEN_NANS, 1);
    make_array(&d_y, BSTK_F32, 4, shape(2, nnz, 16, 16), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    make_array(&d_x, BSTK_F32, 4, shape(2, nnz, 16, 16), GEN_CONTIGUOUS, GEN_NANS, 2);
    make_array(&d_lse, BSTK_F32, 3, shape(2, 2, 64), GEN_CONTIGUOUS, GEN_UNIFORM, 3);
    make_array(&d_rpe, BSTK_F32, 2, shape(64, 64), GEN_CONTIGUOUS, GEN_NANS, 3);
    make_array(&d_key, BSTK_F32, 1, shape(64), GEN_CONTIGUOUS, GEN_NANS, 3);
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = layout;
    desc.x = &x.t;
    desc.y = &y.t;
    desc.terms.causal = 1; /* block (0, 1) and all of rows 32 to 47 in column block 3 are dropped */
    desc.terms.causal_offset = -1;
    ok(bstk_softmax(NULL, &desc));
    const softmax_case c = {.z = 2, .h = 2, .m = 64, .n = 64, .block = 16, .layout = layout, .blocks = nnz};
    for (int64_t k = 0; k < gen_count(&d_y.t); ++k)
        if (element(&y, k) == 0)
            gen_store(BSTK_F32, d_y.t.data, k, NAN);
    for (int64_t row = 0; row < 256; ++row)
        if ((row % 64 >= 16 && row % 64 < 32) || row % 64 == 0)
            gen_store(BSTK_F32, d_lse.t.data, row, NAN);
    bstk_softmax_grad_desc grad = BSTK_SOFTMAX_GRAD_DESC_INIT;
    grad.layout = layout;
    grad.y = &y.t;
    grad.d_y = &d_y.t;
    grad.d_lse = &d_lse.t;
    grad.d_x = &d_x.t;
    grad.d_rpe = &d_rpe.t;
    grad.d_key_padding_mask = &d_key.t;
    ok(bstk_softmax_grad(NULL, &grad));
    for (int64_t k = 0; k < gen_count(&d_x.t); ++k) {
        const place at = place_of(&c, k / 256 % nnz, k / 16 % 16, k % 16);
        assert_true(isfinite(element(&d_x, k)));
        if (at.i == 0 || at.j > at.i - 1)
            assert_true(element(&d_x, k) == 0 && !signbit(element(&d_x, k)));
    }
    for (int64_t e = 0; e < 64 * 64; ++e) {
        assert_true(isfinite(element(&d_rpe, e)));
        if (e / 64 == 0 || (e / 64 >= 16 && e / 64 < 48 && e % 64 < 32))
            assert_true(element(&d_rpe, e) == 0);
    }
    for (int64_t e = 0; e < 64; ++e)
        assert_true(isfinite(element(&d_key, e)));
    gen_array *const arrays[] = {&x, &y, &d_y, &d_x, &d_lse, &d_rpe, &d_key};
    for (int i = 0; i < 7; ++i)
        gen_array_free(arrays[i]);
    bstk_layout_release(layout);
}

/* Layouts without a block, shared too, matrices without rows or columns, batches of nothing: zeros where there are
 * elements. */
static void test_nothing_stored(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{Z, M, N}, {Z, 0, N}, {Z, M, 0}, {0, M, N}};
    const rule zeros = {.kind = RULE_ZEROS};
    for (int k = 0; k < 8; ++k) {
        const int64_t z = sizes[k % 4][0], m = sizes[k % 4][1], n = sizes[k % 4][2];
        bstk_layout *layout = rule_layout(&zeros, k < 4 ? H : 1, m, n, B);
        gen_array out[4];
        make_array(&out[0], BSTK_F32, 3, shape(H, m, n), GEN_CONTIGUOUS, GEN_NANS, 0);
        make_array(&out[1], BSTK_F32, 3, shape(H, 1, E), GEN_CONTIGUOUS, GEN_NANS, 0);
        make_array(&out[2], BSTK_F32, 1, shape(n), GEN_CONTIGUOUS, GEN_NANS, 0);
        make_array(&out[3], BSTK_F32, 3, shape(1, 1, n), GEN_CONTIGUOUS, GEN_NANS, 0);
        float nothing = 0;
        const bstk_tensor packed = bstk_tensor_make(&nothing, BSTK_F32, 4, shape(z, 0, B, B));
        bstk_softmax_grad_desc grad = BSTK_SOFTMAX_GRAD_DESC_INIT;
        grad.layout = layout;
        grad.y = grad.d_y = grad.d_x = &packed;
        grad.d_rpe = &out[0].t;
        grad.d_rel_logits = &out[1].t;
        grad.d_key_padding_mask = &out[2].t;
        grad.d_attn_mask = &out[3].t;
        ok(bstk_softmax_grad(NULL, &grad));
        for (int i = 0; i < 4; ++i) {
            for (int64_t e = 0; e < gen_count(&out[i].t); ++e)
                assert_true(element(&out[i], e) == 0);
            gen_array_free(&out[i]);
        }
        bstk_layout_release(layout);
    }
}

/* A row that has only its sink: lse is the sink, and d_lse goes to it. */
static void test_only_the_sink(void **state) {
    (void)state;
    fixture f;
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    terms.window_left = 0;
    terms.causal_offset = N + M; /* keeps nothing */
    setup(&f, full_layout(H), &terms);
    forward(&f);
    ok(bstk_softmax_grad(NULL, &f.desc));
    for (int64_t h = 0; h < H; ++h) {
        double want = 0;
        for (int64_t z = 0; z < Z; ++z)
            for (int64_t i = 0; i < M; ++i)
                want += element(&f.d_lse, (z * H + h) * M + i);
        assert_true(fabs(element(&f.out[D_SINKS], h) - want) < 1e-5);
    }
    for (int i = 0; i < D_SINKS; ++i)
        for (int64_t e = 0; e < gen_count(&f.out[i].t); ++e)
            assert_true(element(&f.out[i], e) == 0);
    gen_store(BSTK_F32, f.sinks.t.data, 1, -INFINITY); /* no sink: lse is -inf, and NaN beside it is not looked at */
    forward(&f);
    gen_store(BSTK_F32, f.d_lse.t.data, M + 2, NAN);
    ok(bstk_softmax_grad(NULL, &f.desc));
    assert_true(element(&f.out[D_SINKS], 1) == 0);
    teardown(&f);
}

/* ---- NaN -----------------------------------------------------------------------------------------------------------
 */

/* NaN in what was dropped stays where it is; a live one takes its row, and what is summed from it. */
static void test_nan(void **state) {
    (void)state;
    fixture f;
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    terms.causal = 1;
    terms.dropout = 0.5;
    terms.dropout_seed = 3;
    terms.softcap = 1;
    setup(&f, full_layout(H), &terms);
    forward(&f);
    const softmax_case c = {.z = Z, .h = H, .terms = terms};
    float *d_y = f.d_y.t.data, *x = f.x.t.data, *y = f.y.t.data;
    for (int64_t z = 0; z < Z; ++z)
        for (int64_t h = 0; h < H; ++h)
            for (int64_t i = 0; i < M; ++i)
                for (int64_t j = 0; j < N; ++j) {
                    const int64_t at = packed_at(z, h, i, j);
                    if (j > i)
                        d_y[at] = x[at] = NAN;
                    else if (dropout_factor(&c, z, h, i, j) == 0)
                        d_y[at] = NAN;
                }
    for (int64_t z = 0; z < Z; ++z) /* beyond the edges */
        for (int64_t h = 0; h < H; ++h)
            for (int64_t i = M; i < 24; ++i)
                y[packed_at(z, h, i, 0)] = d_y[packed_at(z, h, i, 0)] = NAN;
    ok(bstk_softmax_grad(NULL, &f.desc));
    for (int i = 0; i < GRADS; ++i)
        for (int64_t e = 0; e < gen_count(&f.out[i].t); ++e)
            assert_true(isfinite(element(&f.out[i], e)));
    int64_t j = 0; /* a place of row 9 that is kept */
    while (dropout_factor(&c, 1, 2, 9, j) == 0)
        ++j;
    assert_true(j <= 9);
    d_y[packed_at(1, 2, 9, j)] = NAN;
    ok(bstk_softmax_grad(NULL, &f.desc));
    for (int64_t z = 0; z < Z; ++z)
        for (int64_t h = 0; h < H; ++h)
            for (int64_t i = 0; i < M; ++i)
                for (int64_t k = 0; k < N; ++k)
                    assert_int_equal(isnan(element(&f.out[D_X], packed_at(z, h, i, k))) != 0,
                                     z == 1 && h == 2 && i == 9 && k <= 9);
    for (int64_t e = 0; e < H * M * N; ++e)
        assert_int_equal(isnan(element(&f.out[D_RPE], e)) != 0, e / N == 2 * M + 9 && e % N <= 9);
    for (int64_t e = 0; e < Z * N; ++e)
        assert_int_equal(isnan(element(&f.out[D_KEY], e)) != 0, e / N == 1 && e % N <= 9);
    for (int64_t h = 0; h < H; ++h)
        assert_int_equal(isnan(element(&f.out[D_SINKS], h)) != 0, h == 2);
    teardown(&f);
}

/* ---- incoming gradients
 * ---------------------------------------------------------------------------------------------- */

/* BC-079: the ones of a sum, with stride 0 on every axis, and a transposed d_y: the bits of a copy without gaps. */
static void test_bc_079(void **state) {
    (void)state;
    fixture f;
    setup(&f, full_layout(H), NULL);
    forward(&f);
    const bstk_tensor plain = f.d_y.t;
    gen_array first[GRADS], copy;
    float one = 1;
    for (int kind = 0; kind < 2; ++kind) {
        bstk_tensor strange = plain;
        make_array(&copy, BSTK_F32, 4, plain.shape, GEN_CONTIGUOUS, GEN_ZEROS, 0);
        if (kind == 0) {
            strange.data = &one;
            memset(strange.stride, 0, sizeof strange.stride);
        } else {
            strange.stride[2] = plain.stride[3];
            strange.stride[3] = plain.stride[2];
        }
        for (int64_t e = 0; e < gen_count(&plain); ++e)
            gen_store(BSTK_F32, copy.t.data, e, gen_load(BSTK_F32, strange.data, gen_offset(&strange, e)));
        f.desc.d_y = &copy.t;
        ok(bstk_softmax_grad(NULL, &f.desc));
        for (int i = 0; i < GRADS; ++i) {
            const bstk_tensor *t = &f.out[i].t;
            make_array(&first[i], t->dtype, t->ndim, t->shape, GEN_CONTIGUOUS, GEN_ZEROS, 0);
            for (int64_t e = 0; e < gen_count(t); ++e)
                gen_store(t->dtype, first[i].t.data, e, element(&f.out[i], e));
        }
        reset(&f);
        f.desc.d_y = &strange;
        ok(bstk_softmax_grad(NULL, &f.desc));
        for (int i = 0; i < GRADS; ++i) {
            assert_same_bits("strided d_y", &f.out[i].t, &first[i].t);
            gen_array_free(&first[i]);
        }
        gen_array_free(&copy);
    }
    teardown(&f);
}

/* BC-092: forward and gradient leave x and d_y as they are; the gradient taken twice has the same bits. */
static void test_bc_092(void **state) {
    (void)state;
    fixture f;
    setup(&f, full_layout(H), NULL);
    unsigned char *x = gen_snapshot(&f.x), *d_y = gen_snapshot(&f.d_y);
    forward(&f);
    ok(bstk_softmax_grad(NULL, &f.desc));
    unsigned char *y = gen_snapshot(&f.y), *d_x = gen_snapshot(&f.out[D_X]);
    reset(&f);
    ok(bstk_softmax_grad(NULL, &f.desc));
    assert_true(gen_unchanged(&f.x, x) && gen_unchanged(&f.d_y, d_y) && gen_unchanged(&f.y, y));
    assert_true(gen_unchanged(&f.out[D_X], d_x));
    free(x);
    free(d_y);
    free(y);
    free(d_x);
    teardown(&f);
}

/* ---- memory --------------------------------------------------------------------------------------------------------
 */

/* Scratch that ends at a guard page and starts anywhere; a run allocates nothing. */
static void test_scratch(void **state) {
    (void)state;
    watch w = {0};
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    opts.num_threads = 3;
    bstk_context *ctx = watched_context(&w, &opts);
    fixture f;
    bstk_plan *plan = NULL;
    setup(&f, full_layout(H), NULL);
    forward(&f);
    ok(bstk_softmax_grad_plan(ctx, &f.desc, &plan));
    assert_non_null(strstr(bstk_plan_kernel(plan), "softmax_grad_f32_"));
    assert_true(bstk_plan_flops(plan) > 0 && bstk_plan_bytes(plan) > 0 && bstk_plan_tasks(plan) > 0);
    const size_t bytes = bstk_plan_scratch_bytes(plan);
    bstk_exec exec = BSTK_EXEC_INIT;
    char *scratch = guarded_alloc(bytes + 40);
    const int_fast64_t calls = atomic_load(&w.calls);
    unsigned char *first[GRADS];
    for (int shift = 0; shift <= 40; shift += 8) {
        exec.scratch = scratch + shift;
        exec.scratch_bytes = bytes;
        reset(&f);
        memset(scratch, 0xff, bytes + 40);
        ok(bstk_softmax_grad_run(plan, &f.desc, &exec));
        for (int e = 0; e < 40; ++e)
            assert_int_equal((unsigned char)(e < shift ? scratch[e] : scratch[bytes + (size_t)e]), 0xff);
        for (int i = 0; i < GRADS; ++i) {
            if (shift == 0)
                first[i] = gen_snapshot(&f.out[i]);
            assert_true(gen_unchanged(&f.out[i], first[i]));
        }
    }
    assert_int_equal(atomic_load(&w.calls), calls);
    char text[128];
    exec.scratch_bytes = bytes - 1;
    snprintf(text, sizeof text, "softmax_grad: scratch has %zu bytes, expected %zu (bstk_plan_scratch_bytes)",
             bytes - 1, bytes);
    refused(bstk_softmax_grad_run(plan, &f.desc, &exec), BSTK_ERR_INVALID, text);
    for (int i = 0; i < GRADS; ++i) {
        assert_true(gen_unchanged(&f.out[i], first[i]));
        free(first[i]);
    }
    bstk_plan_release(plan);
    guarded_free(scratch, bytes + 40);
    teardown(&f);
    bstk_context_release(ctx);
    assert_int_equal(atomic_load(&w.live), 0);
}

/* Each allocation of the plan, and of the short form, fails once: a clean refusal, nothing written, nothing leaked. */
static void test_out_of_memory(void **state) {
    (void)state;
    watch w = {0};
    bstk_context *ctx = watched_context(&w, NULL);
    fixture f;
    setup(&f, full_layout(H), NULL);
    forward(&f);
    reset(&f);
    unsigned char *before[GRADS];
    for (int i = 0; i < GRADS; ++i)
        before[i] = gen_snapshot(&f.out[i]);
    const int_fast64_t live = atomic_load(&w.live);
    int n = 1;
    for (bool done = false; !done; ++n) {
        atomic_store(&w.fail_at, n);
        const bstk_status status = bstk_softmax_grad(ctx, &f.desc);
        done = status == BSTK_OK && atomic_load(&w.fail_at) > 0;
        if (!done) {
            assert_int_equal(status, BSTK_ERR_NOMEM);
            for (int i = 0; i < GRADS; ++i)
                assert_true(gen_unchanged(&f.out[i], before[i]));
        }
        assert_int_equal(atomic_load(&w.live), live);
    }
    assert_true(n > 10); /* plan, schedule, five terms with a schedule each, scratch */
    atomic_store(&w.fail_at, 0);
    for (int i = 0; i < GRADS; ++i)
        free(before[i]);
    teardown(&f);
    bstk_context_release(ctx);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------
 */

static bstk_status try_plan(const bstk_softmax_grad_desc *desc) {
    bstk_plan *plan = NULL;
    const bstk_status status = bstk_softmax_grad_plan(NULL, desc, &plan);
    assert_true((status == BSTK_OK) == (plan != NULL));
    bstk_plan_release(plan);
    return status;
}

static void test_desc(void **state) {
    (void)state;
    fixture f;
    bstk_plan *plan = NULL;
    char text[160];
    setup(&f, full_layout(H), NULL);
    refused(bstk_softmax_grad_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "softmax_grad: desc is NULL");
    refused(bstk_softmax_grad_plan(NULL, &f.desc, NULL), BSTK_ERR_INVALID, "softmax_grad: out is NULL");
    bstk_softmax_grad_desc d = f.desc;
    d.struct_size = 8;
    snprintf(text, sizeof text, "softmax_grad: desc.struct_size is 8, expected %zu (BSTK_SOFTMAX_GRAD_DESC_INIT)",
             sizeof d);
    refused(try_plan(&d), BSTK_ERR_INVALID, text);
    d = f.desc;
    d.terms.struct_size = 8;
    snprintf(text, sizeof text, "softmax_grad: terms.struct_size is 8, expected %zu (BSTK_SCORE_TERMS_INIT)",
             sizeof d.terms);
    refused(try_plan(&d), BSTK_ERR_INVALID, text);
    d = f.desc;
    d.layout = NULL;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: layout is NULL");
    d = f.desc;
    d.y = NULL;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: y is NULL");
    d = f.desc;
    d.d_y = NULL;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: d_y is NULL");
    d = f.desc;
    d.lse = NULL;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: lse is NULL, but d_sinks needs it");
    d = f.desc;
    d.terms.sinks = NULL;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: terms.sinks is NULL, but d_sinks needs it");
    d = f.desc;
    d.terms.softcap = 2;
    d.x = NULL;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: x is NULL, but d_x with a softcap needs it");
    d = f.desc;
    d.terms.dropout = -1;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: dropout is -1, expected 0 to 1");
    d = f.desc;
    d.kernel = "softmax_f32_scalar";
    refused(try_plan(&d), BSTK_ERR_UNSUPPORTED, "softmax_grad: kernel 'softmax_f32_scalar' is for another op");
    d.kernel = "softmax_grad_f32_scalar";
    ok(try_plan(&d));
    d = (bstk_softmax_grad_desc)BSTK_SOFTMAX_GRAD_DESC_INIT;
    d.layout = f.layout;
    d.y = d.d_y = &f.y.t;
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: no gradient is wanted, expected d_x or one of a term");
    teardown(&f);
}

static void test_tensors(void **state) {
    (void)state;
    fixture f;
    setup(&f, full_layout(H), NULL);
    bstk_softmax_grad_desc d = f.desc;
    bstk_tensor t = f.y.t;
    t.dtype = BSTK_I32;
    d.y = &t;
    refused(try_plan(&d), BSTK_ERR_TYPE, "softmax_grad: y is int32, expected float64, float32, float16 or bfloat16");
    d = f.desc;
    d.d_y = &t;
    t = bstk_tensor_make(NULL, BSTK_F16, 4, f.y.t.shape);
    refused(try_plan(&d), BSTK_ERR_TYPE, "softmax_grad: d_y is float16, expected float32 as y");
    t = bstk_tensor_make(NULL, BSTK_F32, 4, shape(3, 36, B, B));
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: d_y has batch size 3, expected 2");
    t = bstk_tensor_make(NULL, BSTK_F32, 4, shape(2, 35, B, B));
    refused(try_plan(&d), BSTK_ERR_INVALID,
            "softmax_grad: d_y is [2, 35, 8, 8], expected packed values [Z, 36, 8, 8] (36 stored blocks of 8); pack "
            "makes them from a dense matrix");
    d = f.desc;
    d.d_x = &t;
    t = f.out[D_X].t;
    t.stride[0] = 0;
    refused(try_plan(&d), BSTK_ERR_INVALID,
            "softmax_grad: output d_x has stride 0 on axis 0 of size 2: its elements share memory");
    d = f.desc;
    d.d_lse = &t;
    t = bstk_tensor_make(NULL, BSTK_F16, 3, shape(Z, H, M));
    refused(try_plan(&d), BSTK_ERR_TYPE, "softmax_grad: d_lse is float16, expected float32 beside y of float32");
    t = bstk_tensor_make(NULL, BSTK_F32, 3, shape(Z, H, M + 1));
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: d_lse has rows 21, expected 20");
    t = f.d_lse.t;
    memset(t.stride, 0, sizeof t.stride);
    ok(try_plan(&d));
    d = f.desc;
    d.d_rpe = &t;
    t = bstk_tensor_make(NULL, BSTK_F32, 3, shape(H + 1, M, N));
    refused(try_plan(&d), BSTK_ERR_INVALID,
            "softmax_grad: d_rpe has heads 4, expected 3; accepted shapes: [M, N], [H, M, N], [Z, H, M, N], where Z, H "
            "and M may be 1");
    t = bstk_tensor_make(NULL, BSTK_I32, 3, shape(H, M, N));
    refused(try_plan(&d), BSTK_ERR_TYPE,
            "softmax_grad: d_rpe is int32, expected float64, float32, float16 or bfloat16");
    t = bstk_tensor_make(NULL, BSTK_F32, 3, shape(H, M, N));
    t.stride[0] = 0; /* BC-084: what was expanded has its gradient in the shape before */
    refused(try_plan(&d), BSTK_ERR_INVALID,
            "softmax_grad: output d_rpe has stride 0 on axis 0 of size 3: its elements share memory");
    d = f.desc;
    d.d_key_padding_mask = &t;
    t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(Z, N - 1));
    refused(try_plan(&d), BSTK_ERR_INVALID,
            "softmax_grad: d_key_padding_mask has columns 27, expected 28; accepted shapes: [N], [Z, N], [1, N]");
    d = f.desc;
    d.d_attn_mask = &t;
    t = bstk_tensor_make(NULL, BSTK_F32, 3, shape(H, M, N));
    refused(try_plan(&d), BSTK_ERR_INVALID,
            "softmax_grad: d_attn_mask has batch size 3, expected 2; accepted shapes: [M, N], [Z, M, N], [Z, H, M, N], "
            "where Z, H and M may be 1");
    d = f.desc;
    d.d_sinks = &t;
    t = bstk_tensor_make(NULL, BSTK_F32, 1, shape(1));
    refused(try_plan(&d), BSTK_ERR_INVALID, "softmax_grad: d_sinks has heads 1, expected 3; accepted shapes: [H]");
    teardown(&f);
}

static void test_run(void **state) {
    (void)state;
    fixture f;
    bstk_plan *plan = NULL, *other = NULL;
    setup(&f, full_layout(H), NULL);
    forward(&f);
    reset(&f);
    unsigned char *before[GRADS];
    for (int i = 0; i < GRADS; ++i)
        before[i] = gen_snapshot(&f.out[i]);
    ok(bstk_softmax_grad_plan(NULL, &f.desc, &plan));
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch_bytes = bstk_plan_scratch_bytes(plan);
    exec.scratch = malloc(exec.scratch_bytes);
    refused(bstk_softmax_grad_run(NULL, &f.desc, &exec), BSTK_ERR_INVALID, "softmax_grad: plan is NULL");
    refused(bstk_softmax_grad_run(plan, NULL, &exec), BSTK_ERR_INVALID, "softmax_grad: desc is NULL");
    bstk_softmax_desc softmax = BSTK_SOFTMAX_DESC_INIT;
    softmax.layout = f.layout;
    softmax.x = softmax.y = &f.x.t;
    ok(bstk_softmax_plan(NULL, &softmax, &other));
    refused(bstk_softmax_grad_run(other, &f.desc, &exec), BSTK_ERR_INVALID, "softmax_grad: plan is for another op");
    bstk_plan_release(other);
    bstk_softmax_grad_desc d = f.desc;
    d.d_rpe = NULL;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "softmax_grad: d_rpe is NULL");
    d = f.desc;
    d.terms.softcap = 1;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_MISMATCH,
            "softmax_grad: softcap is 1 and dropout 0, but the plan was made without a softcap");
    d = f.desc;
    bstk_tensor t = f.y.t;
    t.data = NULL;
    d.y = &t;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "softmax_grad: y.data is NULL");
    d = f.desc;
    d.d_x = &t;
    t.data = f.y.t.data;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "softmax_grad: d_x overlaps y");
    t.data = (float *)f.d_y.t.data + 1;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_INVALID,
            "softmax_grad: d_x overlaps d_y; expected d_y itself (in place) or other memory");
    d = f.desc;
    d.d_attn_mask = &t; /* the smaller of the two, so that it reaches no other one */
    t = f.out[D_ATTN].t;
    t.data = f.out[D_RPE].t.data;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "softmax_grad: d_attn_mask overlaps d_rpe");
    d = f.desc;
    d.d_sinks = &t;
    t = f.out[D_SINKS].t;
    t.data = (float *)f.sinks.t.data + H - 1;
    refused(bstk_softmax_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "softmax_grad: d_sinks overlaps sinks");
    bstk_plan_release(plan);
    /* A plan without gradients that a run asks for. */
    d = f.desc;
    d.d_key_padding_mask = NULL;
    ok(bstk_softmax_grad_plan(NULL, &d, &plan));
    refused(bstk_softmax_grad_run(plan, &f.desc, &exec), BSTK_ERR_MISMATCH,
            "softmax_grad: d_key_padding_mask is given, but the plan was made without it");
    bstk_plan_release(plan);
    for (int i = 0; i < GRADS; ++i) {
        assert_true(gen_unchanged(&f.out[i], before[i]));
        free(before[i]);
    }
    free(exec.scratch);
    teardown(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bc_022),
                                       cmocka_unit_test(test_nothing_stored),
                                       cmocka_unit_test(test_only_the_sink),
                                       cmocka_unit_test(test_nan),
                                       cmocka_unit_test(test_bc_079),
                                       cmocka_unit_test(test_bc_092),
                                       cmocka_unit_test(test_scratch),
                                       cmocka_unit_test(test_out_of_memory),
                                       cmocka_unit_test(test_desc),
                                       cmocka_unit_test(test_tensors),
                                       cmocka_unit_test(test_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
