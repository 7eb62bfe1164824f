/*
 * ref_norm.c: layernorm, rmsnorm and their gradients in float64, one row of kept elements at a time.
 *
 *     mean = sum x / n (rmsnorm: 0);  rstd = 1 / sqrt(sum (x - mean)^2 / n + eps);  xhat = (x - mean) * rstd
 *     y = xhat * weight + bias
 *     g = d_y * weight;  d_x = rstd * (g - avg(g) - xhat * avg(g * xhat))    (rmsnorm: without avg(g))
 *     d_weight = sum of d_y * xhat,  d_bias = sum of d_y, over z and i, and over h where shared
 *
 * Bounds: docs/numerics.md.
 */
#include "bound.h"
#include "gen.h"
#include "ref_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the kept elements of a row are: number in packed values, column. */
typedef struct line {
    int64_t z, h, i, count;
    int64_t *at, *col;
} line;

static bool line_make(line *l, const bstk_layout *layout) {
    const size_t places = (size_t)(bstk_layout_cols(layout) * bstk_layout_block(layout) + 1);
    *l = (line){.at = malloc(places * sizeof *l->at), .col = malloc(places * sizeof *l->col)};
    return l->at != NULL && l->col != NULL;
}

static void line_free(line *l) {
    free(l->at);
    free(l->col);
}

static void line_find(const ref_norm *p, int64_t number, line *l) {
    const bstk_layout *layout = p->layout;
    const int64_t b = bstk_layout_block(layout), nnz = bstk_layout_nnz(layout), heads = bstk_layout_heads(layout);
    const int64_t m = bstk_layout_m(layout);
    l->z = number / m / p->h;
    l->h = number / m % p->h;
    l->i = number % m;
    l->count = 0;
    const int64_t block_row = (heads == 1 ? 0 : l->h) * bstk_layout_rows(layout) + l->i / b;
    for (int64_t n = bstk_layout_row_ptr(layout)[block_row]; n < bstk_layout_row_ptr(layout)[block_row + 1]; ++n) {
        const int64_t block = heads == 1 ? (l->z * p->h + l->h) * nnz + n : l->z * nnz + n;
        const uint8_t *mask = bstk_layout_partial_mask(layout, n);
        for (int64_t q = 0; q < b; ++q) {
            const int64_t j = bstk_layout_col_idx(layout)[n] * b + q;
            if (j >= bstk_layout_n(layout) || (mask != NULL && mask[l->i % b * b + q] == 0))
                continue;
            l->at[l->count] = (block * b + l->i % b) * b + q;
            l->col[l->count++] = j;
        }
    }
}

static bstk_dtype sums_of(const ref_norm *p) {
    return bound_sum_dtype(p->x->dtype);
}

/* [N] or [H|1, N]. */
static double column(const bstk_tensor *t, const line *l, int64_t e, double missing) {
    return t != NULL ? ref_at(t, 0, 0, l->h, l->col[e]) : missing;
}

static bool is_power_of_two(double x) {
    int exponent;
    return x > 0 && isfinite(x) && frexp(x, &exponent) == 0.5;
}

/* The stored bound. Rows of NaN and infinities have no error. */
static double stored(bstk_dtype dtype, double value, double error) {
    return bound_stored(dtype, value, isnan(error) ? 0 : error);
}

/* A product of numbers that are not 0 which may yet come out as 0. */
static bool underflows(const ref_norm *p, double a, double b) {
    return a != 0 && b != 0 && fabs(a * b) <= bound_smallest(sums_of(p));
}

/* Nothing is asked of an element that such a product times an infinity goes into: it is that infinity, or NaN. */
static void leave_open(const ref_output *out, int64_t at) {
    out->value[at] = 0;
    out->bound[at] = INFINITY;
}

static void forward_row(const ref_norm *p, const line *l, const double *x, const ref_output *y, const ref_output *means,
                        const ref_output *rstds) {
    const double u = bound_sum_unit(p->x->dtype), n = (double)l->count;
    const int64_t row = (l->z * p->h + l->h) * bstk_layout_m(p->layout) + l->i;
    double sum = 0, size = 0, squares = 0;
    for (int64_t e = 0; e < l->count; ++e) {
        sum += x[l->at[e]];
        size += fabs(x[l->at[e]]);
    }
    const bool centred = p->kind == BSTK_LAYERNORM && l->count > 0;
    const double mean = centred ? sum / n : 0, mean_error = centred ? bound_gamma(n + 1, u) * size / n : 0;
    for (int64_t e = 0; e < l->count; ++e)
        squares += (x[l->at[e]] - mean) * (x[l->at[e]] - mean);
    const double var = l->count > 0 ? squares / n : 0, rstd = l->count > 0 ? 1 / sqrt(var + p->eps) : 0;
    const double off = bound_gamma(n + 4, u) * (var + mean_error * mean_error) + mean_error * mean_error;
    const double t = off / (var + p->eps) + 2 * u, rho = t < 1    ? (1 + 4 * u) / sqrt(1 - t) - 1
                                                         : t >= 1 ? INFINITY
                                                                  : NAN;
    const bool exact = p->exact && mean == nearbyint(mean) && is_power_of_two(rstd);
    if (means->t != NULL) {
        means->value[row] = mean;
        means->bound[row] = l->count == 0 || exact ? 0 : stored(sums_of(p), mean, mean_error);
    }
    if (rstds->t != NULL) {
        rstds->value[row] = rstd;
        rstds->bound[row] = l->count == 0 || exact ? 0 : stored(sums_of(p), rstd, rstd * rho);
    }
    for (int64_t e = 0; e < l->count; ++e) {
        const double w = column(p->weight, l, e, 1), b = column(p->bias, l, e, 0), d = fabs(x[l->at[e]] - mean);
        const double xhat = (x[l->at[e]] - mean) * rstd;
        const double error = ((d + mean_error) * (1 + rho) * (1 + 3 * u) - d) * rstd;
        y->value[l->at[e]] = xhat * w + b;
        y->bound[l->at[e]] =
            exact ? 0
                  : stored(p->x->dtype, y->value[l->at[e]],
                           fabs(w) * error + bound_gamma(4, u) * (fabs(w) * (fabs(xhat) + error) + fabs(b)));
        if (isinf(w) && !isnan(b) && underflows(p, x[l->at[e]] - mean, rstd))
            leave_open(y, l->at[e]);
    }
}

bool ref_norm_forward(const ref_norm *p, const ref_output *y, const ref_output *mean, const ref_output *rstd) {
    double *x = gen_doubles(p->x);
    line l;
    const bool ok = line_make(&l, p->layout) && x != NULL;
    for (int64_t e = 0, count = gen_count(p->x); ok && e < count; ++e)
        y->value[e] = y->bound[e] = 0; /* what is not kept: 0, exactly */
    for (int64_t row = 0; ok && row < p->z * p->h * bstk_layout_m(p->layout); ++row) {
        line_find(p, row, &l);
        forward_row(p, &l, x, y, mean, rstd);
    }
    line_free(&l);
    free(x);
    return ok;
}

/* Sums by column, before the store: bound[] holds the magnitudes, count[] the number of summands. */
static void add_to_column(const ref_output *out, const line *l, int64_t e, double value, bool open, double *count) {
    if (out->t == NULL)
        return;
    const int64_t at = ref_place(out->t, 0, 0, l->h, l->col[e]);
    out->value[at] += open ? 0 : value;
    out->bound[at] += open ? 0 : fabs(value);
    count[at] += open ? INFINITY : 1; /* an infinite number of summands: open */
}

static bool columns_start(const ref_output *out, double **count) {
    const int64_t columns = out->t != NULL ? gen_count(out->t) : 0;
    for (int64_t e = 0; e < columns; ++e)
        out->value[e] = out->bound[e] = 0;
    *count = calloc((size_t)columns + 1, sizeof **count);
    return *count != NULL;
}

static void columns_finish(const ref_norm *p, const ref_output *out, double *count) {
    const double u = bound_sum_unit(p->x->dtype), tiny = bound_smallest(sums_of(p));
    for (int64_t e = 0, columns = out->t != NULL && count != NULL ? gen_count(out->t) : 0; e < columns; ++e) {
        if (isinf(count[e]) && !isnan(out->value[e])) {
            leave_open(out, e);
            continue;
        }
        const double error = bound_gamma(count[e] + 4, u) * out->bound[e] + (count[e] + 4) * tiny;
        out->bound[e] = count[e] == 0 ? 0 : stored(out->t->dtype, out->value[e], error);
        if (p->exact && count[e] * 64 < 0x1p24) /* quarters of up to 16 */
            out->bound[e] = 0;
    }
    free(count);
}

static void backward_row(const ref_norm *p, const line *l, const double *x, const double *d_y, const ref_output *d_x,
                         const ref_output columns[2], double *const counts[2]) {
    const double u = bound_sum_unit(p->x->dtype), n = (double)l->count, tiny = bound_smallest(sums_of(p));
    const bool centred = p->kind == BSTK_LAYERNORM;
    const double mean = centred ? ref_at(p->mean, 0, l->z, l->h, l->i) : 0, rstd = ref_at(p->rstd, 0, l->z, l->h, l->i);
    double avg_g = 0, avg_gx = 0, size_g = 0, size_gx = 0;
    bool open = false; /* avg_gx may be NaN or an infinity */
    for (int64_t e = 0; e < l->count; ++e) {
        const double away = x[l->at[e]] - mean, xhat = away * rstd, d = d_y[l->at[e]];
        const double w = column(p->weight, l, e, 1), g = d * w;
        const bool lost = underflows(p, away, rstd);
        const bool unsure = (isinf(g) && lost) || (isinf(xhat) && underflows(p, d, w));
        open |= unsure;
        avg_g += centred ? g / n : 0;
        avg_gx += unsure ? 0 : g * xhat / n;
        size_g += centred ? fabs(g) / n : 0;
        size_gx += fabs(g * xhat) / n;
        add_to_column(&columns[0], l, e, d * xhat, isinf(d) && lost, counts[0]);
        add_to_column(&columns[1], l, e, d, false, counts[1]);
    }
    const double off_g = bound_gamma(n + 3, u) * size_g, off_gx = bound_gamma(n + 6, u) * size_gx;
    const bool exact = p->exact && is_power_of_two(n) && n < 0x1p12;
    for (int64_t e = 0; d_x->t != NULL && e < l->count; ++e) {
        const double xhat = (x[l->at[e]] - mean) * rstd, g = d_y[l->at[e]] * column(p->weight, l, e, 1);
        const double terms = fabs(g) + fabs(avg_g) + off_g + fabs(xhat) * (fabs(avg_gx) + off_gx);
        const double error = rstd * (off_g + fabs(xhat) * off_gx + bound_gamma(7, u) * terms + 4 * tiny) + tiny;
        d_x->value[l->at[e]] = rstd * (g - avg_g - xhat * avg_gx);
        d_x->bound[l->at[e]] = exact ? 0 : stored(p->x->dtype, d_x->value[l->at[e]], error);
        const bool unsure = open || (isinf(avg_gx) && underflows(p, x[l->at[e]] - mean, rstd));
        if (unsure && !isnan(g) && !isnan(avg_g) && !isnan(xhat) && !isnan(avg_gx))
            leave_open(d_x, l->at[e]);
    }
}

bool ref_norm_grad(const ref_norm *p, const ref_output *d_x, const ref_output *d_weight, const ref_output *d_bias) {
    const ref_output columns[2] = {*d_weight, *d_bias};
    double *x = gen_doubles(p->x), *d_y = gen_doubles(p->d_y), *counts[2];
    line l;
    bool ok = line_make(&l, p->layout) && x != NULL && d_y != NULL;
    ok = columns_start(d_weight, &counts[0]) && ok;
    ok = columns_start(d_bias, &counts[1]) && ok;
    for (int64_t e = 0, count = gen_count(p->x); ok && d_x->t != NULL && e < count; ++e)
        d_x->value[e] = d_x->bound[e] = 0;
    for (int64_t row = 0; ok && row < p->z * p->h * bstk_layout_m(p->layout); ++row) {
        line_find(p, row, &l);
        backward_row(p, &l, x, d_y, d_x, columns, counts);
    }
    columns_finish(p, d_weight, counts[0]);
    columns_finish(p, d_bias, counts[1]);
    line_free(&l);
    free(x);
    free(d_y);
    return ok;
}
