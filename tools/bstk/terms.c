/* terms.c: the terms of a score: options, files and shapes that softmax and attention share. */
#include "terms.h"

#include <string.h>

enum {
    KEY_SCALE = KEY_TERMS,
    KEY_CAUSAL,
    KEY_CAUSAL_OFFSET,
    KEY_BOTTOM_RIGHT,
    KEY_PADDING,
    KEY_PADDING_MODE,
    KEY_MASK,
    KEY_MASK_MODE,
    KEY_REL,
    KEY_RPE
};

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Terms of a score:", 3},
    {"scale", KEY_SCALE, "S", 0, "Factor of the scores (default: 1; attention: 1/sqrt(D))", 3},
    {"causal", KEY_CAUSAL, 0, 0, "Keep only columns j <= i + offset of row i", 3},
    {"causal-offset", KEY_CAUSAL_OFFSET, "N", 0, "The offset of --causal, which it implies (default: 0)", 3},
    {"bottom-right", KEY_BOTTOM_RIGHT, 0, 0, "--causal with offset N - M: the last row sees all columns", 3},
    {"key-padding", KEY_PADDING, "FILE", 0, "Mask of columns [Z,N] or [N]", 3},
    {"key-padding-mode", KEY_PADDING_MODE, "MODE", 0, "add or mul, as --mask-mode", 3},
    {"mask", KEY_MASK, "FILE", 0, "Mask [M,N], [Z,M,N] or [Z,H,M,N]", 3},
    {"mask-mode", KEY_MASK_MODE, "MODE", 0,
     "add: floating values are added, bool and u8 keep where nonzero; mul: 0 drops, anything else keeps (default: add)",
     3},
    {"rel", KEY_REL, "FILE", 0, "Relative logits [Z,H,M,E], [H,M,E] or [M,E]: (i,j) adds column E-1-(i-j)", 3},
    {"rpe", KEY_RPE, "FILE", 0, "Addend [M,N], [H,M,N] or [Z,H,M,N]", 3},
    {0}};

static bstk_mask_mode parse_mode(const common_opts *common, const char *option, const char *text) {
    if (strcmp(text, "add") == 0)
        return BSTK_MASK_ADD;
    if (strcmp(text, "mul") == 0)
        return BSTK_MASK_MUL;
    usage_error("%s: %s is '%s', expected add or mul", common->command, option, text);
}

static error_t parse_terms(int key, char *arg, struct argp_state *state) {
    terms_input *input = state->input;
    const common_opts *common = input->common;
    terms_opts *o = input->terms;
    switch (key) {
    case KEY_SCALE:
        o->scale = option_double(common, "--scale", arg);
        o->scale_given = true;
        return 0;
    case KEY_CAUSAL:
        o->causal = true;
        return 0;
    case KEY_CAUSAL_OFFSET:
        o->causal_offset = option_int(common, "--causal-offset", arg, -INT64_MAX, INT64_MAX);
        o->causal = o->offset_given = true;
        return 0;
    case KEY_BOTTOM_RIGHT:
        o->causal = o->bottom_right = true;
        return 0;
    case KEY_PADDING:
        o->key_padding = arg;
        return 0;
    case KEY_PADDING_MODE:
        o->key_padding_mode = parse_mode(common, "--key-padding-mode", arg);
        return 0;
    case KEY_MASK:
        o->mask = arg;
        return 0;
    case KEY_MASK_MODE:
        o->mask_mode = parse_mode(common, "--mask-mode", arg);
        return 0;
    case KEY_REL:
        o->rel = arg;
        return 0;
    case KEY_RPE:
        o->rpe = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->bottom_right && o->offset_given)
            usage_error("%s: --bottom-right and --causal-offset exclude each other", common->command);
        if (o->key_padding_mode && !o->key_padding)
            usage_error("%s: --key-padding-mode needs --key-padding", common->command);
        if (o->mask_mode && !o->mask)
            usage_error("%s: --mask-mode needs --mask", common->command);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp terms_argp = {options, parse_terms, 0, 0, 0, 0, 0};

static const bstk_tensor *load(const common_opts *common, const char *name, const char *path, io_array *array) {
    if (!path)
        return NULL;
    load_term(common, name, path, array);
    return &array->t;
}

void load_terms(const common_opts *common, const terms_opts *o, const bstk_layout *layout, terms_arrays *arrays,
                bstk_score_terms *terms) {
    memset(arrays, 0, sizeof *arrays);
    *terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    if (o->scale_given)
        terms->scale = o->scale;
    terms->causal = o->causal;
    terms->causal_offset = o->bottom_right ? bstk_layout_n(layout) - bstk_layout_m(layout) : o->causal_offset;
    terms->rpe = load(common, "rpe", o->rpe, &arrays->rpe);
    terms->rel_logits = load(common, "rel_logits", o->rel, &arrays->rel);
    terms->key_padding_mask = load(common, "key_padding_mask", o->key_padding, &arrays->key_padding);
    terms->attn_mask = load(common, "attn_mask", o->mask, &arrays->mask);
    terms->key_padding_mode = o->key_padding_mode;
    terms->attn_mode = o->mask_mode;
}

void free_terms(terms_arrays *arrays) {
    io_array_free(&arrays->rpe);
    io_array_free(&arrays->rel);
    io_array_free(&arrays->key_padding);
    io_array_free(&arrays->mask);
}
