/* norm_case.c: problems of norms, their references with bounds, and the runs around them. See norm_case.h. */
#include "support/norm_case.h"

#include "check/bound.h"
#include "support/cm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- making a problem ----------------------------------------------------------------------------------------------
 */

static void make(gen_array *a, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style, uint64_t seed) {
    assert_true(gen_array_make(a, dtype, ndim, sizes, style, seed));
    gen_fill(&a->t, GEN_NANS, 0);
}

static bool stored(const norm_spec *s, int64_t h, int64_t i, int64_t j, int64_t cols) {
    if (s->full)
        return true;
    return i != 1 && (h != 1) && gen_unit(77, (uint64_t)((h * 100 + i) * cols + j)) < 0.6;
}

static void make_layout(norm_problem *p) {
    const norm_spec *s = &p->s;
    const int64_t b = s->block, grid = p->layout_heads * p->rows * p->cols, elements = p->layout_heads * s->m * s->n;
    uint8_t *mask = calloc((size_t)grid + 1, 1);
    p->keep = calloc((size_t)elements + 1, 1);
    p->number = calloc((size_t)grid + 1, sizeof *p->number);
    assert_true(mask && p->keep && p->number);
    for (int64_t e = 0; e < elements; e++) {
        const int64_t h = e / (s->m * s->n), i = e / s->n % s->m, j = e % s->n;
        /* some rows keep a single element */
        const bool kept =
            !s->partial || (i % 5 == 3 ? j == i : (i / b + j / b) % 3 == 0 || gen_unit(78, (uint64_t)e) < 0.6);
        p->keep[e] = stored(s, h, i / b, j / b, p->cols) && kept;
        if (p->keep[e])
            mask[(h * p->rows + i / b) * p->cols + j / b] = 1;
    }
    for (int64_t k = 0; k < grid; k++)
        p->number[k] = mask[k] ? p->nnz++ : -1;
    const bstk_tensor blocks = bstk_tensor_make(mask, BSTK_U8, 3, shape(p->layout_heads, p->rows, p->cols));
    const bstk_tensor dense = bstk_tensor_make(p->keep, BSTK_U8, 3, shape(p->layout_heads, s->m, s->n));
    if (s->partial)
        ok(bstk_layout_from_dense_mask(NULL, &dense, s->block, &p->layout));
    else
        ok(bstk_layout_from_mask(NULL, &blocks, s->block, shape(s->m, s->n), &p->layout));
    assert_int_equal(bstk_layout_nnz(p->layout), p->nnz);
    p->blocks = p->nnz * (s->shared ? s->h : 1);
    free(mask);
}

/* Place of element (i, j) of head h in the row-major values of one batch item, -1 when it is not kept. */
static int64_t place(const norm_problem *p, int64_t h, int64_t i, int64_t j) {
    const int64_t b = p->s.block, lh = p->s.shared ? 0 : h;
    if (!p->keep[(lh * p->s.m + i) * p->s.n + j])
        return -1;
    const int64_t n = p->number[(lh * p->rows + i / b) * p->cols + j / b] + (p->s.shared ? h * p->nnz : 0);
    return (n * b + i % b) * b + j % b;
}

/* Values of x or d_y; NaN where nothing is kept, unless elements share memory. */
static void fill_values(const norm_problem *p, const gen_array *a, bool is_x, uint64_t seed) {
    const norm_spec *s = &p->s;
    const int64_t size = p->blocks * s->block * s->block;
    gen_fill(&a->t, s->values == NORM_SPECIAL ? GEN_SPECIAL : GEN_UNIFORM, seed);
    if (s->values == NORM_EXACT) /* rows of 6 and 2: mean 4, deviation 2; or of 4 and -4 */
        for (int64_t e = 0; e < s->z * size; e++) {
            const double x = p->kind == BSTK_LAYERNORM ? (e % 2 ? 6 : 2) : (e % 2 ? 4 : -4);
            gen_store(s->dtype, a->t.data, gen_offset(&a->t, e),
                      is_x ? x : (double)(gen_hash(seed, (uint64_t)e) % 9) - 4);
        }
    for (int64_t e = 0; e < s->z * size && is_x && s->offset != 0; e++) {
        const int64_t at = gen_offset(&a->t, e);
        gen_store(s->dtype, a->t.data, at, gen_load(s->dtype, a->t.data, at) + s->offset);
    }
    if (!is_x && s->d_y >= GEN_STYLES)
        return;
    uint8_t *kept = calloc((size_t)size + 1, 1);
    assert_non_null(kept);
    for (int64_t h = 0; h < s->h; h++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++)
                if (place(p, h, i, j) >= 0)
                    kept[place(p, h, i, j)] = 1;
    for (int64_t e = 0; e < s->z * size; e++)
        if (!kept[e % size])
            gen_store(s->dtype, a->t.data, gen_offset(&a->t, e), (double)NAN);
    free(kept);
}

static void make_columns(const norm_problem *p, gen_array *a, int64_t heads, uint64_t seed) {
    if (heads == 0)
        return;
    const int64_t sizes[2] = {heads, p->s.n};
    const bool one_axis = heads == 1 && p->s.column_style == GEN_CONTIGUOUS;
    make(a, p->s.columns, one_axis ? 1 : 2, one_axis ? sizes + 1 : sizes, p->s.column_style, seed);
    gen_fill(&a->t, GEN_UNIFORM, seed);
    for (int64_t e = 0; e < heads * p->s.n && p->s.values == NORM_EXACT; e++)
        gen_store(p->s.columns, a->t.data, gen_offset(&a->t, e), e % 3 ? (e % 3 == 1 ? 2 : -1) : 0.5);
}

static bstk_dtype saved_type(const norm_problem *p) {
    return p->s.dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
}

norm_problem norm_make(bstk_norm_kind kind, const norm_spec *s) {
    norm_problem p = {
        .s = *s, .kind = kind, .rows = (s->m + s->block - 1) / s->block, .cols = (s->n + s->block - 1) / s->block};
    p.layout_heads = s->shared ? 1 : s->h;
    p.s.columns = s->columns ? s->columns : s->dtype;
    make_layout(&p);
    const int64_t sizes[4] = {s->z, p.blocks, s->block, s->block};
    make(&p.x, s->dtype, 4, sizes, s->in, 1);
    make(&p.d_y, s->dtype, 4, sizes, s->d_y ? s->d_y : s->in, 2);
    fill_values(&p, &p.x, true, 3);
    fill_values(&p, &p.d_y, false, 4);
    make_columns(&p, &p.weight, s->weight_heads, 5);
    make_columns(&p, &p.bias, s->bias_heads, 6);
    return p;
}

void norm_free(norm_problem *p) {
    bstk_layout_release(p->layout);
    free(p->keep);
    free(p->number);
    gen_array *const all[] = {&p->x, &p->d_y, &p->weight, &p->bias, &p->y, &p->mean, &p->rstd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gen_array_free(all[i]);
}

static const bstk_tensor *optional(const gen_array *a) {
    return a->memory ? &a->t : NULL;
}

/* ---- comparisons ---------------------------------------------------------------------------------------------------
 */

static void assert_within(const char *what, const gen_array *got, const double *want, const double *bound) {
    const bound_result r = bound_compare(&got->t, want, bound);
    if (!r.ok)
        fail_msg("%s: %lld of %lld elements are wrong; element %lld is %.9g, expected %.9g within %.3g", what,
                 (long long)r.bad, (long long)gen_count(&got->t), (long long)r.at, r.got, r.want, r.bound);
}

void norm_assert_same(const char *what, const bstk_tensor *a, const bstk_tensor *b) {
    for (int64_t e = 0; e < gen_count(a); e++) {
        const int64_t at = gen_offset(a, e), bt = gen_offset(b, e), size = (int64_t)bstk_dtype_size(a->dtype);
        if (memcmp((char *)a->data + at * size, (char *)b->data + bt * size, (size_t)size) != 0 &&
            !(isnan(gen_load(a->dtype, a->data, at)) && isnan(gen_load(b->dtype, b->data, bt))))
            fail_msg("%s: element %lld is %.17g and %.17g", what, (long long)e, gen_load(a->dtype, a->data, at),
                     gen_load(b->dtype, b->data, bt));
    }
}

/* The stored bound of an element whose error before the store is `error`; rows of NaN and infinities have no error. */
static double stored_bound(const norm_problem *p, bstk_dtype dtype, double value, double error) {
    if (p->s.values == NORM_EXACT)
        return 0;
    return bound_stored(dtype, value, isfinite(error) ? error : 0);
}

bstk_context *norm_context(int32_t threads) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = threads;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

static const int32_t thread_counts[] = {1, 2, 7, 7};
enum { RUNS = 4 };

/* All doubles of a tensor, or `count` times `missing`. */
static double *values_of(const gen_array *a, int64_t count, double missing) {
    double *v = a->memory ? gen_doubles(&a->t) : malloc((size_t)count * sizeof *v + 1);
    assert_non_null(v);
    for (int64_t e = 0; a->memory == NULL && e < count; e++)
        v[e] = missing;
    return v;
}

static double *zeros(int64_t count) {
    double *v = calloc((size_t)count + 1, sizeof *v);
    assert_non_null(v);
    return v;
}

/* ---- forward -------------------------------------------------------------------------------------------------------
 */

/* Additions on one path of a row's sums: norm_kernel.h. */
static double row_additions(const norm_problem *p) {
    return (double)p->s.block / 8 + 3 + (double)p->cols;
}

static const double SUM_UNIT = 0x1p-53; /* statistics are summed in double */

typedef struct reference {
    double *y, *mean, *rstd, *y_bound, *mean_bound, *rstd_bound;
} reference;

static void free_reference(reference *r) {
    double *const all[] = {r->y, r->mean, r->rstd, r->y_bound, r->mean_bound, r->rstd_bound};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/*
 * One row. Bound, with u of the type's sums and K additions in double:
 *     mean: e = gamma(K + 1) * avg|x|        variance: gamma(K + 4) * var + 2 e^2
 *     rstd: rho = (1 - t)^(-1/2) - 1 + 3u,   t = error of the variance / (var + eps)
 *     xhat: |xhat| (rho + 2u) + 2 e * rstd   y: |w| * that, and 3u for the product and the sum
 */
static void reference_row(const norm_problem *p, const double *x, const double *w, const double *b, int64_t z,
                          int64_t h, int64_t i, reference *out) {
    const norm_spec *s = &p->s;
    const int64_t row = (z * s->h + h) * s->m + i, base = z * p->blocks * s->block * s->block;
    const double u = bound_sum_unit(s->dtype), k = row_additions(p);
    long double sum = 0, size = 0, squares = 0, count = 0;
    for (int64_t j = 0; j < s->n; j++)
        if (place(p, h, i, j) >= 0) {
            sum += (long double)x[base + place(p, h, i, j)];
            size += fabsl((long double)x[base + place(p, h, i, j)]);
            count += 1;
        }
    if (count == 0)
        return;
    const long double mean = p->kind == BSTK_LAYERNORM ? sum / count : 0;
    for (int64_t j = 0; j < s->n; j++)
        if (place(p, h, i, j) >= 0) {
            const long double d = (long double)x[base + place(p, h, i, j)] - mean;
            squares += d * d;
        }
    const long double var = squares / count, rstd = 1 / sqrtl(var + (long double)s->eps);
    const double e = p->kind == BSTK_LAYERNORM ? bound_gamma(k + 1, SUM_UNIT) * (double)(size / count) : 0;
    const double t = (bound_gamma(k + 4, SUM_UNIT) * (double)var + 2 * e * e) / (double)(var + (long double)s->eps);
    const double rho = 1 / sqrt(1 - t) - 1 + 3 * u;
    out->mean[row] = (double)mean;
    out->rstd[row] = (double)rstd;
    out->mean_bound[row] = stored_bound(p, saved_type(p), (double)mean, e);
    out->rstd_bound[row] = stored_bound(p, saved_type(p), (double)rstd, (double)rstd * rho);
    for (int64_t j = 0; j < s->n; j++) {
        const int64_t at = place(p, h, i, j);
        if (at < 0)
            continue;
        const double weight = w[(s->weight_heads > 1 ? h : 0) * s->n + j],
                     bias = b[(s->bias_heads > 1 ? h : 0) * s->n + j];
        const long double xhat = ((long double)x[base + at] - mean) * rstd;
        const double y = (double)(xhat * (long double)weight + (long double)bias);
        const double error = fabs((double)xhat) * (rho + 2 * u) + 2 * e * (double)rstd;
        out->y[base + at] = y;
        out->y_bound[base + at] = stored_bound(
            p, s->dtype, y, fabs(weight) * error + 3 * u * (fabs(weight) * (fabs((double)xhat) + error) + fabs(bias)));
    }
}

static void check_reference(const norm_problem *p, const gen_array *y, const gen_array *mean, const gen_array *rstd) {
    const norm_spec *s = &p->s;
    const int64_t count = s->z * p->blocks * s->block * s->block, row_count = s->z * s->h * s->m;
    double *x = gen_doubles(&p->x.t), *w = values_of(&p->weight, s->n, 1), *b = values_of(&p->bias, s->n, 0);
    reference r = {.y = zeros(count),
                   .y_bound = zeros(count),
                   .mean = zeros(row_count),
                   .mean_bound = zeros(row_count),
                   .rstd = zeros(row_count),
                   .rstd_bound = zeros(row_count)};
    for (int64_t row = 0; row < row_count; row++)
        reference_row(p, x, w, b, row / s->m / s->h, row / s->m % s->h, row % s->m, &r);
    assert_within("y", y, r.y, r.y_bound);
    assert_within("rstd", rstd, r.rstd, r.rstd_bound);
    if (p->kind == BSTK_LAYERNORM)
        assert_within("mean", mean, r.mean, r.mean_bound);
    free_reference(&r);
    free(x);
    free(w);
    free(b);
}

bstk_norm_desc norm_forward_desc(const norm_problem *p) {
    bstk_norm_desc d = BSTK_NORM_DESC_INIT;
    d.kind = p->kind;
    d.layout = p->layout;
    d.x = &p->x.t;
    d.weight = optional(&p->weight);
    d.bias = optional(&p->bias);
    d.eps = p->s.eps;
    return d;
}

/* By a plan, or by the short form for 2 threads. */
static void run_forward(int32_t threads, const bstk_norm_desc *d) {
    bstk_context *ctx = norm_context(threads);
    if (threads == 2) {
        ok(bstk_norm(ctx, d));
    } else {
        bstk_plan *plan = NULL;
        ok(bstk_norm_plan(ctx, d, &plan));
        assert_int_equal(bstk_plan_scratch_bytes(plan), 0);
        ok(bstk_norm_run(plan, d, NULL));
        bstk_plan_release(plan);
    }
    bstk_context_release(ctx);
}

static void check_in_place(norm_problem *p) {
    bstk_norm_desc d = norm_forward_desc(p);
    unsigned char *saved = gen_snapshot(&p->x);
    d.y = &p->x.t;
    run_forward(7, &d);
    norm_assert_same("y in place", &p->y.t, &p->x.t);
    assert_true(gen_gaps_unchanged(&p->x, saved));
    memcpy(p->x.memory, saved, p->x.bytes);
    free(saved);
}

void norm_check_forward(norm_problem *p) {
    const norm_spec *s = &p->s;
    unsigned char *x = gen_snapshot(&p->x);
    const int64_t sizes[4] = {s->z, p->blocks, s->block, s->block}, rows[3] = {s->z, s->h, s->m};
    for (int run = 0; run < RUNS; run++) {
        gen_array out[3] = {{.memory = NULL}}; /* y, mean, rstd */
        unsigned char *before[3];
        make(&out[0], s->dtype, 4, sizes, s->out, 10);
        make(&out[1], saved_type(p), 3, rows, s->out, 11);
        make(&out[2], saved_type(p), 3, rows, s->out, 12);
        for (int o = 0; o < 3; o++)
            before[o] = gen_snapshot(&out[o]);
        bstk_norm_desc d = norm_forward_desc(p);
        d.y = &out[0].t;
        d.mean = p->kind == BSTK_LAYERNORM ? &out[1].t : NULL;
        d.rstd = &out[2].t;
        run_forward(thread_counts[run], &d);
        for (int o = 0; o < 3; o++) {
            assert_true(gen_gaps_unchanged(&out[o], before[o]));
            free(before[o]);
        }
        if (run == 0) {
            check_reference(p, &out[0], &out[1], &out[2]);
            p->y = out[0];
            p->mean = out[1];
            p->rstd = out[2];
            continue;
        }
        norm_assert_same("y", &p->y.t, &out[0].t);
        norm_assert_same("mean", &p->mean.t, &out[1].t);
        norm_assert_same("rstd", &p->rstd.t, &out[2].t);
        for (int o = 0; o < 3; o++)
            gen_array_free(&out[o]);
    }
    assert_true(gen_unchanged(&p->x, x));
    free(x);
    check_in_place(p);
}

/* ---- gradient ------------------------------------------------------------------------------------------------------
 */

const char *const norm_gradient_names[NORM_GRADIENTS] = {"d_x", "d_weight", "d_bias"};

typedef struct gradients {
    double *want[NORM_GRADIENTS], *size[NORM_GRADIENTS]; /* size: errors of d_x, sums of magnitudes of the others */
} gradients;

static int64_t gradient_heads(const norm_problem *p, int which) {
    return which == NORM_D_WEIGHT ? (p->s.weight_heads ? p->s.weight_heads : p->s.h)
                                  : (p->s.bias_heads ? p->s.bias_heads : 1);
}

/*
 * One row, from mean and rstd as the forward saved them: xhat has 2 roundings, g one, and
 *     avg(g): (u + gamma(K + 1)) avg|g|    avg(g xhat): (4u + gamma(K + 1)) avg|g xhat|    d_x: 4u of each term more
 */
static void gradient_row(const norm_problem *p, const double *in[5], int64_t z, int64_t h, int64_t i, gradients *out) {
    const norm_spec *s = &p->s;
    const double *x = in[0], *d_y = in[1], *w = in[2];
    const int64_t row = (z * s->h + h) * s->m + i, base = z * p->blocks * s->block * s->block;
    const double u = bound_sum_unit(s->dtype), k = bound_gamma(row_additions(p) + 1, SUM_UNIT);
    const long double mean = p->kind == BSTK_LAYERNORM ? (long double)in[3][row] : 0, rstd = (long double)in[4][row];
    long double count = 0, avg_g = 0, avg_gx = 0, size_g = 0, size_gx = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t at = place(p, h, i, j);
            if (at < 0)
                continue;
            const long double xhat = ((long double)x[base + at] - mean) * rstd, grad = (long double)d_y[base + at];
            const long double g = grad * (long double)w[(s->weight_heads > 1 ? h : 0) * s->n + j];
            if (pass == 0) {
                count += 1;
                avg_g += g;
                avg_gx += g * xhat;
                size_g += fabsl(g);
                size_gx += fabsl(g * xhat);
                const int64_t wat = (gradient_heads(p, NORM_D_WEIGHT) > 1 ? h : 0) * s->n + j;
                const int64_t bat = (gradient_heads(p, NORM_D_BIAS) > 1 ? h : 0) * s->n + j;
                out->want[NORM_D_WEIGHT][wat] += (double)(grad * xhat);
                out->size[NORM_D_WEIGHT][wat] += fabs((double)(grad * xhat));
                out->want[NORM_D_BIAS][bat] += (double)grad;
                out->size[NORM_D_BIAS][bat] += fabs((double)grad);
                continue;
            }
            const long double centre = p->kind == BSTK_LAYERNORM ? avg_g : 0;
            out->want[NORM_D_X][base + at] = (double)(rstd * (g - centre - xhat * avg_gx));
            out->size[NORM_D_X][base + at] =
                (double)rstd * ((u + k) * (double)size_g + (4 * u + k) * (double)(fabsl(xhat) * size_gx) +
                                4 * u * (double)(fabsl(g) + fabsl(centre) + fabsl(xhat * avg_gx)));
        }
        if (pass == 0 && count > 0) {
            avg_g /= count;
            avg_gx /= count;
            size_g /= count;
            size_gx /= count;
        }
    }
}

static int64_t gradient_count(const norm_problem *p, int which) {
    return which == NORM_D_X ? p->s.z * p->blocks * p->s.block * p->s.block : gradient_heads(p, which) * p->s.n;
}

/* Columns: additions in double, by block, then over blocks and heads; xhat and the product have 4 roundings. */
static void check_gradients(const norm_problem *p, const gen_array got[NORM_GRADIENTS]) {
    const norm_spec *s = &p->s;
    gradients r;
    const double *in[5] = {gen_doubles(&p->x.t), gen_doubles(&p->d_y.t), values_of(&p->weight, s->n, 1),
                           gen_doubles(&p->mean.t), gen_doubles(&p->rstd.t)};
    for (int o = 0; o < NORM_GRADIENTS; o++) {
        r.want[o] = zeros(gradient_count(p, o));
        r.size[o] = zeros(gradient_count(p, o));
    }
    for (int64_t row = 0; row < s->z * s->h * s->m; row++)
        gradient_row(p, in, row / s->m / s->h, row / s->m % s->h, row % s->m, &r);
    /* the reference's own sums are in double too */
    const double additions = 2 * (double)(s->block + s->z * s->h * s->m), u = bound_sum_unit(s->dtype);
    for (int o = 0; o < NORM_GRADIENTS; o++) {
        const bstk_dtype dtype = got[o].t.dtype;
        for (int64_t e = 0; e < gradient_count(p, o); e++) {
            const double error =
                o == NORM_D_X ? r.size[o][e]
                              : (bound_gamma(additions, SUM_UNIT) + (o == NORM_D_WEIGHT ? 5 : 1) * u) * r.size[o][e];
            /* What no row keeps must be 0 to the bit. */
            r.size[o][e] = r.size[o][e] == 0 ? 0 : stored_bound(p, dtype, r.want[o][e], error);
        }
        assert_within(norm_gradient_names[o], &got[o], r.want[o], r.size[o]);
        free(r.want[o]);
        free(r.size[o]);
    }
    for (int i = 0; i < 5; i++)
        free((void *)in[i]);
}

bstk_norm_grad_desc norm_backward_desc(const norm_problem *p) {
    bstk_norm_grad_desc d = BSTK_NORM_GRAD_DESC_INIT;
    d.kind = p->kind;
    d.layout = p->layout;
    d.x = &p->x.t;
    d.weight = optional(&p->weight);
    d.mean = p->kind == BSTK_LAYERNORM ? &p->mean.t : NULL;
    d.rstd = &p->rstd.t;
    d.d_y = &p->d_y.t;
    return d;
}

void norm_run_backward(int32_t threads, const bstk_norm_grad_desc *d) {
    bstk_context *ctx = norm_context(threads);
    if (threads == 2) {
        ok(bstk_norm_grad(ctx, d));
    } else {
        bstk_plan *plan = NULL;
        ok(bstk_norm_grad_plan(ctx, d, &plan));
        assert_int_equal(bstk_plan_scratch_bytes(plan), 0);
        ok(bstk_norm_grad_run(plan, d, NULL));
        bstk_plan_release(plan);
    }
    bstk_context_release(ctx);
}

void norm_make_gradients(const norm_problem *p, gen_array out[NORM_GRADIENTS]) {
    const norm_spec *s = &p->s;
    make(&out[NORM_D_X], s->dtype, 4, shape(s->z, p->blocks, s->block, s->block), s->out, 20);
    make(&out[NORM_D_WEIGHT], s->columns, 2, shape(gradient_heads(p, NORM_D_WEIGHT), s->n), s->out, 21);
    make(&out[NORM_D_BIAS], s->columns, 2, shape(gradient_heads(p, NORM_D_BIAS), s->n), s->out, 22);
}

/* d_x over d_y itself: the columns must still see the old d_y. */
static void check_gradient_in_place(norm_problem *p, const gen_array want[NORM_GRADIENTS]) {
    gen_array out[NORM_GRADIENTS];
    unsigned char *saved = gen_snapshot(&p->d_y);
    bstk_norm_grad_desc d = norm_backward_desc(p);
    norm_make_gradients(p, out);
    d.d_x = &p->d_y.t;
    d.d_weight = &out[NORM_D_WEIGHT].t;
    d.d_bias = &out[NORM_D_BIAS].t;
    norm_run_backward(7, &d);
    norm_assert_same("d_x in place", &want[NORM_D_X].t, &p->d_y.t);
    norm_assert_same("d_weight in place", &want[NORM_D_WEIGHT].t, &out[NORM_D_WEIGHT].t);
    norm_assert_same("d_bias in place", &want[NORM_D_BIAS].t, &out[NORM_D_BIAS].t);
    assert_true(gen_gaps_unchanged(&p->d_y, saved));
    memcpy(p->d_y.memory, saved, p->d_y.bytes);
    free(saved);
    for (int o = 0; o < NORM_GRADIENTS; o++)
        gen_array_free(&out[o]);
}

/* All gradients on each number of threads, then each one alone. */
void norm_check_backward(norm_problem *p) {
    gen_array first[NORM_GRADIENTS];
    unsigned char *x = gen_snapshot(&p->x), *d_y = gen_snapshot(&p->d_y);
    for (int run = 0; run < RUNS + NORM_GRADIENTS; run++) {
        const int only = run - RUNS;
        gen_array out[NORM_GRADIENTS];
        unsigned char *before[NORM_GRADIENTS];
        const bstk_tensor *wanted[NORM_GRADIENTS];
        bstk_norm_grad_desc d = norm_backward_desc(p);
        norm_make_gradients(p, out);
        for (int o = 0; o < NORM_GRADIENTS; o++) {
            before[o] = gen_snapshot(&out[o]);
            wanted[o] = only < 0 || only == o ? &out[o].t : NULL;
        }
        d.d_x = wanted[NORM_D_X];
        d.d_weight = wanted[NORM_D_WEIGHT];
        d.d_bias = wanted[NORM_D_BIAS];
        norm_run_backward(only < 0 ? thread_counts[run] : 7, &d);
        for (int o = 0; o < NORM_GRADIENTS; o++) {
            assert_true(wanted[o] ? gen_gaps_unchanged(&out[o], before[o]) : gen_unchanged(&out[o], before[o]));
            if (run > 0 && wanted[o])
                norm_assert_same(norm_gradient_names[o], &first[o].t, &out[o].t);
            if (run == 0)
                first[o] = out[o];
            else
                gen_array_free(&out[o]);
            free(before[o]);
        }
        if (run == 0)
            check_gradients(p, first);
    }
    assert_true(gen_unchanged(&p->x, x) && gen_unchanged(&p->d_y, d_y));
    if (p->s.d_y < GEN_STYLES)
        check_gradient_in_place(p, first);
    for (int o = 0; o < NORM_GRADIENTS; o++)
        gen_array_free(&first[o]);
    free(x);
    free(d_y);
}

void norm_check(norm_spec s) {
    const bool one_type = s.dtype != 0;
    for (int kind = BSTK_LAYERNORM; kind <= BSTK_RMSNORM; kind++)
        for (int dtype = BSTK_F64; dtype <= BSTK_BF16; dtype++) {
            if (one_type && dtype != (int)s.dtype)
                continue;
            norm_spec each = s;
            each.dtype = (bstk_dtype)dtype;
            norm_problem p = norm_make((bstk_norm_kind)kind, &each);
            norm_check_forward(&p);
            norm_check_backward(&p);
            norm_free(&p);
        }
}
