/* workload.c: draws the variants of a problem, makes their operands, plans and runs them. */
#include "workload.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element masks and score terms take memory for every score, stored or not: only up to this many. */
#define MAX_MASKED 0x1p24

static bool few_scores(const problem *p) {
    return (double)p->z * (double)p->h * (double)p->m * (double)p->n <= MAX_MASKED;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

typedef struct choices {
    uint64_t seed, counter;
    bool plain; /* variant 0: always the first choice */
    workload_values values;
} choices;

/* A number from 0 to count - 1. */
static int64_t pick(choices *c, int64_t count) {
    return c->plain ? 0 : (int64_t)(gen_hash(c->seed, c->counter++) % (uint64_t)count);
}

static uint64_t data_seed(choices *c) {
    return gen_hash(c->seed + 1, c->counter++);
}

static void say(workload *w, const char *format, ...) {
    const size_t used = strlen(w->what);
    va_list args;
    va_start(args, format);
    vsnprintf(w->what + used, sizeof w->what - used, format, args);
    va_end(args);
}

static gen_style pick_style(choices *c, bool input, int ndim) {
    return (gen_style)pick(c, GEN_STYLES + (input && ndim == 4 ? 2 : 0));
}

/* Leaves out leading axes of size 1, as callers may, but not below `least` axes. */
static int trim(choices *c, int ndim, int least, int64_t *shape) {
    while (ndim > least && shape[0] == 1 && pick(c, 2) == 1)
        memmove(shape, shape + 1, (size_t)--ndim * sizeof *shape);
    return ndim;
}

static gen_values fill_of(const choices *c) {
    return c->values == WORKLOAD_UNIFORM ? GEN_UNIFORM : c->values == WORKLOAD_INTEGERS ? GEN_INTEGERS : GEN_SPECIAL;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static bool add_dense(workload *w, choices *c, int which, bstk_dtype dtype, int64_t z, int64_t h, int64_t rows,
                      int64_t cols) {
    int64_t shape[4] = {z, h, rows, cols};
    const int ndim = trim(c, 4, 2, shape);
    if (!gen_array_make(&w->array[which], dtype, ndim, shape, pick_style(c, which < WORKLOAD_INPUTS, ndim),
                        data_seed(c)))
        return false;
    gen_fill(&w->array[which].t, which < WORKLOAD_INPUTS ? fill_of(c) : GEN_NANS, data_seed(c));
    return true;
}

/* NaN wherever a block reaches past a ragged edge: kernels must not read that. */
static void spoil_edges(const bstk_layout *layout, const bstk_tensor *t) {
    const int64_t b = bstk_layout_block(layout), nnz = bstk_layout_nnz(layout);
    const int64_t count = gen_count(t), blocks = nnz > 0 ? nnz : 1;
    if (bstk_layout_m(layout) % b == 0 && bstk_layout_n(layout) % b == 0)
        return;
    for (int64_t e = 0; e < count; ++e) {
        const int64_t n = e / (b * b) % blocks;
        const int64_t i = bstk_layout_row_idx(layout)[n] * b + e / b % b;
        const int64_t j = bstk_layout_col_idx(layout)[n] * b + e % b;
        if (i >= bstk_layout_m(layout) || j >= bstk_layout_n(layout))
            gen_store(t->dtype, t->data, gen_offset(t, e), NAN);
    }
}

static bool add_packed(workload *w, choices *c, int which, bstk_dtype dtype, int64_t z, int64_t blocks) {
    const int64_t b = bstk_layout_block(w->layout);
    int64_t shape[4] = {z, blocks, b, b};
    const int ndim = trim(c, 4, 3, shape);
    gen_style style = pick_style(c, which < WORKLOAD_INPUTS && which != w->out, ndim);
    if (style == GEN_ZERO_SECOND)
        style = GEN_SHUFFLED; /* all blocks one: what is inside of one lies past the edge of another */
    if (!gen_array_make(&w->array[which], dtype, ndim, shape, style, data_seed(c)))
        return false;
    gen_fill(&w->array[which].t, which < WORKLOAD_INPUTS ? fill_of(c) : GEN_NANS, data_seed(c));
    spoil_edges(w->layout, &w->array[which].t);
    return true;
}

/* Blocks of packed values for each head, when one head's layout serves all. */
static int64_t all_blocks(const workload *w) {
    return bstk_layout_nnz(w->layout) * (bstk_layout_heads(w->layout) == 1 ? w->heads : 1);
}

static bool make_product(workload *w, choices *c) {
    const problem *p = &w->p;
    static const double scales[][2] = {{1, 0}, {-0.5, 0}, {1, 1}, {2, -0.75}, {0, 0.5}, {0.3, 0}};
    /* 333 and 77 take sums past the significant bits of the half types, so that the store has to round. */
    static const double exact[][2] = {{333, 0}, {-2, 0}, {1, 1}, {-77, -1}, {0, 1}, {1, 0}};
    const int64_t choice = pick(c, 6), nnz = bstk_layout_nnz(w->layout), h = w->heads;
    w->alpha = (c->values == WORKLOAD_INTEGERS ? exact : scales)[choice][0];
    w->beta = (c->values == WORKLOAD_INTEGERS ? exact : scales)[choice][1];
    if (c->values == WORKLOAD_SPECIAL && p->dtype == BSTK_F16 && choice == 5)
        w->alpha = 3e4; /* so that some results pass the largest f16 */
    int64_t za = pick(c, 3) == 1 ? 1 : p->z, zb = pick(c, 3) == 1 && za == p->z ? 1 : p->z;
    int64_t ha = pick(c, 3) == 1 ? 1 : h, hb = pick(c, 3) == 1 ? 1 : h;
    if (p->op != PROBLEM_DDS && hb == h && h % 2 == 0 && pick(c, 2) == 1)
        hb = h / 2;                          /* grouped heads */
    if (bstk_layout_heads(w->layout) == 1) { /* somebody has to say how many heads there are */
        if (p->op == PROBLEM_DSD && (ha != h || nnz == 0))
            hb = h;
        else if (hb != h || (p->op == PROBLEM_DDS && nnz == 0))
            ha = h;
    }
    bool ok;
    if (p->op == PROBLEM_DSD)
        ok = add_packed(w, c, WORKLOAD_A, p->packed_dtype, za, ha == h ? all_blocks(w) : nnz);
    else
        ok = add_dense(w, c, WORKLOAD_A, p->dtype, za, ha, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k);
    if (p->op == PROBLEM_DDS)
        ok = ok && add_packed(w, c, WORKLOAD_B, p->packed_dtype, zb, hb == h ? all_blocks(w) : nnz);
    else
        ok = ok && add_dense(w, c, WORKLOAD_B, p->dtype, zb, hb, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n);
    if (p->op == PROBLEM_SDD)
        ok = ok && add_packed(w, c, WORKLOAD_OUT, p->packed_dtype, p->z, all_blocks(w));
    else
        ok = ok && add_dense(w, c, WORKLOAD_OUT, p->dtype, p->z, h, p->trans_c ? p->n : p->m, p->trans_c ? p->m : p->n);
    if (!ok)
        return false;
    if (w->alpha == 0) { /* a and b are then not read */
        gen_fill(&w->array[WORKLOAD_A].t, GEN_NANS, 0);
        gen_fill(&w->array[WORKLOAD_B].t, GEN_NANS, 0);
    }
    if (w->beta != 0) {
        gen_fill(&w->array[WORKLOAD_OUT].t, fill_of(c), data_seed(c));
        if (p->op == PROBLEM_SDD)
            spoil_edges(w->layout, &w->array[WORKLOAD_OUT].t);
    }
    say(w, ", alpha %g, beta %g, a %dx%d, b %dx%d (batches x heads)", w->alpha, w->beta, (int)za, (int)ha, (int)zb,
        (int)hb);
    return true;
}

static bool add_lse(workload *w, choices *c) {
    const bool no_blocks = bstk_layout_heads(w->layout) == 1 && bstk_layout_nnz(w->layout) == 0;
    if (pick(c, 3) == 2 &&
        !no_blocks) /* a shared layout without blocks: somebody has to say how many heads there are */
        return true;
    const int64_t shape[3] = {w->p.z, w->heads, w->p.m};
    const bstk_dtype dtype = w->p.dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    if (!gen_array_make(&w->array[WORKLOAD_LSE], dtype, 3, shape, pick_style(c, false, 3), data_seed(c)))
        return false;
    gen_fill(&w->array[WORKLOAD_LSE].t, GEN_NANS, 0);
    return true;
}

/* ---- terms of a score -------------------------------------------------------------------------------------------- */

static bstk_dtype pick_float(choices *c) {
    static const bstk_dtype types[] = {BSTK_F32, BSTK_F16, BSTK_BF16, BSTK_F64};
    return types[pick(c, 4)];
}

/* Values of a mask: for MUL and for bool types 0 and what is not 0; else mostly 0, and numbers, sentinels and -inf. */
static void fill_mask(choices *c, const bstk_tensor *t, bool keeps) {
    const uint64_t seed = data_seed(c);
    const int64_t count = gen_count(t);
    for (int64_t e = 0; e < count; ++e) {
        const uint64_t draw = gen_hash(seed, (uint64_t)e) % 16;
        double value = draw < 8 ? 0 : 2 * gen_unit(seed + 1, (uint64_t)e) - 1;
        if (keeps)
            value = draw < 5 ? 0 : draw < 12 ? 1 : 2;
        else if (draw < 4 || c->values == WORKLOAD_INTEGERS)
            value = draw < 4 ? -INFINITY : 0;
        else if (draw == 15)
            value = t->dtype == BSTK_F16 ? -65504 : t->dtype == BSTK_BF16 ? -0x1.fep127 : -0x1.fffffep127;
        gen_store(t->dtype, t->data, gen_offset(t, e), value);
    }
}

/* One term of `ndim` axes; leading ones may shrink to 1 as far as `broadcast` says. */
static bool add_term(workload *w, choices *c, int which, bstk_dtype dtype, int ndim, int64_t *shape, int broadcast) {
    for (int axis = 0; axis < broadcast; ++axis)
        shape[axis] = pick(c, 2) == 1 ? 1 : shape[axis];
    if (!gen_array_make(&w->array[which], dtype, ndim, shape, pick_style(c, true, ndim), data_seed(c)))
        return false;
    if (gen_is_float(dtype)) /* masks of other types are filled by fill_mask */
        gen_fill(&w->array[which].t, fill_of(c), data_seed(c));
    return true;
}

static bool add_mask(workload *w, choices *c, int which, int ndim, int64_t *shape, int broadcast,
                     bstk_mask_mode *mode) {
    static const bstk_dtype types[] = {BSTK_BOOL, BSTK_F32, BSTK_U8, BSTK_F16, BSTK_BF16, BSTK_F64, BSTK_I64};
    const bstk_dtype dtype = types[pick(c, 7)];
    *mode = dtype == BSTK_I64 ? BSTK_MASK_MUL : (bstk_mask_mode)pick(c, 3);
    if (!add_term(w, c, which, dtype, ndim, shape, broadcast))
        return false;
    fill_mask(c, &w->array[which].t, *mode == BSTK_MASK_MUL || !gen_is_float(dtype));
    return true;
}

static bool make_terms(workload *w, choices *c) {
    const problem *p = &w->p;
    static const double scales[] = {0, 0.7, -1.3, 0.125};
    bstk_score_terms *t = &w->terms;
    *t = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    const int64_t scale = pick(c, 4), all[4] = {p->z, w->heads, p->m, p->n};
    if (scale > 0)
        t->scale = scales[scale];
    t->causal = p->causal;
    if (p->causal) {
        const int64_t offsets[] = {0, p->n - p->m, 3, -2};
        t->causal_offset = offsets[pick(c, 4)];
    }
    const bool room = few_scores(p), exact = c->values == WORKLOAD_INTEGERS;
    bool ok = true;
    if (!exact && room && pick(c, 3) == 1) {
        int64_t shape[4] = {all[0], all[1], all[2], all[3]};
        const int ndim = 4 - (int)pick(c, 3);
        ok = add_term(w, c, WORKLOAD_RPE, pick_float(c), ndim, ndim == 4 ? shape : &shape[4 - ndim], ndim - 2);
        t->rpe = &w->array[WORKLOAD_RPE].t;
        say(w, ", rpe");
    }
    if (ok && !exact && room && pick(c, 3) == 1) {
        const int64_t extents[] = {1, p->m, p->m + p->n - 1, p->n / 2 + 1};
        int64_t shape[4] = {all[0], all[1], all[2], extents[pick(c, 4)]};
        if (shape[3] < 1)
            shape[3] = 1;
        const int ndim = 4 - (int)pick(c, 3);
        ok = add_term(w, c, WORKLOAD_REL, pick_float(c), ndim, &shape[4 - ndim], ndim - 2);
        t->rel_logits = &w->array[WORKLOAD_REL].t;
        say(w, ", rel_logits");
    }
    if (ok && pick(c, 3) == 1) {
        int64_t shape[2] = {p->z, p->n};
        const int ndim = 2 - (int)pick(c, 2);
        ok = add_mask(w, c, WORKLOAD_KEY_PADDING, ndim, &shape[2 - ndim], ndim - 1, &t->key_padding_mode);
        t->key_padding_mask = &w->array[WORKLOAD_KEY_PADDING].t;
        say(w, ", key padding %s mode %d", bstk_dtype_name(t->key_padding_mask->dtype), (int)t->key_padding_mode);
    }
    if (ok && room && pick(c, 3) == 1) {
        int64_t shape[4] = {all[0], all[1], all[2], all[3]};
        const int ndim = 4 - (int)pick(c, 3);
        if (ndim == 3) /* [Z, M, N] */
            shape[1] = p->z;
        ok = add_mask(w, c, WORKLOAD_ATTN_MASK, ndim, &shape[4 - ndim], ndim - 2, &t->attn_mode);
        t->attn_mask = &w->array[WORKLOAD_ATTN_MASK].t;
        say(w, ", mask %s mode %d", bstk_dtype_name(t->attn_mask->dtype), (int)t->attn_mode);
    }
    return ok;
}

static bool make_softmax(workload *w, choices *c) {
    w->out = pick(c, 3) == 1 ? WORKLOAD_A : WORKLOAD_OUT;
    bool ok = add_packed(w, c, WORKLOAD_A, w->p.dtype, w->p.z, all_blocks(w));
    if (ok && c->values == WORKLOAD_INTEGERS)
        gen_fill(&w->array[WORKLOAD_A].t, GEN_ZEROS, 0);
    if (ok && w->out == WORKLOAD_OUT) {
        const bstk_tensor *x = &w->array[WORKLOAD_A].t;
        ok = gen_array_make(&w->array[WORKLOAD_OUT], x->dtype, x->ndim, x->shape, pick_style(c, false, x->ndim),
                            data_seed(c));
        if (ok)
            gen_fill(&w->array[WORKLOAD_OUT].t, GEN_NANS, 0);
    } else {
        say(w, ", in place");
    }
    return ok && add_lse(w, c) && make_terms(w, c);
}

/*
 * NaN in a few queries; every fourth key is dropped by a mask and its k and v are NaN and infinite; some of the other
 * values are NaN, which must reach the queries that keep them and only those.
 */
static bool spoil_attention(workload *w, choices *c) {
    int64_t shape[1] = {w->p.n};
    gen_array_free(&w->array[WORKLOAD_KEY_PADDING]);
    if (!gen_array_make(&w->array[WORKLOAD_KEY_PADDING], BSTK_BOOL, 1, shape, GEN_CONTIGUOUS, 0))
        return false;
    w->terms.key_padding_mask = &w->array[WORKLOAD_KEY_PADDING].t;
    w->terms.key_padding_mode = BSTK_MASK_AUTO;
    for (int64_t j = 0; j < w->p.n; ++j)
        gen_store(BSTK_BOOL, w->array[WORKLOAD_KEY_PADDING].t.data, j, j % 4 != 1);
    const uint64_t seed = data_seed(c);
    for (int which = WORKLOAD_A; which <= WORKLOAD_V; ++which) {
        const bstk_tensor *t = &w->array[which].t;
        const int64_t rows = t->shape[t->ndim - 2], width = t->shape[t->ndim - 1], count = gen_count(t);
        gen_fill(t, GEN_UNIFORM, seed + (uint64_t)which);
        for (int64_t e = 0; e < count; ++e) {
            const int64_t row = e / width % rows, draw = (int64_t)(gen_hash(seed, (uint64_t)(row * 4 + which)) % 32);
            if (which != WORKLOAD_A && row % 4 == 1)
                gen_store(t->dtype, t->data, gen_offset(t, e), e % 3 == 0 ? NAN : e % 3 == 1 ? INFINITY : -INFINITY);
            else if (which != WORKLOAD_B && draw == 0 && e % width == 0)
                gen_store(t->dtype, t->data, gen_offset(t, e), NAN);
        }
    }
    say(w, ", NaN in dropped keys and values");
    return true;
}

static bool make_attention(workload *w, choices *c) {
    const problem *p = &w->p;
    const int64_t h = w->heads, widths[] = {p->k, 1, p->k < 128 ? 2 * p->k : 256, 17};
    int64_t hkv = pick(c, 2) == 1 ? 1 : h;
    if (hkv == h && h % 2 == 0 && pick(c, 2) == 1)
        hkv = h / 2;
    const int64_t zkv = pick(c, 3) == 1 ? 1 : p->z, width = widths[pick(c, 4)];
    bool ok = add_dense(w, c, WORKLOAD_A, p->dtype, p->z, h, p->m, p->k) &&
              add_dense(w, c, WORKLOAD_B, p->dtype, zkv, hkv, p->n, p->k) &&
              add_dense(w, c, WORKLOAD_V, p->dtype, zkv, hkv, p->n, width) &&
              add_dense(w, c, WORKLOAD_OUT, p->dtype, p->z, h, p->m, width);
    if (ok && c->values == WORKLOAD_INTEGERS)
        gen_fill(&w->array[WORKLOAD_A].t, GEN_ZEROS, 0);
    say(w, ", k and v %dx%d (batches x heads), v %d wide", (int)zkv, (int)hkv, (int)width);
    return ok && add_lse(w, c) && make_terms(w, c) && (c->values != WORKLOAD_SPECIAL || spoil_attention(w, c));
}

static bool make_copy(workload *w, choices *c) {
    const problem *p = &w->p;
    const bool pack = p->op == PROBLEM_PACK;
    const int dense = pack ? WORKLOAD_A : WORKLOAD_OUT, packed = pack ? WORKLOAD_OUT : WORKLOAD_A;
    return add_dense(w, c, dense, p->dtype, p->z, w->heads, p->m, p->n) &&
           add_packed(w, c, packed, p->dtype, p->z, all_blocks(w));
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

/* Drops 3 of 10 elements from every other stored block, so that some blocks are partly kept and some wholly. */
static bool drop_elements(workload *w, choices *c, char error[PROBLEM_TEXT]) {
    const bstk_layout *whole = w->layout;
    const int64_t m = bstk_layout_m(whole), n = bstk_layout_n(whole), b = bstk_layout_block(whole);
    const int64_t shape[3] = {bstk_layout_heads(whole), m, n};
    unsigned char *mask = calloc((size_t)(shape[0] * m * n + 1), 1);
    if (mask == NULL) {
        snprintf(error, PROBLEM_TEXT, "check: out of memory");
        return false;
    }
    const uint64_t seed = data_seed(c);
    for (int64_t head = 0; head < shape[0]; ++head) {
        const int64_t first = bstk_layout_row_ptr(whole)[head * bstk_layout_rows(whole)];
        const int64_t end = bstk_layout_row_ptr(whole)[(head + 1) * bstk_layout_rows(whole)];
        for (int64_t e = first * b * b; e < end * b * b; ++e) {
            const int64_t block = e / (b * b);
            const int64_t i = bstk_layout_row_idx(whole)[block] * b + e / b % b;
            const int64_t j = bstk_layout_col_idx(whole)[block] * b + e % b;
            if (i < m && j < n)
                mask[(head * m + i) * n + j] = block % 2 == 0 || gen_hash(seed, (uint64_t)e) % 10 >= 3;
        }
    }
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape);
    bstk_layout *partly = NULL;
    const bstk_status status = bstk_layout_from_dense_mask(NULL, &t, bstk_layout_block(whole), &partly);
    free(mask);
    if (status != BSTK_OK) {
        snprintf(error, PROBLEM_TEXT, "%s", bstk_last_error());
        return false;
    }
    bstk_layout_release(w->layout);
    w->layout = partly;
    say(w, ", element masks");
    return true;
}

static bool make_layout(workload *w, choices *c, char error[PROBLEM_TEXT]) {
    problem p = w->p;
    w->heads = p.h;
    if (pick(c, 3) == 1 && p.pattern != PROBLEM_FILE) {
        w->heads = p.h == 1 ? 2 + pick(c, 2) : p.h;
        p.h = 1;
        say(w, ", layout shared by %d heads", (int)w->heads);
    }
    if (!problem_layout(NULL, &p, &w->layout, error))
        return false;
    const bool scores = p.op == PROBLEM_SOFTMAX || p.op == PROBLEM_ATTENTION;
    if (scores && p.m > 0 && p.n > 0 && few_scores(&p) && pick(c, 2) == 1)
        return drop_elements(w, c, error);
    return true;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Each problem, pass and variant draws for itself: the lists of problems then meet many more combinations. */
static uint64_t choices_seed(const problem *p, workload_values values, uint64_t seed, int32_t variant) {
    char text[PROBLEM_TEXT];
    uint64_t hash = gen_hash(seed, (uint64_t)variant * 4 + (uint64_t)values);
    for (const char *c = problem_print(p, text); *c != '\0'; ++c)
        hash = gen_hash(hash, (uint64_t)(unsigned char)*c);
    return hash;
}

bool workload_make(const problem *p, workload_values values, uint64_t seed, int32_t variant, workload *out,
                   char error[PROBLEM_TEXT]) {
    static const char *const names[] = {"", "integers, ", "special values, "};
    choices c = {.seed = choices_seed(p, values, seed, variant), .plain = variant == 0, .values = values};
    workload *w = out;
    memset(w, 0, sizeof *w);
    w->p = *p;
    w->out = WORKLOAD_OUT;
    snprintf(w->what, sizeof w->what, "%svariant %d", names[values], (int)variant);
    if (p->cuda) {
        snprintf(error, PROBLEM_TEXT, "problem: device cuda is not in this build");
        workload_free(w);
        return false;
    }
    if (!make_layout(w, &c, error)) {
        workload_free(w);
        return false;
    }
    bool ok = p->op == PROBLEM_SOFTMAX     ? make_softmax(w, &c)
              : p->op == PROBLEM_ATTENTION ? make_attention(w, &c)
              : problem_is_product(p->op)  ? make_product(w, &c)
                                           : make_copy(w, &c);
    for (int i = 0; ok && i < WORKLOAD_ARRAYS; ++i) {
        if (w->array[i].memory != NULL)
            ok = (w->initial[i] = gen_snapshot(&w->array[i])) != NULL;
    }
    if (!ok) {
        snprintf(error, PROBLEM_TEXT, "check: out of memory");
        workload_free(w);
    }
    return ok;
}

void workload_free(workload *w) {
    bstk_plan_release(w->plan);
    bstk_layout_release(w->layout);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        gen_array_free(&w->array[i]);
        free(w->initial[i]);
    }
    gen_array_free(&w->scratch);
    memset(w, 0, sizeof *w);
}

static const bstk_tensor *tensor(const workload *w, int which) {
    return w->array[which].memory != NULL ? &w->array[which].t : NULL;
}

bstk_status workload_plan(workload *w, bstk_context *ctx, const char *kernel) {
    bstk_plan *plan = NULL;
    bstk_status status;
    if (w->p.op == PROBLEM_SOFTMAX) {
        bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
        desc.layout = w->layout;
        desc.x = tensor(w, WORKLOAD_A);
        desc.y = tensor(w, w->out);
        desc.lse = tensor(w, WORKLOAD_LSE);
        desc.terms = w->terms;
        desc.kernel = kernel;
        status = bstk_softmax_plan(ctx, &desc, &plan);
    } else if (w->p.op == PROBLEM_ATTENTION) {
        bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
        desc.layout = w->layout;
        desc.q = tensor(w, WORKLOAD_A);
        desc.k = tensor(w, WORKLOAD_B);
        desc.v = tensor(w, WORKLOAD_V);
        desc.o = tensor(w, WORKLOAD_OUT);
        desc.lse = tensor(w, WORKLOAD_LSE);
        desc.terms = w->terms;
        status = bstk_attention_plan(ctx, &desc, &plan);
    } else if (problem_is_product(w->p.op)) {
        bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
        desc.mode = (bstk_mode)w->p.op;
        desc.trans_a = w->p.trans_a;
        desc.trans_b = w->p.trans_b;
        desc.trans_c = w->p.trans_c;
        desc.layout = w->layout;
        desc.a = tensor(w, WORKLOAD_A);
        desc.b = tensor(w, WORKLOAD_B);
        desc.c = tensor(w, WORKLOAD_OUT);
        desc.kernel = kernel;
        status = bstk_matmul_plan(ctx, &desc, &plan);
    } else {
        bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
        desc.direction = w->p.op == PROBLEM_PACK ? BSTK_PACK : BSTK_UNPACK;
        desc.layout = w->layout;
        desc.x = tensor(w, WORKLOAD_A);
        desc.y = tensor(w, WORKLOAD_OUT);
        desc.kernel = kernel;
        status = bstk_convert_plan(ctx, &desc, &plan);
    }
    if (status != BSTK_OK)
        return status;
    bstk_plan_release(w->plan);
    w->plan = plan;
    gen_array_free(&w->scratch);
    const int64_t bytes[1] = {(int64_t)bstk_plan_scratch_bytes(plan)};
    return gen_array_make(&w->scratch, BSTK_U8, 1, bytes, GEN_PADDED, 0) ? BSTK_OK : BSTK_ERR_NOMEM;
}

bstk_status workload_run(workload *w) {
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = w->scratch.t.data;
    exec.scratch_bytes = (size_t)gen_count(&w->scratch.t);
    const bstk_tensor *a = tensor(w, WORKLOAD_A), *b = tensor(w, WORKLOAD_B), *out = tensor(w, w->out);
    const bstk_tensor *lse = tensor(w, WORKLOAD_LSE);
    if (w->p.op == PROBLEM_SOFTMAX)
        return bstk_softmax_run(w->plan, a, &w->terms, out, lse, NULL, &exec);
    if (w->p.op == PROBLEM_ATTENTION)
        return bstk_attention_run(w->plan, a, b, tensor(w, WORKLOAD_V), &w->terms, out, lse, &exec);
    if (problem_is_product(w->p.op))
        return bstk_matmul_run(w->plan, w->alpha, a, b, w->beta, out, &exec);
    return bstk_convert_run(w->plan, a, out, &exec);
}

void workload_reset(workload *w) {
    const int outputs[2] = {w->out, WORKLOAD_LSE};
    for (int i = 0; i < 2; ++i) {
        const gen_array *array = &w->array[outputs[i]];
        if (array->memory != NULL)
            memcpy(array->memory, w->initial[outputs[i]], array->bytes);
    }
}
