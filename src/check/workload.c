/* workload.c: draws the variants of a problem and makes their layouts and operands; scores and norms have own files. */
#include "workload_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool workload_few_scores(const problem *p) {
    return (double)p->z * (double)p->h * (double)p->m * (double)p->n <= 0x1p24;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

int64_t choices_pick(choices *c, int64_t count) {
    return c->plain ? 0 : (int64_t)(gen_hash(c->seed, c->counter++) % (uint64_t)count);
}

uint64_t choices_seed(choices *c) {
    return gen_hash(c->seed + 1, c->counter++);
}

bstk_dtype choices_float(choices *c) {
    static const bstk_dtype types[] = {BSTK_F32, BSTK_F16, BSTK_BF16, BSTK_F64};
    return types[choices_pick(c, 4)];
}

gen_style choices_style(choices *c, bool input, int ndim) {
    return (gen_style)choices_pick(c, GEN_STYLES + (input && ndim == 4 ? 2 : 0));
}

gen_values choices_fill(const choices *c) {
    return c->values == WORKLOAD_UNIFORM ? GEN_UNIFORM : c->values == WORKLOAD_INTEGERS ? GEN_INTEGERS : GEN_SPECIAL;
}

void workload_say(workload *w, const char *format, ...) {
    const size_t used = strlen(w->what);
    va_list args;
    va_start(args, format);
    vsnprintf(w->what + used, sizeof w->what - used, format, args);
    va_end(args);
}

/* Leaves out leading axes of size 1, as callers may, but not below `least` axes. */
static int trim(choices *c, int ndim, int least, int64_t *shape) {
    while (ndim > least && shape[0] == 1 && choices_pick(c, 2) == 1)
        memmove(shape, shape + 1, (size_t)--ndim * sizeof *shape);
    return ndim;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static bool make(workload *w, choices *c, int which, bstk_dtype dtype, int ndim, const int64_t *shape,
                 gen_style style) {
    if (!gen_array_make(&w->array[which], dtype, ndim, shape, style, choices_seed(c)))
        return false;
    const uint64_t seed = choices_seed(c);
    if (gen_is_float(dtype)) /* the makers of others fill them */
        gen_fill(&w->array[which].t, which < WORKLOAD_INPUTS ? choices_fill(c) : GEN_NANS, seed);
    return true;
}

bool workload_array(workload *w, choices *c, int which, bstk_dtype dtype, int ndim, const int64_t *shape) {
    return make(w, c, which, dtype, ndim, shape, choices_style(c, which < WORKLOAD_INPUTS && which != w->out, ndim));
}

bool workload_dense(workload *w, choices *c, int which, bstk_dtype dtype, int64_t z, int64_t h, int64_t rows,
                    int64_t cols) {
    int64_t shape[4] = {z, h, rows, cols};
    const int ndim = trim(c, 4, 2, shape);
    return workload_array(w, c, which, dtype, ndim, shape);
}

bool workload_packed(workload *w, choices *c, int which, bstk_dtype dtype, int64_t z, int64_t blocks) {
    const int64_t b = bstk_layout_block(w->layout);
    int64_t shape[4] = {z, blocks, b, b};
    const int ndim = trim(c, 4, 3, shape);
    gen_style style = choices_style(c, which < WORKLOAD_INPUTS && which != w->out, ndim);
    if (style == GEN_ZERO_SECOND)
        style = GEN_SHUFFLED; /* all blocks one: what is inside of one lies past the edge of another */
    if (!make(w, c, which, dtype, ndim, shape, style))
        return false;
    if (which < WORKLOAD_INPUTS)
        workload_spoil(w->layout, &w->array[which].t, problem_has_scores(w->p.op) || problem_is_norm(w->p.op));
    return true;
}

bool workload_like(workload *w, choices *c, int which, int like, bstk_dtype dtype) {
    const bstk_tensor *t = &w->array[like].t;
    return workload_array(w, c, which, dtype, t->ndim, t->shape);
}

bool workload_rows(workload *w, choices *c, int which) {
    const int64_t shape[3] = {w->p.z, w->heads, w->p.m};
    return workload_array(w, c, which, workload_sums(w), 3, shape);
}

void workload_spoil(const bstk_layout *layout, const bstk_tensor *t, bool masked) {
    const int64_t b = bstk_layout_block(layout), nnz = bstk_layout_nnz(layout);
    const int64_t m = bstk_layout_m(layout), n = bstk_layout_n(layout), size = b * b;
    const int64_t blocks = nnz > 0 ? gen_count(t) / size : 0;
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t i0 = bstk_layout_row_idx(layout)[block % nnz] * b;
        const int64_t j0 = bstk_layout_col_idx(layout)[block % nnz] * b;
        const uint8_t *mask = masked ? bstk_layout_partial_mask(layout, block % nnz) : NULL;
        if (mask == NULL && i0 + b <= m && j0 + b <= n)
            continue;
        for (int64_t e = 0; e < size; ++e) {
            if (i0 + e / b >= m || j0 + e % b >= n || (mask != NULL && mask[e] == 0))
                gen_store(t->dtype, t->data, gen_offset(t, block * size + e), NAN);
        }
    }
}

int64_t workload_blocks(const workload *w) {
    return bstk_layout_nnz(w->layout) * (bstk_layout_heads(w->layout) == 1 ? w->heads : 1);
}

bool workload_headless(const workload *w) {
    return bstk_layout_heads(w->layout) == 1 && bstk_layout_nnz(w->layout) == 0;
}

bstk_dtype workload_sums(const workload *w) {
    return w->p.dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
}

bool workload_is_plain(const bstk_tensor *t) {
    for (int axis = 0; axis < t->ndim; ++axis) {
        if (t->shape[axis] > 1 && t->stride[axis] == 0)
            return false;
    }
    return true;
}

const bstk_tensor *workload_tensor(const workload *w, int which) {
    return w->array[which].memory != NULL ? &w->array[which].t : NULL;
}

bstk_context *workload_context(void) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = 1;
    return bstk_context_create(&opts, &ctx) == BSTK_OK ? ctx : NULL;
}

/* ---- products and copies ----------------------------------------------------------------------------------------- */

/* An array like C. */
static bool make_c(workload *w, choices *c, int which) {
    const problem *p = &w->p;
    if (p->op == PROBLEM_SDD)
        return workload_packed(w, c, which, p->packed_dtype, p->z, workload_blocks(w));
    return workload_dense(w, c, which, p->dtype, p->z, w->heads, p->trans_c ? p->n : p->m, p->trans_c ? p->m : p->n);
}

static bool make_product_grad(workload *w, choices *c) {
    const int64_t wanted = choices_pick(c, 4);
    w->out = wanted == 3 ? WORKLOAD_D_B : WORKLOAD_D_A;
    bool ok = make_c(w, c, WORKLOAD_D_OUT);
    if (wanted != 3)
        ok = ok && workload_like(w, c, WORKLOAD_D_A, WORKLOAD_A, w->array[WORKLOAD_A].t.dtype);
    if (wanted != 2)
        ok = ok && workload_like(w, c, WORKLOAD_D_B, WORKLOAD_B, w->array[WORKLOAD_B].t.dtype);
    return ok;
}

static bool make_product(workload *w, choices *c) {
    const problem *p = &w->p;
    static const double scales[][2] = {{1, 0}, {-0.5, 0}, {1, 1}, {2, -0.75}, {0, 0.5}, {0.3, 0}};
    /* 333 and 77 take sums past the significant bits of the half types, so that the store has to round. */
    static const double exact[][2] = {{333, 0}, {-2, 0}, {1, 1}, {-77, -1}, {0, 1}, {1, 0}};
    const int64_t choice = choices_pick(c, 6), nnz = bstk_layout_nnz(w->layout), h = w->heads;
    w->alpha = (c->values == WORKLOAD_INTEGERS ? exact : scales)[choice][0];
    w->beta = (c->values == WORKLOAD_INTEGERS ? exact : scales)[choice][1];
    if (c->values == WORKLOAD_SPECIAL && p->dtype == BSTK_F16 && choice == 5)
        w->alpha = 3e4; /* so that some results pass the largest f16 */
    int64_t za = choices_pick(c, 3) == 1 ? 1 : p->z, zb = choices_pick(c, 3) == 1 && za == p->z ? 1 : p->z;
    int64_t ha = choices_pick(c, 3) == 1 ? 1 : h, hb = choices_pick(c, 3) == 1 ? 1 : h;
    if (p->op != PROBLEM_DDS && hb == h && h % 2 == 0 && choices_pick(c, 2) == 1)
        hb = h / 2;                          /* grouped heads */
    if (bstk_layout_heads(w->layout) == 1) { /* somebody has to say how many heads there are */
        if (p->op == PROBLEM_DSD && (ha != h || nnz == 0))
            hb = h;
        else if (hb != h || (p->op == PROBLEM_DDS && nnz == 0))
            ha = h;
    }
    bool ok;
    if (p->op == PROBLEM_DSD)
        ok = workload_packed(w, c, WORKLOAD_A, p->packed_dtype, za, ha == h ? workload_blocks(w) : nnz);
    else
        ok = workload_dense(w, c, WORKLOAD_A, p->dtype, za, ha, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k);
    if (p->op == PROBLEM_DDS)
        ok = ok && workload_packed(w, c, WORKLOAD_B, p->packed_dtype, zb, hb == h ? workload_blocks(w) : nnz);
    else
        ok = ok &&
             workload_dense(w, c, WORKLOAD_B, p->dtype, zb, hb, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n);
    ok = ok && (p->backward ? make_product_grad(w, c) : make_c(w, c, WORKLOAD_OUT));
    if (!ok)
        return false;
    if (w->alpha == 0) { /* a and b are then not read */
        gen_fill(&w->array[WORKLOAD_A].t, GEN_NANS, 0);
        gen_fill(&w->array[WORKLOAD_B].t, GEN_NANS, 0);
        if (p->backward)
            gen_fill(&w->array[WORKLOAD_D_OUT].t, GEN_NANS, 0);
    }
    if (w->beta != 0 && !p->backward) {
        gen_fill(&w->array[WORKLOAD_OUT].t, choices_fill(c), choices_seed(c));
        if (p->op == PROBLEM_SDD)
            workload_spoil(w->layout, &w->array[WORKLOAD_OUT].t, false);
    }
    workload_say(w, ", alpha %g, beta %g, a %dx%d, b %dx%d (batches x heads)", w->alpha, w->beta, (int)za, (int)ha,
                 (int)zb, (int)hb);
    return true;
}

static bool make_copy(workload *w, choices *c) {
    const problem *p = &w->p;
    const bool pack = p->op == PROBLEM_PACK;
    const int dense = pack ? WORKLOAD_A : WORKLOAD_OUT, packed = pack ? WORKLOAD_OUT : WORKLOAD_A;
    return workload_dense(w, c, dense, p->dtype, p->z, w->heads, p->m, p->n) &&
           workload_packed(w, c, packed, p->dtype, p->z, workload_blocks(w));
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
    const uint64_t seed = choices_seed(c);
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
    workload_say(w, ", element masks");
    return true;
}

static bool make_layout(workload *w, choices *c, char error[PROBLEM_TEXT]) {
    problem p = w->p;
    w->heads = p.h;
    if (choices_pick(c, 3) == 1 && p.pattern != PROBLEM_FILE) {
        w->heads = p.h == 1 ? 2 + choices_pick(c, 2) : p.h;
        p.h = 1;
        workload_say(w, ", layout shared by %d heads", (int)w->heads);
    }
    if (!problem_layout(NULL, &p, &w->layout, error))
        return false;
    if ((problem_has_scores(p.op) || problem_is_norm(p.op)) && p.m > 0 && p.n > 0 && workload_few_scores(&p) &&
        choices_pick(c, 2) == 1)
        return drop_elements(w, c, error);
    return true;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Each problem, pass and variant draws for itself: the lists of problems then meet many more combinations. */
static uint64_t variant_seed(const problem *p, workload_values values, uint64_t seed, int32_t variant) {
    char text[PROBLEM_TEXT];
    uint64_t hash = gen_hash(seed, (uint64_t)variant * 4 + (uint64_t)values);
    for (const char *c = problem_print(p, text); *c != '\0'; ++c)
        hash = gen_hash(hash, (uint64_t)(unsigned char)*c);
    return hash;
}

bool workload_make(const problem *p, workload_values values, uint64_t seed, int32_t variant, workload *out,
                   char error[PROBLEM_TEXT]) {
    static const char *const names[] = {"", "integers, ", "special values, "};
    choices c = {.seed = variant_seed(p, values, seed, variant), .plain = variant == 0, .values = values};
    workload *w = out;
    memset(w, 0, sizeof *w);
    w->p = *p;
    w->out = p->backward ? WORKLOAD_D_A : WORKLOAD_OUT;
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
    bool ok = p->op == PROBLEM_SOFTMAX     ? workload_make_softmax(w, &c)
              : p->op == PROBLEM_ATTENTION ? workload_make_attention(w, &c)
              : problem_is_norm(p->op)     ? workload_make_norm(w, &c)
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

bool workload_is_output(const workload *w, int which) {
    return which >= WORKLOAD_INPUTS || which == w->out;
}

void workload_reset(workload *w) {
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        const gen_array *array = &w->array[i];
        if (array->memory != NULL && workload_is_output(w, i))
            memcpy(array->memory, w->initial[i], array->bytes);
    }
}

const char *workload_name(const workload *w, int which) {
    enum { PRODUCT, COPY, SOFTMAX, ATTENTION, NORM };
    static const char *const names[][WORKLOAD_ARRAYS] = {
        [PRODUCT] = {[WORKLOAD_A] = "a",
                     [WORKLOAD_B] = "b",
                     [WORKLOAD_D_OUT] = "d_c",
                     [WORKLOAD_OUT] = "c",
                     [WORKLOAD_D_A] = "d_a",
                     [WORKLOAD_D_B] = "d_b"},
        [COPY] = {[WORKLOAD_A] = "x", [WORKLOAD_OUT] = "y"},
        [SOFTMAX] = {[WORKLOAD_A] = "x",
                     [WORKLOAD_SAVED] = "y",
                     [WORKLOAD_SAVED_ROWS] = "lse",
                     [WORKLOAD_D_OUT] = "d_y",
                     [WORKLOAD_OUT] = "y",
                     [WORKLOAD_LSE] = "lse",
                     [WORKLOAD_MEAN] = "saved",
                     [WORKLOAD_D_A] = "d_x"},
        [ATTENTION] = {[WORKLOAD_A] = "q",
                       [WORKLOAD_B] = "k",
                       [WORKLOAD_V] = "v",
                       [WORKLOAD_SAVED] = "o",
                       [WORKLOAD_SAVED_ROWS] = "lse",
                       [WORKLOAD_D_OUT] = "d_o",
                       [WORKLOAD_OUT] = "o",
                       [WORKLOAD_LSE] = "lse",
                       [WORKLOAD_D_A] = "d_q",
                       [WORKLOAD_D_B] = "d_k",
                       [WORKLOAD_D_V] = "d_v"},
        [NORM] = {[WORKLOAD_A] = "x",
                  [WORKLOAD_B] = "weight",
                  [WORKLOAD_V] = "bias",
                  [WORKLOAD_SAVED] = "mean",
                  [WORKLOAD_SAVED_ROWS] = "rstd",
                  [WORKLOAD_D_OUT] = "d_y",
                  [WORKLOAD_OUT] = "y",
                  [WORKLOAD_LSE] = "rstd",
                  [WORKLOAD_MEAN] = "mean",
                  [WORKLOAD_D_A] = "d_x",
                  [WORKLOAD_D_B] = "d_weight",
                  [WORKLOAD_D_V] = "d_bias"}};
    static const char *const terms[WORKLOAD_ARRAYS] = {[WORKLOAD_RPE] = "rpe",
                                                       [WORKLOAD_REL] = "rel_logits",
                                                       [WORKLOAD_KEY_PADDING] = "key_padding_mask",
                                                       [WORKLOAD_ATTN_MASK] = "attn_mask",
                                                       [WORKLOAD_SLOPES] = "alibi_slopes",
                                                       [WORKLOAD_SINKS] = "sinks",
                                                       [WORKLOAD_Q_DOCUMENTS] = "q_documents",
                                                       [WORKLOAD_K_DOCUMENTS] = "k_documents",
                                                       [WORKLOAD_CU_Q] = "cu_seqlens_q",
                                                       [WORKLOAD_CU_K] = "cu_seqlens_k",
                                                       [WORKLOAD_D_LSE] = "d_lse",
                                                       [WORKLOAD_D_RPE] = "d_rpe",
                                                       [WORKLOAD_D_REL] = "d_rel_logits",
                                                       [WORKLOAD_D_KEY_PADDING] = "d_key_padding_mask",
                                                       [WORKLOAD_D_ATTN] = "d_attn_mask",
                                                       [WORKLOAD_D_SINKS] = "d_sinks"};
    const problem_op op = w->p.op;
    const int group = problem_is_product(op)    ? PRODUCT
                      : problem_is_norm(op)     ? NORM
                      : op == PROBLEM_SOFTMAX   ? SOFTMAX
                      : op == PROBLEM_ATTENTION ? ATTENTION
                                                : COPY;
    return terms[which] != NULL ? terms[which] : names[group][which];
}
