/*
 * ref_scores.c: softmax and attention in float64, one row of scores at a time.
 *
 *     s(i,j) = scale*x(i,j) + rpe + rel + masks,  or  scale*(q_i . k_j) + ...
 *     kept(i,j) = in a stored block, its element mask keeps it, causal keeps it, the masks keep it, inside the matrix
 *     p = exp(s - max s) / sum exp(s - max s) over the kept j;  lse = log sum exp s;  o_i = sum p(i,j) v_j
 */
#include "bound.h"
#include "gen.h"
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One row: the places of its stored blocks, left to right. */
typedef struct row {
    int64_t count;   /* (stored blocks of the block row) * b */
    int64_t *col;    /* column j, also past the matrix */
    int64_t *packed; /* number of the place in packed values, in elements */
    uint8_t *kept;
    double *s, *delta; /* score, and how far a computed one may be from it */
    double *p, *error; /* softmax of the row, and its error before any store */
    double lse, lse_error;
    int64_t kept_count;
} row;

static void row_free(row *r) {
    free(r->col);
    free(r->packed);
    free(r->kept);
    free(r->s);
    free(r->delta);
    free(r->p);
    free(r->error);
}

static bool row_make(row *r, const bstk_layout *layout) {
    const size_t places = (size_t)(bstk_layout_cols(layout) * bstk_layout_block(layout) + 1);
    *r = (row){.col = malloc(places * sizeof *r->col),
               .packed = malloc(places * sizeof *r->packed),
               .kept = malloc(places),
               .s = malloc(places * sizeof *r->s),
               .delta = malloc(places * sizeof *r->delta),
               .p = malloc(places * sizeof *r->p),
               .error = malloc(places * sizeof *r->error)};
    return r->col != NULL && r->packed != NULL && r->kept != NULL && r->s != NULL && r->delta != NULL && r->p != NULL &&
           r->error != NULL;
}

/* t[..., z, h, i, j] with the axes that t has, aligned at the end; an axis of size 1 serves every index. */
static double term(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t index[4] = {z, h, i, j};
    int64_t at = 0;
    for (int axis = 0; axis < t->ndim; ++axis) {
        if (t->shape[axis] > 1)
            at += index[4 - t->ndim + axis] * t->stride[axis];
    }
    return gen_load(t->dtype, t->data, at);
}

/* What a mask says of a place: false drops; a floating value to be added goes to *sum, rounded to the sums' type. */
static bool mask_keeps(bstk_mask_mode mode, const bstk_tensor *t, double value, bstk_dtype sums, double *sum,
                       double *size) {
    if (mode == BSTK_MASK_MUL || !gen_is_float(t->dtype))
        return value != 0; /* also a NaN keeps */
    value = gen_round(sums, value);
    *sum = gen_round(sums, *sum + value);
    *size += fabs(value);
    return true;
}

/* All terms of the score but the first: added to *s, their magnitudes to *size. False when the place is dropped. */
static bool add_terms(const ref_scores *p, int64_t z, int64_t h, int64_t i, int64_t j, double *s, double *size) {
    const bstk_score_terms *t = p->terms;
    const bstk_dtype sums = bound_sum_dtype(p->dtype);
    double mask = 0, mask_size = 0;
    if (t->causal && j > i + t->causal_offset)
        return false;
    if (t->key_padding_mask != NULL && !mask_keeps(t->key_padding_mode, t->key_padding_mask,
                                                   /* [z, n]: z stands where other terms have i */
                                                   term(t->key_padding_mask, 0, 0, z, j), sums, &mask, &mask_size))
        return false;
    if (t->attn_mask != NULL &&
        !mask_keeps(t->attn_mode, t->attn_mask,
                    /* [z, m, n] without an axis of heads: z stands where other terms have h */
                    term(t->attn_mask, z, t->attn_mask->ndim == 3 ? z : h, i, j), sums, &mask, &mask_size))
        return false;
    if (mask == -INFINITY)
        return false;
    *s += mask;
    *size += mask_size;
    if (t->rpe != NULL) {
        const double rpe = term(t->rpe, z, h, i, j);
        *s += rpe;
        *size += fabs(rpe);
    }
    if (t->rel_logits != NULL) {
        const int64_t e = t->rel_logits->shape[t->rel_logits->ndim - 1], column = e - 1 - (i - j);
        const double rel = column >= 0 && column < e ? term(t->rel_logits, z, h, i, column) : 0;
        *s += rel;
        *size += fabs(rel);
    }
    return true;
}

static double scale_of(const ref_scores *p) {
    if (!isnan(p->terms->scale))
        return p->terms->scale;
    return p->x != NULL ? 1 : 1 / sqrt((double)p->d);
}

/* Operand of attention [Z|1, H|Hkv, rows, width]: element [z, h, r, c] for head h of all. */
static double operand(const bstk_tensor *t, int64_t z, int64_t h, int64_t heads, int64_t r, int64_t c) {
    const int64_t own = t->ndim > 2 ? t->shape[t->ndim - 3] : 1;
    return term(t, z, h / (heads / own), r, c);
}

/* Scores of row i of head h of batch z. */
static void score_row(const ref_scores *p, int64_t z, int64_t h, int64_t i, row *r) {
    const bstk_layout *layout = p->layout;
    const int64_t b = bstk_layout_block(layout), nnz = bstk_layout_nnz(layout), heads = bstk_layout_heads(layout);
    const int64_t block_row = (heads == 1 ? 0 : h) * bstk_layout_rows(layout) + i / b;
    const double scale = scale_of(p), u = bound_sum_unit(p->dtype);
    /* Roundings on the way to a score: scale, product, up to 4 terms (each read and added), and those of q . k. */
    const double gamma = bound_gamma(10 + (p->x != NULL ? 0 : (double)p->d), u);
    r->count = r->kept_count = 0;
    for (int64_t n = bstk_layout_row_ptr(layout)[block_row]; n < bstk_layout_row_ptr(layout)[block_row + 1]; ++n) {
        const int64_t number = heads == 1 ? (z * p->h + h) * nnz + n : z * nnz + n;
        const uint8_t *mask = bstk_layout_partial_mask(layout, n);
        for (int64_t q = 0; q < b; ++q) {
            const int64_t at = r->count++, j = bstk_layout_col_idx(layout)[n] * b + q;
            r->col[at] = j;
            r->packed[at] = (number * b + i % b) * b + q;
            r->s[at] = r->delta[at] = 0;
            r->kept[at] = 0;
            double s = 0, size = 0;
            if (j >= p->n || (mask != NULL && mask[i % b * b + q] == 0) || !add_terms(p, z, h, i, j, &s, &size))
                continue; /* dropped: x, q, k and v of this place are never looked at */
            if (p->x != NULL) {
                const double x = scale * gen_load(p->x->dtype, p->x->data, gen_offset(p->x, r->packed[at]));
                s += x;
                size += fabs(x);
            } else {
                double dot = 0, dot_size = 0;
                for (int64_t c = 0; c < p->d; ++c) {
                    const double product = operand(p->q, z, h, p->h, i, c) * operand(p->k, z, h, p->h, j, c);
                    dot += product;
                    dot_size += fabs(product);
                }
                s += scale * dot;
                size += fabs(scale) * dot_size;
            }
            r->kept[at] = 1;
            r->s[at] = s;
            r->delta[at] = gamma * size + (10 + (double)p->d) * bound_smallest(bound_sum_dtype(p->dtype));
            ++r->kept_count;
        }
    }
}

/* p and lse of a row of scores, with their errors. */
static void softmax_row(const ref_scores *p, row *r) {
    double max = -INFINITY, sum = 0;
    bool spoilt = false; /* a kept NaN or +inf: every kept place of the row is NaN */
    for (int64_t a = 0; a < r->count; ++a) {
        r->p[a] = r->error[a] = 0;
        if (r->kept[a]) {
            spoilt = spoilt || isnan(r->s[a]) || r->s[a] == INFINITY;
            max = fmax(max, r->s[a]);
        }
    }
    r->lse = spoilt ? NAN : -INFINITY;
    r->lse_error = 0;
    if (!spoilt && max == -INFINITY)
        return; /* nothing kept, or nothing but -inf: p = 0 */
    for (int64_t a = 0; a < r->count; ++a)
        sum += r->kept[a] ? exp(r->s[a] - max) : 0;
    for (int64_t a = 0; a < r->count; ++a) {
        if (r->kept[a])
            r->p[a] = spoilt ? NAN : exp(r->s[a] - max) / sum;
    }
    if (spoilt)
        return;
    r->lse = max + log(sum);
    bound_softmax_row(p->dtype, r->count, r->kept, r->s, r->delta, r->error, &r->lse_error);
}

static void store_lse(const ref_scores *p, const row *r, int64_t place, double *lse, double *lse_bound) {
    if (lse == NULL)
        return;
    lse[place] = r->lse;
    lse_bound[place] = bound_stored(bound_sum_dtype(p->dtype), r->lse, r->lse_error);
}

bool ref_softmax(const ref_scores *p, double *y, double *y_bound, double *lse, double *lse_bound) {
    const int64_t count = gen_count(p->x);
    row r;
    bool ok = row_make(&r, p->layout);
    for (int64_t a = 0; a < count; ++a)
        y[a] = y_bound[a] = 0; /* dropped places and what lies past a ragged edge: 0, exactly */
    for (int64_t line = 0; ok && line < p->z * p->h * p->m; ++line) {
        score_row(p, line / p->m / p->h, line / p->m % p->h, line % p->m, &r);
        softmax_row(p, &r);
        for (int64_t a = 0; a < r.count; ++a) {
            if (r.kept[a]) {
                y[r.packed[a]] = r.p[a];
                y_bound[r.packed[a]] = r.s[a] == -INFINITY ? 0 : bound_stored(p->dtype, r.p[a], r.error[a]);
            }
        }
        store_lse(p, &r, line, lse, lse_bound);
    }
    row_free(&r);
    return ok;
}

/* o[c] = sum of p(j) v[j, c] over the kept places of a row, and its bound. */
static void weigh(const ref_scores *p, const row *r, const bstk_tensor *v, int64_t z, int64_t h, int64_t c, double *o,
                  double *bound) {
    const bstk_dtype sums = bound_sum_dtype(p->dtype);
    double sum = 0, size = 0, error = 0;
    bool open = false; /* a weight of about 0 times an infinity or NaN: either way is right */
    for (int64_t a = 0; a < r->count; ++a) {
        if (!r->kept[a])
            continue;
        const double value = operand(v, z, h, p->h, r->col[a], c);
        if (!isfinite(value) && fabs(r->p[a]) <= r->error[a]) {
            open = true;
            continue;
        }
        sum += r->p[a] * value;
        size += fabs(r->p[a] * value);
        error += bound_stored(sums, r->p[a], r->error[a]) * fabs(value);
    }
    const double gamma = bound_gamma((double)r->kept_count + 1, bound_sum_unit(p->dtype));
    *o = sum;
    *bound = bound_stored(p->dtype, sum,
                          error + gamma * (size + error) +
                              ((double)r->kept_count + 1) * bound_smallest(bound_sum_dtype(p->dtype)));
    if (r->lse == -INFINITY)
        *bound = 0; /* nothing kept: 0, exactly */
    if (open && isfinite(sum))
        *bound = INFINITY;
}

bool ref_attention(const ref_scores *p, const bstk_tensor *v, double *o, double *o_bound, double *lse,
                   double *lse_bound) {
    const int64_t width = v->shape[v->ndim - 1];
    row r;
    const bool ok = row_make(&r, p->layout);
    for (int64_t line = 0; ok && line < p->z * p->h * p->m; ++line) {
        const int64_t z = line / p->m / p->h, h = line / p->m % p->h;
        score_row(p, z, h, line % p->m, &r);
        softmax_row(p, &r);
        for (int64_t c = 0; c < width; ++c)
            weigh(p, &r, v, z, h, c, &o[line * width + c], &o_bound[line * width + c]);
        store_lse(p, &r, line, lse, lse_bound);
    }
    row_free(&r);
    return ok;
}
