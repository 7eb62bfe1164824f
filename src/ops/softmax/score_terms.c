/* score_terms.c: checks of the terms of a score, for the plans and runs of softmax and attention. */
#include "ops/softmax/score_terms.h"

#include "core/checked.h"
#include "core/error.h"

enum { RPE, REL, KEY_PADDING, ATTN, SLOPES, SINKS, Q_DOCUMENTS, K_DOCUMENTS, CU_Q, CU_K, TERMS };

static const char *const names[TERMS] = {"rpe",   "rel_logits",  "key_padding_mask", "attn_mask",    "alibi_slopes",
                                         "sinks", "q_documents", "k_documents",      "cu_seqlens_q", "cu_seqlens_k"};

/* What each term may look like: for messages. */
static const char *const shapes[TERMS] = {
    "[M, N], [H, M, N], [Z, H, M, N], where Z, H and M may be 1",
    "[M, E], [H, M, E], [Z, H, M, E], where Z, H and M may be 1",
    "[N], [Z, N], [1, N]",
    "[M, N], [Z, M, N], [Z, H, M, N], where Z, H and M may be 1",
    "[H], [Z, H], where Z and H may be 1",
    "[H]",
    "[M], [Z, M], [1, M]",
    "[N], [Z, N], [1, N]",
    "[S + 1]",
    "[S + 1]",
};

static const bstk_tensor *tensor_of(const bstk_score_terms *t, int i) {
    const bstk_tensor *const all[TERMS] = {t->rpe,          t->rel_logits,  t->key_padding_mask, t->attn_mask,
                                           t->alibi_slopes, t->sinks,       t->q_documents,      t->k_documents,
                                           t->cu_seqlens_q, t->cu_seqlens_k};
    return all[i];
}

static bstk__term *term_of(bstk__terms *t, int i) {
    bstk__term *const all[TERMS] = {&t->rpe,   &t->rel,         &t->key_padding, &t->attn,         &t->slopes,
                                    &t->sinks, &t->q_documents, &t->k_documents, &t->cu_seqlens_q, &t->cu_seqlens_k};
    return all[i];
}

/* Which values a mask may have, and whether nonzero keeps. */
static bstk_status read_mode(const char *who, const char *name, bstk_dtype dtype, bstk_mask_mode mode, int32_t *keeps) {
    if (mode != BSTK_MASK_AUTO && mode != BSTK_MASK_ADD && mode != BSTK_MASK_MUL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: mode of %s is %d, expected auto, add or mul", who, name, (int)mode);
    const bool boolean = dtype == BSTK_BOOL || dtype == BSTK_U8;
    *keeps = boolean || mode == BSTK_MASK_MUL;
    if (!*keeps && !bstk__is_float(dtype))
        return bstk__fail(BSTK_ERR_TYPE,
                          "%s: %s is %s, which only mode mul takes; expected bool, uint8 or a floating "
                          "type",
                          who, name, bstk_dtype_name(dtype));
    return BSTK_OK;
}

static bstk_status check_integer(const char *who, const char *name, bstk_dtype dtype) {
    if (dtype == BSTK_I32 || dtype == BSTK_I64)
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_TYPE, "%s: %s is %s, expected int32 or int64", who, name, bstk_dtype_name(dtype));
}

/* `name` is that of a term or of its gradient. */
static bstk_status check_axis(const char *who, const char *name, int i, const char *axis, int64_t got, int64_t need,
                              bool broadcast) {
    if (got == need || (broadcast && got == 1))
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %s %lld, expected %lld; accepted shapes: %s", who, name, axis,
                      (long long)got, (long long)need, shapes[i]);
}

/* rpe, rel_logits and attn_mask: [Z|1, H|1, M|1, N or E]. */
static bstk_status view_matrix(const char *who, const char *name, int i, const bstk_tensor *t, const int64_t need[4],
                               bstk__view *v) {
    BSTK_TRY(bstk__view_make(who, name, t, 2, 4, v));
    if (i == ATTN && t->ndim == 3) { /* [Z, M, N]; of the others [H, M, N] */
        v->shape[0] = v->shape[1];
        v->stride[0] = v->stride[1];
        v->shape[1] = 1;
        v->stride[1] = 0;
    }
    BSTK_TRY(check_axis(who, name, i, "batch size", v->shape[0], need[0], true));
    BSTK_TRY(check_axis(who, name, i, "heads", v->shape[1], need[1], true));
    BSTK_TRY(check_axis(who, name, i, "rows", v->shape[2], need[2], true));
    return i == REL ? BSTK_OK /* any extent */
                    : check_axis(who, name, i, "columns", v->shape[3], need[3], false);
}

static bstk_status plan_matrix(const char *who, int i, const bstk_tensor *t, const int64_t need[4], bstk__term *term) {
    bstk__view v;
    BSTK_TRY(view_matrix(who, names[i], i, t, need, &v));
    if (i != ATTN)
        BSTK_TRY(bstk__check_float(who, names[i], t->dtype));
    *term = (bstk__term){.dtype = t->dtype, .z = v.stride[0], .h = v.stride[1], .row = v.stride[2], .col = v.stride[3]};
    return BSTK_OK;
}

/* The others: [Z|1, size] or [size]; `along` names the last axis. */
static bstk_status plan_vector(const char *who, int i, const bstk_tensor *t, const char *along, int64_t batches,
                               int64_t size, bool broadcast, bstk__term *term) {
    bstk__view v;
    BSTK_TRY(bstk__view_make(who, names[i], t, 1, i == SINKS || i >= CU_Q ? 1 : 2, &v));
    BSTK_TRY(check_axis(who, names[i], i, "batch size", v.shape[2], batches, true));
    BSTK_TRY(check_axis(who, names[i], i, along, v.shape[3], size, broadcast));
    if (i == SLOPES || i == SINKS)
        BSTK_TRY(bstk__check_float(who, names[i], t->dtype));
    if (i >= Q_DOCUMENTS)
        BSTK_TRY(check_integer(who, names[i], t->dtype));
    const bool by_head = i == SLOPES || i == SINKS;
    *term = (bstk__term){
        .dtype = t->dtype, .z = v.stride[2], .h = by_head ? v.stride[3] : 0, .col = by_head ? 0 : v.stride[3]};
    return BSTK_OK;
}

bstk_status bstk__term_grad_view(const char *who, bstk__term_grad kind, const bstk_tensor *t, int64_t batches,
                                 int64_t heads, int64_t m, int64_t n, bstk__view *view) {
    static const char *const grads[] = {"d_rpe", "d_rel_logits", "d_key_padding_mask", "d_attn_mask", "d_sinks"};
    static const int terms[] = {RPE, REL, KEY_PADDING, ATTN, SINKS};
    const int64_t need[4] = {batches, heads, m, n};
    const char *name = grads[kind];
    const int i = terms[kind];
    bstk__view v;
    if (i == KEY_PADDING || i == SINKS) {
        BSTK_TRY(bstk__view_make(who, name, t, 1, i == SINKS ? 1 : 2, &v));
        BSTK_TRY(check_axis(who, name, i, "batch size", v.shape[2], batches, true));
        BSTK_TRY(check_axis(who, name, i, i == SINKS ? "heads" : "columns", v.shape[3], i == SINKS ? heads : n, false));
        v.shape[0] = v.shape[2];
        v.stride[0] = v.stride[2];
        v.shape[2] = 1;
        v.stride[2] = 0;
    } else
        BSTK_TRY(view_matrix(who, name, i, t, need, &v));
    BSTK_TRY(bstk__check_float(who, name, t->dtype));
    BSTK_TRY(bstk__check_output(who, name, t));
    *view = v;
    return BSTK_OK;
}

static bstk_status check_numbers(const char *who, const bstk_score_terms *given) {
    if (given == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: terms is NULL", who);
    if (given->struct_size != sizeof *given)
        return bstk__fail(BSTK_ERR_INVALID, "%s: terms.struct_size is %zu, expected %zu (BSTK_SCORE_TERMS_INIT)", who,
                          given->struct_size, sizeof *given);
    if (given->softcap != 0 && !(given->softcap >= 1e-30 && given->softcap <= 1e30)) /* both ends fit f32 */
        return bstk__fail(BSTK_ERR_INVALID, "%s: softcap is %g, expected 0 (none) or 1e-30 to 1e30", who,
                          given->softcap);
    if (!(given->dropout >= 0 && given->dropout <= 1))
        return bstk__fail(BSTK_ERR_INVALID, "%s: dropout is %g, expected 0 to 1", who, given->dropout);
    if (given->window_left < -1 || given->window_right < -1)
        return bstk__fail(BSTK_ERR_INVALID, "%s: window_%s is %lld, expected 0 or more, or -1 for no limit", who,
                          given->window_left < -1 ? "left" : "right",
                          (long long)(given->window_left < -1 ? given->window_left : given->window_right));
    if ((given->q_documents == NULL) != (given->k_documents == NULL))
        return bstk__fail(BSTK_ERR_INVALID, "%s: q_documents and k_documents must be given together, or neither", who);
    if ((given->cu_seqlens_q == NULL) != (given->cu_seqlens_k == NULL))
        return bstk__fail(BSTK_ERR_INVALID, "%s: cu_seqlens_q and cu_seqlens_k must be given together, or neither",
                          who);
    return BSTK_OK;
}

static bstk_status plan_tensors(const char *who, const bstk_score_terms *given, int64_t batches, bstk__terms *terms) {
    const int64_t need[4] = {batches, terms->heads, terms->m, terms->n};
    const bstk_tensor *cu_q = given->cu_seqlens_q;
    if (cu_q && (cu_q->ndim != 1 || cu_q->shape[0] < 1))
        return bstk__fail(BSTK_ERR_INVALID, "%s: cu_seqlens_q has %d axes, expected one, of S + 1 elements", who,
                          (int)cu_q->ndim);
    const int64_t entries = cu_q ? cu_q->shape[0] : 0;
    terms->sequences = entries - 1;
    for (int i = 0; i < TERMS; i++) {
        const bstk_tensor *t = tensor_of(given, i);
        bstk__term *term = term_of(terms, i);
        if (t == NULL)
            continue;
        if (i == RPE || i == REL || i == ATTN)
            BSTK_TRY(plan_matrix(who, i, t, need, term));
        else if (i == SLOPES || i == SINKS)
            BSTK_TRY(plan_vector(who, i, t, "heads", i == SINKS ? 1 : batches, terms->heads, i == SLOPES, term));
        else if (i >= CU_Q)
            BSTK_TRY(plan_vector(who, i, t, "elements", 1, entries, false, term));
        else
            BSTK_TRY(plan_vector(who, i, t, i == Q_DOCUMENTS ? "rows" : "columns", batches,
                                 i == Q_DOCUMENTS ? terms->m : terms->n, false, term));
    }
    if (given->rel_logits)
        /* Memory of more than 2^61 columns can only be one element repeated: which column is read is then no matter. */
        terms->rel_extent = bstk__min(INT64_C(1) << 61, given->rel_logits->shape[given->rel_logits->ndim - 1]);
    if (given->key_padding_mask)
        BSTK_TRY(read_mode(who, names[KEY_PADDING], given->key_padding_mask->dtype, given->key_padding_mode,
                           &terms->key_padding.keeps));
    return given->attn_mask ? read_mode(who, names[ATTN], given->attn_mask->dtype, given->attn_mode, &terms->attn.keeps)
                            : BSTK_OK;
}

bstk_status bstk__terms_plan(const char *who, const bstk_score_terms *given, int64_t batches, int64_t heads, int64_t m,
                             int64_t n, bstk__terms *terms, bstk__terms_spec *spec) {
    BSTK_TRY(check_numbers(who, given));
    *terms = (bstk__terms){.m = m,
                           .n = n,
                           .heads = heads,
                           .causal = given->causal != 0,
                           .bottom_right = given->bottom_right != 0,
                           .causal_offset = given->causal_offset,
                           .window_left = given->window_left,
                           .window_right = given->window_right};
    *spec = (bstk__terms_spec){.causal = terms->causal,
                               .bottom_right = terms->bottom_right,
                               .causal_offset = given->causal_offset,
                               .window_left = given->window_left,
                               .window_right = given->window_right,
                               .has_softcap = given->softcap > 0,
                               .has_dropout = given->dropout > 0};
    for (int i = 0; i < TERMS; i++) {
        const bstk_tensor *t = tensor_of(given, i);
        spec->tensors[i].ndim = -1;
        if (t)
            spec->tensors[i] = *t;
    }
    return plan_tensors(who, given, batches, terms);
}

/* The sequences must cover all rows and all columns, in order. */
static bstk_status check_sequences(const char *who, int i, const bstk__term *cu, int64_t sequences, int64_t size) {
    int64_t before = 0;
    for (int64_t s = 0; s <= sequences; s++) {
        const int64_t value = bstk__term_integer(cu, s * cu->col);
        if (value < before || (s == 0 && value != 0) || value > size)
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s[%lld] is %lld, expected %s", who, names[i], (long long)s,
                              (long long)value, s == 0 ? "0" : "values that rise to the number of tokens");
        before = value;
    }
    if (before != size)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s ends with %lld, expected %lld, the number of tokens", who, names[i],
                          (long long)before, (long long)size);
    return BSTK_OK;
}

bstk_status bstk__terms_run(const char *who, const bstk__terms_spec *spec, const bstk_score_terms *given,
                            double default_scale, bstk__terms *terms) {
    BSTK_TRY(check_numbers(who, given));
    if ((given->causal != 0) != spec->causal || given->causal_offset != spec->causal_offset ||
        (given->bottom_right != 0) != spec->bottom_right || given->window_left != spec->window_left ||
        given->window_right != spec->window_right)
        return bstk__fail(
            BSTK_ERR_MISMATCH,
            "%s: causal %d, causal_offset %lld, bottom_right %d, window %lld to %lld are not those of the plan", who,
            (int)given->causal, (long long)given->causal_offset, (int)given->bottom_right,
            (long long)given->window_left, (long long)given->window_right);
    if ((given->softcap > 0) != spec->has_softcap || (given->dropout > 0 && !spec->has_dropout))
        return bstk__fail(BSTK_ERR_MISMATCH, "%s: softcap is %g and dropout %g, but the plan was made %s", who,
                          given->softcap, given->dropout,
                          (given->softcap > 0) != spec->has_softcap
                              ? (spec->has_softcap ? "with a softcap" : "without a softcap")
                              : "without dropout");
    terms->scale = given->scale != given->scale ? default_scale : given->scale; /* NaN: BSTK_SCALE_DEFAULT */
    terms->softcap = given->softcap;
    terms->dropout = given->dropout;
    terms->dropout_seed = given->dropout_seed;
    terms->dropout_offset = given->dropout_offset;
    for (int i = 0; i < TERMS; i++) {
        const bstk_tensor *t = tensor_of(given, i);
        if ((spec->tensors[i].ndim < 0) != (t == NULL))
            return bstk__fail(BSTK_ERR_MISMATCH, "%s: %s is %s, but the plan was made %s it", who, names[i],
                              t ? "given" : "NULL", t ? "without" : "with");
        if (t == NULL)
            continue;
        BSTK_TRY(bstk__check_same(who, names[i], &spec->tensors[i], t));
        term_of(terms, i)->data = t->data;
    }
    if (given->cu_seqlens_q == NULL)
        return BSTK_OK;
    BSTK_TRY(check_sequences(who, CU_Q, &terms->cu_seqlens_q, terms->sequences, terms->m));
    return check_sequences(who, CU_K, &terms->cu_seqlens_k, terms->sequences, terms->n);
}

bstk_status bstk__terms_check_overlap(const char *who, const char *name, const bstk_tensor *out,
                                      const bstk_score_terms *given) {
    for (int i = 0; i < TERMS; i++)
        if (tensor_of(given, i) && bstk__overlap(out, tensor_of(given, i)))
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s overlaps %s", who, name, names[i]);
    return BSTK_OK;
}

int64_t bstk__terms_heads(const bstk_score_terms *given) {
    int64_t heads = 1;
    for (int i = 0; i <= SINKS; i++) {
        const bstk_tensor *t = tensor_of(given, i);
        if (t == NULL || i == KEY_PADDING || t->ndim < 1 || t->ndim > BSTK_MAX_NDIM)
            continue;
        const int32_t axis = i == SLOPES || i == SINKS ? t->ndim - 1 : t->ndim - 3;
        if (axis >= 0 && !(i == ATTN && t->ndim == 3))
            heads = bstk__max(heads, t->shape[axis]);
    }
    return heads;
}
