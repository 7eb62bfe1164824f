/*
 * fuzz_ops_make.c: bytes to a problem with its layout, operands and terms.
 *
 * Bytes: op, dtype, block, flags, batches and heads, M, N, K, mask of blocks by bits; then, as the op asks for them,
 * one or more for each operand and term (place, share, add_terms). Behind the end come zeros, which choose what is
 * plain.
 */
#include "fuzz_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE(...)   ((const int64_t[]){__VA_ARGS__})
#define MAX_PRODUCTS (1 << 17) /* scalar products of a problem: keeps runs at about a millisecond */

enum { TRANS_A = 1, TRANS_B = 2, TRANS_C = 4, BACKWARD = 8, CAUSAL = 16, SHARED = 32, ELEMENTS = 64, SPECIAL = 128 };

static const bstk_dtype floats[] = {BSTK_F32, BSTK_F64, BSTK_F16, BSTK_BF16};

int64_t fuzz_next(fuzz *f, int64_t count) {
    return f->at < f->end ? *f->at++ % count : 0;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static void edit_shape(fuzz *f, bstk_dtype *dtype, int *ndim, int64_t *shape) {
    const int64_t kind = fuzz_next(f, 8), axis = fuzz_next(f, *ndim);
    if (kind == 0)
        *dtype = (bstk_dtype)(1 + fuzz_next(f, 13));
    else if (kind == 1)
        ++shape[axis];
    else if (kind == 2 && shape[axis] > 0)
        --shape[axis];
    else if (kind == 3)
        shape[axis] = 1;
    else if (kind == 4 && *ndim > 1)
        memmove(shape, shape + 1, (size_t)-- * ndim * sizeof *shape);
    else if (kind == 5)
        shape[axis] = fuzz_next(f, 5);
}

/* What no memory of ours stands behind: refused, or of no effect. */
static void edit_view(fuzz *f, bstk_tensor *t) {
    const int64_t kind = fuzz_next(f, 12), axis = fuzz_next(f, 4);
    if (kind == 6)
        t->ndim = (int32_t)(axis == 0 ? 0 : axis == 1 ? -1 : axis == 2 ? 5 : INT32_MAX);
    else if (kind == 7 && gen_count(t) > 0)
        t->data = NULL;
    else if (kind == 8)
        t->dtype = (bstk_dtype)(axis == 0 ? 0 : axis == 1 ? -1 : 14);
    else if (kind == 9)
        t->device.kind = axis == 0 ? BSTK_CUDA : (bstk_device_kind)(axis + 6);
    else if (kind == 10 && axis < t->ndim && bstk_dtype_size(t->dtype) > 1)
        t->stride[axis] = t->shape[axis] == 1 ? 1000 : fuzz_next(f, 2) == 1 ? INT64_MAX : INT64_MIN;
    else if (kind == 11 && axis < t->ndim)
        t->shape[axis] = axis < 2 ? INT64_MIN : -1;
}

/* One array; NULL where it is left out. Bits of the byte: 3 style, 2 leading axes to leave out, 3 edits. */
static const bstk_tensor *place(fuzz *f, int which, bstk_dtype dtype, int ndim, const int64_t *given, int least) {
    gen_array *array = &f->w.array[which];
    const int64_t choice = fuzz_next(f, 256), edits = choice / 32;
    int64_t shape[BSTK_MAX_NDIM];
    memcpy(shape, given, (size_t)ndim * sizeof *shape);
    for (int64_t trim = choice / 8 % 4; trim > 0 && ndim > least && shape[0] == 1; --trim)
        memmove(shape, shape + 1, (size_t)--ndim * sizeof *shape);
    f->odd = f->odd || edits >= 5;
    if (edits == 5)
        return NULL;
    if (edits == 6)
        edit_shape(f, &dtype, &ndim, shape);
    /* The y of a softmax was an output before: it is 0 where the layout drops, so that no two places share an element.
     */
    const int64_t style = which == WORKLOAD_SAVED ? choice % GEN_STYLES : choice % 8;
    f->odd = f->odd || (workload_is_output(&f->w, which) && style >= GEN_STYLES);
    if (!gen_array_make(array, dtype, ndim, shape, (gen_style)style, (uint64_t)choice))
        abort();
    if (!gen_is_float(dtype))
        gen_fill(&array->t, GEN_INTEGERS, 0);
    else if (which >= WORKLOAD_INPUTS)
        gen_fill(&array->t, GEN_NANS, 0);
    else
        gen_fill(&array->t, f->flags & SPECIAL ? GEN_SPECIAL : GEN_UNIFORM, (uint64_t)which);
    f->fine[which] = array->t;
    if (edits == 7)
        edit_view(f, &array->t);
    return &array->t;
}

/* Batches and heads of an operand: all of them mostly. `divides`: grouped heads fit. */
static void share(fuzz *f, bool divides, int64_t *z, int64_t *h) {
    const int64_t choice = fuzz_next(f, 16), heads = f->w.heads;
    *z = choice / 4 == 1 ? 1 : choice / 4 == 3 ? f->w.p.z + 1 : f->w.p.z;
    *h = choice % 4 == 1 ? 1 : choice % 4 == 2 ? (heads + 1) / 2 : choice % 4 == 3 ? heads + 1 : heads;
    f->odd = f->odd || *z > f->w.p.z || (*h != heads && *h != 1 && (!divides || heads % *h != 0));
}

static void dense(fuzz *f, int which, int64_t z, int64_t h, int64_t rows, int64_t cols) {
    place(f, which, f->w.p.dtype, 4, SHAPE(z, h, rows, cols), 2);
}

static void packed(fuzz *f, int which, int64_t z, int64_t blocks) {
    const int64_t b = f->w.p.block;
    const bstk_tensor *t = place(f, which, f->w.p.packed_dtype, 4, SHAPE(z, blocks, b, b), 3);
    const bstk_tensor *fine = &f->fine[which];
    if (t != NULL && which < WORKLOAD_INPUTS && workload_is_plain(fine) && fine->ndim >= 2 &&
        fine->shape[fine->ndim - 1] == b && fine->shape[fine->ndim - 2] == b && gen_is_float(fine->dtype))
        workload_spoil(f->w.layout, fine, problem_has_scores(f->w.p.op) || problem_is_norm(f->w.p.op));
}

static void rows(fuzz *f, int which) {
    place(f, which, workload_sums(&f->w), 3, SHAPE(f->w.p.z, f->w.heads, f->w.p.m), 3);
}

static void like(fuzz *f, int which, int other, bstk_dtype dtype) {
    const bstk_tensor t = f->fine[other];
    if (f->w.array[other].memory != NULL)
        place(f, which, dtype, t.ndim, t.shape, t.ndim);
}

/* ---- terms of a score -------------------------------------------------------------------------------------------- */

static const bstk_tensor *add_matrix(fuzz *f, int which, int64_t last) {
    int64_t shape[4] = {f->w.p.z, f->w.heads, f->w.p.m, last};
    const int64_t choice = fuzz_next(f, 64);
    const int first = which == WORKLOAD_KEY_PADDING ? 0 : (int)(choice / 16) % 3;
    if (which == WORKLOAD_ATTN_MASK && first == 1)
        shape[1] = f->w.p.z;
    for (int axis = 0; axis < 3; ++axis)
        shape[axis] = choice >> axis & 1 ? 1 : shape[axis];
    const bool mask = which == WORKLOAD_KEY_PADDING || which == WORKLOAD_ATTN_MASK;
    const int64_t type = fuzz_next(f, mask ? 6 : 4);
    const bstk_dtype dtype = type == 4 ? BSTK_BOOL : type == 5 ? BSTK_U8 : floats[type];
    if (which == WORKLOAD_KEY_PADDING)
        return place(f, which, dtype, 2, SHAPE(shape[0], last), 1);
    return place(f, which, dtype, 4 - first, shape + first, which == WORKLOAD_ATTN_MASK ? 4 - first : 2);
}

/* A mask: of bool or floats, whose bytes are drawn again. */
static const bstk_tensor *add_mask(fuzz *f, int which, bstk_mask_mode *mode) {
    *mode = (bstk_mask_mode)fuzz_next(f, 3);
    const bstk_tensor *t = add_matrix(f, which, f->w.p.n);
    const bstk_tensor *fine = &f->fine[which];
    for (int64_t e = 0; t != NULL && e < gen_count(fine); ++e) {
        const uint64_t draw = gen_hash((uint64_t)which, (uint64_t)e) % 4;
        if (draw < 2)
            gen_store(fine->dtype, fine->data, gen_offset(fine, e),
                      *mode == BSTK_MASK_MUL || !gen_is_float(fine->dtype) ? (double)draw
                      : draw == 0                                          ? -INFINITY
                                                                           : 0);
    }
    return t;
}

/* Documents of tokens, or rising starts of sequences. */
static const bstk_tensor *add_places(fuzz *f, int which, int64_t size, bool sequences) {
    const bstk_dtype dtype = fuzz_next(f, 2) == 1 ? BSTK_I64 : BSTK_I32;
    const int64_t count = sequences ? 3 : size, cut = fuzz_next(f, size + 2);
    const bstk_tensor *t = place(f, which, dtype, sequences ? 1 : 2, sequences ? SHAPE(3) : SHAPE(f->w.p.z, count), 1);
    const bstk_tensor *fine = &f->fine[which];
    f->odd = f->odd || (sequences && cut > size) || (sequences && t != NULL && !workload_is_plain(fine));
    for (int64_t e = 0; t != NULL && e < gen_count(fine); ++e)
        gen_store(fine->dtype, fine->data, gen_offset(fine, e),
                  (double)(sequences ? (e == 1   ? cut
                                        : e == 2 ? size
                                                 : 0)
                                     : e % (size > 0 ? size : 1) < cut));
    return t;
}

static void add_terms(fuzz *f) {
    workload *w = &f->w;
    bstk_score_terms *t = &w->terms;
    const int64_t which = fuzz_next(f, 256), more = fuzz_next(f, 256);
    *t = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    t->causal = w->p.causal;
    if (which & 1)
        t->rpe = add_matrix(f, WORKLOAD_RPE, w->p.n);
    if (which & 2)
        t->rel_logits = add_matrix(f, WORKLOAD_REL, 1 + fuzz_next(f, w->p.m + w->p.n + 1));
    if (which & 4)
        t->key_padding_mask = add_mask(f, WORKLOAD_KEY_PADDING, &t->key_padding_mode);
    if (which & 8)
        t->attn_mask = add_mask(f, WORKLOAD_ATTN_MASK, &t->attn_mode);
    if (which & 16) {
        t->q_documents = add_places(f, WORKLOAD_Q_DOCUMENTS, w->p.m, false);
        t->k_documents = add_places(f, WORKLOAD_K_DOCUMENTS, w->p.n, false);
    }
    if (which & 32) {
        t->cu_seqlens_q = add_places(f, WORKLOAD_CU_Q, w->p.m, true);
        t->cu_seqlens_k = add_places(f, WORKLOAD_CU_K, w->p.n, true);
    }
    if (which & 64)
        t->alibi_slopes =
            place(f, WORKLOAD_SLOPES, floats[fuzz_next(f, 4)], 2, SHAPE(fuzz_next(f, 2) ? 1 : w->p.z, w->heads), 1);
    if (which & 128)
        t->sinks = place(f, WORKLOAD_SINKS, floats[fuzz_next(f, 4)], 1, &w->heads, 1);
    t->bottom_right = more & 1;
    t->window_left = more & 2 ? fuzz_next(f, 33) - 2 : -1;
    t->window_right = more & 4 ? fuzz_next(f, 33) - 2 : -1;
    t->scale = more & 8 ? (double)fuzz_next(f, 9) / 4 - 1 : BSTK_SCALE_DEFAULT;
    t->softcap = more & 16 ? (double)fuzz_next(f, 9) / 4 - 0.25 : 0;
    t->dropout = more & 32 ? (double)fuzz_next(f, 10) / 8 : 0;
    if (w->p.op == PROBLEM_ATTENTION && (f->flags & SPECIAL))
        t->dropout = 0; /* the reference calls a row 0 whose one survivor scores -inf beside a NaN, the library NaN */
    t->dropout_seed = t->dropout_offset = (uint64_t)more;
    t->causal_offset = more & 64 ? fuzz_next(f, 17) - 8 : 0;
    f->odd = f->odd || t->window_left < -1 || t->window_right < -1 || t->softcap < 0 || t->dropout > 1;
    for (int i = 0; i < 5 && w->p.backward && more & 128; ++i) {
        static const int pairs[][2] = {{WORKLOAD_RPE, WORKLOAD_D_RPE},
                                       {WORKLOAD_REL, WORKLOAD_D_REL},
                                       {WORKLOAD_KEY_PADDING, WORKLOAD_D_KEY_PADDING},
                                       {WORKLOAD_ATTN_MASK, WORKLOAD_D_ATTN},
                                       {WORKLOAD_SINKS, WORKLOAD_D_SINKS}};
        f->odd = f->odd || (w->array[pairs[i][0]].memory != NULL && !gen_is_float(f->fine[pairs[i][0]].dtype)) ||
                 t->key_padding_mode == BSTK_MASK_MUL || t->attn_mode == BSTK_MASK_MUL;
        like(f, pairs[i][1], pairs[i][0], floats[fuzz_next(f, 4)]);
    }
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

static void make_product(fuzz *f) {
    static const double scales[][2] = {{1, 0}, {-0.5, 0}, {1, 1}, {2, -0.75}, {0, 0.5}, {0, 0}};
    const problem *p = &f->w.p;
    const int64_t scale = fuzz_next(f, 6), h = f->w.heads, nnz = bstk_layout_nnz(f->w.layout);
    const bool one = bstk_layout_heads(f->w.layout) == 1;
    const int kept = p->backward ? WORKLOAD_D_OUT : WORKLOAD_OUT;
    int64_t za, ha, zb, hb;
    f->w.alpha = scales[scale][0];
    f->w.beta = scales[scale][1];
    share(f, false, &za, &ha);
    share(f, p->op != PROBLEM_DDS, &zb, &hb);
    /* Somebody has to say how many batches and heads there are. */
    const bool a_says = ha == h && (p->op != PROBLEM_DSD || nnz > 0),
               b_says = hb == h && (p->op != PROBLEM_DDS || nnz > 0);
    f->odd = f->odd || (za < p->z && zb < p->z) || (one && !a_says && !b_says);
    if (p->op == PROBLEM_DSD)
        packed(f, WORKLOAD_A, za, one ? ha * nnz : nnz);
    else
        dense(f, WORKLOAD_A, za, ha, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k);
    if (p->op == PROBLEM_DDS)
        packed(f, WORKLOAD_B, zb, one ? hb * nnz : nnz);
    else
        dense(f, WORKLOAD_B, zb, hb, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n);
    if (p->op == PROBLEM_SDD)
        packed(f, kept, p->z, workload_blocks(&f->w));
    else
        dense(f, kept, p->z, h, p->trans_c ? p->n : p->m, p->trans_c ? p->m : p->n);
    if (p->backward) {
        like(f, WORKLOAD_D_A, WORKLOAD_A, f->fine[WORKLOAD_A].dtype);
        like(f, WORKLOAD_D_B, WORKLOAD_B, f->fine[WORKLOAD_B].dtype);
    } else if (f->w.beta != 0 && gen_is_float(f->fine[WORKLOAD_OUT].dtype)) {
        gen_fill(&f->fine[WORKLOAD_OUT], GEN_UNIFORM, 99);
    }
}

/* What the gradient of softmax or attention takes from its forward; where that is refused, nothing can be compared. */
static void forward(fuzz *f) {
    workload *w = &f->w;
    const bstk_tensor *a = workload_tensor(w, WORKLOAD_A), *out = workload_tensor(w, WORKLOAD_SAVED);
    const bstk_tensor *lse = workload_tensor(w, WORKLOAD_SAVED_ROWS);
    bstk_context *ctx = workload_context();
    bstk_status status;
    if (w->p.op == PROBLEM_SOFTMAX) {
        bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
        desc.layout = w->layout;
        desc.x = a;
        desc.y = out;
        desc.lse = lse;
        desc.terms = w->terms;
        desc.terms.dropout = 0;
        status = bstk_softmax(ctx, &desc);
    } else {
        bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
        desc.layout = w->layout;
        desc.q = a;
        desc.k = workload_tensor(w, WORKLOAD_B);
        desc.v = workload_tensor(w, WORKLOAD_V);
        desc.o = out;
        desc.lse = lse;
        desc.terms = w->terms;
        status = bstk_attention(ctx, &desc);
    }
    f->unknown = status != BSTK_OK || lse == NULL;
    f->odd = f->odd || f->unknown;
    bstk_context_release(ctx);
}

static void make_softmax(fuzz *f) {
    workload *w = &f->w;
    const int64_t blocks = workload_blocks(w);
    const bool inside = fuzz_next(f, 3) == 1; /* in place */
    if (!w->p.backward && inside)
        w->out = WORKLOAD_A;
    packed(f, WORKLOAD_A, w->p.z, blocks);
    add_terms(f);
    rows(f, w->p.backward ? WORKLOAD_SAVED_ROWS : WORKLOAD_LSE);
    if (!w->p.backward) {
        if (!inside)
            like(f, WORKLOAD_OUT, WORKLOAD_A, w->p.dtype);
        if (fuzz_next(f, 2) == 1)
            like(f, WORKLOAD_MEAN, WORKLOAD_A, w->p.dtype);
        return;
    }
    w->out = inside ? WORKLOAD_D_OUT : WORKLOAD_D_A;
    packed(f, WORKLOAD_SAVED, w->p.z, blocks);
    packed(f, WORKLOAD_D_OUT, w->p.z, blocks);
    if (fuzz_next(f, 2) == 1)
        rows(f, WORKLOAD_D_LSE);
    if (!inside)
        like(f, WORKLOAD_D_A, WORKLOAD_A, w->p.dtype);
    forward(f);
}

static void make_attention(fuzz *f) {
    workload *w = &f->w;
    const problem *p = &w->p;
    int64_t z, h, width = fuzz_next(f, 40);
    share(f, true, &z, &h);
    f->odd = f->odd || p->k == 0 || width == 0;
    dense(f, WORKLOAD_A, p->z, w->heads, p->m, p->k);
    dense(f, WORKLOAD_B, z, h, p->n, p->k);
    dense(f, WORKLOAD_V, z, h, p->n, width);
    add_terms(f);
    dense(f, p->backward ? WORKLOAD_SAVED : WORKLOAD_OUT, p->z, w->heads, p->m, width);
    rows(f, p->backward ? WORKLOAD_SAVED_ROWS : WORKLOAD_LSE);
    if (!p->backward)
        return;
    forward(f);
    dense(f, WORKLOAD_D_OUT, p->z, w->heads, p->m, width);
    if (fuzz_next(f, 2) == 1)
        rows(f, WORKLOAD_D_LSE);
    for (int i = 0; i < 3; ++i)
        like(f, WORKLOAD_D_A + i, WORKLOAD_A + i, p->dtype);
}

static void columns(fuzz *f, int which) {
    const int64_t kind = fuzz_next(f, 4);
    if (kind < 3)
        place(f, which, floats[fuzz_next(f, 4)], 2, SHAPE(kind == 0 ? f->w.heads : 1, f->w.p.n), 1);
}

static void make_norm(fuzz *f) {
    workload *w = &f->w;
    const bool inside = fuzz_next(f, 3) == 1, centred = w->p.op == PROBLEM_LAYERNORM, back = w->p.backward;
    w->eps = (double)fuzz_next(f, 4) * 1e-3 + 1e-5;
    if (inside)
        w->out = back ? WORKLOAD_D_OUT : WORKLOAD_A;
    packed(f, WORKLOAD_A, w->p.z, workload_blocks(w));
    columns(f, WORKLOAD_B);
    if (!back)
        columns(f, WORKLOAD_V);
    if (centred)
        rows(f, back ? WORKLOAD_SAVED : WORKLOAD_MEAN);
    rows(f, back ? WORKLOAD_SAVED_ROWS : WORKLOAD_LSE);
    if (back)
        packed(f, WORKLOAD_D_OUT, w->p.z, workload_blocks(w));
    if (!inside)
        like(f, back ? WORKLOAD_D_A : WORKLOAD_OUT, WORKLOAD_A, w->p.dtype);
    if (back) {
        const bstk_tensor *rstd = &f->fine[WORKLOAD_SAVED_ROWS]; /* any will do that is not negative */
        for (int64_t e = 0; gen_is_float(rstd->dtype) && e < gen_count(rstd); ++e) {
            const int64_t at = gen_offset(rstd, e);
            gen_store(rstd->dtype, rstd->data, at, fabs(gen_load(rstd->dtype, rstd->data, at)));
        }
        columns(f, WORKLOAD_D_B);
        columns(f, WORKLOAD_D_V);
        f->odd = f->odd || f->fine[WORKLOAD_B].ndim != f->fine[WORKLOAD_D_B].ndim ||
                 f->fine[WORKLOAD_B].shape[0] != f->fine[WORKLOAD_D_B].shape[0];
    }
}

static void make_copy(fuzz *f) {
    const bool pack = f->w.p.op == PROBLEM_PACK;
    dense(f, pack ? WORKLOAD_A : WORKLOAD_OUT, f->w.p.z, f->w.heads, f->w.p.m, f->w.p.n);
    packed(f, pack ? WORKLOAD_OUT : WORKLOAD_A, f->w.p.z, workload_blocks(&f->w));
}

/* ---- the problem ------------------------------------------------------------------------------------------------- */

/* Blocks by bits; with ELEMENTS some elements of them by chance. Odd masks hold a 2. NULL: refused. */
static bstk_layout *make_layout(fuzz *f, bstk_context *ctx) {
    const problem *p = &f->w.p;
    int64_t shape[2];
    problem_layout_shape(p, shape);
    const int64_t b = p->block >= 8 ? p->block : 8, heads = f->flags & SHARED ? 1 : f->w.heads;
    const int64_t rows = (shape[0] + b - 1) / b, cols = (shape[1] + b - 1) / b, count = heads * rows * cols;
    const bool whole = !(f->flags & ELEMENTS) || shape[0] * shape[1] == 0;
    const int64_t sizes[3] = {heads, whole ? rows : shape[0], whole ? cols : shape[1]};
    uint8_t *blocks = calloc((size_t)count + 1, 1),
            *mask = calloc((size_t)(heads * (shape[0] + 1) * (shape[1] + 1)), 1);
    if (blocks == NULL || mask == NULL)
        abort();
    for (int64_t i = 0, bits = 0; i < count; ++i, bits /= 2) {
        bits = i % 8 == 0 ? fuzz_next(f, 256) : bits;
        blocks[i] = (uint8_t)(bits & 1);
    }
    const int64_t broken = fuzz_next(f, 16);
    if (broken == 15 && whole && count > 0) {
        blocks[count / 2] = 2;
        f->odd = true;
    }
    for (int64_t e = 0; !whole && e < heads * shape[0] * shape[1]; ++e) {
        const int64_t j = e % shape[1], i = e / shape[1] % shape[0], head = e / shape[1] / shape[0];
        mask[e] = blocks[(head * rows + i / b) * cols + j / b] && gen_hash(7, (uint64_t)e) % 10 >= 3;
    }
    const bstk_tensor t = bstk_tensor_make(whole ? blocks : mask, BSTK_U8, 3, sizes);
    bstk_layout *layout = NULL;
    const bstk_status status = whole ? bstk_layout_from_mask(ctx, &t, p->block, shape, &layout)
                                     : bstk_layout_from_dense_mask(ctx, &t, p->block, &layout);
    if ((status == BSTK_OK) != (layout != NULL) || (status == BSTK_OK && broken == 15 && whole && count > 0))
        fuzz_die(f, "layout", "taken or refused by half, or a mask of 2 taken");
    free(blocks);
    free(mask);
    if (layout == NULL)
        fuzz_refused(f, "layout", status);
    return layout;
}

bool fuzz_make(fuzz *f, bstk_context *ctx) {
    static const int32_t edges[] = {8, 8, 8, 8, 8, 8, 16, 16, 16, 24, 32, 64, 0, 12, -8, 264};
    static const bstk_dtype mixed[] = {BSTK_F16, BSTK_BF16};
    workload *w = &f->w;
    problem *p = &w->p;
    p->op = (problem_op)(1 + fuzz_next(f, 9));
    const int64_t type = fuzz_next(f, problem_is_product(p->op) ? 6 : 4), edge = fuzz_next(f, 16);
    p->dtype = type < 4 ? floats[type] : mixed[type - 4];
    p->packed_dtype = type < 4 ? p->dtype : BSTK_F32;
    p->block = edges[edge];
    p->pattern = PROBLEM_ONES; /* for messages: bits of the mask have no name */
    f->odd = edge >= 12;
    f->flags = (uint8_t)fuzz_next(f, 256);
    p->backward = (f->flags & BACKWARD) && p->op != PROBLEM_PACK && p->op != PROBLEM_UNPACK;
    p->trans_a = problem_is_product(p->op) && (f->flags & TRANS_A);
    p->trans_b = problem_is_product(p->op) && (f->flags & TRANS_B);
    p->trans_c = problem_is_product(p->op) && (f->flags & TRANS_C);
    p->causal = problem_has_scores(p->op) && (f->flags & CAUSAL);
    const int64_t counts = fuzz_next(f, 8), most = 4 * (edge < 12 ? p->block : 8) + 1;
    p->z = 1 + counts / 4;
    p->h = w->heads = 1 + counts % 4;
    p->m = fuzz_next(f, most);
    p->n = fuzz_next(f, most);
    p->k = fuzz_next(f, most);
    w->out = p->backward ? WORKLOAD_D_A : WORKLOAD_OUT;
    w->eps = 1e-5;
    if (p->z * p->h * p->m * p->n * (p->k + 1) > MAX_PRODUCTS || (w->layout = make_layout(f, ctx)) == NULL)
        return false;
    if (problem_is_product(p->op))
        make_product(f);
    else if (p->op == PROBLEM_SOFTMAX)
        make_softmax(f);
    else if (p->op == PROBLEM_ATTENTION)
        make_attention(f);
    else if (problem_is_norm(p->op))
        make_norm(f);
    else
        make_copy(f);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (w->array[i].memory != NULL && (w->initial[i] = gen_snapshot(&w->array[i])) == NULL)
            abort();
    }
    return true;
}
