/* workload_scores.c: operands of softmax, attention and their gradients, with the terms of a score. */
#include "workload_impl.h"

#include <math.h>

/* ---- terms of a score -------------------------------------------------------------------------------------------- */

/* Values of a mask: for MUL and for bool types 0 and what is not 0; else mostly 0, and numbers, sentinels and -inf. */
static void fill_mask(choices *c, const bstk_tensor *t, bool keeps) {
    const uint64_t seed = choices_seed(c);
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
        shape[axis] = choices_pick(c, 2) == 1 ? 1 : shape[axis];
    return workload_array(w, c, which, dtype, ndim, shape);
}

static bool add_mask(workload *w, choices *c, int which, int ndim, int64_t *shape, int broadcast,
                     bstk_mask_mode *mode) {
    static const bstk_dtype types[] = {BSTK_BOOL, BSTK_F32, BSTK_U8, BSTK_F16, BSTK_BF16, BSTK_F64, BSTK_I64};
    const bstk_dtype dtype = types[choices_pick(c, 7)];
    *mode = dtype == BSTK_I64 ? BSTK_MASK_MUL : (bstk_mask_mode)choices_pick(c, 3);
    if (!add_term(w, c, which, dtype, ndim, shape, broadcast))
        return false;
    fill_mask(c, &w->array[which].t, *mode == BSTK_MASK_MUL || !gen_is_float(dtype));
    return true;
}

/* rpe, rel_logits and the masks. */
static bool add_matrices(workload *w, choices *c) {
    const problem *p = &w->p;
    bstk_score_terms *t = &w->terms;
    const int64_t all[4] = {p->z, w->heads, p->m, p->n};
    const bool room = workload_few_scores(p), exact = c->values == WORKLOAD_INTEGERS;
    bool ok = true;
    if (!exact && room && choices_pick(c, 3) == 1) {
        int64_t shape[4] = {all[0], all[1], all[2], all[3]};
        const int ndim = 4 - (int)choices_pick(c, 3);
        ok = add_term(w, c, WORKLOAD_RPE, choices_float(c), ndim, &shape[4 - ndim], ndim - 1);
        t->rpe = &w->array[WORKLOAD_RPE].t;
        workload_say(w, ", rpe");
    }
    if (ok && !exact && room && choices_pick(c, 3) == 1) {
        const int64_t extents[] = {1, p->m, p->m + p->n - 1, p->n / 2 + 1};
        int64_t shape[4] = {all[0], all[1], all[2], extents[choices_pick(c, 4)]};
        if (shape[3] < 1)
            shape[3] = 1;
        const int ndim = 4 - (int)choices_pick(c, 3);
        ok = add_term(w, c, WORKLOAD_REL, choices_float(c), ndim, &shape[4 - ndim], ndim - 1);
        t->rel_logits = &w->array[WORKLOAD_REL].t;
        workload_say(w, ", rel_logits");
    }
    if (ok && choices_pick(c, 3) == 1) {
        int64_t shape[2] = {p->z, p->n};
        const int ndim = 2 - (int)choices_pick(c, 2);
        ok = add_mask(w, c, WORKLOAD_KEY_PADDING, ndim, &shape[2 - ndim], ndim - 1, &t->key_padding_mode);
        t->key_padding_mask = &w->array[WORKLOAD_KEY_PADDING].t;
        workload_say(w, ", key padding %s mode %d", bstk_dtype_name(t->key_padding_mask->dtype),
                     (int)t->key_padding_mode);
    }
    if (ok && room && choices_pick(c, 3) == 1) {
        int64_t shape[4] = {all[0], all[1], all[2], all[3]};
        const int ndim = 4 - (int)choices_pick(c, 3);
        if (ndim == 3) /* [Z, M, N] */
            shape[1] = p->z;
        ok = add_mask(w, c, WORKLOAD_ATTN_MASK, ndim, &shape[4 - ndim], ndim - 1, &t->attn_mode);
        t->attn_mask = &w->array[WORKLOAD_ATTN_MASK].t;
        workload_say(w, ", mask %s mode %d", bstk_dtype_name(t->attn_mask->dtype), (int)t->attn_mode);
    }
    return ok;
}

/* Documents of tokens, in runs: 0 0 0 1 1 0 ... */
static bool add_documents(workload *w, choices *c, int which, int64_t size, bstk_dtype dtype) {
    const int64_t shape[2] = {choices_pick(c, 2) == 1 ? 1 : w->p.z, size};
    const int one = (int)choices_pick(c, 2);
    if (!workload_array(w, c, which, dtype, 2 - one, shape + one))
        return false;
    const bstk_tensor *t = &w->array[which].t;
    const uint64_t seed = choices_seed(c);
    for (int64_t e = 0; e < gen_count(t); ++e)
        gen_store(dtype, t->data, gen_offset(t, e), (double)(gen_hash(seed, (uint64_t)(e / 7)) % 2));
    return true;
}

/* [S + 1] from 0 to `size`; sequences of no token too. */
static bool add_sequences(workload *w, choices *c, int which, int64_t size, int64_t sequences, bstk_dtype dtype) {
    const int64_t shape[1] = {sequences + 1};
    if (!workload_array(w, c, which, dtype, 1, shape))
        return false;
    const bstk_tensor *t = &w->array[which].t;
    const uint64_t seed = choices_seed(c);
    for (int64_t e = 0, at = 0; e <= sequences; ++e) {
        gen_store(dtype, t->data, gen_offset(t, e), (double)(e == sequences ? size : at));
        at += (int64_t)(gen_hash(seed, (uint64_t)e) % (uint64_t)(size - at + 1));
    }
    return true;
}

/* What counts by the places: causal, windows, documents, sequences, slopes. */
static bool add_places(workload *w, choices *c) {
    const problem *p = &w->p;
    bstk_score_terms *t = &w->terms;
    const bstk_dtype integer = choices_pick(c, 2) == 1 ? BSTK_I64 : BSTK_I32;
    bool ok = true;
    t->causal = p->causal;
    if (p->causal) {
        const int64_t offsets[] = {0, p->n - p->m, 3, -2};
        t->causal_offset = offsets[choices_pick(c, 4)];
    }
    t->bottom_right = choices_pick(c, 4) == 1;
    if (choices_pick(c, 4) == 1)
        t->window_left = choices_pick(c, p->n + 1);
    if (choices_pick(c, 4) == 1)
        t->window_right = choices_pick(c, p->n + 1);
    if (t->bottom_right || t->window_left >= 0 || t->window_right >= 0)
        workload_say(w, ", bottom right %d, window %d to %d", (int)t->bottom_right, (int)t->window_left,
                     (int)t->window_right);
    if (choices_pick(c, 5) == 1) {
        ok = add_documents(w, c, WORKLOAD_Q_DOCUMENTS, p->m, integer) &&
             add_documents(w, c, WORKLOAD_K_DOCUMENTS, p->n, integer);
        t->q_documents = &w->array[WORKLOAD_Q_DOCUMENTS].t;
        t->k_documents = &w->array[WORKLOAD_K_DOCUMENTS].t;
        workload_say(w, ", documents");
    }
    if (ok && choices_pick(c, 5) == 1) {
        const int64_t sequences = 1 + choices_pick(c, 3);
        ok = add_sequences(w, c, WORKLOAD_CU_Q, p->m, sequences, integer) &&
             add_sequences(w, c, WORKLOAD_CU_K, p->n, sequences, integer);
        t->cu_seqlens_q = &w->array[WORKLOAD_CU_Q].t;
        t->cu_seqlens_k = &w->array[WORKLOAD_CU_K].t;
        workload_say(w, ", %d sequences", (int)sequences);
    }
    if (ok && c->values != WORKLOAD_INTEGERS && choices_pick(c, 4) == 1) {
        int64_t shape[2] = {p->z, w->heads};
        const int ndim = 2 - (int)choices_pick(c, 2);
        ok = add_term(w, c, WORKLOAD_SLOPES, choices_float(c), ndim, &shape[2 - ndim], ndim);
        t->alibi_slopes = &w->array[WORKLOAD_SLOPES].t;
        workload_say(w, ", slopes");
    }
    return ok;
}

static bool make_terms(workload *w, choices *c) {
    static const double scales[] = {0, 0.7, -1.3, 0.125}, exact_scales[] = {0, 2, -0.5, 1};
    static const double dropouts[] = {0.5, 0.25, 0.9, 1};
    const bool exact = c->values == WORKLOAD_INTEGERS;
    bstk_score_terms *t = &w->terms;
    *t = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    const int64_t scale = choices_pick(c, 4);
    if (scale > 0)
        t->scale = exact ? exact_scales[scale] : scales[scale];
    bool ok = add_places(w, c) && add_matrices(w, c);
    if (ok && choices_pick(c, 4) == 1) {
        ok = workload_array(w, c, WORKLOAD_SINKS, choices_float(c), 1, &w->heads);
        if (ok && exact)
            gen_fill(&w->array[WORKLOAD_SINKS].t, GEN_ZEROS, 0);
        t->sinks = &w->array[WORKLOAD_SINKS].t;
        workload_say(w, ", sinks");
    }
    if (!exact && choices_pick(c, 4) == 1) {
        t->softcap = 0.75;
        workload_say(w, ", softcap %g", t->softcap);
    }
    if (choices_pick(c, 4) == 1) {
        t->dropout = dropouts[exact ? 0 : choices_pick(c, 4)];
        t->dropout_seed = choices_seed(c);
        t->dropout_offset = choices_seed(c);
        workload_say(w, ", dropout %g", t->dropout);
    }
    return ok;
}

/* The gradients of some of the terms that are there. */
static bool add_term_grads(workload *w, choices *c) {
    static const struct {
        int term, grad;
    } pairs[] = {{WORKLOAD_RPE, WORKLOAD_D_RPE},
                 {WORKLOAD_REL, WORKLOAD_D_REL},
                 {WORKLOAD_KEY_PADDING, WORKLOAD_D_KEY_PADDING},
                 {WORKLOAD_ATTN_MASK, WORKLOAD_D_ATTN},
                 {WORKLOAD_SINKS, WORKLOAD_D_SINKS}};
    bool ok = true;
    for (int i = 0; i < 5; ++i) {
        const gen_array *term = &w->array[pairs[i].term];
        const bstk_mask_mode mode = pairs[i].term == WORKLOAD_KEY_PADDING ? w->terms.key_padding_mode
                                    : pairs[i].term == WORKLOAD_ATTN_MASK ? w->terms.attn_mode
                                                                          : BSTK_MASK_AUTO;
        if (term->memory == NULL || !gen_is_float(term->t.dtype) || mode == BSTK_MASK_MUL || choices_pick(c, 4) == 3)
            continue;
        ok = ok && workload_like(w, c, pairs[i].grad, pairs[i].term, choices_float(c));
    }
    return ok;
}

static bool some_term_grad(const workload *w) {
    for (int which = WORKLOAD_D_RPE; which <= WORKLOAD_D_SINKS; ++which) {
        if (w->array[which].memory != NULL)
            return true;
    }
    return false;
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static bool forward_of_softmax(workload *w) {
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = w->layout;
    desc.x = &w->array[WORKLOAD_A].t;
    desc.y = &w->array[WORKLOAD_SAVED].t;
    desc.lse = &w->array[WORKLOAD_SAVED_ROWS].t;
    desc.terms = w->terms;
    desc.terms.dropout = 0; /* the gradient takes y as it was before */
    bstk_context *ctx = workload_context();
    const bool ok = ctx != NULL && bstk_softmax(ctx, &desc) == BSTK_OK;
    bstk_context_release(ctx);
    return ok;
}

/* Where y is 0, neither d_y nor x may be looked at: NaN there, unless an element serves other places too. */
static void spoil_dropped(const workload *w) {
    const bstk_tensor *y = &w->array[WORKLOAD_SAVED].t;
    for (int i = 0; i < 2; ++i) {
        const bstk_tensor *t = &w->array[i == 0 ? WORKLOAD_D_OUT : WORKLOAD_A].t;
        for (int64_t e = 0; workload_is_plain(t) && e < gen_count(t); ++e) {
            if (gen_load(y->dtype, y->data, gen_offset(y, e)) == 0)
                gen_store(t->dtype, t->data, gen_offset(t, e), NAN);
        }
    }
}

static bool make_softmax_grad(workload *w, choices *c) {
    bool ok = make_terms(w, c) && add_term_grads(w, c);
    const bool with_x = !some_term_grad(w) || choices_pick(c, 5) != 4;
    if (with_x && choices_pick(c, 3) == 1) {
        w->out = WORKLOAD_D_OUT;
        workload_say(w, ", in place");
    }
    /* y is an output of the forward first: no two places may share an element. */
    const int out = w->out;
    w->out = WORKLOAD_SAVED;
    ok = ok && workload_packed(w, c, WORKLOAD_SAVED, w->p.dtype, w->p.z, workload_blocks(w));
    w->out = WORKLOAD_SAVED_ROWS;
    ok = ok && workload_rows(w, c, WORKLOAD_SAVED_ROWS);
    w->out = out;
    ok = ok && workload_packed(w, c, WORKLOAD_D_OUT, w->p.dtype, w->p.z, workload_blocks(w));
    if (choices_pick(c, 3) == 1 || workload_headless(w))
        ok = ok && workload_rows(w, c, WORKLOAD_D_LSE);
    if (with_x && w->out != WORKLOAD_D_OUT)
        ok = ok && workload_like(w, c, WORKLOAD_D_A, WORKLOAD_A, w->p.dtype);
    if (!ok)
        return false;
    if (c->values == WORKLOAD_INTEGERS) { /* any y will do that is 0 where an element mask drops */
        const bstk_tensor *y = &w->array[WORKLOAD_SAVED].t;
        gen_fill(&w->array[WORKLOAD_SAVED_ROWS].t, GEN_ZEROS, 0);
        for (int64_t e = 0; e < gen_count(y); ++e) {
            if (isnan(gen_load(y->dtype, y->data, gen_offset(y, e))))
                gen_store(y->dtype, y->data, gen_offset(y, e), 0);
        }
    } else if (!forward_of_softmax(w))
        return false;
    spoil_dropped(w);
    workload_spoil(w->layout, &w->array[WORKLOAD_SAVED].t, false);
    return true;
}

bool workload_make_softmax(workload *w, choices *c) {
    const problem *p = &w->p;
    if (!p->backward && choices_pick(c, 3) == 1)
        w->out = WORKLOAD_A;
    bool ok = workload_packed(w, c, WORKLOAD_A, p->dtype, p->z, workload_blocks(w));
    if (p->backward)
        return ok && make_softmax_grad(w, c);
    if (ok && c->values == WORKLOAD_INTEGERS)
        gen_fill(&w->array[WORKLOAD_A].t, GEN_ZEROS, 0);
    if (w->out == WORKLOAD_OUT)
        ok = ok && workload_like(w, c, WORKLOAD_OUT, WORKLOAD_A, p->dtype);
    else
        workload_say(w, ", in place");
    if (choices_pick(c, 4) == 1)
        ok = ok && workload_like(w, c, WORKLOAD_MEAN, WORKLOAD_A, p->dtype);
    if (choices_pick(c, 3) != 2 || workload_headless(w))
        ok = ok && workload_rows(w, c, WORKLOAD_LSE);
    return ok && make_terms(w, c);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/*
 * NaN in a few queries; every fourth key is dropped by a mask and its k and v are NaN and infinite; some of the other
 * values are NaN, which must reach the queries that keep them and only those.
 */
static bool spoil_attention(workload *w, choices *c) {
    const int64_t shape[1] = {w->p.n};
    gen_array_free(&w->array[WORKLOAD_KEY_PADDING]);
    if (!gen_array_make(&w->array[WORKLOAD_KEY_PADDING], BSTK_BOOL, 1, shape, GEN_CONTIGUOUS, 0))
        return false;
    w->terms.key_padding_mask = &w->array[WORKLOAD_KEY_PADDING].t;
    w->terms.key_padding_mode = BSTK_MASK_AUTO;
    for (int64_t j = 0; j < w->p.n; ++j)
        gen_store(BSTK_BOOL, w->array[WORKLOAD_KEY_PADDING].t.data, j, j % 4 != 1);
    const uint64_t seed = choices_seed(c);
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
    workload_say(w, ", NaN in dropped keys and values");
    return true;
}

/* Rows that keep nothing: q and d_o are not looked at. */
static void spoil_empty_rows(const workload *w) {
    const bstk_tensor *lse = &w->array[WORKLOAD_SAVED_ROWS].t;
    for (int i = 0; i < 2; ++i) {
        const bstk_tensor *t = &w->array[i == 0 ? WORKLOAD_D_OUT : WORKLOAD_A].t;
        const int64_t width = t->shape[t->ndim - 1];
        for (int64_t e = 0; workload_is_plain(t) && e < gen_count(t); ++e) {
            if (gen_load(lse->dtype, lse->data, gen_offset(lse, e / width)) == -INFINITY)
                gen_store(t->dtype, t->data, gen_offset(t, e), NAN);
        }
    }
}

static bool forward_of_attention(workload *w) {
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = w->layout;
    desc.q = &w->array[WORKLOAD_A].t;
    desc.k = &w->array[WORKLOAD_B].t;
    desc.v = &w->array[WORKLOAD_V].t;
    desc.o = &w->array[WORKLOAD_SAVED].t;
    desc.lse = &w->array[WORKLOAD_SAVED_ROWS].t;
    desc.terms = w->terms;
    bstk_context *ctx = workload_context();
    const bool ok = ctx != NULL && bstk_attention(ctx, &desc) == BSTK_OK;
    bstk_context_release(ctx);
    return ok;
}

static bool make_attention_grad(workload *w, choices *c, int64_t width) {
    const problem *p = &w->p;
    bool ok = make_terms(w, c) && (c->values != WORKLOAD_SPECIAL || spoil_attention(w, c)) && add_term_grads(w, c);
    /* all, d_q, d_k and d_v, d_v, d_q and d_k, none but terms */
    const int64_t wanted = choices_pick(c, some_term_grad(w) ? 6 : 5);
    w->out = WORKLOAD_SAVED; /* outputs of the forward first: no two places may share an element */
    ok = ok && workload_dense(w, c, WORKLOAD_SAVED, p->dtype, p->z, w->heads, p->m, width);
    w->out = WORKLOAD_SAVED_ROWS;
    ok = ok && workload_rows(w, c, WORKLOAD_SAVED_ROWS);
    w->out = WORKLOAD_D_A;
    ok = ok && workload_dense(w, c, WORKLOAD_D_OUT, p->dtype, p->z, w->heads, p->m, width);
    if (choices_pick(c, 3) == 1)
        ok = ok && workload_rows(w, c, WORKLOAD_D_LSE);
    if (wanted == 0 || wanted == 1 || wanted == 4)
        ok = ok && workload_like(w, c, WORKLOAD_D_A, WORKLOAD_A, p->dtype);
    if (wanted == 0 || wanted == 2 || wanted == 4)
        ok = ok && workload_like(w, c, WORKLOAD_D_B, WORKLOAD_B, p->dtype);
    if (wanted == 0 || wanted == 2 || wanted == 3)
        ok = ok && workload_like(w, c, WORKLOAD_D_V, WORKLOAD_V, p->dtype);
    ok = ok && forward_of_attention(w);
    if (ok)
        spoil_empty_rows(w);
    return ok;
}

bool workload_make_attention(workload *w, choices *c) {
    const problem *p = &w->p;
    const int64_t h = w->heads, widths[] = {p->k, 1, p->k < 128 ? 2 * p->k : 256, 17};
    int64_t hkv = choices_pick(c, 2) == 1 ? 1 : h;
    if (hkv == h && h % 2 == 0 && choices_pick(c, 2) == 1)
        hkv = h / 2;
    const int64_t zkv = choices_pick(c, 3) == 1 ? 1 : p->z, width = widths[choices_pick(c, 4)];
    bool ok = workload_dense(w, c, WORKLOAD_A, p->dtype, p->z, h, p->m, p->k) &&
              workload_dense(w, c, WORKLOAD_B, p->dtype, zkv, hkv, p->n, p->k) &&
              workload_dense(w, c, WORKLOAD_V, p->dtype, zkv, hkv, p->n, width);
    workload_say(w, ", k and v %dx%d (batches x heads), v %d wide", (int)zkv, (int)hkv, (int)width);
    if (p->backward)
        return ok && make_attention_grad(w, c, width);
    ok = ok && workload_dense(w, c, WORKLOAD_OUT, p->dtype, p->z, h, p->m, width);
    if (ok && c->values == WORKLOAD_INTEGERS)
        gen_fill(&w->array[WORKLOAD_A].t, GEN_ZEROS, 0);
    if (choices_pick(c, 3) != 2)
        ok = ok && workload_rows(w, c, WORKLOAD_LSE);
    return ok && make_terms(w, c) && (c->values != WORKLOAD_SPECIAL || spoil_attention(w, c));
}
