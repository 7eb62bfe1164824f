/*
 * test_properties.c: what must hold for any input, tried on seeded random ones through the public API: two ways to the
 * same result, and results that must not depend on something. A failing round prints its seed.
 */
#include "support/cm.h"

#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};

/* Draws of one round. */
typedef struct draws {
    uint64_t seed, next;
} draws;

static int64_t draw(draws *d, int64_t low, int64_t high) {
    return low + (int64_t)(gen_hash(d->seed, d->next++) % (uint64_t)(high - low + 1));
}

static bool coin(draws *d) {
    return draw(d, 0, 1);
}

static gen_style any_style(draws *d) {
    return (gen_style)draw(d, 0, GEN_STYLES - 1);
}

/* A block edge: the small ones more often, as they leave room for more blocks. */
static int32_t any_block(draws *d) {
    static const int32_t blocks[] = {8, 8, 16, 16, 16, 24, 32, 40, 64, 72, 128, 256};
    return blocks[draw(d, 0, 11)];
}

static rule any_rule(draws *d) {
    static const double densities[] = {0, 0.1, 0.3, 0.6, 1};
    const int64_t kind = draw(d, 0, 9);
    if (kind < 6)
        return (rule){
            .kind = RULE_BERNOULLI, .p = densities[draw(d, 0, 4)], .seed = d->seed, .ensure_diag = coin(d) && coin(d)};
    static const rule_kind kinds[] = {RULE_ONES, RULE_ZEROS, RULE_MIXED, RULE_LAST_COLUMN};
    return (rule){.kind = kinds[kind - 6]};
}

/* Sizes from nothing to a few blocks, mostly ragged. */
static int64_t any_size(draws *d, int32_t block) {
    return draw(d, 0, 9) == 0 ? draw(d, 0, 1) : draw(d, 1, block >= 64 ? 2 * block : 5 * block);
}

/* ---- against the reference ------------------------------------------------------------------------------------------
 */

static void test_products(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        draws d = {.seed = seed};
        static const double factors[] = {1, -0.75, 2, 0, 0.5};
        product_case p = {.mode = (bstk_mode)draw(&d, BSTK_SDD, BSTK_DDS),
                          .dtype = dtypes[draw(&d, 0, 3)],
                          .block = any_block(&d),
                          .z = draw(&d, 1, 3),
                          .h = draw(&d, 1, 4),
                          .ta = coin(&d),
                          .tb = coin(&d),
                          .tc = coin(&d),
                          .shared_layout = coin(&d),
                          .values = coin(&d) ? GEN_UNIFORM : GEN_INTEGERS,
                          .seed = seed,
                          .alpha = factors[draw(&d, 0, 4)],
                          .beta = factors[draw(&d, 0, 4)] * (double)coin(&d)};
        p.m = any_size(&d, p.block);
        p.n = any_size(&d, p.block);
        p.k = any_size(&d, p.block);
        p.layout = any_rule(&d);
        p.a_style = any_style(&d);
        p.b_style = any_style(&d);
        p.c_style = any_style(&d);
        if (p.dtype >= BSTK_F16 && coin(&d))
            p.packed = BSTK_F32;
        if (p.mode != BSTK_DDS && p.h % 2 == 0 && coin(&d))
            p.b_heads = p.h / 2;
        check_product(&p);
    }
}

static void any_terms(draws *d, score_op *x) {
    const score_case *p = &x->p;
    const int64_t z = coin(d) ? p->z : 1, h = coin(d) ? p->h : 1, m = coin(d) ? p->m : 1;
    if (coin(d))
        add_rpe(x, dtypes[draw(d, 0, 3)], 4, shape(z, h, m, p->n), any_style(d), d->seed);
    if (coin(d))
        add_rel(x, dtypes[draw(d, 0, 3)], 4, shape(z, h, m, draw(d, 0, 2 * p->n)), any_style(d), d->seed);
    if (coin(d))
        add_key_padding(x, coin(d) ? BSTK_BOOL : BSTK_F32, 2, shape(z, p->n), any_style(d), d->seed);
    if (coin(d))
        add_attn_mask(x, coin(d) ? BSTK_U8 : BSTK_F16, 4, shape(z, h, m, p->n), any_style(d), d->seed);
    x->terms.causal = coin(d);
    x->terms.causal_offset = draw(d, -40, 40);
    if (coin(d))
        x->terms.scale = (double)draw(d, -4, 4) / 4;
    if (coin(d))
        x->terms.attn_mode = BSTK_MASK_MUL;
}

static void test_scores(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        draws d = {.seed = 1000 + seed};
        score_case p = {.attention = coin(&d),
                        .dtype = dtypes[draw(&d, 0, 3)],
                        .block = any_block(&d),
                        .z = draw(&d, 1, 3),
                        .h = draw(&d, 1, 4),
                        .d = draw(&d, 1, 20),
                        .dv = draw(&d, 1, 20),
                        .shared_layout = coin(&d),
                        .seed = seed};
        p.m = any_size(&d, p.block);
        p.n = any_size(&d, p.block);
        p.layout = any_rule(&d);
        p.in_style = any_style(&d);
        p.out_style = any_style(&d);
        if (p.h % 2 == 0 && coin(&d))
            p.kv_heads = p.h / 2;
        if (!p.attention && coin(&d) && coin(&d))
            p.values = GEN_SPECIAL;
        score_op x;
        score_make(&x, &p, NULL);
        any_terms(&d, &x);
        score_check(&x);
        score_free(&x);
    }
}

/* ---- layouts
 * --------------------------------------------------------------------------------------------------------- */

static void test_mask_round_trip(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        draws d = {.seed = 2000 + seed};
        const rule r = any_rule(&d);
        const int64_t heads = draw(&d, 0, 4), rows = draw(&d, 0, 9), cols = draw(&d, 0, 9);
        uint8_t *mask = rule_mask(&r, heads, rows, cols > 0 ? cols : 1);
        gen_array in, out;
        const bstk_dtype type = (bstk_dtype)draw(&d, BSTK_BOOL, BSTK_I64);
        make_array(&in, type, 3, shape(heads, rows, cols), any_style(&d), GEN_ZEROS, seed);
        make_array(&out, (bstk_dtype)draw(&d, BSTK_BOOL, BSTK_I64), 3, shape(heads, rows, cols), any_style(&d),
                   GEN_ZEROS, seed + 1);
        for (int64_t e = 0; e < heads * rows * cols; ++e)
            gen_store(type, in.t.data, gen_offset(&in.t, e), mask[e]);
        bstk_layout *layout = NULL, *again = NULL;
        ok(bstk_layout_from_mask(NULL, &in.t, 16, NULL, &layout));
        ok(bstk_layout_to_mask(layout, &out.t));
        int64_t ones = 0;
        for (int64_t e = 0; e < heads * rows * cols; ++e) {
            assert_true(gen_load(out.t.dtype, out.t.data, gen_offset(&out.t, e)) == mask[e]);
            ones += mask[e];
        }
        assert_int_equal(bstk_layout_nnz(layout), ones);
        ok(bstk_layout_from_mask(NULL, &out.t, 16, NULL, &again));
        assert_memory_equal(bstk_layout_col_idx(layout), bstk_layout_col_idx(again), (size_t)ones * sizeof(int32_t));
        assert_memory_equal(bstk_layout_col_perm(layout), bstk_layout_col_perm(again), (size_t)ones * sizeof(int64_t));
        bstk_layout_release(layout);
        bstk_layout_release(again);
        gen_array_free(&in);
        gen_array_free(&out);
        free(mask);
    }
}

static void convert(bstk_convert_direction direction, const bstk_layout *layout, const gen_array *x,
                    const gen_array *y) {
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.direction = direction;
    desc.layout = layout;
    desc.x = &x->t;
    desc.y = &y->t;
    ok(bstk_convert(NULL, &desc));
}

/* pack(unpack(x)) = x inside the matrix, bit for bit, NaN and all; unpack(pack(x)) = x where blocks are stored, else 0.
 */
static void test_pack_round_trip(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        draws d = {.seed = 3000 + seed};
        const bstk_dtype dtype = dtypes[draw(&d, 0, 3)];
        const int32_t block = any_block(&d);
        const int64_t z = draw(&d, 1, 2), h = draw(&d, 1, 3), m = any_size(&d, block), n = any_size(&d, block);
        const bool shared = coin(&d);
        const rule r = any_rule(&d);
        bstk_layout *layout = rule_layout(&r, shared ? 1 : h, m, n, block);
        const int64_t nnz = bstk_layout_nnz(layout) * (shared ? h : 1);
        gen_array dense, packed, back, again;
        make_array(&dense, dtype, 4, shape(z, h, m, n), any_style(&d), GEN_SPECIAL, seed);
        make_array(&packed, dtype, 4, shape(z, nnz, block, block), any_style(&d), GEN_NANS, seed + 1);
        make_array(&back, dtype, 4, shape(z, h, m, n), any_style(&d), GEN_NANS, seed + 2);
        make_array(&again, dtype, 4, shape(z, nnz, block, block), any_style(&d), GEN_NANS, seed + 3);
        convert(BSTK_PACK, layout, &dense, &packed);
        convert(BSTK_UNPACK, layout, &packed, &back);
        convert(BSTK_PACK, layout, &back, &again);
        assert_same_bits("pack of unpack", &packed.t, &again.t);
        uint8_t *mask = rule_mask(&r, shared ? 1 : h, (m + block - 1) / block, (n + block - 1) / block);
        for (int64_t e = 0; e < z * h * m * n; ++e) {
            const int64_t j = e % n, i = e / n % m, head = shared ? 0 : e / n / m % h, cols = (n + block - 1) / block;
            const bool stored = mask[(head * ((m + block - 1) / block) + i / block) * cols + j / block];
            const double want = stored ? gen_load(dtype, dense.t.data, gen_offset(&dense.t, e)) : 0;
            const double got = gen_load(dtype, back.t.data, gen_offset(&back.t, e));
            assert_true(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want));
        }
        free(mask);
        gen_array_free(&dense);
        gen_array_free(&packed);
        gen_array_free(&back);
        gen_array_free(&again);
        bstk_layout_release(layout);
    }
}

/* ---- refinement: a mask of 64-blocks is the same matrix as its mask of 16-blocks
 * -------------------------------------- */

static const rule coarse = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = 77};

/* The layout of blocks of `edge` that stores what `coarse` stores in blocks of 64. */
static bstk_layout *refined(int64_t heads, int64_t m, int64_t n, int32_t edge) {
    const int64_t rows = (m + edge - 1) / edge, cols = (n + edge - 1) / edge, per = 64 / edge;
    const int64_t coarse_rows = (m + 63) / 64, coarse_cols = (n + 63) / 64;
    uint8_t *big = rule_mask(&coarse, heads, coarse_rows, coarse_cols), *mask = malloc((size_t)(heads * rows * cols));
    assert_non_null(mask);
    for (int64_t e = 0; e < heads * rows * cols; ++e)
        mask[e] = big[(e / cols / rows * coarse_rows + e / cols % rows / per) * coarse_cols + e % cols / per];
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape(heads, rows, cols));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &t, edge, shape(m, n), &layout));
    free(big);
    free(mask);
    return layout;
}

/* Elements agree to a few units in the last place: the blocks change the order of sums only. */
static void assert_near(const char *what, const bstk_tensor *x, const bstk_tensor *y, double tolerance) {
    for (int64_t e = 0; e < gen_count(x); ++e) {
        const double a = gen_load(x->dtype, x->data, gen_offset(x, e));
        const double b = gen_load(y->dtype, y->data, gen_offset(y, e));
        if (!(a == b || fabs(a - b) <= tolerance))
            fail_msg("%s: element %lld is %.9g and %.9g", what, (long long)e, a, b);
    }
}

enum { RM = 150, RN = 200, RK = 20 };

/* A product by `edge`-blocks of dense operands: packed ones are packed and unpacked on the way. */
static void product_by(int mode, int32_t edge, const gen_array *s, const gen_array *dense, gen_array *out) {
    bstk_layout *layout = refined(2, RM, RN, edge);
    gen_array packed;
    make_array(&packed, BSTK_F32, 4, shape(2, bstk_layout_nnz(layout), edge, edge), GEN_CONTIGUOUS, GEN_NANS, 0);
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = (bstk_mode)mode;
    desc.layout = layout;
    if (mode == BSTK_SDD) { /* s [M, K] . dense [K, N] */
        desc.a = &s->t;
        desc.b = &dense->t;
        desc.c = &packed.t;
        ok(bstk_matmul(NULL, &desc, 1, 0));
        convert(BSTK_UNPACK, layout, &packed, out);
    } else { /* s [M, N] sparse; times dense [N, K], or dense [K, M] times s */
        convert(BSTK_PACK, layout, s, &packed);
        desc.a = mode == BSTK_DSD ? &packed.t : &dense->t;
        desc.b = mode == BSTK_DSD ? &dense->t : &packed.t;
        desc.c = &out->t;
        ok(bstk_matmul(NULL, &desc, 1, 0));
    }
    gen_array_free(&packed);
    bstk_layout_release(layout);
}

static void test_refined_products(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode) {
        gen_array s, dense, want, got;
        const int64_t *sizes = mode == BSTK_SDD   ? shape(2, 2, RM, RN)
                               : mode == BSTK_DSD ? shape(2, 2, RM, RK)
                                                  : shape(2, 2, RK, RN);
        make_array(&s, BSTK_F32, 4, mode == BSTK_SDD ? shape(2, 2, RM, RK) : shape(2, 2, RM, RN), GEN_CONTIGUOUS,
                   GEN_UNIFORM, 1);
        make_array(&dense, BSTK_F32, 4,
                   mode == BSTK_SDD   ? shape(2, 2, RK, RN)
                   : mode == BSTK_DSD ? shape(2, 2, RN, RK)
                                      : shape(2, 2, RK, RM),
                   GEN_CONTIGUOUS, GEN_UNIFORM, 2);
        make_array(&want, BSTK_F32, 4, sizes, GEN_CONTIGUOUS, GEN_NANS, 0);
        make_array(&got, BSTK_F32, 4, sizes, GEN_CONTIGUOUS, GEN_NANS, 0);
        product_by(mode, 64, &s, &dense, &want);
        for (int32_t edge = 8; edge <= 32; edge *= 2) {
            product_by(mode, edge, &s, &dense, &got);
            assert_near("product by smaller blocks", &got.t, &want.t, 1e-4);
        }
        gen_array_free(&s);
        gen_array_free(&dense);
        gen_array_free(&want);
        gen_array_free(&got);
    }
}

static void test_refined_scores(void **state) {
    (void)state;
    gen_array x, want, got;
    make_array(&x, BSTK_F32, 4, shape(2, 2, RM, RN), GEN_CONTIGUOUS, GEN_UNIFORM, 3);
    make_array(&want, BSTK_F32, 4, shape(2, 2, RM, RN), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&got, BSTK_F32, 4, shape(2, 2, RM, RN), GEN_CONTIGUOUS, GEN_NANS, 0);
    for (int32_t edge = 64; edge >= 8; edge /= 2) { /* softmax */
        bstk_layout *layout = refined(2, RM, RN, edge);
        gen_array packed;
        make_array(&packed, BSTK_F32, 4, shape(2, bstk_layout_nnz(layout), edge, edge), GEN_CONTIGUOUS, GEN_NANS, 0);
        convert(BSTK_PACK, layout, &x, &packed);
        bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
        desc.layout = layout;
        desc.x = desc.y = &packed.t;
        desc.terms.causal = 1;
        desc.terms.causal_offset = 30;
        ok(bstk_softmax(NULL, &desc));
        convert(BSTK_UNPACK, layout, &packed, edge == 64 ? &want : &got);
        if (edge < 64)
            assert_near("softmax by smaller blocks", &got.t, &want.t, 1e-6);
        gen_array_free(&packed);
        bstk_layout_release(layout);
    }
    gen_array_free(&x);
    gen_array_free(&want);
    gen_array_free(&got);
    score_op first; /* attention */
    for (int32_t edge = 64; edge >= 8; edge /= 2) {
        score_op a;
        const score_case p = {
            .attention = true, .dtype = BSTK_F32, .block = edge, .z = 2, .h = 2, .m = RM, .n = RN, .d = RK};
        score_make(&a, &p, refined(2, RM, RN, edge));
        score_run(&a);
        if (edge == 64) {
            first = a;
            continue;
        }
        assert_near("attention by smaller blocks", &a.out.t, &first.out.t, 1e-5);
        assert_near("lse by smaller blocks", &a.lse.t, &first.lse.t, 1e-5);
        score_free(&a);
    }
    score_free(&first);
}

/* ---- what results must not depend on
 * ---------------------------------------------------------------------------------- */

/* A full layout is a plain product: small integers, so to the bit, by three loops. */
static void test_dense_layout(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        draws d = {.seed = 5000 + seed};
        product x;
        product_case p = {.mode = (bstk_mode)draw(&d, BSTK_SDD, BSTK_DDS),
                          .dtype = dtypes[draw(&d, 0, 3)],
                          .block = any_block(&d),
                          .values = GEN_INTEGERS,
                          .seed = seed};
        p.m = 1 + any_size(&d, 16);
        p.n = 1 + any_size(&d, 16);
        p.k = 1 + draw(&d, 0, 12); /* sums below 256: exact in bf16 too */
        product_make(&x, &p);
        product_check(&x);
        gen_array plain[3];
        gen_array *const given[] = {&x.a, &x.b, &x.c};
        const int64_t sizes[3][2] = {{p.m, p.k}, {p.k, p.n}, {p.m, p.n}};
        const int packed = p.mode == BSTK_SDD ? 2 : p.mode == BSTK_DSD ? 0 : 1;
        for (int i = 0; i < 3; ++i) {
            make_array(&plain[i], p.dtype, 2, sizes[i], GEN_CONTIGUOUS, GEN_NANS, 0);
            if (i == packed)
                convert(BSTK_UNPACK, x.layout, given[i], &plain[i]);
            else
                for (int64_t e = 0; e < sizes[i][0] * sizes[i][1]; ++e)
                    gen_store(p.dtype, plain[i].t.data, e, gen_load(p.dtype, given[i]->t.data, e));
        }
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
                double sum = 0;
                for (int64_t k = 0; k < p.k; ++k)
                    sum += gen_load(p.dtype, plain[0].t.data, i * p.k + k) *
                           gen_load(p.dtype, plain[1].t.data, k * p.n + j);
                assert_true(gen_load(p.dtype, plain[2].t.data, i * p.n + j) == sum);
            }
        for (int i = 0; i < 3; ++i)
            gen_array_free(&plain[i]);
        product_free(&x);
    }
}

/* Block rows in another order give rows in that order, to the bit. */
static void test_permuted_rows(void **state) {
    (void)state;
    enum { ROWS = 6, COLS = 5, B = 16 };
    for (uint64_t seed = 0; seed < 40; ++seed) {
        draws d = {.seed = 6000 + seed};
        int64_t order[ROWS];
        for (int64_t i = 0; i < ROWS; ++i) {
            const int64_t at = draw(&d, 0, i);
            order[i] = order[at];
            order[at] = i;
        }
        const rule r = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = seed};
        uint8_t *mask = rule_mask(&r, 1, ROWS, COLS), moved[ROWS * COLS];
        for (int64_t i = 0; i < ROWS; ++i)
            memcpy(moved + i * COLS, mask + order[i] * COLS, COLS);
        free(mask);
        score_op x, y;
        const score_case p = {.attention = true,
                              .dtype = dtypes[seed % 4],
                              .block = B,
                              .m = ROWS * B,
                              .n = COLS * B,
                              .d = 12,
                              .seed = seed};
        score_make(&x, &p, rule_layout(&r, 1, ROWS * B, COLS * B, B));
        score_make(&y, &p, rule_layout(&(rule){.kind = RULE_MATRIX, .matrix = moved}, 1, ROWS * B, COLS * B, B));
        const size_t row = (size_t)12 * bstk_dtype_size(p.dtype);
        for (int64_t i = 0; i < ROWS * B; ++i)
            memcpy((char *)y.q.t.data + (size_t)i * row, (char *)x.q.t.data + (size_t)(order[i / B] * B + i % B) * row,
                   row);
        score_run(&x);
        score_run(&y);
        for (int64_t i = 0; i < ROWS * B; ++i)
            assert_memory_equal((char *)y.out.t.data + (size_t)i * row,
                                (char *)x.out.t.data + (size_t)(order[i / B] * B + i % B) * row, row);
        score_free(&x);
        score_free(&y);
    }
}

/* Softmax of x + c is that of x; its lse is c higher. */
static void test_shift_invariance(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        draws d = {.seed = 7000 + seed};
        score_op x, y;
        const score_case p = {.dtype = BSTK_F64,
                              .block = 16,
                              .m = 40,
                              .n = 50,
                              .seed = seed,
                              .layout = {.kind = RULE_BERNOULLI, .p = 0.6, .seed = seed}};
        const double shift = (double)draw(&d, -2000, 2000);
        score_make(&x, &p, NULL);
        score_make(&y, &p, NULL);
        for (int64_t e = 0; e < gen_count(&x.x.t); ++e)
            ((double *)y.x.t.data)[e] = ((double *)x.x.t.data)[e] + shift;
        score_run(&x);
        score_run(&y);
        assert_near("shifted softmax", &y.out.t, &x.out.t, 1e-11);
        for (int64_t i = 0; i < 40; ++i) {
            const double a = ((double *)x.lse.t.data)[i], b = ((double *)y.lse.t.data)[i];
            assert_true(isinf(a) ? a == b : fabs(b - a - shift) < 1e-11);
        }
        score_free(&x);
        score_free(&y);
    }
}

/* alpha A.B + beta C: powers of two scale exactly; alpha 0 reads neither A nor B, beta 0 does not read C. */
static void test_alpha_beta(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode)
        for (size_t t = 0; t < 4; ++t) {
            product x, y;
            const product_case p = {.mode = (bstk_mode)mode,
                                    .dtype = dtypes[t],
                                    .block = 16,
                                    .h = 2,
                                    .m = 40,
                                    .n = 30,
                                    .k = 50,
                                    .layout = {.kind = RULE_BERNOULLI, .p = 0.6}};
            product_make(&x, &p);
            product_make(&y, &p);
            bstk_matmul_desc dx = BSTK_MATMUL_DESC_INIT;
            dx.mode = (bstk_mode)mode;
            dx.layout = x.layout;
            dx.a = &x.a.t;
            dx.b = &x.b.t;
            dx.c = &x.c.t;
            bstk_matmul_desc dy = dx;
            dy.layout = y.layout;
            dy.c = &y.c.t;
            ok(bstk_matmul(NULL, &dx, 1, 0));
            ok(bstk_matmul(NULL, &dy, -4, 0));
            for (int64_t e = 0; e < gen_count(&x.c.t); ++e)
                assert_true(gen_load(dtypes[t], y.c.t.data, e) == -4 * gen_load(dtypes[t], x.c.t.data, e));
            gen_fill(&x.a.t, GEN_NANS, 0); /* must not be read from here on */
            gen_fill(&x.b.t, GEN_NANS, 0);
            ok(bstk_matmul(NULL, &dy, 0, 0.5));
            for (int64_t e = 0; e < gen_count(&x.c.t); ++e)
                assert_true(gen_load(dtypes[t], y.c.t.data, e) == -2 * gen_load(dtypes[t], x.c.t.data, e));
            gen_fill(&y.c.t, GEN_NANS, 0);
            ok(bstk_matmul(NULL, &dy, 0, 0));
            for (int64_t e = 0; e < gen_count(&x.c.t); ++e)
                assert_true(gen_load(dtypes[t], y.c.t.data, e) == 0);
            product_free(&x);
            product_free(&y);
        }
}

/* NaN where nothing may be read: rows of B that no block meets, packed places past a ragged edge, values of dropped
 * places. (Gaps of strides and guard bands hold NaN in every test of op_case.) */
static void test_planted_nan(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        draws d = {.seed = 8000 + seed};
        product x;
        product_case p = {.mode = coin(&d) ? BSTK_DSD : BSTK_DDS,
                          .dtype = dtypes[draw(&d, 0, 3)],
                          .block = coin(&d) ? 16 : 24,
                          .m = draw(&d, 1, 90),
                          .n = draw(&d, 1, 90),
                          .k = draw(&d, 1, 90),
                          .seed = seed,
                          .layout = {.kind = RULE_BERNOULLI, .p = 0.3, .seed = seed}};
        product_make(&x, &p);
        const bool dsd = p.mode == BSTK_DSD;
        const bstk_tensor *packed = dsd ? &x.a.t : &x.b.t, *dense = dsd ? &x.b.t : &x.a.t;
        const int64_t b = p.block, nnz = bstk_layout_nnz(x.layout);
        const int64_t m = bstk_layout_m(x.layout), n = bstk_layout_n(x.layout);
        for (int64_t e = 0; e < nnz * b * b; ++e) {
            const int64_t i = bstk_layout_row_idx(x.layout)[e / b / b] * b + e / b % b;
            const int64_t j = bstk_layout_col_idx(x.layout)[e / b / b] * b + e % b;
            if (i >= m || j >= n)
                gen_store(packed->dtype, packed->data, e, NAN);
        }
        /* k indexes the columns of the sparse A of dsd, the rows of the sparse B of dds. */
        for (int64_t k = 0; k < p.k; ++k) {
            const int64_t line = k / b;
            const int64_t blocks = dsd ? bstk_layout_col_ptr(x.layout)[line + 1] - bstk_layout_col_ptr(x.layout)[line]
                                       : bstk_layout_row_ptr(x.layout)[line + 1] - bstk_layout_row_ptr(x.layout)[line];
            for (int64_t c = 0; blocks == 0 && c < (dsd ? p.n : p.m); ++c)
                gen_store(dense->dtype, dense->data, dsd ? k * p.n + c : c * p.k + k, NAN);
        }
        product_check(&x);
        for (int64_t e = 0; e < gen_count(&x.c.t); ++e)
            assert_true(!isnan(gen_load(x.c.t.dtype, x.c.t.data, e)));
        product_free(&x);
    }
    for (uint64_t seed = 0; seed < 40; ++seed) { /* softmax: past the edge and ahead of causal */
        score_op x;
        const score_case p = {.dtype = dtypes[seed % 4],
                              .block = 16,
                              .m = 20 + (int64_t)seed,
                              .n = 55 - (int64_t)seed,
                              .seed = seed,
                              .layout = {.kind = RULE_BERNOULLI, .p = 0.7, .seed = seed}};
        score_make(&x, &p, NULL);
        x.terms.causal = 1;
        for (int64_t e = 0; e < gen_count(&x.x.t); ++e) {
            const int64_t i = bstk_layout_row_idx(x.layout)[e / 256] * 16 + e / 16 % 16;
            const int64_t j = bstk_layout_col_idx(x.layout)[e / 256] * 16 + e % 16;
            if (i >= p.m || j >= p.n || j > i)
                gen_store(p.dtype, x.x.t.data, e, NAN);
        }
        score_check(&x);
        for (int64_t e = 0; e < gen_count(&x.out.t); ++e)
            assert_true(!isnan(gen_load(p.dtype, x.out.t.data, e)));
        score_free(&x);
    }
}

/* Composed attention is sdd, softmax and dsd: with f32 scores in between, to the bit. */
static void test_attention_is_composed(void **state) {
    (void)state;
    for (size_t t = 0; t < 4; ++t) {
        score_op x;
        const score_case p = {.attention = true,
                              .dtype = dtypes[t],
                              .block = 16,
                              .z = 2,
                              .h = 3,
                              .m = 60,
                              .n = 45,
                              .d = 10,
                              .layout = {.kind = RULE_BERNOULLI, .p = 0.6}};
        score_make(&x, &p, NULL);
        x.terms.causal = 1;
        x.terms.causal_offset = 5;
        bstk_attention_desc composed = BSTK_ATTENTION_DESC_INIT;
        composed.layout = x.layout;
        composed.q = &x.q.t;
        composed.k = &x.k.t;
        composed.v = &x.v.t;
        composed.o = &x.out.t;
        composed.terms = x.terms;
        composed.kernel = "composed";
        ok(bstk_attention(NULL, &composed));
        gen_array scores, out;
        make_array(&scores, t == 0 ? BSTK_F64 : BSTK_F32, 4, shape(2, bstk_layout_nnz(x.layout), 16, 16),
                   GEN_CONTIGUOUS, GEN_NANS, 0);
        make_array(&out, dtypes[t], 4, shape(2, 3, 60, 10), GEN_CONTIGUOUS, GEN_NANS, 0);
        bstk_matmul_desc matmul = BSTK_MATMUL_DESC_INIT;
        matmul.layout = x.layout;
        matmul.a = &x.q.t;
        matmul.b = &x.k.t;
        matmul.c = &scores.t;
        matmul.trans_b = 1;
        ok(bstk_matmul(NULL, &matmul, 1, 0));
        bstk_softmax_desc softmax = BSTK_SOFTMAX_DESC_INIT;
        softmax.layout = x.layout;
        softmax.x = softmax.y = &scores.t;
        softmax.terms = x.terms;
        softmax.terms.scale = 1 / sqrt(10.0);
        ok(bstk_softmax(NULL, &softmax));
        matmul.mode = BSTK_DSD;
        matmul.trans_b = 0;
        matmul.a = &scores.t;
        matmul.b = &x.v.t;
        matmul.c = &out.t;
        ok(bstk_matmul(NULL, &matmul, 1, 0));
        assert_same_bits("attention against its parts", &x.out.t, &out.t);
        gen_array_free(&scores);
        gen_array_free(&out);
        score_free(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),         cmocka_unit_test(test_scores),
        cmocka_unit_test(test_mask_round_trip),  cmocka_unit_test(test_pack_round_trip),
        cmocka_unit_test(test_refined_products), cmocka_unit_test(test_refined_scores),
        cmocka_unit_test(test_dense_layout),     cmocka_unit_test(test_permuted_rows),
        cmocka_unit_test(test_shift_invariance), cmocka_unit_test(test_alpha_beta),
        cmocka_unit_test(test_planted_nan),      cmocka_unit_test(test_attention_is_composed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
