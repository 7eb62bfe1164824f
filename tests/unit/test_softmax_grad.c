/*
 * test_softmax_grad.c: the gradient of the softmax. Three steps: a float64 reference from the formulas of
 * bstk/softmax.h; the float64 kernel against central differences through the public forward; every type against the
 * reference, within bounds. Rules,
 * refusals and memory are in test_softmax_grad_rules.c.
 */
#include "support/cm.h"

#include "check/bound.h"
#include "support/op_case.h"
#include "support/softmax_case.h"
#include "support/test_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gradients in the order of the struct, and the terms that they belong to. */
enum { D_X, D_RPE, D_REL, D_KEY_PADDING, D_ATTN, D_SINKS, GRADS };
static const char *const grad_names[GRADS] = {"d_x",         "d_rpe",  "d_rel_logits", "d_key_padding_mask",
                                              "d_attn_mask", "d_sinks"};
static const int term_of[GRADS] = {-1, RPE, REL, KEY_PADDING, ATTN, SINKS};

typedef struct grad_case {
    softmax_case c;
    gen_array y, lse, d_y, d_lse; /* y before the dropout */
    gen_array out[GRADS];
    bstk_softmax_grad_desc desc;
} grad_case;

static const bstk_tensor **desc_grad(bstk_softmax_grad_desc *d, int i) {
    const bstk_tensor **const all[GRADS] = {&d->d_x,         &d->d_rpe,  &d->d_rel_logits, &d->d_key_padding_mask,
                                            &d->d_attn_mask, &d->d_sinks};
    return all[i];
}

/* Everything of a drawn softmax with its forward done; all gradients that there are terms for. */
static void grad_draw(grad_case *g, bstk_dtype dtype, int flags, uint64_t seed) {
    *g = (grad_case){.desc = BSTK_SOFTMAX_GRAD_DESC_INIT};
    softmax_case_draw(&g->c, dtype, flags, seed);
    const softmax_case *c = &g->c;
    gen_array y; /* after the dropout: not needed */
    const gen_style style = (gen_style)(gen_hash(seed, 20) % GEN_STYLES);
    softmax_case_packed(c, &y, GEN_CONTIGUOUS, GEN_NANS, 0);
    softmax_case_packed(c, &g->y, style, GEN_NANS, 0);
    softmax_case_rows(c, &g->lse, style, GEN_NANS, 0);
    softmax_case_run(c, NULL, &y.t, &g->lse.t, &g->y.t);
    gen_array_free(&y);
    softmax_case_packed(c, &g->d_y, (gen_style)(gen_hash(seed, 21) % (GEN_ZERO_SECOND + 1)), GEN_UNIFORM, seed + 100);
    if (gen_hash(seed, 22) % 3)
        softmax_case_rows(c, &g->d_lse, (gen_style)(gen_hash(seed, 23) % (GEN_ZERO_SECOND + 1)), GEN_UNIFORM,
                          seed + 101);
    softmax_case_packed(c, &g->out[D_X], (gen_style)(gen_hash(seed, 24) % GEN_STYLES), GEN_NANS, 0);
    g->desc.layout = c->layout;
    g->desc.y = &g->y.t;
    g->desc.d_y = &g->d_y.t;
    g->desc.d_lse = g->d_lse.memory ? &g->d_lse.t : NULL;
    g->desc.x = &c->x.t;
    g->desc.lse = &g->lse.t;
    g->desc.terms = c->terms;
    for (int i = 1; i < GRADS; ++i) {
        const gen_array *term = &c->terms_data[term_of[i]];
        const bstk_dtype type =
            dtype == BSTK_F64 ? BSTK_F64 : (bstk_dtype)(BSTK_F64 + gen_hash(seed, 30 + (uint64_t)i) % 4);
        if (term->memory)
            make_array(&g->out[i], type, term->t.ndim, term->t.shape,
                       (gen_style)(gen_hash(seed, 40 + (uint64_t)i) % GEN_STYLES), GEN_NANS, 0);
    }
    for (int i = 0; i < GRADS; ++i)
        *desc_grad(&g->desc, i) = g->out[i].memory ? &g->out[i].t : NULL;
}

static void grad_free(grad_case *g) {
    softmax_case_free(&g->c);
    gen_array_free(&g->y);
    gen_array_free(&g->lse);
    gen_array_free(&g->d_y);
    gen_array_free(&g->d_lse);
    for (int i = 0; i < GRADS; ++i)
        gen_array_free(&g->out[i]);
}

static void grad_reset(grad_case *g) {
    for (int i = 0; i < GRADS; ++i)
        if (g->out[i].memory)
            gen_fill(&g->out[i].t, GEN_NANS, 0);
}

/* ---- the reference -------------------------------------------------------------------------------------------------
 */

static double *numbers(int64_t count) {
    double *a = calloc((size_t)count + 1, sizeof *a);
    assert_non_null(a);
    return a;
}

/* Number, in row-major order, of an element of `t` that lies at `offset` of an array of its shape without gaps. */
static int64_t dense_offset(const bstk_tensor *t, int kind, int64_t z, int64_t h, int64_t i, int64_t j) {
    const bstk_tensor flat = bstk_tensor_make(NULL, t->dtype, t->ndim, t->shape);
    return term_offset(&flat, kind, z, h, i, j);
}

/*
 * Values and bounds of all gradients. A place with the probability y and the incoming g has ds = y * (g - delta): with
 * S = sum |y g| + |d_lse| of its row, delta is off by at most 3u S (g through the dropout two roundings, delta one; the
 * sum itself is in double) and ds by u |y| (2|g| + 3S + 2(|g| + |delta|)), below 7u |y| (|g| + S). The scale and the
 * slope of a cap, from a tanh of four roundings at an argument of two, whose slope x * sech^2(x) is below 1/2, add
 * another 16u. Each bound is doubled.
 */
typedef struct reference {
    double *value[GRADS], *bound[GRADS];
} reference;

static void add(reference *r, int i, int64_t at, double value, double bound) {
    r->value[i][at] += value;
    r->bound[i][at] += bound;
}

static void add_place(const grad_case *g, reference *r, int64_t k, int64_t z, const place *at, double ds,
                      double error) {
    const softmax_case *c = &g->c;
    const double u = bound_sum_unit(c->dtype), cap = c->terms.softcap;
    const double scale = c->terms.scale == c->terms.scale ? c->terms.scale : 1;
    double slope = 1;
    if (cap > 0) {
        const double t = tanh(scale * gen_load(c->dtype, c->x.t.data, gen_offset(&c->x.t, k)) / cap);
        slope = 1 - t * t;
    }
    add(r, D_X, k, scale * slope * ds, scale * (error + 32 * u * fabs(ds)));
    for (int i = 1; i <= D_ATTN; ++i) {
        const bstk_tensor *t = &g->out[i].t;
        int64_t j = at->j;
        if (g->out[i].memory == NULL)
            continue;
        if (i == D_REL) {
            const span s = sequence_span(c, at->i);
            j = t->shape[t->ndim - 1] - 1 - ((at->i - s.q_first) - (at->j - s.k_first));
            if (j < 0 || j >= t->shape[t->ndim - 1])
                continue;
        }
        add(r, i, dense_offset(t, term_of[i], z, at->h, at->i, j), ds, error);
    }
}

static void refer(const grad_case *g, reference *r) {
    const softmax_case *c = &g->c;
    const int64_t area = (int64_t)c->block * c->block, count = c->z * c->blocks * area, rows = c->z * c->h * c->m;
    const double u = bound_sum_unit(c->dtype);
    double *delta = numbers(rows), *size = numbers(rows), *y = numbers(count), *grad = numbers(count);
    for (int i = 0; i < GRADS; ++i) {
        const int64_t elements = g->out[i].memory ? gen_count(&g->out[i].t) : i == D_X ? count : 0;
        r->value[i] = numbers(elements);
        r->bound[i] = numbers(elements);
    }
    for (int64_t row = 0; g->d_lse.memory && row < rows; ++row) {
        delta[row] = -gen_load(g->d_lse.t.dtype, g->d_lse.t.data, gen_offset(&g->d_lse.t, row));
        size[row] = fabs(delta[row]);
    }
    for (int pass = 0; pass < 2; ++pass)
        for (int64_t k = 0; k < count; ++k) {
            const place at = place_of(c, k / area % c->blocks, k / c->block % c->block, k % c->block);
            const int64_t z = k / area / c->blocks, row = (z * c->h + at.h) * c->m + at.i;
            if (!at.inside)
                continue;
            if (pass == 0) {
                const double factor = dropout_factor(c, z, at.h, at.i, at.j);
                y[k] = gen_load(c->dtype, g->y.t.data, gen_offset(&g->y.t, k));
                if (y[k] != 0 && factor != 0)
                    grad[k] = factor * gen_load(c->dtype, g->d_y.t.data, gen_offset(&g->d_y.t, k));
                delta[row] += y[k] * grad[k];
                size[row] += fabs(y[k] * grad[k]);
            } else if (y[k] != 0)
                add_place(g, r, k, z, &at, y[k] * (grad[k] - delta[row]), 14 * u * y[k] * (fabs(grad[k]) + size[row]));
        }
    for (int64_t row = 0; g->out[D_SINKS].memory && row < rows; ++row) {
        const bstk_tensor *sinks = &c->terms_data[SINKS].t;
        const int64_t h = row / c->m % c->h;
        const double sink = gen_load(sinks->dtype, sinks->data, gen_offset(sinks, h));
        const double lse = gen_load(g->lse.t.dtype, g->lse.t.data, gen_offset(&g->lse.t, row));
        /* The argument has one rounding, the exponential four. */
        add(r, D_SINKS, h, -exp(sink - lse) * delta[row],
            2 * u * exp(sink - lse) * (3 * size[row] + (4 + fabs(sink - lse)) * fabs(delta[row])));
    }
    for (int i = 0; i < GRADS; ++i)
        for (int64_t e = 0; g->out[i].memory && e < gen_count(&g->out[i].t); ++e)
            if (r->bound[i][e] > 0)
                r->bound[i][e] = bound_stored(g->out[i].t.dtype, r->value[i][e], r->bound[i][e]);
    free(delta);
    free(size);
    free(y);
    free(grad);
}

static void forget(reference *r) {
    for (int i = 0; i < GRADS; ++i) {
        free(r->value[i]);
        free(r->bound[i]);
    }
}

/* ---- against the reference -----------------------------------------------------------------------------------------
 */

static bstk_context *context_of(int32_t threads) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = threads;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

/* All gradients within their bounds, the rest of memory as it was, the same bits on other threads. */
static void check_case(bstk_dtype dtype, int flags, uint64_t seed, bstk_context *const contexts[3]) {
    grad_case g;
    reference r;
    char text[96];
    unsigned char *gaps[GRADS], *first[GRADS], *inputs[5];
    grad_draw(&g, dtype, flags, seed);
    refer(&g, &r);
    const gen_array *const ins[5] = {&g.c.x, &g.y, &g.d_y, &g.lse, &g.d_lse};
    for (int i = 0; i < 5; ++i)
        inputs[i] = ins[i]->memory ? gen_snapshot(ins[i]) : NULL;
    for (int i = 0; i < GRADS; ++i)
        gaps[i] = g.out[i].memory ? gen_snapshot(&g.out[i]) : NULL;
    ok(bstk_softmax_grad(contexts[0], &g.desc));
    for (int i = 0; i < GRADS; ++i) {
        if (g.out[i].memory == NULL)
            continue;
        snprintf(text, sizeof text, "%s of %s, flags %#x, seed %d", grad_names[i], bstk_dtype_name(dtype),
                 (unsigned)flags, (int)seed);
        assert_within(text, &g.out[i].t, r.value[i], r.bound[i]);
        assert_true(gen_gaps_unchanged(&g.out[i], gaps[i]));
        first[i] = gen_snapshot(&g.out[i]);
    }
    for (int t = 0; t < 3; ++t) {
        grad_reset(&g);
        ok(bstk_softmax_grad(contexts[t], &g.desc));
        for (int i = 0; i < GRADS; ++i)
            if (g.out[i].memory && !gen_unchanged(&g.out[i], first[i]))
                fail_msg("%s: context %d gave other bits (flags %#x, seed %d)", grad_names[i], t, (unsigned)flags,
                         (int)seed);
    }
    for (int i = 0; i < 5; ++i) {
        assert_true(inputs[i] == NULL || gen_unchanged(ins[i], inputs[i]));
        free(inputs[i]);
    }
    for (int i = 0; i < GRADS; ++i) {
        free(gaps[i]);
        if (g.out[i].memory)
            free(first[i]);
    }
    forget(&r);
    grad_free(&g);
}

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

static void test_bounds(void **state) {
    (void)state;
    static const int flags[] = {0,         HAS_SCALE,  HAS_RPE,     HAS_REL,     HAS_KEY_PADDING,         HAS_ATTN,
                                HAS_SINKS, HAS_CAUSAL, HAS_SOFTCAP, HAS_DROPOUT, HAS_REL | HAS_SEQUENCES, HAS_ALL};
    bstk_context *const contexts[3] = {context_of(1), context_of(2), context_of(7)};
    for (size_t f = 0; f < sizeof flags / sizeof *flags; ++f)
        for (int d = 0; d < 4; ++d)
            for (uint64_t seed = 0; seed < 8; ++seed)
                check_case(dtypes[d], flags[f], 100 * seed + f, contexts);
    for (uint64_t seed = 0; seed < 240; ++seed)
        check_case(dtypes[seed % 4], (int)(gen_hash(19, seed) & HAS_ALL), 3000 + seed, contexts);
    for (int t = 0; t < 3; ++t)
        bstk_context_release(contexts[t]);
}

/* ---- against differences -------------------------------------------------------------------------------------------
 */

/* The loss whose gradient d_y and d_lse are: sum of y * d_y, and of lse * d_lse over rows that keep something. */
static double loss_of(const grad_case *g, const bstk_plan *plan, const bstk_exec *exec, const gen_array *y,
                      const gen_array *lse) {
    double loss = 0;
    ok(bstk_softmax_run(plan, &g->c.x.t, &g->c.terms, &y->t, &lse->t, NULL, exec));
    for (int64_t k = 0; k < gen_count(&y->t); ++k)
        loss += gen_load(BSTK_F64, y->t.data, gen_offset(&y->t, k)) *
                gen_load(BSTK_F64, g->d_y.t.data, gen_offset(&g->d_y.t, k));
    for (int64_t k = 0; g->d_lse.memory && k < gen_count(&lse->t); ++k) {
        const double value = gen_load(BSTK_F64, lse->t.data, gen_offset(&lse->t, k));
        if (value != -INFINITY)
            loss += value * gen_load(BSTK_F64, g->d_lse.t.data, gen_offset(&g->d_lse.t, k));
    }
    return loss;
}

static void check_differences(int flags, uint64_t seed) {
    enum { SAMPLES = 12 };
    const double step = 1e-5;
    grad_case g;
    gen_array y, lse;
    bstk_plan *plan = NULL;
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    grad_draw(&g, BSTK_F64, flags, seed);
    softmax_case_packed(&g.c, &y, GEN_CONTIGUOUS, GEN_NANS, 0);
    softmax_case_rows(&g.c, &lse, GEN_CONTIGUOUS, GEN_NANS, 0);
    desc.layout = g.c.layout;
    desc.x = &g.c.x.t;
    desc.y = &y.t;
    desc.lse = &lse.t;
    desc.terms = g.c.terms;
    bstk_context *serial = context_of(1);
    ok(bstk_softmax_plan(serial, &desc, &plan));
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch_bytes = bstk_plan_scratch_bytes(plan);
    exec.scratch = malloc(exec.scratch_bytes + 1);
    ok(bstk_softmax_grad(serial, &g.desc));
    for (int i = 0; i < GRADS; ++i) {
        const bstk_tensor *in = i == D_X ? &g.c.x.t : &g.c.terms_data[term_of[i]].t;
        const int64_t count = g.out[i].memory ? gen_count(in) : 0;
        for (uint64_t s = 0; count && s < SAMPLES; ++s) {
            const int64_t e = (int64_t)(gen_hash(seed, 60 + s) % (uint64_t)count), at = gen_offset(in, e);
            const double before = gen_load(BSTK_F64, in->data, at);
            gen_store(BSTK_F64, in->data, at, before + step);
            const double high = loss_of(&g, plan, &exec, &y, &lse);
            gen_store(BSTK_F64, in->data, at, before - step);
            const double low = loss_of(&g, plan, &exec, &y, &lse), want = (high - low) / (2 * step);
            gen_store(BSTK_F64, in->data, at, before);
            const double got = gen_load(BSTK_F64, g.out[i].t.data, gen_offset(&g.out[i].t, e));
            /* The third derivative gives step^2, the difference of sums below 1e3 an error of 1e-13 / step. */
            if (!(fabs(got - want) < 1e-7))
                fail_msg("%s, flags %#x, seed %d: element %lld is %.12g, the difference %.12g", grad_names[i],
                         (unsigned)flags, (int)seed, (long long)e, got, want);
        }
    }
    free(exec.scratch);
    bstk_plan_release(plan);
    bstk_context_release(serial);
    gen_array_free(&y);
    gen_array_free(&lse);
    grad_free(&g);
}

static void test_differences(void **state) {
    (void)state;
    for (int bit = 1; bit <= HAS_ALL; bit *= 2)
        for (uint64_t seed = 0; seed < 4; ++seed)
            check_differences(bit, 5000 + 100 * seed + (uint64_t)(bit % 97));
    for (uint64_t seed = 0; seed < 60; ++seed)
        check_differences((int)(gen_hash(29, seed) & HAS_ALL), 6000 + seed);
    for (uint64_t seed = 0; seed < 20; ++seed)
        check_differences(HAS_ALL & ~(HAS_WINDOW | HAS_DOCUMENTS | HAS_CAUSAL), 7000 + seed);
}

/* ---- what is asked for ---------------------------------------------------------------------------------------------
 */

/* Each gradient alone has the bits that it has beside the others, in place too; what is not needed is not looked at. */
static void test_one_by_one(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 24; ++seed) {
        grad_case g;
        gen_array first[GRADS];
        grad_draw(&g, dtypes[seed % 4],
                  HAS_RPE | HAS_REL | HAS_KEY_PADDING | HAS_ATTN | HAS_SINKS | (seed % 2 ? HAS_SOFTCAP : 0) |
                      (seed % 3 ? HAS_DROPOUT : 0),
                  8000 + seed);
        ok(bstk_softmax_grad(NULL, &g.desc));
        for (int i = 0; i < GRADS; ++i) {
            make_array(&first[i], g.out[i].t.dtype, g.out[i].t.ndim, g.out[i].t.shape, GEN_CONTIGUOUS, GEN_ZEROS, 0);
            for (int64_t e = 0; e < gen_count(&g.out[i].t); ++e)
                gen_store(g.out[i].t.dtype, first[i].t.data, e,
                          gen_load(g.out[i].t.dtype, g.out[i].t.data, gen_offset(&g.out[i].t, e)));
        }
        const bstk_softmax_grad_desc all = g.desc;
        for (int i = 0; i < GRADS; ++i) {
            bstk_softmax_grad_desc one = all;
            for (int k = 0; k < GRADS; ++k)
                if (k != i)
                    *desc_grad(&one, k) = NULL;
            if (i != D_X || seed % 2 == 0)
                one.x = NULL;
            if (i != D_SINKS) {
                one.lse = NULL;
                one.terms.sinks = NULL;
            }
            one.terms.rpe = one.terms.attn_mask = one.terms.key_padding_mask = one.terms.rel_logits = NULL;
            grad_reset(&g);
            ok(bstk_softmax_grad(NULL, &one));
            assert_same_bits(grad_names[i], &g.out[i].t, &first[i].t);
        }
        /* In place, all at once: the terms still see d_y. */
        gen_array both;
        softmax_case_packed(&g.c, &both, GEN_PADDED, GEN_ZEROS, 0);
        for (int64_t e = 0; e < gen_count(&both.t); ++e)
            gen_store(both.t.dtype, both.t.data, gen_offset(&both.t, e),
                      gen_load(g.d_y.t.dtype, g.d_y.t.data, gen_offset(&g.d_y.t, e)));
        g.desc.d_y = g.desc.d_x = &both.t;
        grad_reset(&g);
        ok(bstk_softmax_grad(NULL, &g.desc));
        assert_same_bits("d_x in place", &both.t, &first[D_X].t);
        for (int i = 1; i < GRADS; ++i)
            assert_same_bits(grad_names[i], &g.out[i].t, &first[i].t);
        gen_array_free(&both);
        for (int i = 0; i < GRADS; ++i)
            gen_array_free(&first[i]);
        grad_free(&g);
    }
}

/* Rows longer and columns more than a tile of sums; a term's heads broadcast over a layout by head; many threads. */
static void test_long_rows(void **state) {
    (void)state;
    enum { M = 24, N = 2600, B = 8, H = 2 };
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    opts.kind = BSTK_LAYOUT_RANDOM;
    opts.heads = H;
    opts.rows = M / B;
    opts.cols = N / B;
    opts.block = B;
    opts.density = 0.5;
    ok(bstk_layout_build(NULL, &opts, &layout));
    const int64_t nnz = bstk_layout_nnz(layout), e = M + N - 1;
    gen_array x, y, d_y, rpe, rows, diagonals, padding;
    make_array(&x, BSTK_F64, 4, shape(2, nnz, B, B), GEN_CONTIGUOUS, GEN_UNIFORM, 1);
    make_array(&y, BSTK_F64, 4, shape(2, nnz, B, B), GEN_CONTIGUOUS, GEN_NANS, 1);
    make_array(&d_y, BSTK_F64, 4, shape(2, nnz, B, B), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    make_array(&rpe, BSTK_F64, 2, shape(M, N), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&rows, BSTK_F64, 2, shape(M, e), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&diagonals, BSTK_F64, 3, shape(H, 1, e), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&padding, BSTK_F64, 2, shape(2, N), GEN_CONTIGUOUS, GEN_NANS, 0);
    bstk_softmax_desc forward = BSTK_SOFTMAX_DESC_INIT;
    forward.layout = layout;
    forward.x = &x.t;
    forward.y = &y.t;
    ok(bstk_softmax(NULL, &forward));
    bstk_softmax_grad_desc desc = BSTK_SOFTMAX_GRAD_DESC_INIT;
    desc.layout = layout;
    desc.y = &y.t;
    desc.d_y = &d_y.t;
    desc.d_x = &x.t; /* with scale 1 and no cap: ds itself */
    desc.d_rpe = &rpe.t;
    desc.d_rel_logits = &rows.t;
    desc.d_key_padding_mask = &padding.t;
    ok(bstk_softmax_grad(NULL, &desc));
    desc = (bstk_softmax_grad_desc)BSTK_SOFTMAX_GRAD_DESC_INIT;
    desc.layout = layout;
    desc.y = &y.t;
    desc.d_y = &d_y.t;
    desc.d_rel_logits = &diagonals.t;
    ok(bstk_softmax_grad(NULL, &desc));
    double *want_rpe = numbers(M * N), *want_rows = numbers(M * e), *want_diagonals = numbers(H * e);
    double *want_padding = numbers(2 * N), *near = numbers(M * e + 2 * N + H * e);
    const softmax_case c = {.z = 2, .h = H, .m = M, .n = N, .block = B, .layout = layout, .blocks = nnz};
    for (int64_t k = 0; k < 2 * nnz * B * B; ++k) {
        const place at = place_of(&c, k / (B * B) % nnz, k / B % B, k % B);
        const double ds = ((double *)x.t.data)[k];
        const int64_t column = e - 1 - (at.i - at.j);
        want_rpe[at.i * N + at.j] += ds;
        want_padding[k / (B * B) / nnz * N + at.j] += ds;
        if (column >= 0 && column < e) {
            want_rows[at.i * e + column] += ds;
            want_diagonals[at.h * e + column] += ds;
        }
    }
    for (int64_t k = 0; k < M * e + 2 * N + H * e; ++k)
        near[k] = 1e-15;
    assert_within("rpe", &rpe.t, want_rpe, near);
    assert_within("rel by row", &rows.t, want_rows, near);
    assert_within("rel by diagonal", &diagonals.t, want_diagonals, near);
    assert_within("key padding", &padding.t, want_padding, near);
    free(want_rpe);
    free(want_rows);
    free(want_diagonals);
    free(want_padding);
    free(near);
    gen_array *const arrays[] = {&x, &y, &d_y, &rpe, &rows, &diagonals, &padding};
    for (int i = 0; i < 7; ++i)
        gen_array_free(arrays[i]);
    bstk_layout_release(layout);
}

/* BC-091: d_rpe [H, M, N] is the sum over the batch, 0 where nothing is stored. BC-084: also of [1, M, N]. */
static void test_bc_084_091(void **state) {
    (void)state;
    const rule bernoulli = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = 1, .ensure_row = true};
    enum { Z = 4, H = 2, N = 64, B = 16 };
    bstk_layout *layout = rule_layout(&bernoulli, H, N, N, B);
    const int64_t nnz = bstk_layout_nnz(layout);
    gen_array x, y, d_y, d_x, by_head, shared;
    make_array(&x, BSTK_F32, 4, shape(Z, nnz, B, B), GEN_CONTIGUOUS, GEN_UNIFORM, 1);
    make_array(&d_y, BSTK_F32, 4, shape(Z, nnz, B, B), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    make_array(&y, BSTK_F32, 4, shape(Z, nnz, B, B), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&d_x, BSTK_F32, 4, shape(Z, nnz, B, B), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&by_head, BSTK_F32, 3, shape(H, N, N), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&shared, BSTK_F32, 3, shape(1, N, N), GEN_CONTIGUOUS, GEN_NANS, 0);
    bstk_softmax_desc forward = BSTK_SOFTMAX_DESC_INIT;
    forward.layout = layout;
    forward.x = &x.t;
    forward.y = &y.t;
    ok(bstk_softmax(NULL, &forward));
    for (int heads = 0; heads < 2; ++heads) {
        bstk_softmax_grad_desc desc = BSTK_SOFTMAX_GRAD_DESC_INIT;
        desc.layout = layout;
        desc.y = &y.t;
        desc.d_y = &d_y.t;
        desc.d_x = &d_x.t;
        desc.d_rpe = heads ? &by_head.t : &shared.t;
        ok(bstk_softmax_grad(NULL, &desc));
        const int64_t count = (heads ? H : 1) * N * N;
        double *want = numbers(count), *bound = numbers(count);
        const softmax_case c = {.z = Z, .h = H, .m = N, .n = N, .block = B, .layout = layout, .blocks = nnz};
        for (int64_t k = 0; k < Z * nnz * B * B; ++k) {
            const place at = place_of(&c, k / (B * B) % nnz, k / B % B, k % B);
            const double ds = (double)((float *)d_x.t.data)[k];
            want[(heads ? at.h * N * N : 0) + at.i * N + at.j] += ds;
            bound[(heads ? at.h * N * N : 0) + at.i * N + at.j] += 0x1p-22 * fabs(ds);
        }
        assert_within("d_rpe", desc.d_rpe, want, bound); /* where nothing is stored the bound is 0 */
        free(want);
        free(bound);
    }
    gen_array *const arrays[] = {&x, &y, &d_y, &d_x, &by_head, &shared};
    for (int i = 0; i < 6; ++i)
        gen_array_free(arrays[i]);
    bstk_layout_release(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds), cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_long_rows),
                                       cmocka_unit_test(test_bc_084_091)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
