/*
 * softmax_case.h: a softmax with any choice of terms, drawn from a seed: layout (ragged, shared or by head, whole or
 * partly kept blocks, empty rows), values, and shapes and strides of the terms. For the tests of terms and gradients.
 */
#ifndef BSTK_TESTS_SOFTMAX_CASE_H
#define BSTK_TESTS_SOFTMAX_CASE_H

#include "check/gen.h"

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    HAS_RPE = 1,
    HAS_REL = 2,
    HAS_KEY_PADDING = 4,
    HAS_ATTN = 8,
    HAS_SLOPES = 16,
    HAS_SINKS = 32,
    HAS_DOCUMENTS = 64,
    HAS_SEQUENCES = 128,
    HAS_CAUSAL = 256,
    HAS_BOTTOM_RIGHT = 512,
    HAS_WINDOW = 1024,
    HAS_SOFTCAP = 2048,
    HAS_DROPOUT = 4096,
    HAS_SCALE = 8192,
    HAS_ALL = 16383
};

/* The ten tensors of the terms, in the order of the public struct. */
enum { RPE, REL, KEY_PADDING, ATTN, SLOPES, SINKS, Q_DOCUMENTS, K_DOCUMENTS, CU_Q, CU_K, TERM_TENSORS };

typedef struct softmax_case {
    bstk_dtype dtype;
    int64_t z, h, m, n;
    int32_t block;
    bool shared; /* a layout of one head */
    int flags;   /* HAS_... */
    uint64_t seed;

    bstk_layout *layout;
    gen_array x, terms_data[TERM_TENSORS];
    bstk_score_terms terms;
    int64_t blocks; /* of all heads */
} softmax_case;

/* Draws sizes, layout and everything that `flags` name; `dtype` is that of x, floating terms have any type but in f64.
 */
void softmax_case_draw(softmax_case *c, bstk_dtype dtype, int flags, uint64_t seed);
void softmax_case_free(softmax_case *c);

/* An array packed as x, or [Z, H, M] in the type of lse. */
void softmax_case_packed(const softmax_case *c, gen_array *a, gen_style style, gen_values values, uint64_t seed);
void softmax_case_rows(const softmax_case *c, gen_array *a, gen_style style, gen_values values, uint64_t seed);

/* Forward: y, and where given lse and saved. */
void softmax_case_run(const softmax_case *c, bstk_context *ctx, const bstk_tensor *y, const bstk_tensor *lse,
                      const bstk_tensor *saved);

/* Where term `kind` (RPE to K_DOCUMENTS), or its gradient `t`, has element (z, h, i, j): in elements from t->data. */
int64_t term_offset(const bstk_tensor *t, int kind, int64_t z, int64_t h, int64_t i, int64_t j);

/* The sequence of row i; without sequences all rows and columns. */
typedef struct span {
    int64_t q_first, q_last, k_first, k_last;
} span;
span sequence_span(const softmax_case *c, int64_t i);

/* 0 where dropout drops (z, h, i, j), else 1 / (1 - p), word by word from the header's description. */
double dropout_factor(const softmax_case *c, int64_t z, int64_t h, int64_t i, int64_t j);

/* Row and column of an element (p, q) of packed block `block` (of z's blocks), and its head. */
typedef struct place {
    int64_t h, i, j;
    int64_t n; /* number of the block in the layout */
    bool inside;
} place;
place place_of(const softmax_case *c, int64_t block, int64_t p, int64_t q);

#endif
