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

/* Operands by place; what an op does not have is empty. workload_name() has the library's names. */
enum {
    WORKLOAD_A, /* products: a; attention: q; else x */
    WORKLOAD_B, /* products: b; attention: k; norms: weight */
    WORKLOAD_V, /* attention: v; norms: bias */
    WORKLOAD_RPE,
    WORKLOAD_REL,
    WORKLOAD_KEY_PADDING,
    WORKLOAD_ATTN_MASK,
    WORKLOAD_SLOPES,
    WORKLOAD_SINKS,
    WORKLOAD_Q_DOCUMENTS,
    WORKLOAD_K_DOCUMENTS,
    WORKLOAD_CU_Q,
    WORKLOAD_CU_K,
    /* Gradients: what the forward wrote, and what comes in. */
    WORKLOAD_SAVED,      /* y, o, mean */
    WORKLOAD_SAVED_ROWS, /* lse, rstd */
    WORKLOAD_D_OUT,      /* d_c, d_y, d_o */
    WORKLOAD_D_LSE,
    WORKLOAD_INPUTS, /* number of inputs */
    /* Outputs of the forward. */
    WORKLOAD_OUT = WORKLOAD_INPUTS, /* c, y or o */
    WORKLOAD_LSE,                   /* lse, rstd */
    WORKLOAD_MEAN,                  /* norms: mean; softmax: saved */
    /* Outputs of gradients. */
    WORKLOAD_D_A, /* d_a, d_x, d_q */
    WORKLOAD_D_B, /* d_b, d_k, d_weight */
    WORKLOAD_D_V, /* d_v, d_bias */
    WORKLOAD_D_RPE,
    WORKLOAD_D_REL,
    WORKLOAD_D_KEY_PADDING,
    WORKLOAD_D_ATTN,
    WORKLOAD_D_SINKS,
    WORKLOAD_ARRAYS
};

typedef struct workload {
    problem p;
    int64_t heads; /* H of the operands; the layout has as many, or 1 when shared */
    bstk_layout *layout;
    gen_array array[WORKLOAD_ARRAYS];
    unsigned char *initial[WORKLOAD_ARRAYS]; /* what each array held before any run */
    int out;            /* the array of c, y, o, d_a, d_x or d_q, empty where that is not wanted; in place an input */
    double alpha, beta; /* products */
    double eps;         /* norms */
    bstk_score_terms terms; /* softmax, attention; its tensors are those of array[] */
    bstk_plan *plan;
    gen_array scratch;
    char what[512]; /* this variant in words: "variant 3: shared layout, beta -0.75" */
} workload;

typedef enum workload_values { WORKLOAD_UNIFORM, WORKLOAD_INTEGERS, WORKLOAD_SPECIAL } workload_values;

/*
 * Layout and operands of one variant; no plan yet. False: one line in `error`, nothing to free.
 * Variant 0 is plain; the others draw strides, broadcasts, terms and so on from (problem, values, seed, variant).
 * Integers make every step of a right computation exact: products of small integers, scores of 0 for softmax and
 * attention, rows of two numbers for the norms; the gradient of attention has no such values. Special adds NaN,
 * infinities and subnormals, in attention also at every key and value that is dropped. Gradients get what the
 * library's own forward wrote, or with integers such numbers that every step is exact.
 * `out` points into itself: do not copy it.
 */
bool workload_make(const problem *p, workload_values values, uint64_t seed, int32_t variant, workload *out,
                   char error[PROBLEM_TEXT]);
void workload_free(workload *w); /* also of a zeroed struct */

/* Plans under `ctx` (NULL: the default), in place of an earlier plan. `kernel` as in bstk_matmul_desc. */
bstk_status workload_plan(workload *w, bstk_context *ctx, const char *kernel);

/* Runs the plan on the operands, writing the outputs. */
bstk_status workload_run(workload *w);

/* Outputs back to NaN (c back to what it held, for beta != 0; an input that is written in place back to itself). */
void workload_reset(workload *w);

/* True when runs write the array. */
bool workload_is_output(const workload *w, int which);

/* What the library calls the array: "d_weight". */
const char *workload_name(const workload *w, int which);

bstk_norm_kind workload_norm(const problem *p);

#endif
