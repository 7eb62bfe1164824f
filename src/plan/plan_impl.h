/* plan_impl.h: what every op's plan begins with, and the run of its tasks. Depends on layout and core. */
#ifndef BSTK_PLAN_IMPL_H
#define BSTK_PLAN_IMPL_H

#include "core/context_impl.h"
#include "layout/layout_impl.h"
#include "plan/registry.h"
#include "plan/schedule.h"

#include <bstk/plan.h>

struct bstk_plan {
    bstk_context *ctx;   /* owns a reference */
    bstk_layout *layout; /* owns a reference */
    atomic_int references;
    const char *op; /* "matmul", "softmax", "attention", "convert": checked by address by the op's run */
    void (*destroy)(bstk_plan *plan); /* frees what the op added; NULL when nothing */
    char kernel[256];                 /* three names of a composed plan */
    size_t scratch_bytes;             /* of one run */
    double flops, bytes;

    bstk__kernel_fn *fn;
    bstk__schedule schedule;
    int32_t workers;       /* threads that take tasks */
    double entry_cost;     /* set before bstk__plan_schedule, as its `cost`: before a first task in another's range */
    int64_t leave;         /* tasks that are left to a worker that is at them: fewer than that cost */
    size_t worker_scratch; /* bytes of each, a multiple of 64 */
    bool clears_scratch;   /* the first 64 of them are 0 when a run begins: kernels with scratch_bytes want it */
};

/* Allocates `bytes` (an op's plan that begins with bstk_plan), zeroed, with context and layout retained. */
bstk_status bstk__plan_new(bstk_context *ctx, const bstk_layout *layout, const char *op, size_t bytes, bstk_plan **out);

/*
 * Finishes a plan of one kernel: schedule, workers and scratch. `cost` counts operations of a vector kernel, of which a
 * thread does some 80 a ns; from it, or from `bytes` of the plan if they take longer, comes the number of workers.
 */
bstk_status bstk__plan_schedule(bstk_plan *plan, const bstk__kernel *kernel, const bstk__work *work, double cost,
                                size_t worker_scratch);

/* Checks exec against the plan: enough scratch. `*scratch` is the caller's, aligned to 64. */
bstk_status bstk__plan_scratch(const bstk_plan *plan, const char *who, const bstk_exec *exec, void **scratch);

/* Runs every task of the schedule once; `args` are the kernel's arguments with data pointers. Allocates nothing. */
void bstk__plan_run_tasks(const bstk_plan *plan, const void *args, void *scratch);

/* For the short forms: takes scratch for one run from the plan's context. */
bstk_status bstk__plan_take_scratch(const bstk_plan *plan, const char *who, bstk_exec *exec);

#endif
