/* norm_plan.h: what the plans of a norm and of its gradient share: the checks, the index, the choice of a kernel. */
#ifndef BSTK_NORM_PLAN_H
#define BSTK_NORM_PLAN_H

#include "core/tensor_view.h"
#include "ops/norm/norm_kernel.h"
#include "plan/plan_impl.h"

#include <bstk/norm.h>

/* The problem while it is checked. */
typedef struct bstk__norm_problem {
    const char *who;
    const bstk_layout *layout;
    bstk_dtype dtype;
    int64_t batches, blocks, heads;
} bstk__norm_problem;

/* Row values [Z, H, M], where a tensor is given; sizes come from the problem. */
bstk_status bstk__norm_check_rows(const bstk__norm_problem *p, const char *name, const bstk_tensor *t,
                                  bstk__norm_rows *rows);

/* Column values [N] or [H|1, N] of any floating type, where a tensor is given. */
bstk_status bstk__norm_check_columns(const bstk__norm_problem *p, const char *name, const bstk_tensor *t,
                                     bstk__norm_columns *columns);

/* Packed values like x. */
bstk_status bstk__norm_check_like_x(const bstk__norm_problem *p, const char *name, const bstk_tensor *t,
                                    bstk__norm_values *values);

/*
 * Checks x, reads the sizes off it and fills the index of `args`. Where a shared layout stores no block, the first of
 * `hints` (`count` tensors, each may be NULL) that has a head axis of more than one tells the heads.
 */
bstk_status bstk__norm_begin(const char *who, const bstk_layout *layout, const bstk_tensor *x,
                             const bstk_tensor *const *hints, int count, bstk__norm_problem *p, bstk__norm_args *args);

/* Chooses a kernel for `who`, which is also the op's name in the list. */
bstk_status bstk__norm_select(bstk_context *ctx, const bstk__norm_problem *p, const bstk__norm_args *args,
                              const char *forced, const bstk__kernel **kernel);

/* The units by rows. */
bstk_status bstk__norm_row_work(const bstk__norm_problem *p, const bstk__norm_args *args, bstk__work *work);

/* Bytes of the tensors that are given. */
double bstk__norm_bytes(const bstk_tensor *const *tensors, int count);

/* All tensors of an op: inputs first. One pair may be the same memory: output `in_place` and input `source`. */
typedef struct bstk__norm_operands {
    const char *const *names;
    int count, first_output;
    int in_place, source;
} bstk__norm_operands;

/* Writes descriptions of the tensors, ndim -1 for those that are not there. */
void bstk__norm_remember(const bstk__norm_operands *o, const bstk_tensor *const *given, bstk_tensor *planned);

/* Checks the tensors of a run: there exactly if planned, as planned, and no output over anything else. */
bstk_status bstk__norm_check_run(const char *who, const bstk__norm_operands *o, const bstk_tensor *planned,
                                 const bstk_tensor *const *given);

#endif
