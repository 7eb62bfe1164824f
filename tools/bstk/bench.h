/*
 * bench.h: between the parts of 'bstk bench': cmd_bench.c reads problems and prints, bench_measure.c times one problem,
 * bench_roof.c knows what the machine can do, bench_json.c and bench_plot.c write the results, bench_peers.c asks other
 * libraries.
 */
#ifndef BSTK_BENCH_H
#define BSTK_BENCH_H

#include "cli.h"

#include "check/workload.h"

/* ---- the roof (bench_roof.c) ------------------------------------------------------------------------------------- */

/*
 * Seconds by which runs are judged: CPU time of this thread when a run has no other one, so that a neighbour who takes
 * the core away does not count; wall time otherwise.
 */
double bench_clock(int threads);

/* A loop of multiply-adds on registers alone: the most that a core can do with the instructions of a kernel. */
typedef struct roof_loop {
    const char *name; /* "avx512 f32" */
    double flops;     /* of one pass */
    int64_t passes;   /* that take about half a millisecond; set by roof_calibrate() */
    void (*run)(int64_t passes);
} roof_loop;

/* The loop for a kernel of the registry, or for the best of several joined by "+". */
roof_loop *roof_loop_of(const char *kernel);
void roof_calibrate(roof_loop *loop);
double roof_rate(const roof_loop *loop); /* flop/s, measured now on the calling thread */
double roof_hertz(void);                 /* of the core's clock: a chain of additions takes one cycle each */

/* Copies of so many bytes, on as many threads as the runs have. */
typedef struct roof_copy roof_copy;
roof_copy *roof_copy_make(size_t bytes, int threads); /* NULL without memory */
void roof_copy_free(roof_copy *copy);
double roof_copy_seconds(roof_copy *copy, int64_t count); /* of each of `count` copies */

/* ---- results ----------------------------------------------------------------------------------------------------- */

enum { BENCH_SAMPLES = 1000 };

typedef struct bench_stat {
    double median, least, most;
} bench_stat;

typedef struct bench_result {
    char problem[PROBLEM_TEXT], kernel[256];
    const char *loop;     /* name of the multiply-add loop */
    bool of_copy;         /* bound by memory: the share of a copy is the roof's, not the share of the loop */
    bench_stat seconds;   /* of one run, by bench_clock() */
    double wall, cpu;     /* medians of one run: wall time; CPU time of all threads */
    bench_stat share;     /* of the roof, 0 to 1 */
    double loop_share;    /* of the multiply-add loop, median; 0 without flops */
    double cycles_per_16; /* cycles of a core for 16 stored elements; 0 when not bound by memory */
    double hertz, roof_flops, roof_bytes; /* clock; rates of loop and copy (both ways counted), medians; 0: none */
    double flops, bytes;
    int64_t iterations; /* runs in all, without warm-up */
    int repetitions;
} bench_result;

/* ---- measuring (bench_measure.c) --------------------------------------------------------------------------------- */

typedef struct bench_opts {
    int repetitions; /* 0: until the median is known well enough */
    double min_time; /* seconds of repetitions at least */
    int threads;
} bench_opts;

/* Times the planned workload. */
void bench_measure(const bench_opts *o, workload *w, bench_result *r);

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct bench_report {
    const bench_result *results;
    int count, threads;
    const char *command; /* the whole line */
} bench_report;

void bench_json(FILE *f, const bench_report *report); /* bench_json.c */

#endif
