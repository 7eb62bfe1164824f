/*
 * ref_row.c: scores of one row in float64, with every term and mask of bstk_score_terms, and their softmax.
 *
 *     c(i,j) = scale * x, or softcap * tanh(scale * x / softcap);   x packed, or q_i . k_j
 *     s(i,j) = c + rpe + rel - slope * |diag(i) - j| + (key_padding + attn);   p = exp(s - lse)
 */
#include "ref_row.h"

#include "bound.h"
#include "gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ref_row_make(ref_row *r, const bstk_layout *layout) {
    const size_t places = (size_t)(bstk_layout_cols(layout) * bstk_layout_block(layout) + 1);
    *r = (ref_row){.col = malloc(places * sizeof *r->col),
                   .packed = malloc(places * sizeof *r->packed),
                   .kept = malloc(places),
                   .survives = malloc(places),
                   .s = malloc(places * sizeof *r->s),
                   .delta = malloc(places * sizeof *r->delta),
                   .slope = malloc(places * sizeof *r->slope),
                   .slope_error = malloc(places * sizeof *r->slope_error),
                   .p = malloc(places * sizeof *r->p),
                   .error = malloc(places * sizeof *r->error)};
    return r->col != NULL && r->packed != NULL && r->kept != NULL && r->survives != NULL && r->s != NULL &&
           r->delta != NULL && r->slope != NULL && r->slope_error != NULL && r->p != NULL && r->error != NULL;
}

void ref_row_free(ref_row *r) {
    free(r->col);
    free(r->packed);
    free(r->kept);
    free(r->survives);
    free(r->s);
    free(r->delta);
    free(r->slope);
    free(r->slope_error);
    free(r->p);
    free(r->error);
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

double ref_at(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t index[4] = {z, h, i, j};
    int64_t at = 0;
    for (int axis = 0; axis < t->ndim; ++axis) {
        if (t->shape[axis] > 1)
            at += index[4 - t->ndim + axis] * t->stride[axis];
    }
    return gen_load(t->dtype, t->data, at);
}

int64_t ref_place(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t index[4] = {z, h, i, j};
    int64_t at = 0;
    for (int axis = 0; axis < t->ndim; ++axis)
        at = at * t->shape[axis] + (t->shape[axis] > 1 ? index[4 - t->ndim + axis] : 0);
    return at;
}

int64_t ref_head_of(const bstk_tensor *t, int64_t h, int64_t heads) {
    return h / (heads / (t->ndim > 2 ? t->shape[t->ndim - 3] : 1));
}

double *ref_head(const bstk_tensor *t, int64_t z, int64_t h, int64_t heads) {
    const int64_t rows = t->shape[t->ndim - 2], cols = t->shape[t->ndim - 1], own = ref_head_of(t, h, heads);
    double *values = malloc((size_t)(rows * cols + 1) * sizeof *values);
    for (int64_t e = 0; values != NULL && e < rows * cols; ++e)
        values[e] = ref_at(t, z, own, e / cols, e % cols);
    return values;
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

double ref_dropout_factor(const bstk_score_terms *t) {
    return t->dropout >= 1 ? 0 : 1 / (1 - t->dropout);
}

/* Philox 4x32-10, as published: in each round two 32 x 32 bit products, whose halves change places. */
static void philox(uint32_t x[4], uint32_t key0, uint32_t key1) {
    for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t first = UINT64_C(0xD2511F53) * x[0], second = UINT64_C(0xCD9E8D57) * x[2];
        x[0] = (uint32_t)(second >> 32) ^ x[1] ^ (key0 + round * UINT32_C(0x9E3779B9));
        x[2] = (uint32_t)(first >> 32) ^ x[3] ^ (key1 + round * UINT32_C(0xBB67AE85));
        x[1] = (uint32_t)second;
        x[3] = (uint32_t)first;
    }
}

static bool survives(const ref_scores *p, int64_t z, int64_t h, int64_t i, int64_t j) {
    const bstk_score_terms *t = p->terms;
    uint32_t x[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)(z * p->h + h), (uint32_t)t->dropout_offset};
    philox(x, (uint32_t)t->dropout_seed, (uint32_t)(t->dropout_seed >> 32) ^ (uint32_t)(t->dropout_offset >> 32));
    return x[j % 4] / 0x1p32 >= t->dropout;
}

/* ---- which places ------------------------------------------------------------------------------------------------ */

/* Sequence of token i: its first token, its length, its number. Without sequences there is one. */
typedef struct sequence {
    int64_t first, length, number;
} sequence;

static sequence sequence_of(const bstk_tensor *cu, int64_t i, int64_t size) {
    sequence s = {0, size, 0};
    if (cu == NULL)
        return s;
    while (ref_at(cu, 0, 0, 0, s.number + 1) <= (double)i)
        ++s.number;
    s.first = (int64_t)ref_at(cu, 0, 0, 0, s.number);
    s.length = (int64_t)ref_at(cu, 0, 0, 0, s.number + 1) - s.first;
    return s;
}

int64_t ref_distance(const ref_scores *p, int64_t i, int64_t j) {
    return (i - sequence_of(p->terms->cu_seqlens_q, i, p->m).first) -
           (j - sequence_of(p->terms->cu_seqlens_k, j, p->n).first);
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

/* All terms of the score but c: added to *s, their magnitudes to *size. False when the place is dropped. */
static bool add_terms(const ref_scores *p, int64_t z, int64_t h, int64_t i, int64_t j, double *s, double *size) {
    const bstk_score_terms *t = p->terms;
    const bstk_dtype sums = bound_sum_dtype(p->dtype);
    const sequence own = sequence_of(t->cu_seqlens_q, i, p->m), other = sequence_of(t->cu_seqlens_k, j, p->n);
    const int64_t column = j - other.first;
    const int64_t diagonal = i - own.first + t->causal_offset + (t->bottom_right ? other.length - own.length : 0);
    double mask = 0, mask_size = 0;
    if (own.number != other.number || (t->causal && column > diagonal) ||
        (t->window_left >= 0 && column < diagonal - t->window_left) ||
        (t->window_right >= 0 && column > diagonal + t->window_right))
        return false;
    /* Terms [z, m] and [z, n]: z stands where others have i. */
    if (t->q_documents != NULL && ref_at(t->q_documents, 0, 0, z, i) != ref_at(t->k_documents, 0, 0, z, j))
        return false;
    if (t->key_padding_mask != NULL && !mask_keeps(t->key_padding_mode, t->key_padding_mask,
                                                   ref_at(t->key_padding_mask, 0, 0, z, j), sums, &mask, &mask_size))
        return false;
    if (t->attn_mask != NULL &&
        !mask_keeps(t->attn_mode, t->attn_mask,
                    /* [z, m, n] without an axis of heads: z stands where other terms have h */
                    ref_at(t->attn_mask, z, t->attn_mask->ndim == 3 ? z : h, i, j), sums, &mask, &mask_size))
        return false;
    if (mask == -INFINITY)
        return false;
    *s += mask;
    *size += mask_size;
    if (t->rpe != NULL) {
        const double rpe = ref_at(t->rpe, z, h, i, j);
        *s += rpe;
        *size += fabs(rpe);
    }
    if (t->rel_logits != NULL) {
        const int64_t e = t->rel_logits->shape[t->rel_logits->ndim - 1], from = e - 1 - ref_distance(p, i, j);
        const double rel = from >= 0 && from < e ? ref_at(t->rel_logits, z, h, i, from) : 0;
        *s += rel;
        *size += fabs(rel);
    }
    if (t->alibi_slopes != NULL) {
        const double alibi = ref_at(t->alibi_slopes, 0, 0, z, h) * (double)llabs(diagonal - column);
        *s -= alibi;
        *size += fabs(alibi);
    }
    return true;
}

void ref_row_places(const ref_scores *p, int64_t z, int64_t h, int64_t i, ref_row *r) {
    const bstk_layout *layout = p->layout;
    const int64_t b = bstk_layout_block(layout), nnz = bstk_layout_nnz(layout), heads = bstk_layout_heads(layout);
    const int64_t block_row = (heads == 1 ? 0 : h) * bstk_layout_rows(layout) + i / b;
    r->z = z;
    r->h = h;
    r->i = i;
    r->count = 0;
    for (int64_t n = bstk_layout_row_ptr(layout)[block_row]; n < bstk_layout_row_ptr(layout)[block_row + 1]; ++n) {
        const int64_t number = heads == 1 ? (z * p->h + h) * nnz + n : z * nnz + n;
        const uint8_t *mask = bstk_layout_partial_mask(layout, n);
        for (int64_t q = 0; q < b; ++q) {
            const int64_t at = r->count++, j = bstk_layout_col_idx(layout)[n] * b + q;
            r->col[at] = j;
            r->packed[at] = (number * b + i % b) * b + q;
            r->kept[at] = j < p->n && (mask == NULL || mask[i % b * b + q] != 0);
            r->survives[at] = p->terms->dropout == 0 || survives(p, z, h, i, j);
        }
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

double ref_scale(const ref_scores *p) {
    if (!isnan(p->terms->scale))
        return p->terms->scale;
    return p->x != NULL ? 1 : 1 / sqrt((double)p->d);
}

void ref_flush(const ref_scores *p, double *values, int64_t count) {
    for (int64_t e = 0; p->dots && e < count; ++e)
        values[e] = fabs(values[e]) < 0x1p-126 ? 0 : values[e];
}

void ref_row_scores(const ref_scores *p, const double *x, const double *q, const double *k, ref_row *r) {
    const bstk_dtype sums = bound_sum_dtype(p->dtype);
    const double scale = ref_scale(p), cap = p->terms->softcap, u = bound_sum_unit(p->dtype);
    /* Roundings on the way to a score: scale, product, at most 8 for reading and adding terms, and those of q . k. */
    const double steps = 10 + (x != NULL ? 0 : (double)p->d), gamma = bound_gamma(steps, u);
    r->kept_count = 0;
    for (int64_t a = 0; a < r->count; ++a) {
        double s = 0, size = 0, dot = 0, dot_size = 0;
        r->s[a] = r->delta[a] = r->slope[a] = r->slope_error[a] = 0;
        if (!r->kept[a])
            continue;
        r->kept[a] = add_terms(p, r->z, r->h, r->i, r->col[a], &s, &size);
        if (!r->kept[a]) /* dropped: x, q, k and v of this place are never looked at */
            continue;
        ++r->kept_count;
        if (x != NULL) {
            dot = x[r->packed[a]];
            dot_size = fabs(dot);
        }
        for (int64_t c = 0; x == NULL && c < p->d; ++c) {
            const double product = q[c] * k[r->col[a] * p->d + c];
            dot += product;
            dot_size += fabs(product);
        }
        double score = scale * dot;
        if (cap > 0 && isinf(score)) /* gives cap, whatever was rounded */
            dot_size = 0;
        size += fabs(scale) * dot_size;
        r->slope[a] = 1;
        if (cap > 0) {
            /* tanh changes no more than its argument does; it has 4u of its own, argument and product 2u more. */
            const double t = tanh(score / cap), e = gamma * fabs(scale) * dot_size / cap + 6 * u * fabs(t);
            score = cap * t;
            r->delta[a] = 6 * u * fabs(score);
            r->slope[a] = 1 - t * t;
            r->slope_error[a] = 2 * fabs(t) * e + e * e + 3 * u;
        }
        r->s[a] = s + score;
        r->delta[a] += gamma * size + steps * bound_smallest(sums);
        if (p->dots)
            r->delta[a] += 2 * fabs(scale) * (double)p->d * 0x1p-126;
    }
    r->kept[r->count] = p->terms->sinks != NULL;
    r->s[r->count] = p->terms->sinks != NULL ? ref_at(p->terms->sinks, 0, 0, 0, r->h) : 0;
    r->delta[r->count] = u * fabs(r->s[r->count]);
}

void ref_row_softmax(const ref_scores *p, ref_row *r) {
    double max = -INFINITY, sum = 0;
    bool spoilt = false; /* a kept NaN or +inf: every kept place of the row is NaN */
    for (int64_t a = 0; a <= r->count; ++a) {
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
    for (int64_t a = 0; a <= r->count; ++a)
        sum += r->kept[a] ? exp(r->s[a] - max) : 0;
    for (int64_t a = 0; a <= r->count; ++a) {
        if (r->kept[a])
            r->p[a] = spoilt ? NAN : exp(r->s[a] - max) / sum;
    }
    if (spoilt)
        return;
    r->lse = max + log(sum);
    bound_softmax_row(p->dtype, r->count + 1, r->kept, r->s, r->delta, r->error, &r->lse_error);
}
