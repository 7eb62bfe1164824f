/* plan.c: life of a plan, its queries, and the workers that pull its tasks. */
#include "plan/plan_impl.h"

#include "core/checked.h"
#include "core/error.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A task should outlast the few microseconds that waking a thread costs: at a few GFLOP/s this is some 20 us. */
static const double TASK_COST = 100e3;
/* More tasks than threads, so that threads that are slower, or started late, take fewer. */
enum { TASKS_PER_THREAD = 8, TASKS_WITH_PROGRESS = 200, SCRATCH_ALIGN = 64 };

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

bstk_status bstk__plan_schedule(bstk_plan *plan, const bstk__kernel *kernel, const bstk__work *work, double cost,
                                size_t worker_scratch) {
    const int32_t threads = plan->ctx->num_threads;
    int64_t tasks = threads == 1 ? 1 : (int64_t)threads * TASKS_PER_THREAD;
    if (plan->ctx->opts.progress)
        tasks = bstk__max(tasks, TASKS_WITH_PROGRESS);
    else if (cost / TASK_COST < (double)tasks)
        tasks = bstk__max(1, (int64_t)(cost / TASK_COST));
    BSTK_TRY(bstk__schedule_make(plan->ctx, work, tasks, &plan->schedule));
    plan->fn = kernel->fn;
    plan->clears_scratch = kernel->scratch_bytes != NULL;
    plan->workers = (int32_t)bstk__min(threads, plan->schedule.tasks);
    snprintf(plan->kernel, sizeof plan->kernel, "%s", kernel->name);
    int64_t bytes = 0;
    plan->worker_scratch = (worker_scratch + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    if (!bstk__mul((int64_t)plan->worker_scratch, plan->workers, &bytes))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: scratch of %d threads does not fit 64 bits", plan->op,
                          (int)plan->workers);
    plan->scratch_bytes = bytes ? (size_t)bytes + SCRATCH_ALIGN - 1 : 0; /* the caller's may be unaligned */
    bstk__log(plan->ctx, BSTK__LOG_PLAN, "%s: %lld tasks on %d threads, largest %.2f of the mean, %zu bytes of scratch",
              plan->kernel, (long long)plan->schedule.tasks, (int)plan->workers, plan->schedule.imbalance,
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

typedef struct task_run {
    const bstk_plan *plan;
    const void *args;
    char *scratch;
    atomic_int_fast64_t next;
} task_run;

/* Worker i owns scratch slot i and pulls tasks until none is left. */
static void pull_tasks(void *arg, int32_t worker) {
    task_run *run = arg;
    const bstk__schedule *schedule = &run->plan->schedule;
    const bstk_context_opts *opts = &run->plan->ctx->opts;
    max_align_t none; /* where there is no scratch: kernels may add 0 to the address, undefined in C for NULL */
    void *scratch = run->scratch ? run->scratch + (size_t)worker * run->plan->worker_scratch : (char *)&none;
    if (run->scratch && run->plan->clears_scratch)
        memset(scratch, 0, SCRATCH_ALIGN);
    for (;;) {
        const int64_t t = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
        if (t >= schedule->tasks)
            return;
        if (schedule->bounds[t] < schedule->bounds[t + 1])
            run->plan->fn(run->args, schedule->bounds[t], schedule->bounds[t + 1], scratch);
        if (opts->progress)
            opts->progress(opts->progress_user, schedule->tasks);
    }
}

void bstk__plan_run_tasks(const bstk_plan *plan, const void *args, void *scratch) {
    task_run run = {.plan = plan, .args = args, .scratch = scratch};
    atomic_init(&run.next, 0);
    bstk__parallel_for(plan->ctx, plan->workers, pull_tasks, &run);
}
