/*
 * workload.h: a problem brought to life: layout, operands with data, outputs, plan and scratch, ready to run any number
 * of times. Used by check (all variants) and by bench (variant 0: contiguous, no extra terms).
 */
#ifndef BSTK_CHECK_WORKLOAD_H
#define BSTK_CHECK_WORKLOAD_H

#include "gen.h"
#include "problem.h"

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

/* Operands by place; what an op does not have is empty. */
enum {
    WORKLOAD_A, /* products: a; softmax, pack, unpack: x; attention: q */
    WORKLOAD_B, /* products: b; attention: k */
    WORKLOAD_V, /* attention: v */
    WORKLOAD_RPE,
    WORKLOAD_REL,
    WORKLOAD_KEY_PADDING,
    WORKLOAD_ATTN_MASK,
    WORKLOAD_INPUTS,                /* number of inputs */
    WORKLOAD_OUT = WORKLOAD_INPUTS, /* c, y or o */
    WORKLOAD_LSE,
    WORKLOAD_ARRAYS
};

typedef struct workload {
    problem p;
    int64_t heads; /* H of the operands; the layout has as many, or 1 when shared */
    bstk_layout *layout;
    gen_array array[WORKLOAD_ARRAYS];
    unsigned char *initial[WORKLOAD_ARRAYS]; /* what each array held before any run */
    int out;                                 /* the array with the result: WORKLOAD_OUT; WORKLOAD_A in place */
    double alpha, beta;                      /* products */
    bstk_score_terms terms;                  /* softmax, attention; its tensors are those of array[] */
    bstk_plan *plan;
    gen_array scratch;
    char what[256]; /* this variant in words: "variant 3: shared layout, beta -0.75" */
} workload;

typedef enum workload_values { WORKLOAD_UNIFORM, WORKLOAD_INTEGERS, WORKLOAD_SPECIAL } workload_values;

/*
 * Layout and operands of one variant; no plan yet. False: one line in `error`, nothing to free.
 * Variant 0 is plain; the others draw strides, broadcasts, terms and so on from (problem, values, seed, variant).
 * Integers make every step of a right computation exact: products of small integers, and for softmax and attention
 * scores of 0. Special adds NaN, infinities and subnormals, in attention also at every key and value that is dropped.
 * `out` points into itself: do not copy it.
 */
bool workload_make(const problem *p, workload_values values, uint64_t seed, int32_t variant, workload *out,
                   char error[PROBLEM_TEXT]);
void workload_free(workload *w); /* also of a zeroed struct */

/* Plans under `ctx` (NULL: the default), in place of an earlier plan. `kernel` as in bstk_matmul_desc. */
bstk_status workload_plan(workload *w, bstk_context *ctx, const char *kernel);

/* Runs the plan on the operands, writing the outputs. */
bstk_status workload_run(workload *w);

/* Outputs back to NaN (c back to what it held, for beta != 0). */
void workload_reset(workload *w);

#endif
