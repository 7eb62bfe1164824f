/*
 * attention_ref.c: dense attention and its gradient in float64, straight from the formulas of bstk/softmax.h and
 * bstk/attention.h, with a bound beside each value.
 *
 * Bounds. u is the unit roundoff of the sums (f64: twice, the reference rounds too), gamma(n) = n u / (1 - n u).
 *   score     |ds| <= gamma(D + 2) |scale| sum |q k| + 6 u (|c| + |terms|); softcap does not enlarge, and adds 6 u |c|
 *   p, lse    bound_softmax_row with 5 u more for each of the C tiles of a row at which the maximum may have risen: a
 *             difference is counted there already, exp 4 u, the product u
 *   o         sum |w error| |v| + gamma(kept + C + 4) sum |w v|, then the store; with dots each weight is rounded to
 *             bf16 as well, 2^-8 w, and it and each sum may lose 2^-126
 *   backward  p' = exp(s - lse): relative expm1(|ds| + |dlse| + 2 u (|s| + |lse|) + 5 u)
 *             g: gamma(Dv + 2) r sum |d_o v|;  delta: sum |d_o| |o error| + 4 u (sum |d_o o| + |d_lse|)
 *             ds: p error (|g| + |delta|) + p (g error + delta error) + 4 u p (|g| + |delta|)
 *             with dots dx and the weights are rounded to bf16 as well, as in o
 *             slope 1 - t^2: 2 |t| e + e^2 + 2 u, e = x error / softcap + 8 u
 *             sums of N products: the errors of the factors + gamma(N + 3) sum |products|, then the store
 */
#include "check/bound.h"
#include "support/attention_case.h"
#include "support/cm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One row of scores. */
typedef struct row {
    int64_t z, h, i;
    uint8_t *kept, *keep; /* of the terms; of the dropout */
    double *s, *delta;    /* n + 1: the last one is the sink */
    double *slope, *slope_error;
    double *p, *error; /* n + 1 */
    double lse, lse_error, tiles, kept_count;
    bool poisoned;
} row;

/* Sums that become an output. */
typedef struct sums {
    double *value, *error, *size, *count;
} sums;

typedef struct work {
    const attention_case *c;
    const bstk_score_terms *t;
    double u, factor, scale;
    uint8_t *stored; /* [H, M, N] elements */
    row row;
    sums sum[A_COUNT];
} work;

static double load(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t index[4] = {z, h, i, j};
    int64_t at = 0;
    for (int axis = 0; axis < t->ndim; ++axis)
        at += t->shape[axis] > 1 ? index[4 - t->ndim + axis] * t->stride[axis] : 0;
    return gen_load(t->dtype, t->data, at);
}

/* Row-major place of [z, h, i, j] in the shape of t, where axes of size 1 serve all. */
static int64_t place(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j) {
    const int64_t index[4] = {z, h, i, j};
    int64_t at = 0;
    for (int axis = 0; axis < t->ndim; ++axis)
        at = at * t->shape[axis] + (t->shape[axis] > 1 ? index[4 - t->ndim + axis] : 0);
    return at;
}

/* attn_mask with three axes is [Z, M, N]: z then stands where others have h. */
static int64_t attn_head(const attention_case *c, int64_t z, int64_t h) {
    return c->a[A_ATTN].t.ndim == 3 ? z : h;
}

static void *zeros(int64_t count) {
    void *p = calloc((size_t)count + 1, sizeof(double));
    assert_non_null(p);
    return p;
}

static void make_stored(work *w) {
    const attention_case *c = w->c;
    const bstk_layout *l = c->layout;
    const int64_t b = bstk_layout_block(l), rows = bstk_layout_rows(l);
    w->stored = zeros(c->h * c->m * c->n);
    for (int64_t h = 0; h < c->h; ++h) {
        const int64_t head = bstk_layout_heads(l) == 1 ? 0 : h;
        for (int64_t k = bstk_layout_row_ptr(l)[head * rows]; k < bstk_layout_row_ptr(l)[(head + 1) * rows]; ++k) {
            const uint8_t *mask = bstk_layout_partial_mask(l, k);
            for (int64_t e = 0; e < b * b; ++e) {
                const int64_t i = bstk_layout_row_idx(l)[k] * b + e / b, j = bstk_layout_col_idx(l)[k] * b + e % b;
                if (i < c->m && j < c->n)
                    w->stored[(h * c->m + i) * c->n + j] = mask == NULL || mask[e];
            }
        }
    }
}

static void philox(uint32_t x[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t a = (uint64_t)x[0] * 0xD2511F53u, b = (uint64_t)x[2] * 0xCD9E8D57u;
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ k1,
                                  (uint32_t)a};
        memcpy(x, next, sizeof next);
    }
}

static bool survives(const work *w, int64_t z, int64_t h, int64_t i, int64_t j) {
    const bstk_score_terms *t = w->t;
    uint32_t x[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)(z * w->c->h + h), (uint32_t)t->dropout_offset};
    philox(x, (uint32_t)t->dropout_seed, (uint32_t)(t->dropout_seed >> 32) ^ (uint32_t)(t->dropout_offset >> 32));
    return (double)x[j % 4] >= floor(t->dropout * 4294967296.0);
}

/* The sequence that holds token i, and its first token and length. */
static int64_t sequence(const bstk_tensor *cu, int64_t i, int64_t *first, int64_t *length) {
    int64_t s = 0;
    while (load(cu, 0, 0, 0, s + 1) <= (double)i)
        ++s;
    *first = (int64_t)load(cu, 0, 0, 0, s);
    *length = (int64_t)load(cu, 0, 0, 0, s + 1) - *first;
    return s;
}

static bool mask_value(bstk_mask_mode mode, const bstk_tensor *t, double value, bstk_dtype type, double *mask,
                       double *size) {
    if (mode == BSTK_MASK_MUL || !gen_is_float(t->dtype))
        return value != 0;
    *mask = gen_round(type, *mask + gen_round(type, value));
    *size += fabs(value);
    return true;
}

/* Score of (i, j): false when it is dropped. */
static bool score(work *w, int64_t z, int64_t h, int64_t i, int64_t j) {
    const attention_case *c = w->c;
    const bstk_score_terms *t = w->t;
    const gen_array *a = c->a;
    row *r = &w->row;
    int64_t q0 = 0, k0 = 0, ql = c->m, kl = c->n;
    if (!w->stored[(h * c->m + i) * c->n + j])
        return false;
    if (t->cu_seqlens_q && sequence(&a[A_CU_Q].t, i, &q0, &ql) != sequence(&a[A_CU_K].t, j, &k0, &kl))
        return false;
    const int64_t li = i - q0, lj = j - k0;
    const int64_t diagonal = li + t->causal_offset + (t->bottom_right ? kl - ql : 0);
    if ((t->causal && lj > diagonal) || (t->window_right >= 0 && lj > diagonal + t->window_right) ||
        (t->window_left >= 0 && lj < diagonal - t->window_left))
        return false;
    if (t->q_documents && load(&a[A_Q_DOCUMENTS].t, 0, 0, z, i) != load(&a[A_K_DOCUMENTS].t, 0, 0, z, j))
        return false;
    double mask = 0, size = 0, x = 0, x_size = 0;
    const bstk_dtype type = bound_sum_dtype(c->dtype);
    if (t->key_padding_mask && !mask_value(t->key_padding_mode, &a[A_KEY_PADDING].t,
                                           load(&a[A_KEY_PADDING].t, 0, 0, z, j), type, &mask, &size))
        return false;
    if (t->attn_mask &&
        !mask_value(t->attn_mode, &a[A_ATTN].t, load(&a[A_ATTN].t, z, attn_head(c, z, h), i, j), type, &mask, &size))
        return false;
    if (mask == -INFINITY)
        return false;
    const int64_t kv = h / (c->h / c->kv_heads);
    for (int64_t e = 0; e < c->d; ++e) {
        const double term = load(&a[A_Q].t, z, h, i, e) * load(&a[A_K].t, z, kv, j, e);
        x += term;
        x_size += fabs(term);
    }
    x *= w->scale;
    double error = fabs(w->scale) * bound_gamma((double)c->d + 2, w->u) * x_size + 2 * w->u * fabs(x);
    r->slope[j] = 1;
    r->slope_error[j] = 0;
    if (t->softcap > 0) {
        const double tangent = tanh(x / t->softcap), e = error / t->softcap + 8 * w->u;
        r->slope[j] = 1 - tangent * tangent;
        r->slope_error[j] = 2 * fabs(tangent) * e + e * e + 2 * w->u;
        x = t->softcap * tangent;
        error += 6 * w->u * fabs(x);
    }
    size += fabs(x);
    double terms = mask;
    if (t->rpe) {
        terms += load(&a[A_RPE].t, z, h, i, j);
        size += fabs(load(&a[A_RPE].t, z, h, i, j));
    }
    if (t->rel_logits) {
        const int64_t extent = a[A_REL].t.shape[a[A_REL].t.ndim - 1], at = extent - 1 - (li - lj);
        const double rel = at >= 0 && at < extent ? load(&a[A_REL].t, z, h, i, at) : 0;
        terms += rel;
        size += fabs(rel);
    }
    if (t->alibi_slopes) {
        const double alibi = load(&a[A_SLOPES].t, 0, 0, z, h) * fabs((double)(diagonal - lj));
        terms -= alibi;
        size += fabs(alibi);
    }
    r->s[j] = x + terms;
    r->delta[j] = error + 6 * w->u * size;
    return true;
}

static void make_row(work *w, int64_t z, int64_t h, int64_t i) {
    const attention_case *c = w->c;
    row *r = &w->row;
    const int64_t n = c->n;
    r->z = z;
    r->h = h;
    r->i = i;
    r->kept_count = 0;
    r->tiles = (double)((n + c->block - 1) / c->block * ((c->block + 63) / 64));
    r->poisoned = false;
    double max = -INFINITY;
    for (int64_t j = 0; j <= n; ++j) {
        r->s[j] = r->p[j] = r->error[j] = r->delta[j] = 0;
        r->slope[j] = r->slope_error[j] = 0;
        if (j < n) {
            r->kept[j] = score(w, z, h, i, j);
            r->keep[j] = w->t->dropout > 0 ? survives(w, z, h, i, j) : 1;
        } else {
            r->kept[n] = w->t->sinks != NULL;
            if (w->t->sinks)
                r->s[n] = load(&c->a[A_SINKS].t, 0, 0, 0, h);
        }
        if (!r->kept[j])
            continue;
        r->kept_count += 1;
        r->delta[j] += 5 * w->u * r->tiles;
        r->poisoned |= !(r->s[j] < INFINITY);
        max = fmax(max, r->s[j]);
    }
    r->lse = r->poisoned ? NAN : -INFINITY;
    r->lse_error = 0;
    double sum = 0;
    for (int64_t j = 0; j <= n; ++j)
        sum += r->kept[j] && max > -INFINITY ? exp(r->s[j] - max) : 0;
    for (int64_t j = 0; j <= n; ++j)
        if (r->kept[j])
            r->p[j] = r->poisoned ? NAN : max > -INFINITY ? exp(r->s[j] - max) / sum : 0;
    if (!r->poisoned && max > -INFINITY) {
        bound_softmax_row(c->dtype, n + 1, r->kept, r->s, r->delta, r->error, &r->lse_error);
        r->lse = max + log(sum);
    }
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static void add(sums *s, int64_t at, double value, double error, double size) {
    s->value[at] += value;
    s->error[at] += error;
    s->size[at] += size;
    s->count[at] += 1;
}

/* o and lse of the row; returns their errors through the arguments. */
static void forward_row(work *w, double *o, double *o_error) {
    const attention_case *c = w->c;
    const row *r = &w->row;
    const int64_t kv = r->h / (c->h / c->kv_heads);
    for (int64_t e = 0; e < c->dv; ++e) {
        double sum = 0, size = 0, error = 0;
        for (int64_t j = 0; j < c->n; ++j) {
            if (!r->kept[j] || !r->keep[j] || (r->p[j] == 0 && r->error[j] == 0))
                continue;
            const double v = load(&c->a[A_V].t, r->z, kv, j, e);
            sum += w->factor * r->p[j] * v;
            size += w->factor * (r->p[j] + r->error[j]) * fabs(v);
            error += w->factor * r->error[j] * fabs(v);
            if (c->dots)
                error += (w->factor * bound_store_unit(BSTK_BF16) * (r->p[j] + r->error[j]) + 3 * 0x1p-126) * fabs(v);
        }
        error += bound_gamma(r->kept_count + r->tiles + 4, w->u) * size +
                 (r->kept_count + 1) * bound_smallest(bound_sum_dtype(c->dtype));
        o[e] = sum;
        o_error[e] = size == 0 ? 0 : bound_stored(c->dtype, sum, error);
    }
}

static void backward_row(work *w, const double *o, const double *o_error) {
    const attention_case *c = w->c;
    const gen_array *a = c->a;
    const row *r = &w->row;
    const int64_t z = r->z, h = r->h, i = r->i, kv = h / (c->h / c->kv_heads);
    if (r->lse == -INFINITY)
        return;
    double delta = 0, delta_error = 0, delta_size = 0;
    for (int64_t e = 0; e < c->dv; ++e) {
        if (o[e] == 0 && o_error[e] == 0)
            continue;
        const double d_o = load(&a[A_D_O].t, z, h, i, e);
        delta += d_o * o[e];
        delta_size += fabs(d_o * o[e]);
        delta_error += fabs(d_o) * o_error[e];
    }
    const double d_lse = a[A_D_LSE].memory ? load(&a[A_D_LSE].t, 0, z, h, i) : 0;
    delta -= d_lse;
    delta_error += 4 * w->u * (delta_size + fabs(d_lse));
    if (a[A_D_SINKS].memory) {
        const double share = exp(r->s[c->n] - r->lse);
        const double relative = expm1(r->lse_error + 4 * w->u * (fabs(r->s[c->n]) + fabs(r->lse) + 1));
        if (share != 0)
            add(&w->sum[A_D_SINKS], h, -share * delta, share * ((1 + relative) * delta_error + relative * fabs(delta)),
                0);
    }
    for (int64_t j = 0; j < c->n; ++j) {
        if (!r->kept[j] || r->p[j] == 0)
            continue;
        const double p = r->p[j], factor = r->keep[j] ? w->factor : 0;
        const double p_error =
            p * expm1(r->delta[j] + r->lse_error + 2 * w->u * (fabs(r->s[j]) + fabs(r->lse)) + 5 * w->u) + 0x1p-126;
        double g = 0, g_size = 0;
        for (int64_t e = 0; e < c->dv && factor != 0; ++e) {
            const double term = load(&a[A_D_O].t, z, h, i, e) * load(&a[A_V].t, z, kv, j, e);
            g += factor * term;
            g_size += factor * fabs(term);
        }
        const double g_error = bound_gamma((double)c->dv + 2, w->u) * g_size, both = fabs(g) + fabs(delta);
        const double ds = p * (g - delta);
        const double ds_error =
            p_error * (both + g_error + delta_error) + p * (g_error + delta_error) + 4 * w->u * p * both;
        const double dx = r->slope[j] * ds;
        double dx_error = r->slope[j] * ds_error + r->slope_error[j] * (fabs(ds) + ds_error) + w->u * fabs(dx);
        double w_error = factor * (p_error + 2 * w->u * p);
        if (c->dots) {
            dx_error += bound_store_unit(BSTK_BF16) * (fabs(dx) + dx_error) + 3 * 0x1p-126;
            w_error += bound_store_unit(BSTK_BF16) * (factor * p + w_error) + 3 * 0x1p-126;
        }
        for (int64_t e = 0; e < c->d; ++e) {
            const double q = load(&a[A_Q].t, z, h, i, e), k = load(&a[A_K].t, z, kv, j, e);
            if (a[A_D_Q].memory)
                add(&w->sum[A_D_Q], place(&a[A_D_Q].t, z, h, i, e), w->scale * dx * k, fabs(w->scale * k) * dx_error,
                    fabs(w->scale * k) * (fabs(dx) + dx_error));
            if (a[A_D_K].memory)
                add(&w->sum[A_D_K], place(&a[A_D_K].t, z, kv, j, e), w->scale * dx * q, fabs(w->scale * q) * dx_error,
                    fabs(w->scale * q) * (fabs(dx) + dx_error));
        }
        for (int64_t e = 0; a[A_D_V].memory && factor != 0 && e < c->dv; ++e) {
            const double d_o = load(&a[A_D_O].t, z, h, i, e);
            add(&w->sum[A_D_V], place(&a[A_D_V].t, z, kv, j, e), factor * p * d_o, w_error * fabs(d_o),
                factor * (p + p_error) * fabs(d_o));
        }
        if (a[A_D_RPE].memory)
            add(&w->sum[A_D_RPE], place(&a[A_D_RPE].t, z, h, i, j), ds, ds_error, fabs(ds));
        if (a[A_D_KEY_PADDING].memory)
            add(&w->sum[A_D_KEY_PADDING], place(&a[A_D_KEY_PADDING].t, 0, 0, z, j), ds, ds_error, fabs(ds));
        if (a[A_D_ATTN].memory)
            add(&w->sum[A_D_ATTN], place(&a[A_D_ATTN].t, z, attn_head(c, z, h), i, j), ds, ds_error, fabs(ds));
        if (a[A_D_REL].memory) {
            int64_t q0 = 0, k0 = 0, length;
            if (w->t->cu_seqlens_q) {
                sequence(&a[A_CU_Q].t, i, &q0, &length);
                sequence(&a[A_CU_K].t, j, &k0, &length);
            }
            const int64_t extent = a[A_D_REL].t.shape[a[A_D_REL].t.ndim - 1], at = extent - 1 - ((i - q0) - (j - k0));
            if (at >= 0 && at < extent)
                add(&w->sum[A_D_REL], place(&a[A_D_REL].t, z, h, i, at), ds, ds_error, fabs(ds));
        }
    }
}

/* Values and bounds of an output from its sums; `direct` ones carry their bound as error already. */
static void finish(const attention_case *c, int which, double u, sums *s, attention_result *r) {
    const int64_t count = gen_count(&c->a[which].t);
    const bstk_dtype dtype = c->a[which].t.dtype;
    const double tiny = bound_smallest(bound_sum_dtype(c->dtype));
    for (int64_t e = 0; e < count; ++e) {
        if (s->count[e] > 0)
            s->error[e] = bound_stored(dtype, s->value[e],
                                       s->error[e] + bound_gamma(s->count[e] + 3, u) * s->size[e] + s->count[e] * tiny);
        /* Nothing was added: 0, exactly. */
    }
    r->value[which] = s->value;
    r->bound[which] = s->error;
    free(s->size);
    free(s->count);
}

void attention_ref(const attention_case *c, attention_result *result) {
    work w = {.c = c, .t = &c->terms, .u = bound_sum_unit(c->dtype)};
    row *r = &w.row;
    double *o = zeros(c->dv), *o_error = zeros(c->dv);
    memset(result, 0, sizeof *result);
    w.scale = isnan(c->terms.scale) ? 1 / sqrt((double)c->d) : c->terms.scale;
    w.factor = c->terms.dropout > 0 ? (c->terms.dropout >= 1 ? 0 : 1 / (1 - c->terms.dropout)) : 1;
    double **const arrays[] = {&r->s, &r->delta, &r->slope, &r->slope_error, &r->p, &r->error};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; ++k)
        *arrays[k] = zeros(c->n);
    r->kept = zeros(c->n);
    r->keep = zeros(c->n);
    make_stored(&w);
    for (int k = A_OUTPUTS; k < A_COUNT; ++k) {
        const int64_t count = c->a[k].memory ? gen_count(&c->a[k].t) : 0;
        if (c->a[k].memory)
            w.sum[k] = (sums){zeros(count), zeros(count), zeros(count), zeros(count)};
    }
    for (int64_t line = 0; line < c->z * c->h * c->m; ++line) {
        make_row(&w, line / c->m / c->h, line / c->m % c->h, line % c->m);
        forward_row(&w, o, o_error);
        memcpy(w.sum[A_O].value + line * c->dv, o, (size_t)c->dv * sizeof *o);
        memcpy(w.sum[A_O].error + line * c->dv, o_error, (size_t)c->dv * sizeof *o);
        w.sum[A_LSE].value[line] = r->lse;
        w.sum[A_LSE].error[line] = r->lse == -INFINITY ? 0 : r->lse_error + w.u * fabs(r->lse);
        backward_row(&w, o, o_error);
    }
    for (int k = A_OUTPUTS; k < A_COUNT; ++k)
        if (c->a[k].memory)
            finish(c, k, w.u, &w.sum[k], result);
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; ++k)
        free(*arrays[k]);
    free(r->kept);
    free(r->keep);
    free(w.stored);
    free(o);
    free(o_error);
}

void attention_ref_free(attention_result *r) {
    for (int k = 0; k < A_COUNT; ++k) {
        free(r->value[k]);
        free(r->bound[k]);
    }
}
