/* score_terms.c: checks of the terms of a score, for the plans and runs of softmax and attention. */
#include "ops/softmax/score_terms.h"

#include "core/checked.h"
#include "core/error.h"

/* Which values a term may have, and whether nonzero keeps. */
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

static bstk_status check_axis(const char *who, const char *name, const char *axis, int64_t got, int64_t need,
                              bool broadcast, const char *accepted) {
    if (got == need || (broadcast && got == 1))
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %s %lld, expected %lld; accepted shapes: %s", who, name, axis,
                      (long long)got, (long long)need, accepted);
}

/* Reads one optional term [Z|1, H|1, rows|1, cols]; `three_is_batch`: its 3-axis form is [Z, rows, cols]. */
static bstk_status plan_term(const char *who, const char *name, const bstk_tensor *t, const char *accepted,
                             const int64_t need[4], bool three_is_batch, bstk__term *term, bstk_tensor *spec) {
    *term = (bstk__term){.data = NULL};
    spec->ndim = -1;
    if (t == NULL)
        return BSTK_OK;
    bstk__view v;
    BSTK_TRY(bstk__view_make(who, name, t, 2, 4, &v));
    if (three_is_batch && t->ndim == 3) {
        v.shape[0] = v.shape[1];
        v.stride[0] = v.stride[1];
        v.shape[1] = 1;
        v.stride[1] = 0;
    }
    BSTK_TRY(check_axis(who, name, "batch size", v.shape[0], need[0], true, accepted));
    BSTK_TRY(check_axis(who, name, "heads", v.shape[1], need[1], true, accepted));
    BSTK_TRY(check_axis(who, name, "rows", v.shape[2], need[2], true, accepted));
    if (need[3] >= 0) /* rel_logits: any extent */
        BSTK_TRY(check_axis(who, name, "columns", v.shape[3], need[3], false, accepted));
    *spec = *t;
    *term = (bstk__term){.dtype = t->dtype, .z = v.stride[0], .h = v.stride[1], .row = v.stride[2], .col = v.stride[3]};
    return BSTK_OK;
}

static bstk_status plan_key_padding(const char *who, const bstk_score_terms *given, int64_t batches, int64_t n,
                                    bstk__terms *terms, bstk_tensor *spec) {
    static const char name[] = "key_padding_mask", accepted[] = "[N], [Z, N], [1, N]";
    const bstk_tensor *t = given->key_padding_mask;
    terms->key_padding = (bstk__term){.data = NULL};
    spec->ndim = -1;
    if (t == NULL)
        return BSTK_OK;
    bstk__view v;
    BSTK_TRY(bstk__view_make(who, name, t, 1, 2, &v));
    BSTK_TRY(check_axis(who, name, "batch size", v.shape[2], batches, true, accepted));
    BSTK_TRY(check_axis(who, name, "columns", v.shape[3], n, false, accepted));
    *spec = *t;
    terms->key_padding = (bstk__term){.dtype = t->dtype, .z = v.stride[2], .col = v.stride[3]};
    return read_mode(who, name, t->dtype, given->key_padding_mode, &terms->key_padding.keeps);
}

static bstk_status check_given(const char *who, const bstk_score_terms *given) {
    if (given == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: terms is NULL", who);
    if (given->struct_size != sizeof *given)
        return bstk__fail(BSTK_ERR_INVALID, "%s: terms.struct_size is %zu, expected %zu (BSTK_SCORE_TERMS_INIT)", who,
                          given->struct_size, sizeof *given);
    return BSTK_OK;
}

bstk_status bstk__terms_plan(const char *who, const bstk_score_terms *given, int64_t batches, int64_t heads, int64_t m,
                             int64_t n, bstk__terms *terms, bstk__terms_spec *spec) {
    static const char full[] = "[M, N], [H, M, N], [Z, H, M, N], where Z, H and M may be 1";
    static const char rel[] = "[M, E], [H, M, E], [Z, H, M, E], where Z, H and M may be 1";
    static const char attn[] = "[M, N], [Z, M, N], [Z, H, M, N], where Z, H and M may be 1";
    const int64_t need[4] = {batches, heads, m, n}, need_rel[4] = {batches, heads, m, -1};
    BSTK_TRY(check_given(who, given));
    /* Beyond the matrix all offsets are alike; cut there, sums of indices cannot overflow. */
    const int64_t offset = bstk__max(-m, bstk__min(n, given->causal_offset));
    *terms = (bstk__terms){.causal = given->causal != 0, .causal_offset = offset, .scale = given->scale};
    spec->causal = terms->causal;
    spec->causal_offset = given->causal_offset;
    BSTK_TRY(plan_term(who, "rpe", given->rpe, full, need, false, &terms->rpe, &spec->rpe));
    if (given->rpe)
        BSTK_TRY(bstk__check_float(who, "rpe", given->rpe->dtype));
    BSTK_TRY(plan_term(who, "rel_logits", given->rel_logits, rel, need_rel, false, &terms->rel, &spec->rel_logits));
    if (given->rel_logits) {
        BSTK_TRY(bstk__check_float(who, "rel_logits", given->rel_logits->dtype));
        terms->rel_extent = given->rel_logits->shape[given->rel_logits->ndim - 1];
    }
    BSTK_TRY(plan_key_padding(who, given, batches, n, terms, &spec->key_padding_mask));
    BSTK_TRY(plan_term(who, "attn_mask", given->attn_mask, attn, need, true, &terms->attn, &spec->attn_mask));
    return given->attn_mask ? read_mode(who, "attn_mask", given->attn_mask->dtype, given->attn_mode, &terms->attn.keeps)
                            : BSTK_OK;
}

static bstk_status run_term(const char *who, const char *name, const bstk_tensor *spec, const bstk_tensor *given,
                            bstk__term *term) {
    if (spec->ndim < 0 || given == NULL) {
        if ((spec->ndim < 0) == (given == NULL))
            return BSTK_OK;
        return bstk__fail(BSTK_ERR_MISMATCH, "%s: %s is %s, but the plan was made %s it", who, name,
                          given ? "given" : "NULL", given ? "without" : "with");
    }
    BSTK_TRY(bstk__check_same(who, name, spec, given));
    term->data = given->data;
    return BSTK_OK;
}

bstk_status bstk__terms_run(const char *who, const bstk__terms_spec *spec, const bstk_score_terms *given,
                            double default_scale, bstk__terms *terms) {
    BSTK_TRY(check_given(who, given));
    if ((given->causal != 0) != spec->causal || given->causal_offset != spec->causal_offset)
        return bstk__fail(
            BSTK_ERR_MISMATCH, "%s: causal is %d with offset %lld, but the plan was made for %d with %lld", who,
            (int)given->causal, (long long)given->causal_offset, (int)spec->causal, (long long)spec->causal_offset);
    terms->scale = given->scale != given->scale ? default_scale : given->scale; /* NaN: BSTK_SCALE_DEFAULT */
    BSTK_TRY(run_term(who, "rpe", &spec->rpe, given->rpe, &terms->rpe));
    BSTK_TRY(run_term(who, "rel_logits", &spec->rel_logits, given->rel_logits, &terms->rel));
    BSTK_TRY(run_term(who, "key_padding_mask", &spec->key_padding_mask, given->key_padding_mask, &terms->key_padding));
    return run_term(who, "attn_mask", &spec->attn_mask, given->attn_mask, &terms->attn);
}

bstk_status bstk__terms_check_overlap(const char *who, const char *name, const bstk_tensor *out,
                                      const bstk_score_terms *given) {
    const bstk_tensor *const tensors[] = {given->rpe, given->rel_logits, given->key_padding_mask, given->attn_mask};
    static const char *const names[] = {"rpe", "rel_logits", "key_padding_mask", "attn_mask"};
    for (int i = 0; i < 4; i++)
        if (tensors[i] && bstk__overlap(out, tensors[i]))
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s overlaps %s", who, name, names[i]);
    return BSTK_OK;
}
