/*
 * ref_scores_grad.c: gradients of softmax and attention in float64, one row of scores at a time.
 *
 *     softmax:    p = y as given;   g(i,j) = r * d_y;            delta(i) = sum y * g - d_lse
 *     attention:  p = exp(s - lse); g(i,j) = r * d_o(i) . v(j);  delta(i) = d_o(i) . o(i) - d_lse
 *     ds = p * (g - delta);  dx = scale * slope * ds, slope = 1 - tanh^2(scale * x / softcap)
 *     d_q = sum_j dx * k;  d_k = sum_i dx * q;  d_v = sum_i p * r * d_o
 *     d_term = sum of ds over what it broadcasts;  d_sinks = -sum exp(sink - lse) * delta
 *
 * Bounds: docs/numerics.md.
 */
#include "bound.h"
#include "gen.h"
#include "ref_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums that become an output: value, errors of what is added, sum of magnitudes, number of summands. */
typedef struct sums {
    double *value, *error, *size, *count;
    uint8_t *open; /* a factor of about 0 times an infinity or NaN, or one that may be anything: all is right */
} sums;

static bool sums_make(sums *s, const ref_output *out) {
    memset(s, 0, sizeof *s);
    if (out->t == NULL)
        return true;
    const size_t count = (size_t)gen_count(out->t) + 1;
    s->value = calloc(count, sizeof *s->value);
    s->error = calloc(count, sizeof *s->error);
    s->size = calloc(count, sizeof *s->size);
    s->count = calloc(count, sizeof *s->count);
    s->open = calloc(count, 1);
    return s->value != NULL && s->error != NULL && s->size != NULL && s->count != NULL && s->open != NULL;
}

/* Adds factor * x: the factor within `error`, x exact. */
static void add(sums *s, int64_t at, double factor, double error, double x) {
    s->count[at] += 1;
    if (isinf(error) || (!isfinite(x) && fabs(factor) <= error)) {
        s->open[at] = 1;
        return;
    }
    s->value[at] += factor * x;
    s->error[at] += error * fabs(x);
    s->size[at] += (fabs(factor) + error) * fabs(x);
}

/* `steps`: largest number of integers up to 128 that an exact summand is made of. */
static void finish(const ref_scores_grad *p, const ref_output *out, sums *s, double steps) {
    const bstk_dtype type = bound_sum_dtype(p->scores.dtype);
    const bool flushed = p->scores.dots && out <= &p->gradients[REF_D_V]; /* sums of pairs */
    const double u = bound_sum_unit(p->scores.dtype), tiny = flushed ? 2 * 0x1p-126 : bound_smallest(type);
    const bool complete = out->t != NULL && s->open != NULL && s->count != NULL;
    for (int64_t e = 0, count = complete ? gen_count(out->t) : 0; e < count; ++e) {
        const double n = s->count[e];
        out->value[e] = s->value[e];
        /* One more for the scale, and 2 for the factor of a term of its own. Nothing was added: 0, exactly. */
        out->bound[e] = n == 0 ? 0
                               : bound_stored(out->t->dtype, s->value[e],
                                              s->error[e] + bound_gamma(n + 3, u) * s->size[e] + (n + 1) * tiny);
        if (p->exact && n * steps * 128 < 0x1p24)
            out->bound[e] = 0;
        const bool open = s->open[e] && !isnan(s->value[e]);
        if (open) /* also beside an infinity: with one of the other sign it is a NaN */
            out->value[e] = 0;
        if (open || (isnan(out->bound[e]) && isfinite(s->value[e])))
            out->bound[e] = INFINITY;
    }
    free(s->value);
    free(s->error);
    free(s->size);
    free(s->count);
    free(s->open);
}

/* A number and how far a computed one may be from it. */
typedef struct near {
    double value, error;
} near;

/* What a kernel makes of a factor that it rounds to bf16, or flushes. */
static near narrowed(const ref_scores_grad *p, near a) {
    if (p->scores.dots)
        a.error += bound_store_unit(BSTK_BF16) * (fabs(a.value) + a.error) + 0x1p-126;
    return a;
}

/* (a - b) * p with a rounding each; exactly 0 where p is exactly 0. */
static near times_difference(near p, near a, near b, double u) {
    const double difference = fabs(a.value - b.value), off = a.error + b.error;
    return (near){p.value * (a.value - b.value),
                  (p.value + p.error) * (difference + off) * (1 + 3 * u) - p.value * difference};
}

static near times(near a, near b, double u) {
    const double size = fabs(a.value * b.value);
    return (near){a.value * b.value, (fabs(a.value) + a.error) * (fabs(b.value) + b.error) * (1 + 2 * u) - size};
}

/* exp(s - lse) of a score within delta: roundings of lse and of the difference, 4u of exp, and what may be flushed. */
static near exponential(double s, double lse, double delta, bstk_dtype dtype) {
    const double theta = delta + 4 * bound_sum_unit(dtype) * (fabs(s) + fabs(lse) + 1), p = exp(s - lse);
    return (near){p, exp(s - lse + theta) - p + bound_smallest_normal(dtype)};
}

/* ds of place a to the gradients of the terms that it is in. */
static void add_to_terms(const ref_scores_grad *p, const ref_row *r, int64_t a, near ds, sums sum[REF_GRADIENTS]) {
    const ref_output *out = p->gradients;
    const int64_t z = r->z, h = r->h, i = r->i, j = r->col[a];
    if (out[REF_D_RPE].t != NULL)
        add(&sum[REF_D_RPE], ref_place(out[REF_D_RPE].t, z, h, i, j), ds.value, ds.error, 1);
    if (out[REF_D_KEY_PADDING].t != NULL)
        add(&sum[REF_D_KEY_PADDING], ref_place(out[REF_D_KEY_PADDING].t, 0, 0, z, j), ds.value, ds.error, 1);
    if (out[REF_D_ATTN].t != NULL)
        add(&sum[REF_D_ATTN], ref_place(out[REF_D_ATTN].t, z, out[REF_D_ATTN].t->ndim == 3 ? z : h, i, j), ds.value,
            ds.error, 1);
    if (out[REF_D_REL].t != NULL) {
        const bstk_tensor *t = out[REF_D_REL].t;
        const int64_t e = t->shape[t->ndim - 1], at = e - 1 - ref_distance(&p->scores, i, j);
        if (at >= 0 && at < e)
            add(&sum[REF_D_REL], ref_place(t, z, h, i, at), ds.value, ds.error, 1);
    }
}

/* A value of [z, h, m], `missing` without the tensor. */
static double of_row(const bstk_tensor *t, const ref_row *r, double missing) {
    return t != NULL ? ref_at(t, 0, r->z, r->h, r->i) : missing;
}

/* What the row gives to d_sinks. A sink of -inf, or a row that keeps nothing beside no sink, takes no part. */
static void add_to_sinks(const ref_scores_grad *p, const ref_row *r, near delta, sums *sum) {
    if (p->gradients[REF_D_SINKS].t == NULL)
        return;
    const double u = bound_sum_unit(p->scores.dtype), sink = ref_at(p->scores.terms->sinks, 0, 0, 0, r->h);
    const double lse = of_row(p->lse, r, -INFINITY);
    if (sink == -INFINITY || lse == -INFINITY)
        return;
    const near product = times(exponential(sink, lse, 0, p->scores.dtype), delta, u);
    if (exp(sink - lse) != 0)
        add(sum, r->h, -product.value, p->exact ? 0 : product.error, 1);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static void softmax_row(const ref_scores_grad *p, ref_row *r, const double *y, const double *d_y, const double *x,
                        sums sum[REF_GRADIENTS]) {
    const double u = bound_sum_unit(p->scores.dtype), scale = ref_scale(&p->scores), cap = p->scores.terms->softcap;
    const double factor = p->scores.terms->dropout > 0 ? ref_dropout_factor(p->scores.terms) : 1;
    const double d_lse = of_row(p->d_lse, r, 0);
    double product = 0, size = fabs(d_lse);
    for (int64_t a = 0; a < r->count; ++a) {
        r->kept[a] = r->kept[a] && y[r->packed[a]] != 0;                         /* the others are not looked at */
        r->s[a] = r->kept[a] && r->survives[a] ? factor * d_y[r->packed[a]] : 0; /* g */
        if (r->kept[a]) {
            product += y[r->packed[a]] * r->s[a];
            size += fabs(y[r->packed[a]] * r->s[a]);
        }
    }
    const near delta = {product - d_lse, bound_gamma((double)r->count + 3, u) * size};
    for (int64_t a = 0; a < r->count; ++a) {
        if (!r->kept[a])
            continue;
        const near prob = {fabs(y[r->packed[a]]), 0}, g = {r->s[a], 3 * u * fabs(r->s[a])};
        near ds = times_difference(prob, g, delta, u);
        ds.value *= y[r->packed[a]] < 0 ? -1 : 1;
        add_to_terms(p, r, a, ds, sum);
        if (p->gradients[REF_D_X].t == NULL)
            continue;
        near slope = {1, 0};
        if (cap > 0) { /* scale, product, quotient: 3 roundings that tanh does not enlarge; 4u of its own */
            const double t = tanh(scale * x[r->packed[a]] / cap), e = 7 * u * fabs(t);
            slope = (near){1 - t * t, 2 * fabs(t) * e + e * e + 3 * u};
        }
        const near dx = times(ds, slope, u);
        add(&sum[REF_D_X], r->packed[a], dx.value, dx.error, scale);
    }
    add_to_sinks(p, r, delta, &sum[REF_D_SINKS]);
}

bool ref_softmax_grad(const ref_scores_grad *p) {
    const ref_scores *s = &p->scores;
    const bool capped = s->terms->softcap > 0 && p->gradients[REF_D_X].t != NULL;
    double *y = gen_doubles(p->out), *d_y = gen_doubles(p->d_out), *x = capped ? gen_doubles(s->x) : NULL;
    sums sum[REF_GRADIENTS];
    ref_row r;
    bool ok = ref_row_make(&r, s->layout) && y != NULL && d_y != NULL && (x != NULL || !capped);
    for (int i = 0; i < REF_GRADIENTS; ++i)
        ok = sums_make(&sum[i], &p->gradients[i]) && ok;
    int64_t places = 0;
    for (int64_t line = 0; ok && line < s->z * s->h * s->m; ++line) {
        ref_row_places(s, line / s->m / s->h, line / s->m % s->h, line % s->m, &r);
        softmax_row(p, &r, y, d_y, x, sum);
        places = r.count > places ? r.count : places;
    }
    /* Exact: y and d_y up to 4, their product through a factor of 2 up to 32, as many as a row has. */
    for (int i = 0; i < REF_GRADIENTS; ++i)
        finish(p, &p->gradients[i], &sum[i], (double)places + 2);
    ref_row_free(&r);
    free(y);
    free(d_y);
    free(x);
    return ok;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* One head of what attention reads. */
typedef struct head {
    double *q, *k, *v, *o, *d_o;
} head;

/* delta of a row. An o of exactly 0 leaves d_o out: beside a sink, where nothing was kept, d_o is not looked at. */
static near delta_of(const ref_scores_grad *p, const ref_row *r, const head *t, int64_t width) {
    const double u = bound_sum_unit(p->scores.dtype), d_lse = of_row(p->d_lse, r, 0);
    double sum = 0, size = fabs(d_lse);
    for (int64_t c = r->i * width; c < (r->i + 1) * width; ++c) {
        if (t->o[c] == 0)
            continue;
        sum += t->o[c] * t->d_o[c];
        size += fabs(t->o[c] * t->d_o[c]);
    }
    return (near){sum - d_lse, bound_gamma((double)width + 2, u) * size};
}

static void attention_place(const ref_scores_grad *p, const ref_row *r, int64_t a, const head *t, int64_t width,
                            near delta, sums sum[REF_GRADIENTS]) {
    const ref_scores *s = &p->scores;
    const ref_output *out = p->gradients;
    const double u = bound_sum_unit(s->dtype), scale = ref_scale(s), lse = of_row(p->lse, r, 0);
    const double factor = !r->survives[a] ? 0 : s->terms->dropout > 0 ? ref_dropout_factor(s->terms) : 1;
    const int64_t j = r->col[a];
    /* The exponent is off by the score's error, by that of lse, and by roundings of the difference; exp has 4u. */
    const near prob = exponential(r->s[a], lse, r->delta[a], s->dtype);
    if (prob.value == 0)
        return; /* a weight of 0 has no part in anything, whatever g is */
    double dot = 0, dot_size = 0;
    for (int64_t c = 0; factor != 0 && c < width; ++c) {
        const double product = factor * t->d_o[r->i * width + c] * t->v[j * width + c];
        dot += product;
        dot_size += fabs(product);
    }
    const double flushed = s->dots ? 2 * factor * (double)width * 0x1p-126 : 0;
    near ds = times_difference(prob, (near){dot, bound_gamma((double)width + 2, u) * dot_size + flushed}, delta, u);
    if (prob.value <= prob.error && !isfinite(ds.value))
        ds = (near){0, INFINITY}; /* a weight of about 0 times a NaN: either way is right */
    const near dx = narrowed(p, times(ds, (near){r->slope[a], r->slope_error[a]}, u));
    add_to_terms(p, r, a, ds, sum);
    for (int64_t c = 0; out[REF_D_X].t != NULL && c < s->d; ++c)
        add(&sum[REF_D_X], ref_place(out[REF_D_X].t, r->z, r->h, r->i, c), scale * dx.value, fabs(scale) * dx.error,
            t->k[j * s->d + c]);
    for (int64_t c = 0; out[REF_D_K].t != NULL && c < s->d; ++c)
        add(&sum[REF_D_K], ref_place(out[REF_D_K].t, r->z, ref_head_of(out[REF_D_K].t, r->h, s->h), j, c),
            scale * dx.value, fabs(scale) * dx.error, t->q[r->i * s->d + c]);
    const near w = narrowed(p, times(prob, (near){factor, s->terms->dropout > 0 ? 2 * u * factor : 0}, u));
    for (int64_t c = 0; out[REF_D_V].t != NULL && factor != 0 && c < width; ++c)
        add(&sum[REF_D_V], ref_place(out[REF_D_V].t, r->z, ref_head_of(out[REF_D_V].t, r->h, s->h), j, c), w.value,
            w.error, t->d_o[r->i * width + c]);
}

bool ref_attention_grad(const ref_scores_grad *p) {
    const ref_scores *s = &p->scores;
    const int64_t width = p->v->shape[p->v->ndim - 1];
    sums sum[REF_GRADIENTS];
    ref_row r;
    bool ok = ref_row_make(&r, s->layout);
    for (int i = 0; i < REF_GRADIENTS; ++i)
        ok = sums_make(&sum[i], &p->gradients[i]) && ok;
    for (int64_t zh = 0; ok && zh < s->z * s->h; ++zh) {
        const int64_t z = zh / s->h, h = zh % s->h;
        head t = {ref_head(s->q, z, h, s->h), ref_head(s->k, z, h, s->h), ref_head(p->v, z, h, s->h),
                  ref_head(p->out, z, h, s->h), ref_head(p->d_out, z, h, s->h)};
        ok = t.q != NULL && t.k != NULL && t.v != NULL && t.o != NULL && t.d_o != NULL;
        if (ok) {
            ref_flush(s, t.q, s->m * s->d);
            ref_flush(s, t.k, s->n * s->d);
            ref_flush(s, t.v, s->n * width);
            ref_flush(s, t.o, s->m * width);
            ref_flush(s, t.d_o, s->m * width);
        }
        for (int64_t i = 0; ok && i < s->m; ++i) {
            ref_row_places(s, z, h, i, &r);
            if (of_row(p->lse, &r, 0) == -INFINITY)
                continue; /* nothing kept: not looked at */
            ref_row_scores(s, NULL, t.q + i * s->d, t.k, &r);
            const near delta = delta_of(p, &r, &t, width);
            for (int64_t a = 0; a < r.count; ++a) {
                if (r.kept[a])
                    attention_place(p, &r, a, &t, width, delta, sum);
            }
            add_to_sinks(p, &r, delta, &sum[REF_D_SINKS]);
        }
        free(t.q);
        free(t.k);
        free(t.v);
        free(t.o);
        free(t.d_o);
    }
    for (int i = 0; i < REF_GRADIENTS; ++i)
        finish(p, &p->gradients[i], &sum[i], 0);
    ref_row_free(&r);
    return ok;
}
