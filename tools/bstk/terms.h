/* terms.h: the terms of a score on the command line, for softmax and attention. */
#ifndef BSTK_TERMS_H
#define BSTK_TERMS_H

#include "cli.h"

/* The terms that come from files. Pairs lie side by side: the one of the queries, the one of the keys. */
typedef enum term_file {
    TERM_RPE,
    TERM_REL,
    TERM_KEY_PADDING,
    TERM_MASK,
    TERM_ALIBI,
    TERM_SINKS,
    TERM_Q_DOCUMENTS,
    TERM_K_DOCUMENTS,
    TERM_CU_SEQLENS_Q,
    TERM_CU_SEQLENS_K,
    TERM_FILES
} term_file;

typedef struct terms_opts {
    const char *files[TERM_FILES]; /* NULL when not given */
    bool scale_given, causal, bottom_right, offset_given, windowed, dropout_given, seed_given;
    double scale, softcap, dropout;
    int64_t causal_offset, window[2];
    uint64_t seed, offset;
    bstk_mask_mode key_padding_mode, mask_mode;
} terms_opts;

typedef struct terms_input {
    common_opts *common;
    terms_opts *terms;
} terms_input;

/* Child parser; its input is a terms_input. */
extern const struct argp terms_argp;

typedef struct terms_arrays {
    io_array files[TERM_FILES];
} terms_arrays;

/* Reads the files; `terms` points into `arrays`. */
void load_terms(const common_opts *common, const terms_opts *o, terms_arrays *arrays, bstk_score_terms *terms);
void free_terms(terms_arrays *arrays);

#endif
