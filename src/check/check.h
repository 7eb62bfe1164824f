/*
 * check.h: the judge. Runs a problem on a kernel and holds the result against the float64 reference, element by
 * element, with the bounds of docs/numerics.md.
 *
 * For each of several variants of a problem (strides, broadcasts, shared layouts, grouped heads, alpha and beta, score
 * terms; variant 0 is plain and contiguous) three passes: random values within the bound, small integers to the bit,
 * and special values. In each: outputs start as NaN, what surrounds them must stay untouched, inputs must not
 * change, a second run and plans for 1, 2 and 7 workers must give the same bits.
 */
#ifndef BSTK_CHECK_CHECK_H
#define BSTK_CHECK_CHECK_H

#include "problem.h"
#include "workload.h"

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct check_options {
    uint64_t seed;
    int32_t variants; /* tried per problem; 0: the default of 6; 1: only the plain one */
    /* NULL: workers in turn; else how runs on more than one thread go (bstk_context_opts.parallel_for). */
    void (*parallel_for)(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg);
    bool own_threads;   /* instead: by the library's own threads */
    int32_t threads[2]; /* of the plans beside that of 1; both 0: 2 and 7 */
    const char *kernel; /* check_all_rows: only this row, or one of check_composed; NULL: all */
    /* NULL, or called after each run and before its outputs are looked at: for tests of the judge itself. */
    void (*tamper)(void *user, workload *w);
    void *tamper_user;
} check_options;

typedef struct check_report {
    bool passed;
    double worst;                   /* largest error / bound over all elements and runs; at most 1 when passed */
    int32_t runs;                   /* runs of the kernel that were compared */
    char kernel[128];               /* what ran, bstk_plan_kernel(); "" when planning failed */
    char message[4 * PROBLEM_TEXT]; /* "" when passed; else one line with problem, kernel, element, values, bound */
} check_report;

/*
 * Checks one problem. `kernel` forces a row of the registry, or "composed" attention; NULL lets the library choose
 * (gradients of products: always NULL). `options` may be NULL. Returns report->passed.
 */
bool check_problem(const problem *p, const char *kernel, const check_options *options, check_report *report);

/*
 * The reference for a workload's operands alone, for results that come from elsewhere too (bench's peers). When it
 * would take more than `most` multiply-adds twice counted, of dsd and dds only every `step`-th column or row of the
 * result is looked at; step is odd, so that every place of a vector is met. The workload has to outlive it. NULL
 * without memory.
 */
typedef struct check_reference check_reference;
check_reference *check_reference_make(const workload *w, double most);
void check_reference_free(check_reference *reference); /* NULL is fine */
int64_t check_reference_step(const check_reference *reference);

/*
 * Holds `got`, shaped like the workload's output `place`, against it with `slack` times the bounds. False: one line in
 * `error`.
 */
bool check_reference_holds(const check_reference *reference, int place, const bstk_tensor *got, double slack,
                           char error[PROBLEM_TEXT]);

/* What is made of several rows, and checked beside them; the last one is NULL. */
extern const char *const check_composed[];

/* Called after each problem; `kernel` is a row's name or one of check_composed. False stops. */
typedef bool (*check_callback)(void *user, const char *kernel, const problem *p, const check_report *report);

/*
 * Runs every available row of the registry, and what is composed, through the list of problems that fits it (every kind
 * of edge: blocks 8 to 256, transpositions, ragged, empty and full layouts, sizes 0 and 1, heads, batches). Returns the
 * number of failed problems.
 */
int64_t check_all_rows(const check_options *options, check_callback callback, void *user);

/* How many problems check_all_rows will run: for progress bars. */
int64_t check_all_count(const check_options *options);

#endif
