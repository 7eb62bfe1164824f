/* runner.c: contexts, scratch, clocks and what -v prints of a run. */
#include "cli.h"

#include <stdlib.h>
#include <time.h>

bstk_context *make_context(const common_opts *common) {
    if (common->device.kind == BSTK_CUDA)
        fail("%s: device cuda:%d: this build has no GPU kernels", common->command, common->device.index);
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    opts.num_threads = common->threads;
    if (progress_wanted(common))
        opts.progress = progress_task;
    bstk_context *ctx = NULL;
    must(bstk_context_create(&opts, &ctx));
    return ctx;
}

void *make_scratch(const bstk_plan *plan, bstk_exec *exec) {
    *exec = (bstk_exec)BSTK_EXEC_INIT;
    exec->scratch_bytes = bstk_plan_scratch_bytes(plan);
    exec->scratch = exec->scratch_bytes ? malloc(exec->scratch_bytes) : NULL;
    if (exec->scratch_bytes && !exec->scratch)
        fail("%s: out of memory for %zu bytes of scratch", bstk_plan_kernel(plan), exec->scratch_bytes);
    return exec->scratch;
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void report_run(const common_opts *common, const bstk_plan *plan, double seconds) {
    if (!common->verbose)
        return;
    double flops = bstk_plan_flops(plan), bytes = bstk_plan_bytes(plan);
    fprintf(stderr, "kernel: %s\n", bstk_plan_kernel(plan));
    fprintf(stderr, "tasks: %lld, largest %.2f times the mean\n", (long long)bstk_plan_tasks(plan),
            bstk_plan_imbalance(plan));
    fprintf(stderr, "work: %.3f Mflop, %.3f MB, %zu bytes of scratch\n", 1e-6 * flops, 1e-6 * bytes,
            bstk_plan_scratch_bytes(plan));
    fprintf(stderr, "time: %.3f ms", 1e3 * seconds);
    if (seconds > 0 && flops > 0)
        fprintf(stderr, ", %.2f GFLOP/s", 1e-9 * flops / seconds);
    fputc('\n', stderr);
}

int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}
