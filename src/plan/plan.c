/* plan.c: life of a plan, its queries, and the workers that take its tasks. */
#include "plan/plan_impl.h"

#include "core/checked.h"
#include "core/error.h"

#include <math.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/*
 * Work of less than ALONE_NS stays on the calling thread: a fork and join costs 1 to 2 us, or 10 with helpers that
 * sleep, which come 30 us later. Beyond it a worker has SHARE_NS at least. Tasks are so many that the last one of a
 * slow worker is short beside the whole, and so long that beginning one (an atomic exchange, what a kernel prepares) is
 * nothing beside it.
 */
static const double ALONE_NS = 50e3, SHARE_NS = 10e3, TASK_NS = 5e3;
enum { TASKS_PER_WORKER = 32, TASKS_WITH_PROGRESS = 200, SCRATCH_ALIGN = 64 };
/* More workers than these share the ranges: they are on the stack. */
enum { MOST_RANGES = 64 };

bstk_status bstk__plan_new(bstk_context *ctx, const bstk_layout *layout, const char *op, size_t bytes,
                           bstk_plan **out) {
    ctx = bstk__context_resolve(ctx);
    bstk_plan *plan = bstk__alloc_zeroed(ctx, 1, bytes);
    if (plan == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (plan of %zu bytes)", op, bytes);
    plan->ctx = bstk__context_retain(ctx);
    plan->layout = bstk_layout_retain(layout);
    plan->op = op;
    atomic_init(&plan->references, 1);
    *out = plan;
    return BSTK_OK;
}

bstk_plan *bstk_plan_retain(const bstk_plan *plan) {
    bstk_plan *shared = (bstk_plan *)plan;
    if (shared)
        atomic_fetch_add_explicit(&shared->references, 1, memory_order_relaxed);
    return shared;
}

void bstk_plan_release(bstk_plan *plan) {
    if (plan == NULL || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    bstk_context *ctx = plan->ctx;
    if (plan->destroy)
        plan->destroy(plan);
    bstk__schedule_free(ctx, &plan->schedule);
    bstk_layout_release(plan->layout);
    bstk__free(ctx, plan);
    bstk_context_release(ctx);
}

size_t bstk_plan_scratch_bytes(const bstk_plan *plan) {
    return plan->scratch_bytes;
}
const char *bstk_plan_kernel(const bstk_plan *plan) {
    return plan->kernel;
}
double bstk_plan_flops(const bstk_plan *plan) {
    return plan->flops;
}
double bstk_plan_bytes(const bstk_plan *plan) {
    return plan->bytes;
}
int64_t bstk_plan_tasks(const bstk_plan *plan) {
    return plan->schedule.tasks;
}
double bstk_plan_imbalance(const bstk_plan *plan) {
    return plan->schedule.imbalance;
}

/* About how long the work takes one thread, within a factor of 3: operations, or bytes from the third cache. */
static double estimate_ns(const bstk_plan *plan, const bstk__kernel *kernel, double cost) {
    const bool scalar = strcmp(kernel->isa, "scalar") == 0, neon = strcmp(kernel->isa, "neon") == 0;
    const double ops = (scalar ? 4 : neon ? 30 : 80) * (kernel->dtype == BSTK_F64 ? 0.5 : 1); /* a ns */
    return fmax(cost / ops, plan->bytes / 20);
}

/* At most `most`, at least 1. */
static int64_t whole(double count, int64_t most) {
    return count < 1 ? 1 : count < (double)most ? (int64_t)count : most;
}

bstk_status bstk__plan_schedule(bstk_plan *plan, const bstk__kernel *kernel, const bstk__work *work, double cost,
                                size_t worker_scratch) {
    const double ns = estimate_ns(plan, kernel, cost);
    const int32_t threads = plan->ctx->num_threads;
    int64_t workers = ns < ALONE_NS ? 1 : whole(ns / SHARE_NS, threads);
    int64_t tasks = workers == 1 ? 1 : bstk__max(workers, whole(ns / TASK_NS, workers * TASKS_PER_WORKER));
    if (plan->ctx->opts.progress) {
        workers = threads;
        tasks = bstk__max(tasks, bstk__max(threads, TASKS_WITH_PROGRESS));
    }
    tasks = bstk__ceil_div(tasks, workers) * workers; /* even ranges */
    BSTK_TRY(bstk__schedule_make(plan->ctx, work, tasks, workers, &plan->schedule));
    plan->fn = kernel->fn;
    plan->clears_scratch = kernel->scratch_bytes != NULL;
    plan->workers = (int32_t)bstk__min(workers, plan->schedule.tasks);
    if (plan->entry_cost > 0) /* a thief gains while the others' rest takes longer than its entry and first task */
        plan->leave = 1 + whole(plan->entry_cost / (cost / (double)bstk__max(1, plan->schedule.tasks)), INT32_MAX);
    if (plan->workers) /* threads even out what the cut left: only a task beyond a thread's share holds them up */
        plan->schedule.imbalance =
            fmax(1, plan->schedule.imbalance * (double)plan->workers / (double)plan->schedule.tasks);
    snprintf(plan->kernel, sizeof plan->kernel, "%s", kernel->name);
    int64_t bytes = 0;
    plan->worker_scratch = (worker_scratch + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    if (!bstk__mul((int64_t)plan->worker_scratch, plan->workers, &bytes))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: scratch of %d threads does not fit 64 bits", plan->op,
                          (int)plan->workers);
    plan->scratch_bytes = bytes ? (size_t)bytes + SCRATCH_ALIGN - 1 : 0; /* the caller's may be unaligned */
    bstk__log(plan->ctx, BSTK__LOG_PLAN,
              "%s: %lld tasks on %d threads, imbalance %.2f, some %.0f us, %zu bytes of scratch", plan->kernel,
              (long long)plan->schedule.tasks, (int)plan->workers, plan->schedule.imbalance, ns / 1e3,
              plan->scratch_bytes);
    return BSTK_OK;
}

bstk_status bstk__plan_scratch(const bstk_plan *plan, const char *who, const bstk_exec *exec, void **scratch) {
    *scratch = NULL;
    if (exec && exec->struct_size != sizeof *exec)
        return bstk__fail(BSTK_ERR_INVALID, "%s: exec.struct_size is %zu, expected %zu (BSTK_EXEC_INIT)", who,
                          exec->struct_size, sizeof *exec);
    if (plan->scratch_bytes == 0)
        return BSTK_OK;
    if (exec == NULL || exec->scratch == NULL || exec->scratch_bytes < plan->scratch_bytes)
        return bstk__fail(BSTK_ERR_INVALID, "%s: scratch has %zu bytes, expected %zu (bstk_plan_scratch_bytes)", who,
                          exec && exec->scratch ? exec->scratch_bytes : 0, plan->scratch_bytes);
    const uintptr_t address = (uintptr_t)exec->scratch;
    *scratch = (char *)exec->scratch + (SCRATCH_ALIGN - address % SCRATCH_ALIGN) % SCRATCH_ALIGN;
    return BSTK_OK;
}

bstk_status bstk__plan_take_scratch(const bstk_plan *plan, const char *who, bstk_exec *exec) {
    *exec = (bstk_exec)BSTK_EXEC_INIT;
    exec->scratch_bytes = plan->scratch_bytes;
    if (plan->scratch_bytes == 0)
        return BSTK_OK;
    exec->scratch = plan->scratch_bytes > INT64_MAX ? NULL : bstk__alloc(plan->ctx, (int64_t)plan->scratch_bytes, 1);
    if (exec->scratch == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (scratch of %zu bytes)", who, plan->scratch_bytes);
    return BSTK_OK;
}

/* Tasks that nobody has begun: the first in the upper half of `left`, the end in the lower half. */
typedef struct range {
    alignas(64) atomic_uint_fast64_t left;
    atomic_bool begun; /* by a worker of its own */
} range;

typedef struct task_run {
    const bstk_plan *plan;
    const void *args;
    char *scratch;
    int32_t ranges;
    range range[MOST_RANGES];
} task_run;

static int64_t tasks_left(uint64_t left) {
    return (int64_t)(left & UINT32_MAX) - (int64_t)(left >> 32);
}

/* The first task of a range, or the last one for another range's worker; -1 when none is left. */
static int64_t take(range *r, bool first) {
    uint64_t left = atomic_load_explicit(&r->left, memory_order_relaxed);
    while (tasks_left(left) > 0)
        if (atomic_compare_exchange_weak_explicit(&r->left, &left, first ? left + (UINT64_C(1) << 32) : left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return (int64_t)(first ? left >> 32 : (left & UINT32_MAX) - 1);
    return -1;
}

/*
 * A worker goes through its own range in order, so that what a kernel keeps in its scratch serves the next task as
 * well. Then it takes from the far end of the fullest range, unless that one's worker will be through before it pays.
 */
static int64_t next_task(task_run *run, int32_t own) {
    int64_t task = take(&run->range[own], true);
    atomic_store_explicit(&run->range[own].begun, true, memory_order_relaxed);
    while (task < 0) {
        range *fullest = NULL;
        int64_t most = 0;
        for (int32_t i = 0; i < run->ranges; i++) {
            range *r = &run->range[i];
            const int64_t left = tasks_left(atomic_load_explicit(&r->left, memory_order_relaxed));
            const bool begun = atomic_load_explicit(&r->begun, memory_order_relaxed);
            if (left > most && (!begun || left > run->plan->leave)) {
                most = left;
                fullest = r;
            }
        }
        if (fullest == NULL)
            return -1;
        task = take(fullest, false);
    }
    return task;
}

/* Worker i owns scratch slot i and takes tasks until none is left. */
static void run_worker(void *arg, int32_t worker) {
    task_run *run = arg;
    const bstk__schedule *schedule = &run->plan->schedule;
    const bstk_context_opts *opts = &run->plan->ctx->opts;
    max_align_t none; /* where there is no scratch: kernels may add 0 to the address, undefined in C for NULL */
    void *scratch = run->scratch ? run->scratch + (size_t)worker * run->plan->worker_scratch : (char *)&none;
    if (run->scratch && run->plan->clears_scratch)
        memset(scratch, 0, SCRATCH_ALIGN);
    for (int64_t t; (t = next_task(run, worker % run->ranges)) >= 0;) {
        if (schedule->bounds[t] < schedule->bounds[t + 1])
            run->plan->fn(run->args, schedule->bounds[t], schedule->bounds[t + 1], scratch);
        if (opts->progress)
            opts->progress(opts->progress_user, schedule->tasks);
    }
}

void bstk__plan_run_tasks(const bstk_plan *plan, const void *args, void *scratch) {
    task_run run;
    if (plan->schedule.tasks == 0)
        return;
    run.plan = plan;
    run.args = args;
    run.scratch = scratch;
    run.ranges = (int32_t)bstk__min(plan->workers, MOST_RANGES);
    for (int64_t i = 0; i < run.ranges; i++) {
        const int64_t first = i * plan->schedule.tasks / run.ranges, end = (i + 1) * plan->schedule.tasks / run.ranges;
        atomic_init(&run.range[i].left, (uint64_t)first << 32 | (uint64_t)end);
        atomic_init(&run.range[i].begun, false);
    }
    bstk__parallel_for(plan->ctx, plan->workers, run_worker, &run);
}
