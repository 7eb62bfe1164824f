/*
 * test_cases_attention.c: cases that users of block-sparse software met, of attention: shapes, layouts, numerics; the
 * number is the case's. Masks and other terms: test_cases_masks.c. Sizes are cut where the float64 reference would take
 * long; what the case is about (remainders, extremes, empty rows) is kept. See README.md.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/test_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

static double out_at(const score_op *x, int64_t z, int64_t h, int64_t i, int64_t c) {
    const bstk_tensor *t = &x->out.t;
    return gen_load(t->dtype, t->data, gen_offset(t, ((z * t->shape[1] + h) * t->shape[2] + i) * t->shape[3] + c));
}

static double lse_at(const score_op *x, int64_t z, int64_t h, int64_t i) {
    const bstk_tensor *t = &x->lse.t;
    return gen_load(t->dtype, t->data, gen_offset(t, (z * t->shape[1] + h) * t->shape[2] + i));
}

static void fill(const gen_array *a, double value) {
    for (int64_t e = 0; e < gen_count(&a->t); ++e)
        gen_store(a->t.dtype, a->t.data, gen_offset(&a->t, e), value);
}

/* Blocks of 128 and 256, with 16 heads; 512 is refused by name. */
static void test_bc_004(void **state) {
    (void)state;
    for (int32_t block = 128; block <= 256; block *= 2)
        for (size_t d = 1; d < 3; ++d)
            for (int causal = 0; causal < 2; ++causal) {
                score_op x;
                const score_case p = {.attention = true,
                                      .dtype = dtypes[d],
                                      .block = block,
                                      .h = 2,
                                      .m = 512,
                                      .n = 512,
                                      .d = 16,
                                      .layout = {.kind = RULE_TRIL}};
                score_make(&x, &p, NULL);
                x.terms.causal = causal;
                score_check(&x);
                score_free(&x);
            }
    uint8_t mask[16 * 16] = {1};
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 2, shape(16, 16));
    bstk_layout *layout = NULL;
    refused(bstk_layout_from_mask(NULL, &t, 512, NULL, &layout), BSTK_ERR_INVALID,
            "layout: block is 512, expected a multiple of 8 from 8 to 256");
}

/* Lengths that are no powers of two. */
static void test_bc_009(void **state) {
    (void)state;
    static const int64_t lengths[] = {48, 80, 96, 112, 160, 336, 1008};
    for (size_t i = 0; i < 7; ++i) {
        score_case p = {.attention = true,
                        .dtype = BSTK_F16,
                        .block = 16,
                        .z = lengths[i] < 100 ? 2 : 1,
                        .h = lengths[i] < 200 ? 2 : 1,
                        .m = lengths[i],
                        .n = lengths[i],
                        .d = lengths[i] < 200 ? 64 : 8,
                        .layout = {.kind = RULE_BERNOULLI, .p = 0.6, .seed = 2, .ensure_diag = true}};
        check_scores(&p);
        p.dtype = BSTK_F32;
        p.d = 64;
        p.n = lengths[i] / 2 + 3; /* and not square, and ragged */
        check_scores(&p);
    }
}

/* Head sizes: any from 1 to 256; the default scale is that of the head size given. */
static void test_bc_011(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 8, 24, 40, 72, 80, 96, 129, 160, 192, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
        for (size_t d = 0; d < 4; ++d) {
            score_op x;
            const score_case p = {.attention = true,
                                  .dtype = dtypes[d],
                                  .block = 16,
                                  .h = 2,
                                  .m = 48,
                                  .n = 48,
                                  .d = sizes[i],
                                  .dv = sizes[10 - i],
                                  .layout = {.kind = RULE_TRIL}};
            score_make(&x, &p, NULL);
            x.terms.causal = 1;
            score_check(&x);
            unsigned char *first = gen_snapshot(&x.out);
            x.terms.scale = 1 / sqrt((double)sizes[i]);
            score_run(&x);
            assert_true(gen_unchanged(&x.out, first));
            free(first);
            score_free(&x);
        }
}

/* First and last rows, last columns, with M != N; a head size that is too large is named. */
static void test_bc_013(void **state) {
    (void)state;
    score_op x;
    const score_case p = {.attention = true,
                          .dtype = BSTK_F32,
                          .block = 16,
                          .z = 2,
                          .m = 1024,
                          .n = 768,
                          .d = 256,
                          .layout = {.kind = RULE_BERNOULLI, .p = 0.05}};
    score_make(&x, &p, NULL);
    score_check(&x); /* each element of each row by its own bound */
    score_free(&x);
    const bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 1, 16, 384));
    bstk_layout *layout = rule_layout(&(rule){.kind = RULE_ONES}, 1, 16, 16, 16);
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    bstk_plan *plan = NULL;
    desc.layout = layout;
    desc.q = desc.k = desc.v = desc.o = &t;
    refused(bstk_attention_plan(NULL, &desc, &plan), BSTK_ERR_INVALID,
            "attention: q has head size 384, expected 1 to 256");
    bstk_layout_release(layout);
}

/* A length that is no multiple of the block; what lies behind each output stays as it is. */
static void test_bc_014(void **state) {
    (void)state;
    static const int64_t lengths[] = {507, 1, 63, 65, 129};
    static const int32_t blocks[] = {64, 16, 128};
    for (size_t i = 0; i < 5; ++i)
        for (size_t b = 0; b < 3; ++b)
            for (size_t d = 1; d < 4; ++d) {
                score_op x;
                const score_case p = {.attention = true,
                                      .dtype = dtypes[d],
                                      .block = blocks[b],
                                      .h = 2,
                                      .m = lengths[i],
                                      .n = lengths[i],
                                      .d = d == 1 && b == 0 ? 128 : 8,
                                      .in_style = GEN_PADDED,
                                      .out_style = GEN_PADDED,
                                      .layout = {.kind = RULE_TRIL}};
                score_make(&x, &p, NULL);
                x.terms.causal = 1;
                score_check(&x);
                score_free(&x);
            }
}

static void check_empty_rows(const score_op *x, const uint8_t *matrix, int64_t grid, int64_t block) {
    for (int64_t i = 0; i < grid * block; ++i) {
        int stored = 0;
        for (int64_t j = 0; j < grid; ++j)
            stored += matrix[i / block * grid + j];
        for (int64_t c = 0; c < x->p.dv; ++c)
            assert_true(stored ? out_at(x, 0, 0, i, c) != 0 : out_at(x, 0, 0, i, c) == 0);
        assert_true(stored ? isfinite(lse_at(x, 0, 0, i)) : lse_at(x, 0, 0, i) == -INFINITY);
    }
}

/* Empty block rows give 0 and lse = -inf; no zeros anywhere else. */
static void test_bc_019(void **state) {
    (void)state;
    static const uint8_t matrix[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    for (size_t d = 0; d < 4; ++d)
        for (int repeat = 0; repeat < 5; ++repeat) {
            score_op x;
            const score_case p = {.attention = true,
                                  .dtype = dtypes[d],
                                  .block = 64,
                                  .m = 256,
                                  .n = 256,
                                  .d = 64,
                                  .dv = 32,
                                  .seed = (uint64_t)repeat,
                                  .layout = {.kind = RULE_MATRIX, .matrix = matrix}};
            score_make(&x, &p, NULL);
            score_check(&x);
            check_empty_rows(&x, matrix, 4, 64);
            score_free(&x);
        }
}

static void test_bc_021(void **state) {
    (void)state;
    static const uint8_t matrix[] = {1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0};
    for (size_t d = 0; d < 4; ++d) {
        score_op x;
        const score_case p = {.attention = true,
                              .dtype = dtypes[d],
                              .block = 16,
                              .m = 64,
                              .n = 64,
                              .d = 32,
                              .layout = {.kind = RULE_MATRIX, .matrix = matrix}};
        score_make(&x, &p, NULL);
        score_check(&x);
        check_empty_rows(&x, matrix, 4, 16);
        score_free(&x);
    }
}

/* No block at all; per head or shared; grouped heads. */
static void test_bc_023(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int shared = 0; shared < 2; ++shared)
            for (int64_t kv = 1; kv <= 4; kv *= 2) {
                score_op x;
                const score_case p = {.attention = true,
                                      .dtype = dtypes[d],
                                      .block = 16,
                                      .z = 2,
                                      .h = 4,
                                      .m = 64,
                                      .n = 48,
                                      .d = 32,
                                      .kv_heads = kv,
                                      .shared_layout = shared,
                                      .layout = {.kind = RULE_ZEROS}};
                score_make(&x, &p, NULL);
                score_check(&x);
                assert_true(out_at(&x, 1, 3, 63, 31) == 0 && lse_at(&x, 1, 3, 63) == -INFINITY);
                score_free(&x);
            }
    check_scores(&(score_case){.attention = true, .dtype = BSTK_F32, .block = 16, .m = 0, .n = 32, .d = 4});
    check_scores(&(score_case){.attention = true, .dtype = BSTK_F32, .block = 16, .m = 32, .n = 0, .d = 4});
    check_scores(&(score_case){.attention = true, .dtype = BSTK_F32, .block = 16, .m = 1, .n = 1, .d = 1});
}

static void test_bc_024(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d)
        for (int64_t kv = 1; kv <= 3; kv += 2) {
            const score_case p = {.attention = true,
                                  .dtype = dtypes[d],
                                  .block = 16,
                                  .z = 2,
                                  .h = 3,
                                  .m = 64,
                                  .n = 64,
                                  .d = 32,
                                  .kv_heads = kv,
                                  .layout = {.kind = RULE_MIXED}};
            check_scores(&p);
        }
}

/* The three by three example. */
static void test_bc_034(void **state) {
    (void)state;
    static const uint8_t matrix[] = {0, 0, 1, 1, 0, 1, 0, 1, 1};
    for (size_t d = 0; d < 4; ++d) {
        const score_case p = {.attention = true,
                              .dtype = dtypes[d],
                              .block = 16,
                              .m = 48,
                              .n = 48,
                              .d = 128,
                              .layout = {.kind = RULE_MATRIX, .matrix = matrix}};
        check_scores(&p);
    }
}

/* Logits to +-1e4: finite, and the weights of each row sum to 1 (values of 1 show it). */
static void test_bc_068(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; ++d) {
        score_op x;
        const score_case p = {.attention = true, .dtype = dtypes[d], .block = 16, .h = 2, .m = 64, .n = 64, .d = 64};
        score_make(&x, &p, NULL);
        gen_array *const sides[] = {&x.q, &x.k};
        for (int side = 0; side < 2; ++side)
            for (int64_t e = 0; e < gen_count(&sides[side]->t); ++e)
                gen_store(dtypes[d], sides[side]->t.data, e, 140 * gen_unit(5 + (uint64_t)side, (uint64_t)e) - 70);
        x.terms.scale = 0.125;
        score_check(&x);
        fill(&x.v, 1);
        score_run(&x);
        for (int64_t h = 0; h < 2; ++h)
            for (int64_t i = 0; i < 64; ++i)
                assert_true(fabs(out_at(&x, 0, h, i, 5) - 1) <= (d < 2 ? 1e-6 : 0x1p-7));
        score_free(&x);
    }
}

/* Plain f32: means of values around 0.5 to 1e-5. */
static void test_bc_073(void **state) {
    (void)state;
    for (int32_t block = 16; block <= 64; block += 48) {
        score_op x;
        const score_case p = {.attention = true,
                              .dtype = BSTK_F32,
                              .block = block,
                              .h = 2,
                              .m = 256,
                              .n = 512,
                              .d = 64,
                              .layout = {.kind = RULE_BERNOULLI, .p = 0.5, .ensure_row = true}};
        score_make(&x, &p, NULL);
        gen_array *const sides[] = {&x.q, &x.k, &x.v};
        for (int side = 0; side < 3; ++side)
            for (int64_t e = 0; e < gen_count(&sides[side]->t); ++e)
                gen_store(BSTK_F32, sides[side]->t.data, e, gen_unit(5 + (uint64_t)side, (uint64_t)e));
        score_check(&x);
        /* The same numbers in f64: an f64 run is the reference to 1e-12. */
        score_op wide;
        score_case w = p;
        w.dtype = BSTK_F64;
        score_make(&wide, &w, NULL);
        gen_array *const to[] = {&wide.q, &wide.k, &wide.v};
        for (int side = 0; side < 3; ++side)
            for (int64_t e = 0; e < gen_count(&sides[side]->t); ++e)
                gen_store(BSTK_F64, to[side]->t.data, e, gen_load(BSTK_F32, sides[side]->t.data, e));
        score_run(&wide);
        for (int64_t e = 0; e < gen_count(&x.out.t); ++e)
            assert_true(fabs(gen_load(BSTK_F32, x.out.t.data, e) - gen_load(BSTK_F64, wide.out.t.data, e)) <= 1e-5);
        score_free(&x);
        score_free(&wide);
    }
}

/* 16384 equal weights of values 1: sums in a half type would stall far below. */
static void test_bc_074(void **state) {
    (void)state;
    for (size_t d = 1; d < 4; ++d) {
        score_op x;
        const score_case p = {
            .attention = true, .dtype = dtypes[d], .block = 16, .m = 16, .n = 16384, .d = 8, .dv = 64};
        score_make(&x, &p, NULL);
        fill(&x.q, 0);
        fill(&x.v, 1);
        score_run(&x);
        const double ulp = dtypes[d] == BSTK_BF16 ? 0x1p-7 : dtypes[d] == BSTK_F16 ? 0x1p-10 : 0x1p-23 * 64;
        for (int64_t i = 0; i < 16; ++i)
            for (int64_t c = 0; c < 64; ++c)
                assert_true(fabs(out_at(&x, 0, 0, i, c) - 1) <= ulp);
        score_free(&x);
    }
}

/* The same elements at other strides: sliced keys, permuted queries, contiguous values. Same bits. */
static void test_bc_080(void **state) {
    (void)state;
    const score_case p = {.attention = true,
                          .dtype = BSTK_F16,
                          .block = 64,
                          .h = 2,
                          .m = 1024,
                          .n = 896,
                          .d = 64,
                          .layout = {.kind = RULE_BERNOULLI, .p = 0.1, .ensure_row = true}};
    score_op x;
    score_make(&x, &p, NULL);
    score_run(&x);
    gen_array big, permuted, out;
    make_array(&big, BSTK_F16, 4, shape(1, 2, 1024, 64), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&permuted, BSTK_F16, 4, shape(1, 1024, 2, 64), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&out, BSTK_F16, 4, shape(1, 2, 1024, 64), GEN_SHUFFLED, GEN_NANS, 9);
    bstk_tensor k = big.t, q = x.q.t;
    k.shape[2] = 896;
    q.data = permuted.t.data;
    q.stride[1] = permuted.t.stride[2];
    q.stride[2] = permuted.t.stride[1];
    for (int64_t e = 0; e < gen_count(&k); ++e)
        gen_store(BSTK_F16, k.data, gen_offset(&k, e), gen_load(BSTK_F16, x.k.t.data, e));
    for (int64_t e = 0; e < gen_count(&q); ++e)
        gen_store(BSTK_F16, q.data, gen_offset(&q, e), gen_load(BSTK_F16, x.q.t.data, e));
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = x.layout;
    desc.q = &q;
    desc.k = &k;
    desc.v = &x.v.t;
    desc.o = &out.t;
    ok(bstk_attention(NULL, &desc));
    assert_same_bits("strided against contiguous", &out.t, &x.out.t);
    gen_array_free(&big);
    gen_array_free(&permuted);
    gen_array_free(&out);
    score_free(&x);
    /* Every kind of strides for inputs and outputs against the reference. */
    for (int style = GEN_CONTIGUOUS; style <= GEN_ZERO_SECOND; ++style)
        for (size_t d = 0; d < 4; ++d) {
            const score_case s = {.attention = true,
                                  .dtype = dtypes[d],
                                  .block = 16,
                                  .z = 2,
                                  .h = 4,
                                  .m = 40,
                                  .n = 56,
                                  .d = 9,
                                  .dv = 5,
                                  .kv_heads = 2,
                                  .in_style = (gen_style)style,
                                  .out_style = (gen_style)(style % GEN_STYLES),
                                  .seed = d,
                                  .layout = {.kind = RULE_BERNOULLI, .p = 0.5}};
            check_scores(&s);
        }
}

/* Calls of several lengths in turn under one context: each is exact, whatever ran before. */
static void test_bc_089(void **state) {
    (void)state;
    static const int64_t lengths[] = {992, 512, 2048, 992, 64};
    for (size_t i = 0; i < 5; ++i) {
        const score_case p = {.attention = true,
                              .dtype = BSTK_F32,
                              .block = 64,
                              .h = 2,
                              .m = lengths[i],
                              .n = lengths[i],
                              .d = 16,
                              .seed = i,
                              .layout = {.kind = RULE_BANDED, .reach = 1}};
        check_scores(&p);
    }
}

static const rule extremes[] = {{.kind = RULE_LAST_COLUMN},   {.kind = RULE_FIRST_COLUMN},
                                {.kind = RULE_LAST_ROW},      {.kind = RULE_FIRST_ROW},
                                {.kind = RULE_ANTI_DIAGONAL}, {.kind = RULE_SINGLE, .at_row = 3, .at_col = 0}};

static void test_bc_093(void **state) {
    (void)state;
    for (size_t r = 0; r < sizeof extremes / sizeof *extremes; ++r)
        for (size_t d = 0; d < 4; ++d) {
            score_case p = {.attention = true,
                            .dtype = dtypes[d],
                            .block = 64,
                            .h = 2,
                            .m = 256,
                            .n = 256,
                            .d = 16,
                            .layout = extremes[r]};
            check_scores(&p);
            p.block = 16; /* and not square, ragged */
            p.m = 70;
            p.n = 100;
            check_scores(&p);
        }
}

/* Same bits in every run, for any number of threads. */
static void test_bc_096(void **state) {
    (void)state;
    score_op x;
    const score_case p = {.attention = true,
                          .dtype = BSTK_BF16,
                          .block = 64,
                          .h = 4,
                          .m = 512,
                          .n = 512,
                          .d = 64,
                          .seed = 233,
                          .layout = {.kind = RULE_TRIL}};
    score_make(&x, &p, NULL);
    x.terms.causal = 1;
    score_run(&x);
    unsigned char *out = gen_snapshot(&x.out), *lse = gen_snapshot(&x.lse);
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = x.layout;
    desc.q = &x.q.t;
    desc.k = &x.k.t;
    desc.v = &x.v.t;
    desc.o = &x.out.t;
    desc.lse = &x.lse.t;
    desc.terms = x.terms;
    for (int run = 0; run < 10; ++run) {
        bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
        bstk_context *ctx = NULL;
        opts.num_threads = 1 + run % 5;
        ok(bstk_context_create(&opts, &ctx));
        gen_fill(&x.out.t, GEN_NANS, 0);
        ok(bstk_attention(ctx, &desc));
        assert_true(gen_unchanged(&x.out, out) && gen_unchanged(&x.lse, lse));
        bstk_context_release(ctx);
    }
    free(out);
    free(lse);
    score_free(&x);
}

/* A sparse answer is not the dense one. */
static void test_bc_114(void **state) {
    (void)state;
    score_op sparse, dense;
    score_case p = {.attention = true,
                    .dtype = BSTK_F16,
                    .block = 64,
                    .h = 2,
                    .m = 256,
                    .n = 512,
                    .d = 32,
                    .layout = {.kind = RULE_FIRST_COLUMN}};
    score_make(&sparse, &p, NULL);
    score_check(&sparse);
    p.layout.kind = RULE_ONES;
    score_make(&dense, &p, NULL);
    score_run(&dense);
    double most = 0;
    for (int64_t e = 0; e < gen_count(&dense.out.t); ++e)
        most = fmax(most, fabs(gen_load(BSTK_F16, dense.out.t.data, e) - gen_load(BSTK_F16, sparse.out.t.data, e)));
    assert_true(most > 0.1);
    score_free(&sparse);
    score_free(&dense);
}

/* Memory of a plan grows with the stored blocks: 32768 tokens with a window of 1024 never make 32768^2 of anything. */
static void test_bc_128(void **state) {
    (void)state;
    watch w = {0};
    bstk_context *ctx = watched_context(&w, NULL);
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    bstk_plan *plan = NULL;
    opts.kind = BSTK_LAYOUT_LOCAL;
    opts.heads = 8;
    opts.rows = opts.cols = 512;
    opts.window = 33;
    opts.causal = 1;
    ok(bstk_layout_build(ctx, &opts, &layout));
    const int64_t nnz = bstk_layout_nnz(layout);
    assert_int_equal(nnz, 8 * (512 * 17 - 16 * 17 / 2));
    const bstk_tensor t = bstk_tensor_make(NULL, BSTK_F16, 4, shape(1, 8, 32768, 64));
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = layout;
    desc.q = desc.k = desc.v = desc.o = &t;
    desc.terms.causal = 1;
    ok(bstk_attention_plan(ctx, &desc, &plan));
    assert_true(atomic_load(&w.peak_bytes) < 64 * nnz); /* tables: some words a block */
    /* Fused: tiles of each thread, whatever the length is. */
    assert_true(bstk_plan_scratch_bytes(plan) <= (size_t)bstk_context_num_threads(ctx) << 20);
    bstk_plan_release(plan);
    desc.kernel = "composed";
    ok(bstk_attention_plan(ctx, &desc, &plan));
    /* Scores of the stored blocks in f32, and for each thread a row of them, or the operands that a product packs. */
    const size_t scores = (size_t)nnz * 64 * 64 * 4;
    assert_true(bstk_plan_scratch_bytes(plan) >= scores);
    assert_true(bstk_plan_scratch_bytes(plan) <= scores + ((size_t)bstk_context_num_threads(ctx) * 18 << 20) + 4096);
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    assert_int_equal(atomic_load(&w.live), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bc_004), cmocka_unit_test(test_bc_009), cmocka_unit_test(test_bc_011),
        cmocka_unit_test(test_bc_013), cmocka_unit_test(test_bc_014), cmocka_unit_test(test_bc_019),
        cmocka_unit_test(test_bc_021), cmocka_unit_test(test_bc_023), cmocka_unit_test(test_bc_024),
        cmocka_unit_test(test_bc_034), cmocka_unit_test(test_bc_068), cmocka_unit_test(test_bc_073),
        cmocka_unit_test(test_bc_074), cmocka_unit_test(test_bc_080), cmocka_unit_test(test_bc_089),
        cmocka_unit_test(test_bc_093), cmocka_unit_test(test_bc_096), cmocka_unit_test(test_bc_114),
        cmocka_unit_test(test_bc_128)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
