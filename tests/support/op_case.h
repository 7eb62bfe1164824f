/*
 * op_case.h: an op on a layout rule, run and held against the float64 reference of src/check.
 *
 * Every run: inputs in watched memory, outputs full of NaN between guard bands, each registered kernel of the types by
 * name, twice, on the default context and on one of 7 threads; the two must give the same bits, inputs and
 * guard bands must stay as they are, and every element must lie within its bound.
 */
#ifndef BSTK_TESTS_OP_CASE_H
#define BSTK_TESTS_OP_CASE_H

#include "check/gen.h"

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

typedef enum rule_kind {
    RULE_ONES,
    RULE_ZEROS,
    RULE_DIAG,
    RULE_TRIL,
    RULE_BERNOULLI, /* p, seed; ensure_diag, ensure_row, no_empty (a block in each row and each column) */
    RULE_BANDED,    /* |i - j| <= reach */
    RULE_FIRST_ROW,
    RULE_LAST_ROW,
    RULE_FIRST_COLUMN,
    RULE_LAST_COLUMN,
    RULE_ANTI_DIAGONAL,
    RULE_SINGLE, /* (at_row, at_col) */
    RULE_MATRIX, /* matrix[rows*cols], the same in every head */
    RULE_MIXED   /* head 0 full, head 1 empty, head 2 diagonal, and so on */
} rule_kind;

typedef struct rule {
    rule_kind kind;
    double p;
    uint64_t seed;
    bool ensure_diag, ensure_row, no_empty;
    int64_t reach, at_row, at_col;
    const uint8_t *matrix;
} rule;

/* Mask [heads, rows, cols] of a rule; free() it. */
uint8_t *rule_mask(const rule *r, int64_t heads, int64_t rows, int64_t cols);

/* Layout of ceil(m/block) x ceil(n/block) blocks. Fails the test when it cannot be made. */
bstk_layout *rule_layout(const rule *r, int64_t heads, int64_t m, int64_t n, int32_t block);

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* gen_array_make and gen_fill, failing the test without memory. */
void make_array(gen_array *a, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style, gen_values values,
                uint64_t seed);

/* Fails the test, naming `what`, the element, both values and the bound. */
void assert_within(const char *what, const bstk_tensor *got, const double *want, const double *bound);

/* All bytes of the elements alike. */
void assert_same_bits(const char *what, const bstk_tensor *x, const bstk_tensor *y);

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* z and h: 0 is 1; b_heads: 0 is h (grouped heads); dtype packed: 0 is dtype; alpha and beta both 0: alpha 1. */
typedef struct product_case {
    bstk_mode mode;
    bstk_dtype dtype, packed;
    int32_t block;
    int64_t z, h, m, n, k;
    bool ta, tb, tc;
    rule layout;
    bool shared_layout; /* one head in the layout, h in the operands */
    int64_t b_heads;
    gen_values values;
    uint64_t seed;
    gen_style a_style, b_style, c_style;
    double alpha, beta;
} product_case;

typedef struct product {
    product_case p;
    bstk_layout *layout;
    gen_array a, b, c;
} product;

void product_make(product *x, const product_case *p);
void product_check(product *x);
void product_free(product *x);
void check_product(const product_case *p); /* all three */

/* ---- softmax and attention --------------------------------------------------------------------------------------- */

typedef struct score_case {
    bool attention;
    bstk_dtype dtype;
    int32_t block;
    int64_t z, h, m, n, d, dv, kv_heads; /* dv 0: d; kv_heads 0: h */
    rule layout;
    bool shared_layout;
    gen_values values;
    uint64_t seed;
    gen_style in_style, out_style;
} score_case;

typedef struct score_op {
    score_case p;
    bstk_layout *layout;
    gen_array x;       /* softmax: packed scores */
    gen_array q, k, v; /* attention */
    gen_array out, lse;
    bstk_score_terms terms; /* set what is needed between make and check */
    gen_array rpe, rel, key_padding, attn;
} score_op;

/* `layout` NULL: by the rule; else the op takes over the reference. */
void score_make(score_op *x, const score_case *p, bstk_layout *layout);
void score_check(score_op *x);
void score_free(score_op *x);
void check_scores(const score_case *p); /* all three */

/* Makes a term, fills it and enters it in x->terms. Masks of bool and u8 get values 0 and 1, about 3 of 4 kept. */
void add_rpe(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style, uint64_t seed);
void add_rel(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style, uint64_t seed);
void add_key_padding(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style, uint64_t seed);
void add_attn_mask(score_op *x, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style, uint64_t seed);

/* One run without a comparison, by the library's choice of kernel. */
void score_run(score_op *x);

#endif
