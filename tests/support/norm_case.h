/*
 * norm_case.h: layernorm, rmsnorm and their gradients on a problem of a few numbers, against the formulas of
 * bstk/norm.h in long double on the dense matrix with a mask of what is kept.
 *
 * Every run: dropped places of the inputs hold NaN, outputs are full of NaN before, guard bands and inputs must stay as
 * they are, and 1, 2 and 7 threads and a second run give the same bits.
 */
#ifndef BSTK_TESTS_NORM_CASE_H
#define BSTK_TESTS_NORM_CASE_H

#include "check/gen.h"

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum norm_fill { NORM_UNIFORM, NORM_EXACT, NORM_SPECIAL } norm_fill;

typedef struct norm_spec {
    bstk_dtype dtype, columns; /* of weight and bias */
    int32_t block;
    int64_t z, h, m, n;
    int64_t weight_heads, bias_heads; /* 0: none */
    bool shared;                      /* one head in the layout */
    bool partial;                     /* element masks */
    bool full;                        /* every block; else about half, row block 1 and head 1 empty */
    norm_fill values;
    double offset, eps;
    gen_style in, out, column_style;
    gen_style d_y; /* 0: as in */
} norm_spec;

typedef struct norm_problem {
    norm_spec s;
    bstk_norm_kind kind;
    bstk_layout *layout;
    int64_t rows, cols, layout_heads, nnz, blocks; /* blocks of the values of one batch item */
    uint8_t *keep;                                 /* [layout_heads, m, n] */
    int64_t *number;                               /* [layout_heads, rows, cols], -1: not stored */
    gen_array x, d_y, weight, bias;                /* memory NULL: none */
    gen_array y, mean, rstd;                       /* of the forward run */
} norm_problem;

enum { NORM_D_X, NORM_D_WEIGHT, NORM_D_BIAS, NORM_GRADIENTS };

extern const char *const norm_gradient_names[NORM_GRADIENTS];

norm_problem norm_make(bstk_norm_kind kind, const norm_spec *s);
void norm_free(norm_problem *p);

/* Without outputs. The second reads what norm_check_forward left in the problem. */
bstk_norm_desc norm_forward_desc(const norm_problem *p);
bstk_norm_grad_desc norm_backward_desc(const norm_problem *p);

/* Runs and compares; the first one keeps y, mean and rstd. */
void norm_check_forward(norm_problem *p);
void norm_check_backward(norm_problem *p);

/* Both, for both norms, in all types or that of the spec. */
void norm_check(norm_spec s);

void norm_make_gradients(const norm_problem *p, gen_array out[NORM_GRADIENTS]);
void norm_run_backward(int32_t threads, const bstk_norm_grad_desc *d);
bstk_context *norm_context(int32_t threads);

/* NaNs are alike whatever their bits: which operand's payload survives is the machine's choice. */
void norm_assert_same(const char *what, const bstk_tensor *a, const bstk_tensor *b);

#endif
