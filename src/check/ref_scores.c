/*
 * ref_scores.c: softmax and attention in float64, one row of scores (ref_row.c) at a time.
 *
 *     p = exp(s - max s) / (sum exp(s - max s) + exp(sink - max s)) over the kept j;  lse = log of that sum, of exp s
 *     y = p * r;  o_i = sum p(i,j) r(i,j) v_j;  r: 0 where the dropout drops, else 1 / (1 - dropout)
 */
#include "bound.h"
#include "gen.h"
#include "ref_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void store_lse(const ref_scores *p, const ref_row *r, double *lse, double *lse_bound) {
    const int64_t place = (r->z * p->h + r->h) * p->m + r->i;
    if (lse == NULL)
        return;
    lse[place] = r->lse;
    lse_bound[place] = bound_stored(bound_sum_dtype(p->dtype), r->lse, r->lse_error);
}

/* The weight of a place after dropout, and its error: factor and product are rounded. */
static double weight(const ref_scores *p, const ref_row *r, int64_t a, double *error) {
    *error = 0;
    if (!r->kept[a] || !r->survives[a])
        return 0;
    *error = r->error[a];
    if (p->terms->dropout == 0)
        return r->p[a];
    const double factor = ref_dropout_factor(p->terms);
    *error = factor * (r->error[a] + 3 * bound_sum_unit(p->dtype) * (r->p[a] + r->error[a]));
    return factor * r->p[a];
}

bool ref_softmax(const ref_scores *p, double *y, double *y_bound, double *lse, double *lse_bound) {
    const int64_t count = gen_count(p->x);
    double *x = gen_doubles(p->x);
    ref_row r;
    bool ok = ref_row_make(&r, p->layout) && x != NULL;
    for (int64_t a = 0; a < count; ++a)
        y[a] = y_bound[a] = 0; /* dropped places and what lies past a ragged edge: 0, exactly */
    for (int64_t line = 0; ok && line < p->z * p->h * p->m; ++line) {
        ref_row_places(p, line / p->m / p->h, line / p->m % p->h, line % p->m, &r);
        ref_row_scores(p, x, NULL, NULL, &r);
        ref_row_softmax(p, &r);
        for (int64_t a = 0; a < r.count; ++a) {
            double error;
            if (!r.kept[a] || !r.survives[a])
                continue;
            y[r.packed[a]] = weight(p, &r, a, &error);
            y_bound[r.packed[a]] = r.s[a] == -INFINITY ? 0 : bound_stored(p->dtype, y[r.packed[a]], error);
        }
        store_lse(p, &r, lse, lse_bound);
    }
    ref_row_free(&r);
    free(x);
    return ok;
}

/* o[c] = sum of the weights times v[j, c], and its bound. */
static void weigh(const ref_scores *p, const ref_row *r, const double *v, int64_t width, int64_t c, double *o,
                  double *bound) {
    const bstk_dtype sums = bound_sum_dtype(p->dtype);
    double sum = 0, size = 0, error = 0;
    bool open = false; /* a weight of about 0 times an infinity or NaN: either way is right */
    bool some = false;
    for (int64_t a = 0; a < r->count; ++a) {
        double weight_error;
        const double w = weight(p, r, a, &weight_error);
        if (p->dots) /* rounded to bf16, or flushed */
            weight_error = weight_error + bound_store_unit(BSTK_BF16) * (w + weight_error) + 0x1p-126;
        if (!r->kept[a] || !r->survives[a] || r->s[a] == -INFINITY)
            continue;
        const double value = v[r->col[a] * width + c];
        some = true;
        if (!isfinite(value) && fabs(w) <= weight_error) {
            open = true;
            continue;
        }
        sum += w * value;
        size += fabs(w * value);
        error += bound_stored(sums, w, weight_error) * fabs(value);
    }
    /* The sum; scaled again at each of the tiles, which the weights count; the quotient. */
    const double gamma = bound_gamma((double)r->kept_count + 2, bound_sum_unit(p->dtype));
    *o = sum;
    const double tiny = p->dots ? 2 * 0x1p-126 : bound_smallest(sums);
    *bound = bound_stored(p->dtype, sum, error + gamma * (size + error) + ((double)r->kept_count + 1) * tiny);
    if (!some)
        *bound = 0;            /* nothing kept: 0, exactly */
    if (open && !isnan(sum)) { /* also beside an infinity: with one of the other sign it is a NaN */
        *o = 0;
        *bound = INFINITY;
    }
}

bool ref_attention(const ref_scores *p, const bstk_tensor *v, double *o, double *o_bound, double *lse,
                   double *lse_bound) {
    const int64_t width = v->shape[v->ndim - 1];
    ref_row r;
    bool ok = ref_row_make(&r, p->layout);
    for (int64_t zh = 0; ok && zh < p->z * p->h; ++zh) {
        const int64_t z = zh / p->h, h = zh % p->h;
        double *queries = ref_head(p->q, z, h, p->h), *keys = ref_head(p->k, z, h, p->h);
        double *values = ref_head(v, z, h, p->h);
        ok = queries != NULL && keys != NULL && values != NULL;
        if (ok) {
            ref_flush(p, queries, p->m * p->d);
            ref_flush(p, keys, p->n * p->d);
            ref_flush(p, values, p->n * width);
        }
        for (int64_t i = 0; ok && i < p->m; ++i) {
            ref_row_places(p, z, h, i, &r);
            ref_row_scores(p, NULL, queries + i * p->d, keys, &r);
            ref_row_softmax(p, &r);
            for (int64_t c = 0, at = (zh * p->m + i) * width; c < width; ++c)
                weigh(p, &r, values, width, c, &o[at + c], &o_bound[at + c]);
            store_lse(p, &r, lse, lse_bound);
        }
        free(queries);
        free(keys);
        free(values);
    }
    ref_row_free(&r);
    return ok;
}
