/*
 * bench_measure.c: times one workload. A repetition is a run of the multiply-add loop, a batch of calls of some
 * milliseconds, and the loop again: the share of the roof is a ratio of neighbours in time, which survives a changing
 * clock and a busy neighbour. Where memory is the bound, a copy of as many bytes stands on both sides too. Of the two
 * measurements of a roof the higher one counts.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST_REPETITIONS = 10 };
static const double BATCH = 2e-3;     /* seconds of calls in a repetition, at least one call */
static const double PRECISION = 5e-3; /* of a median: what its confidence interval may be off, relative */
static const double PATIENCE = 6;     /* times --min-time that a problem may take to get there */

typedef struct samples {
    double seconds[BENCH_SAMPLES], wall[BENCH_SAMPLES], cpu[BENCH_SAMPLES];
    double loop[BENCH_SAMPLES], copy[BENCH_SAMPLES], hertz[BENCH_SAMPLES]; /* rates */
    double loop_share[BENCH_SAMPLES], copy_share[BENCH_SAMPLES];
    double once; /* seconds of a run, about */
    int count;
} samples;

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_many(workload *w, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        must(workload_run(w));
}

/* The median and both ends; `values` are left as they are. */
bench_stat bench_summarize(const double *values, int count) {
    double sorted[BENCH_SAMPLES];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    bench_stat stat;
    stat.median = median(sorted, count);
    stat.least = sorted[0];
    stat.most = sorted[count - 1];
    return stat;
}

/*
 * True when the median of all runs lies with a probability of 95 % within PRECISION of that of the samples: the ranks
 * count / 2 -+ sqrt(count) bound it, whatever the distribution is.
 */
static bool is_settled(const double *values, int count) {
    double sorted[BENCH_SAMPLES];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    const double middle = median(sorted, count);
    const int wide = (int)ceil(sqrt(count)), low = count / 2 - wide, high = count / 2 + wide;
    return low >= 0 && high < count && sorted[high] - middle <= PRECISION * middle &&
           middle - sorted[low] <= PRECISION * middle;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static void repeat(const bench_opts *o, workload *w, const bench_result *r, const roof_loop *loop, roof_copy *copy,
                   int64_t calls, samples *s) {
    const int i = s->count++;
    double rate = roof_rate(loop);
    const double hertz = roof_hertz();
    double copied = copy ? r->bytes / roof_copy_seconds(copy, calls) : 0;
    if (bench_needs_warmth(s->once))
        run_many(w, 1);
    const double wall = now(), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), start = bench_clock(o->threads);
    run_many(w, calls);
    const double n = (double)calls;
    s->seconds[i] = (bench_clock(o->threads) - start) / n;
    s->cpu[i] = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / n;
    s->wall[i] = (now() - wall) / n;
    if (copy)
        copied = larger(copied, r->bytes / roof_copy_seconds(copy, calls));
    rate = larger(rate, roof_rate(loop)) * o->threads;
    s->hertz[i] = larger(hertz, roof_hertz());
    s->loop[i] = rate;
    s->copy[i] = copied;
    s->loop_share[i] = r->flops / s->seconds[i] / rate;
    s->copy_share[i] = copy && copied > 0 ? r->bytes / s->seconds[i] / copied : 0;
}

static bool is_enough(const bench_opts *o, const samples *s, const double *share, double seconds) {
    if (o->repetitions > 0)
        return s->count >= o->repetitions;
    if (s->count == BENCH_SAMPLES || seconds > PATIENCE * o->min_time)
        return s->count >= LEAST_REPETITIONS;
    return s->count >= LEAST_REPETITIONS && seconds >= o->min_time && is_settled(share, s->count);
}

/* Stored elements, for what is bound by memory. */
static double elements(const workload *w) {
    const double block = (double)w->p.block, shared = bstk_layout_heads(w->layout) == 1 ? (double)w->heads : 1;
    return (double)w->p.z * shared * (double)bstk_layout_nnz(w->layout) * block * block;
}

/*
 * An untimed run before a batch puts the operands back into the caches after copies and other people's runs; beside a
 * long run that makes no difference.
 */
bool bench_needs_warmth(double once) {
    return once < 0.1;
}

int64_t bench_calls(double once) {
    return once < BATCH ? (int64_t)(BATCH / (once > 1e-9 ? once : 1e-9)) + 1 : 1;
}

void bench_measure(const bench_opts *o, workload *w, bench_rivals *rivals, bench_result *r) {
    samples *s = calloc(1, sizeof *s);
    roof_loop *loop = roof_loop_of(r->kernel);
    if (!s || !loop)
        fail("bench: out of memory");
    if (loop->passes == 0)
        roof_calibrate(loop);
    roof_copy *copy = r->of_copy ? roof_copy_make((size_t)(r->bytes / 2), o->threads) : NULL;
    if (r->of_copy && !copy)
        fail("bench: out of memory for a copy of %.0f bytes", r->bytes / 2);

    run_many(w, 1);   /* first touch of memory, start of threads */
    double spent = 0; /* without the rivals */
    int64_t calls = 1;
    double once = 0;
    for (;; calls *= 4) { /* one call may be shorter than a tick */
        const double start = now();
        run_many(w, calls);
        once = (now() - start) / (double)calls;
        if (once * (double)calls > 0.1 * BATCH)
            break;
    }
    calls = bench_calls(once);
    s->once = once;
    const double *share = r->of_copy ? s->copy_share : r->flops > 0 ? s->loop_share : s->seconds;
    do {
        const double start = now();
        repeat(o, w, r, loop, copy, calls, s);
        spent += now() - start;
        if (rivals)
            bench_rivals_run(rivals, o, s->seconds[s->count - 1]);
        progress_add(1);
    } while (!is_enough(o, s, share, spent));

    r->loop = loop->name;
    r->seconds = bench_summarize(s->seconds, s->count);
    r->wall = median(s->wall, s->count);
    r->cpu = median(s->cpu, s->count);
    if (share != s->seconds)
        r->share = bench_summarize(share, s->count);
    r->loop_share = median(s->loop_share, s->count);
    r->hertz = median(s->hertz, s->count);
    r->roof_flops = median(s->loop, s->count);
    r->roof_bytes = median(s->copy, s->count);
    r->cycles_per_16 = r->of_copy ? 16 * r->seconds.median * r->hertz * o->threads / larger(elements(w), 1) : 0;
    r->iterations = calls * s->count;
    r->repetitions = s->count;
    roof_copy_free(copy);
    free(s);
}
