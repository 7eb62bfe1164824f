/* op_case.c: layouts of rules, and one run of an op against the float64 reference. See op_case.h. */
#include "support/op_case.h"

#include "check/bound.h"
#include "check/ref.h"
#include "support/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static bool rule_stores(const rule *r, int64_t h, int64_t i, int64_t j, int64_t rows, int64_t cols) {
    switch (r->kind) {
    case RULE_ONES:
        return true;
    case RULE_ZEROS:
        return false;
    case RULE_DIAG:
        return i == j;
    case RULE_TRIL:
        return j <= i;
    case RULE_BERNOULLI:
        return (r->ensure_diag && i == j) || (r->ensure_row && j == (i + h) % cols) ||
               (r->no_empty && (j == i % cols || i == j % rows)) ||
               gen_unit(r->seed, (uint64_t)((h * rows + i) * cols + j)) < r->p;
    case RULE_BANDED:
        return i - j <= r->reach && j - i <= r->reach;
    case RULE_FIRST_ROW:
        return i == 0;
    case RULE_LAST_ROW:
        return i == rows - 1;
    case RULE_FIRST_COLUMN:
        return j == 0;
    case RULE_LAST_COLUMN:
        return j == cols - 1;
    case RULE_ANTI_DIAGONAL:
        return j == cols - 1 - i;
    case RULE_SINGLE:
        return i == r->at_row && j == r->at_col;
    case RULE_MATRIX:
        return r->matrix[i * cols + j] != 0;
    case RULE_MIXED:
        return h % 3 == 0 || (h % 3 == 2 && i == j);
    }
    return false;
}

uint8_t *rule_mask(const rule *r, int64_t heads, int64_t rows, int64_t cols) {
    uint8_t *mask = malloc((size_t)(heads * rows * cols + 1));
    assert_non_null(mask);
    for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j)
                mask[(h * rows + i) * cols + j] = rule_stores(r, h, i, j, rows, cols);
    return mask;
}

bstk_layout *rule_layout(const rule *r, int64_t heads, int64_t m, int64_t n, int32_t block) {
    const int64_t rows = (m + block - 1) / block, cols = (n + block - 1) / block;
    uint8_t *mask = rule_mask(r, heads, rows, cols);
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape(heads, rows, cols));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &t, block, shape(m, n), &layout));
    free(mask);
    return layout;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

void make_array(gen_array *a, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style, gen_values values,
                uint64_t seed) {
    assert_true(gen_array_make(a, dtype, ndim, sizes, style, seed));
    gen_fill(&a->t, values, seed);
}

void assert_within(const char *what, const bstk_tensor *got, const double *want, const double *bound) {
    const bound_result r = bound_compare(got, want, bound);
    if (!r.ok)
        fail_msg("%s: %lld of %lld elements are wrong; element %lld is %.9g, expected %.9g within %.3g", what,
                 (long long)r.bad, (long long)gen_count(got), (long long)r.at, r.got, r.want, r.bound);
}

void assert_same_bits(const char *what, const bstk_tensor *x, const bstk_tensor *y) {
    const int64_t count = gen_count(x);
    const size_t size = bstk_dtype_size(x->dtype);
    assert_int_equal(count, gen_count(y));
    for (int64_t e = 0; e < count; ++e) {
        const char *a = (const char *)x->data + gen_offset(x, e) * (int64_t)size;
        const char *b = (const char *)y->data + gen_offset(y, e) * (int64_t)size;
        if (memcmp(a, b, size) != 0)
            fail_msg("%s: element %lld is %.17g and %.17g", what, (long long)e, gen_load(x->dtype, a, 0),
                     gen_load(y->dtype, b, 0));
    }
}

static bstk_context *seven_threads(void) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = 7;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

/* Names of the registry's rows for an op and its types; at most `most`. */
static int rows_of(const char *op, bstk_dtype dtype, bstk_dtype packed, int32_t block, const char **names, int most) {
    int found = 0;
    for (int32_t i = 0; i < bstk_kernel_count(); ++i) {
        bstk_kernel_info info = {.struct_size = sizeof info};
        ok(bstk_kernel_get(i, &info));
        if (strcmp(info.op, op) == 0 && info.dtype == dtype && info.packed_dtype == packed && info.available &&
            (info.block == 0 || info.block == block) && found < most)
            names[found++] = info.name;
    }
    assert_true(found > 0);
    return found;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void product_defaults(product_case *p) {
    p->z = p->z ? p->z : 1;
    p->h = p->h ? p->h : 1;
    p->packed = p->packed ? p->packed : p->dtype;
    p->b_heads = p->b_heads ? p->b_heads : p->h;
    if (p->alpha == 0 && p->beta == 0)
        p->alpha = 1;
}

void product_make(product *x, const product_case *given) {
    *x = (product){.p = *given};
    product_defaults(&x->p);
    const product_case *p = &x->p;
    const bool sdd = p->mode == BSTK_SDD, dsd = p->mode == BSTK_DSD;
    const bool transposed = sdd ? p->tc : dsd ? p->ta : p->tb;
    const int64_t rows = p->mode == BSTK_DDS ? p->k : p->m, cols = dsd ? p->k : p->n;
    x->layout = rule_layout(&p->layout, p->shared_layout ? 1 : p->h, transposed ? cols : rows, transposed ? rows : cols,
                            p->block);
    const int64_t nnz = bstk_layout_nnz(x->layout) * (p->shared_layout ? p->h : 1);
    const int64_t *const packed = shape(p->z, nnz, p->block, p->block);
    const int64_t *const a = shape(p->z, p->h, p->ta ? p->k : p->m, p->ta ? p->m : p->k);
    const int64_t *const b = shape(p->z, p->b_heads, p->tb ? p->n : p->k, p->tb ? p->k : p->n);
    const int64_t *const c = shape(p->z, p->h, p->tc ? p->n : p->m, p->tc ? p->m : p->n);
    const bool dds = p->mode == BSTK_DDS;
    make_array(&x->a, dsd ? p->packed : p->dtype, 4, dsd ? packed : a, p->a_style, p->values, 3 * p->seed + 1);
    make_array(&x->b, dds ? p->packed : p->dtype, 4, dds ? packed : b, p->b_style, p->values, 3 * p->seed + 2);
    make_array(&x->c, sdd ? p->packed : p->dtype, 4, sdd ? packed : c, p->c_style, GEN_NANS, 0);
}

static void product_text(const product_case *p, const char *kernel, char *text, size_t bytes) {
    snprintf(text, bytes, "%s b%d z%lld h%lld m%lld n%lld k%lld%s%s%s seed %llu", kernel, (int)p->block,
             (long long)p->z, (long long)p->h, (long long)p->m, (long long)p->n, (long long)p->k, p->ta ? " ta" : "",
             p->tb ? " tb" : "", p->tc ? " tc" : "", (unsigned long long)p->seed);
}

/* C before a run: NaN, or values when they count. */
static void product_reset(product *x) {
    gen_fill(&x->c.t, x->p.beta == 0 ? GEN_NANS : x->p.values, 3 * x->p.seed + 3);
}

void product_check(product *x) {
    static const char *const names[] = {"", "sdd", "dsd", "dds"};
    const product_case *p = &x->p;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = p->mode;
    desc.trans_a = p->ta;
    desc.trans_b = p->tb;
    desc.trans_c = p->tc;
    desc.layout = x->layout;
    desc.a = &x->a.t;
    desc.b = &x->b.t;
    desc.c = &x->c.t;
    product_reset(x);
    const ref_product ref = {.mode = p->mode,
                             .trans_a = p->ta,
                             .trans_b = p->tb,
                             .trans_c = p->tc,
                             .layout = x->layout,
                             .z = p->z,
                             .h = p->h,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .a = &x->a.t,
                             .b = &x->b.t,
                             .c = &x->c.t,
                             .alpha = p->alpha,
                             .beta = p->beta};
    const size_t count = (size_t)gen_count(&x->c.t) + 1;
    double *want = malloc(count * sizeof *want), *bound = malloc(count * sizeof *bound);
    assert_true(want && bound && ref_matmul(&ref, want, bound));
    unsigned char *a = gen_snapshot(&x->a), *b = gen_snapshot(&x->b), *gaps = gen_snapshot(&x->c);
    const char *kernels[16];
    const int rows = rows_of(names[p->mode], p->dtype, p->packed, p->block, kernels, 16);
    bstk_context *seven = seven_threads();
    for (int row = 0; row < rows; ++row) {
        char text[256];
        product_text(p, kernels[row], text, sizeof text);
        desc.kernel = kernels[row];
        product_reset(x);
        ok(bstk_matmul(NULL, &desc, p->alpha, p->beta));
        assert_within(text, &x->c.t, want, bound);
        unsigned char *first = gen_snapshot(&x->c);
        product_reset(x);
        ok(bstk_matmul(seven, &desc, p->alpha, p->beta));
        if (!gen_unchanged(&x->c, first))
            fail_msg("%s: another run on 7 threads gave other bits", text);
        if (!gen_gaps_unchanged(&x->c, gaps) || !gen_unchanged(&x->a, a) || !gen_unchanged(&x->b, b))
            fail_msg("%s: wrote outside of c", text);
        free(first);
    }
    bstk_context_release(seven);
    free(a);
    free(b);
    free(gaps);
    free(want);
    free(bound);
}

void product_free(product *x) {
    bstk_layout_release(x->layout);
    gen_array_free(&x->a);
    gen_array_free(&x->b);
    gen_array_free(&x->c);
}

void check_product(const product_case *p) {
    product x;
    product_make(&x, p);
    product_check(&x);
    product_free(&x);
}

/* ---- softmax and attention --------------------------------------------------------------------------------------- */

void score_make(score_op *x, const score_case *given, bstk_layout *layout) {
    *x = (score_op){.p = *given, .layout = layout, .terms = BSTK_SCORE_TERMS_INIT};
    score_case *p = &x->p;
    p->z = p->z ? p->z : 1;
    p->h = p->h ? p->h : 1;
    p->dv = p->dv ? p->dv : p->d;
    p->kv_heads = p->kv_heads ? p->kv_heads : p->h;
    if (layout == NULL)
        x->layout = rule_layout(&p->layout, p->shared_layout ? 1 : p->h, p->m, p->n, p->block);
    const int64_t nnz = bstk_layout_nnz(x->layout) * (bstk_layout_heads(x->layout) == 1 ? p->h : 1);
    const bstk_dtype lse = p->dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    if (p->attention) {
        make_array(&x->q, p->dtype, 4, shape(p->z, p->h, p->m, p->d), p->in_style, p->values, 4 * p->seed + 1);
        make_array(&x->k, p->dtype, 4, shape(p->z, p->kv_heads, p->n, p->d), p->in_style, p->values, 4 * p->seed + 2);
        make_array(&x->v, p->dtype, 4, shape(p->z, p->kv_heads, p->n, p->dv), p->in_style, p->values, 4 * p->seed + 3);
        make_array(&x->out, p->dtype, 4, shape(p->z, p->h, p->m, p->dv), p->out_style, GEN_NANS, 0);
    } else {
        make_array(&x->x, p->dtype, 4, shape(p->z, nnz, p->block, p->block), p->in_style, p->values, 4 * p->seed + 1);
        make_array(&x->out, p->dtype, 4, shape(p->z, nnz, p->block, p->block), p->out_style, GEN_NANS, 0);
    }
    make_array(&x->lse, lse, 3, shape(p->z, p->h, p->m), p->out_style, GEN_NANS, 0);
}

static void add_term(gen_array *a, const bstk_tensor **term, bstk_dtype dtype, int32_t ndim, const int64_t *sizes,
                     gen_style style, uint64_t seed) {
    make_array(a, dtype, ndim, sizes, style, GEN_UNIFORM, seed);
    const int64_t count = gen_count(&a->t);
    for (int64_t e = 0; e < count; ++e) {
        const double u = gen_unit(seed, (uint64_t)e);
        gen_store(dtype, a->t.data, gen_offset(&a->t, e), gen_is_float(dtype) ? 6 * u - 3 : u < 0.75);
    }
    *term = &a->t;
}

void add_rpe(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style, uint64_t seed) {
    add_term(&x->rpe, &x->terms.rpe, dtype, ndim, sizes, style, seed);
}

void add_rel(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style, uint64_t seed) {
    add_term(&x->rel, &x->terms.rel_logits, dtype, ndim, sizes, style, seed);
}

void add_key_padding(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style,
                     uint64_t seed) {
    add_term(&x->key_padding, &x->terms.key_padding_mask, dtype, ndim, sizes, style, seed);
}

void add_attn_mask(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style, uint64_t seed) {
    add_term(&x->attn, &x->terms.attn_mask, dtype, ndim, sizes, style, seed);
}

static bstk_status run_once(score_op *x, bstk_context *ctx, const char *kernel) {
    gen_fill(&x->out.t, GEN_NANS, 0);
    gen_fill(&x->lse.t, GEN_NANS, 0);
    if (x->p.attention) {
        bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
        desc.layout = x->layout;
        desc.q = &x->q.t;
        desc.k = &x->k.t;
        desc.v = &x->v.t;
        desc.o = &x->out.t;
        desc.lse = &x->lse.t;
        desc.terms = x->terms;
        desc.kernel = kernel;
        return bstk_attention(ctx, &desc);
    }
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = x->layout;
    desc.x = &x->x.t;
    desc.y = &x->out.t;
    desc.lse = &x->lse.t;
    desc.terms = x->terms;
    desc.kernel = kernel;
    return bstk_softmax(ctx, &desc);
}

void score_run(score_op *x) {
    ok(run_once(x, NULL, NULL));
}

static void score_text(const score_case *p, const char *kernel, char *text, size_t bytes) {
    snprintf(text, bytes, "%s %s b%d z%lld h%lld m%lld n%lld d%lld seed %llu", kernel, bstk_dtype_name(p->dtype),
             (int)p->block, (long long)p->z, (long long)p->h, (long long)p->m, (long long)p->n, (long long)p->d,
             (unsigned long long)p->seed);
}

enum { SCORE_INPUTS = 8 };

static void inputs_of(score_op *x, gen_array *inputs[SCORE_INPUTS]) {
    gen_array *const all[SCORE_INPUTS] = {&x->x, &x->q, &x->k, &x->v, &x->rpe, &x->rel, &x->key_padding, &x->attn};
    memcpy(inputs, all, sizeof all);
}

void score_check(score_op *x) {
    const score_case *p = &x->p;
    ref_scores ref = {.layout = x->layout,
                      .z = p->z,
                      .h = p->h,
                      .m = p->m,
                      .n = p->n,
                      .d = p->d,
                      .dtype = p->dtype,
                      .x = p->attention ? NULL : &x->x.t,
                      .q = &x->q.t,
                      .k = &x->k.t,
                      .terms = &x->terms};
    const size_t count = (size_t)gen_count(&x->out.t) + 1, rows = (size_t)gen_count(&x->lse.t) + 1;
    double *want = malloc(count * sizeof *want), *bound = malloc(count * sizeof *bound);
    double *lse = malloc(rows * sizeof *lse), *lse_bound = malloc(rows * sizeof *lse_bound);
    assert_true(want && bound && lse && lse_bound);
    gen_array *inputs[SCORE_INPUTS];
    unsigned char *before[SCORE_INPUTS], *gaps = gen_snapshot(&x->out), *lse_gaps = gen_snapshot(&x->lse);
    inputs_of(x, inputs);
    for (int i = 0; i < SCORE_INPUTS; ++i)
        before[i] = gen_snapshot(inputs[i]);
    const char *kernels[16];
    const int tried = rows_of(p->attention ? "attention" : "softmax", p->dtype, p->dtype, p->block, kernels, 16);
    bstk_context *seven = seven_threads();
    for (int row = tried; row-- > 0;) { /* the chosen kernel last: its results stay */
        char text[256], lse_text[272];
        const bool dots = p->attention && strstr(kernels[row], "avx512_bf16") != NULL;
        if (row == tried - 1 || dots != ref.dots) {
            ref.dots = dots;
            assert_true(p->attention ? ref_attention(&ref, &x->v.t, want, bound, lse, lse_bound)
                                     : ref_softmax(&ref, want, bound, lse, lse_bound));
        }
        score_text(p, kernels[row], text, sizeof text);
        snprintf(lse_text, sizeof lse_text, "lse of %s", text);
        ok(run_once(x, NULL, kernels[row]));
        assert_within(text, &x->out.t, want, bound);
        assert_within(lse_text, &x->lse.t, lse, lse_bound);
        unsigned char *first = gen_snapshot(&x->out), *first_lse = gen_snapshot(&x->lse);
        ok(run_once(x, seven, kernels[row]));
        if (!gen_unchanged(&x->out, first) || !gen_unchanged(&x->lse, first_lse))
            fail_msg("%s: another run on 7 threads gave other bits", text);
        if (!gen_gaps_unchanged(&x->out, gaps) || !gen_gaps_unchanged(&x->lse, lse_gaps))
            fail_msg("%s: wrote outside of its outputs", text);
        for (int i = 0; i < SCORE_INPUTS; ++i)
            if (!gen_unchanged(inputs[i], before[i]))
                fail_msg("%s: changed input %d", text, i);
        free(first);
        free(first_lse);
    }
    bstk_context_release(seven);
    for (int i = 0; i < SCORE_INPUTS; ++i)
        free(before[i]);
    free(gaps);
    free(lse_gaps);
    free(want);
    free(bound);
    free(lse);
    free(lse_bound);
}

void score_free(score_op *x) {
    gen_array *inputs[SCORE_INPUTS];
    inputs_of(x, inputs);
    for (int i = 0; i < SCORE_INPUTS; ++i)
        gen_array_free(inputs[i]);
    gen_array_free(&x->out);
    gen_array_free(&x->lse);
    bstk_layout_release(x->layout);
}

void check_scores(const score_case *p) {
    score_op x;
    score_make(&x, p, NULL);
    score_check(&x);
    score_free(&x);
}
