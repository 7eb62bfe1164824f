/* softmax_case.c: draws a softmax from a seed. See softmax_case.h. */
#include "support/softmax_case.h"

#include "core/philox.h"
#include "support/cm.h"
#include "support/op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A draw in [0, below) of the case's own stream. */
static int64_t draw(softmax_case *c, int64_t below) {
    return (int64_t)(gen_hash(c->seed, (uint64_t)c->flags * 64 + (uint64_t)(c->blocks++)) % (uint64_t)below);
}

static void make_layout(softmax_case *c) {
    const int64_t heads = c->shared ? 1 : c->h, rows = (c->m + c->block - 1) / c->block;
    const bool by_element = draw(c, 2) == 0;
    const int64_t empty = draw(c, rows + 2); /* an empty block row, mostly */
    const int64_t mm = by_element ? c->m : rows, nn = by_element ? c->n : (c->n + c->block - 1) / c->block;
    const int64_t edge = by_element ? c->block : 1;
    uint8_t *mask = malloc((size_t)(heads * mm * nn));
    assert_non_null(mask);
    for (int64_t e = 0; e < heads * mm * nn; ++e) {
        const int64_t h = e / (mm * nn), i = e / nn % mm, j = e % nn;
        const double block = gen_unit(c->seed + 1, (uint64_t)((h * 1000 + i / edge) * 1000 + j / edge));
        mask[e] = i / edge != empty &&
                  (block < 0.4 || (by_element && block < 0.7 && gen_unit(c->seed + 2, (uint64_t)e) < 0.5));
    }
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_BOOL, 3, shape(heads, mm, nn));
    if (by_element)
        ok(bstk_layout_from_dense_mask(NULL, &t, c->block, &c->layout));
    else
        ok(bstk_layout_from_mask(NULL, &t, c->block, shape(c->m, c->n), &c->layout));
    free(mask);
}

static bstk_dtype draw_float(softmax_case *c) {
    return c->dtype == BSTK_F64 ? BSTK_F64 : (bstk_dtype)(BSTK_F64 + draw(c, 4));
}

static void make_tensor(softmax_case *c, int i, bstk_dtype dtype, int32_t ndim, const int64_t *sizes) {
    make_array(&c->terms_data[i], dtype, ndim, sizes, (gen_style)draw(c, GEN_STYLES), GEN_UNIFORM,
               c->seed + 10 + (uint64_t)i);
}

/* [M, N], [H|1, M|1, N] (attn: Z), [Z|1, H|1, M|1, N]. */
static void make_matrix(softmax_case *c, int i, int64_t columns) {
    int64_t sizes[4] = {c->z, c->h, c->m, columns};
    const int32_t ndim = 2 + (int32_t)draw(c, 3);
    if (i == ATTN && ndim == 3)
        sizes[1] = c->z;
    for (int axis = 4 - ndim; axis < 3; ++axis)
        if (draw(c, 2))
            sizes[axis] = 1;
    make_tensor(c, i, draw_float(c), ndim, sizes + 4 - ndim);
}

static void make_vector(softmax_case *c, int i, bstk_dtype dtype, int64_t size) {
    const int64_t sizes[2] = {draw(c, 2) ? 1 : c->z, size};
    const int32_t ndim = 1 + (int32_t)draw(c, 2);
    make_tensor(c, i, dtype, ndim, sizes + 2 - ndim);
}

/* About one of five is -inf. */
static void drop_some(softmax_case *c, int i) {
    const bstk_tensor *t = &c->terms_data[i].t;
    for (int64_t e = 0; e < gen_count(t); ++e)
        if (gen_unit(c->seed + 40 + (uint64_t)i, (uint64_t)e) < 0.2)
            gen_store(t->dtype, t->data, gen_offset(t, e), -INFINITY);
}

static void make_integers(softmax_case *c, int i, int64_t values) {
    const bstk_tensor *t = &c->terms_data[i].t;
    for (int64_t e = 0; e < gen_count(t); ++e)
        gen_store(t->dtype, t->data, gen_offset(t, e),
                  (double)(gen_hash(c->seed + 50, (uint64_t)e * 2 + (uint64_t)(i % 2)) % (uint64_t)values));
}

/* Four sequences of which one has neither rows nor columns, or only rows or columns. */
static void make_sequences(softmax_case *c) {
    const int64_t q[5] = {0, c->m / 3, c->m / 3, c->m * 2 / 3, c->m}, k[5] = {0, c->n / 4, c->n / 2, c->n / 2, c->n};
    for (int i = CU_Q; i <= CU_K; ++i) {
        make_tensor(c, i, draw(c, 2) ? BSTK_I32 : BSTK_I64, 1, shape(5));
        const bstk_tensor *t = &c->terms_data[i].t;
        for (int64_t s = 0; s < 5; ++s)
            gen_store(t->dtype, t->data, gen_offset(t, s), (double)(i == CU_Q ? q[s] : k[s]));
    }
}

static void make_tensors(softmax_case *c) {
    const int f = c->flags;
    if (f & HAS_RPE)
        make_matrix(c, RPE, c->n);
    if (f & HAS_REL)
        make_matrix(c, REL, 1 + draw(c, c->m + c->n));
    if (f & HAS_KEY_PADDING) {
        make_vector(c, KEY_PADDING, draw_float(c), c->n);
        drop_some(c, KEY_PADDING);
    }
    if (f & HAS_ATTN) {
        make_matrix(c, ATTN, c->n);
        drop_some(c, ATTN);
    }
    if (f & HAS_SLOPES)
        make_vector(c, SLOPES, draw_float(c), c->h);
    if (f & HAS_SINKS)
        make_tensor(c, SINKS, draw_float(c), 1, shape(c->h));
    if (f & HAS_DOCUMENTS) {
        make_vector(c, Q_DOCUMENTS, draw(c, 2) ? BSTK_I32 : BSTK_I64, c->m);
        make_vector(c, K_DOCUMENTS, draw(c, 2) ? BSTK_I32 : BSTK_I64, c->n);
        make_integers(c, Q_DOCUMENTS, 2);
        make_integers(c, K_DOCUMENTS, 2);
    }
    if (f & HAS_SEQUENCES)
        make_sequences(c);
}

static void make_terms(softmax_case *c) {
    const int f = c->flags;
    bstk_score_terms *t = &c->terms;
    const bstk_tensor **const all[TERM_TENSORS] = {
        &t->rpe,   &t->rel_logits,  &t->key_padding_mask, &t->attn_mask,    &t->alibi_slopes,
        &t->sinks, &t->q_documents, &t->k_documents,      &t->cu_seqlens_q, &t->cu_seqlens_k};
    *t = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    for (int i = 0; i < TERM_TENSORS; ++i)
        if (c->terms_data[i].memory)
            *all[i] = &c->terms_data[i].t;
    if (f & HAS_SCALE)
        t->scale = 0.5 + gen_unit(c->seed, 3);
    t->causal = (f & HAS_CAUSAL) != 0;
    t->causal_offset = draw(c, 2) ? 0 : draw(c, 9) - 4;
    t->bottom_right = (f & HAS_BOTTOM_RIGHT) != 0;
    if (f & HAS_WINDOW) {
        t->window_left = draw(c, 3) ? draw(c, c->n) : -1;
        t->window_right = draw(c, 3) ? draw(c, c->n) : -1;
    }
    if (f & HAS_SOFTCAP)
        t->softcap = 0.5 + 2 * gen_unit(c->seed, 4);
    if (f & HAS_DROPOUT)
        t->dropout = 0.3;
    t->dropout_seed = gen_hash(c->seed, 5);
    t->dropout_offset = gen_hash(c->seed, 6);
}

void softmax_case_draw(softmax_case *c, bstk_dtype dtype, int flags, uint64_t seed) {
    *c = (softmax_case){.dtype = dtype, .flags = flags, .seed = seed};
    c->block = 8 * (1 + (int32_t)draw(c, 3));
    c->z = 1 + draw(c, 2);
    c->h = 1 + draw(c, 3);
    c->m = 1 + draw(c, 50);
    c->n = 1 + draw(c, 50);
    c->shared = draw(c, 2) == 0;
    make_layout(c);
    make_tensors(c);
    make_terms(c);
    c->blocks = bstk_layout_nnz(c->layout) * (c->shared ? c->h : 1);
    softmax_case_packed(c, &c->x, (gen_style)(gen_hash(seed, 7) % GEN_STYLES), GEN_UNIFORM, seed + 8);
}

void softmax_case_free(softmax_case *c) {
    bstk_layout_release(c->layout);
    gen_array_free(&c->x);
    for (int i = 0; i < TERM_TENSORS; ++i)
        gen_array_free(&c->terms_data[i]);
}

void softmax_case_packed(const softmax_case *c, gen_array *a, gen_style style, gen_values values, uint64_t seed) {
    make_array(a, c->dtype, 4, shape(c->z, c->blocks, c->block, c->block), style, values, seed);
}

void softmax_case_rows(const softmax_case *c, gen_array *a, gen_style style, gen_values values, uint64_t seed) {
    make_array(a, c->dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32, 3, shape(c->z, c->h, c->m), style, values, seed);
}

void softmax_case_run(const softmax_case *c, bstk_context *ctx, const bstk_tensor *y, const bstk_tensor *lse,
                      const bstk_tensor *saved) {
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = c->layout;
    desc.x = &c->x.t;
    desc.y = y;
    desc.lse = lse;
    desc.saved = saved;
    desc.terms = c->terms;
    ok(bstk_softmax(ctx, &desc));
}

int64_t term_offset(const bstk_tensor *t, int kind, int64_t z, int64_t h, int64_t i, int64_t j) {
    /* The axes of each term, the last one first. */
    static const char *const axes[] = {"jihz", "jihz", "jz", "jihz", "hz", "h", "iz", "jz"};
    const char *letters = kind == ATTN && t->ndim == 3 ? "jiz" : axes[kind];
    int64_t offset = 0;
    for (int32_t axis = 0; axis < t->ndim; ++axis) {
        const int32_t from = t->ndim - 1 - axis;
        const int64_t at = letters[axis] == 'j' ? j : letters[axis] == 'i' ? i : letters[axis] == 'h' ? h : z;
        offset += t->shape[from] == 1 ? 0 : at * t->stride[from];
    }
    return offset;
}

span sequence_span(const softmax_case *c, int64_t i) {
    const bstk_tensor *q = &c->terms_data[CU_Q].t, *k = &c->terms_data[CU_K].t;
    span s = {0, c->m, 0, c->n};
    for (int64_t e = 0; (c->flags & HAS_SEQUENCES) && e + 1 < q->shape[0]; ++e) {
        const span one = {(int64_t)gen_load(q->dtype, q->data, gen_offset(q, e)),
                          (int64_t)gen_load(q->dtype, q->data, gen_offset(q, e + 1)),
                          (int64_t)gen_load(k->dtype, k->data, gen_offset(k, e)),
                          (int64_t)gen_load(k->dtype, k->data, gen_offset(k, e + 1))};
        if (one.q_first <= i && i < one.q_last)
            s = one;
    }
    return s;
}

double dropout_factor(const softmax_case *c, int64_t z, int64_t h, int64_t i, int64_t j) {
    const uint64_t seed = c->terms.dropout_seed, offset = c->terms.dropout_offset;
    const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)(z * c->h + h), (uint32_t)offset};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(offset >> 32)};
    uint32_t words[4];
    if (c->terms.dropout == 0)
        return 1;
    bstk__philox(counter, key, words);
    return (double)words[j % 4] / 0x1p32 < c->terms.dropout ? 0 : 1 / (1 - c->terms.dropout);
}

place place_of(const softmax_case *c, int64_t block, int64_t p, int64_t q) {
    const int64_t nnz = bstk_layout_nnz(c->layout), n = block % nnz, rows = bstk_layout_rows(c->layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(c->layout);
    place at = {.h = block / nnz, .n = n};
    while (!c->shared && row_ptr[(at.h + 1) * rows] <= n)
        ++at.h;
    at.i = (int64_t)bstk_layout_row_idx(c->layout)[n] * c->block + p;
    at.j = (int64_t)bstk_layout_col_idx(c->layout)[n] * c->block + q;
    at.inside = at.i < c->m && at.j < c->n;
    return at;
}
