/* terms.h: the terms of a score on the command line, for softmax and attention. */
#ifndef BSTK_TERMS_H
#define BSTK_TERMS_H

#include "cli.h"

typedef struct terms_opts {
    double scale;
    bool scale_given, causal, offset_given, bottom_right;
    int64_t causal_offset;
    const char *key_padding, *mask, *rel, *rpe; /* files, NULL when not given */
    bstk_mask_mode key_padding_mode, mask_mode;
} terms_opts;

typedef struct terms_input {
    common_opts *common;
    terms_opts *terms;
} terms_input;

/* Child parser; its input is a terms_input. */
extern const struct argp terms_argp;

typedef struct terms_arrays {
    io_array rpe, rel, key_padding, mask;
} terms_arrays;

/* Reads the files; `terms` points into `arrays`. */
void load_terms(const common_opts *common, const terms_opts *o, const bstk_layout *layout, terms_arrays *arrays,
                bstk_score_terms *terms);
void free_terms(terms_arrays *arrays);

#endif
