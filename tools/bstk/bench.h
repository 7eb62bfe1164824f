/*
 * bench.h: between the parts of 'bstk bench': cmd_bench.c reads problems and prints, bench_measure.c times one problem,
 * bench_roof.c knows what the machine can do, bench_json.c and bench_plot.c write the results, bench_peers.c asks other
 * libraries.
 */
#ifndef BSTK_BENCH_H
#define BSTK_BENCH_H

#include "cli.h"

#include "peer.h"

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

enum { BENCH_SAMPLES = 1000, BENCH_RATIOS = 16, BENCH_NOTES = 16 };

typedef struct bench_stat {
    double median, least, most;
} bench_stat;

typedef struct bench_ratio {
    char key[32], how[PEER_TEXT]; /* as in peer_way */
    bench_stat ratio;             /* the peer's time over ours, of neighbours in time */
    double seconds;               /* of one run of the peer's, median */
} bench_ratio;

typedef struct bench_note {
    char peer[32], why[PROBLEM_TEXT]; /* why it has no ratio */
} bench_note;

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
    bench_ratio ratios[BENCH_RATIOS];
    bench_note notes[BENCH_NOTES];
    int ratio_count, note_count;
    bool checked, wrong; /* held against the float64 reference; and found wrong: `error` says where */
    int64_t check_step;  /* 1: every element; else every so many-th column or row */
    char error[PROBLEM_TEXT];
} bench_result;

/* ---- measuring (bench_measure.c) --------------------------------------------------------------------------------- */

typedef struct bench_opts {
    int repetitions; /* 0: until the median is known well enough */
    double min_time; /* seconds of repetitions at least */
    int threads;
} bench_opts;

struct bench_rivals;
/* Times the planned workload, and the rivals, who may be NULL, beside it. */
void bench_measure(const bench_opts *o, workload *w, struct bench_rivals *rivals, bench_result *r);
bench_stat bench_summarize(const double *values, int count);
int64_t bench_calls(double once);     /* how many runs of `once` seconds make a batch */
bool bench_needs_warmth(double once); /* whether an untimed one goes ahead of them */

/* ---- peers (bench_peers.c) --------------------------------------------------------------------------------------- */

/* Adds the peers of a comma-separated list, "all" for every one; a name that is none is a usage error. */
void bench_peers_add(const char *list);
/* Opens those that were added and prints what was found. False: none was asked for. */
bool bench_peers_open(const common_opts *common, int threads);
void bench_peers_close(void);

/* A way of a peer in the running. */
typedef struct bench_rival {
    peer_way way;
    double once;   /* seconds of a run, about */
    int64_t calls; /* of a batch */
    double ratio[BENCH_SAMPLES], seconds[BENCH_SAMPLES];
    int count;
    double spent; /* seconds so far */
} bench_rival;

typedef struct bench_rivals {
    bench_rival *items[BENCH_RATIOS];
    int count;
} bench_rivals;

/*
 * Holds the workload's result against the reference, asks every open peer for its ways, checks them, and keeps of each
 * key the fastest. Notes in `r` say what is left out and why.
 */
bench_rivals *bench_rivals_make(workload *w, const bench_opts *o, bench_result *r);
void bench_rivals_run(bench_rivals *rivals, const bench_opts *o, double ours); /* one batch each, beside one of ours */
void bench_rivals_end(bench_rivals *rivals, bench_result *r);                  /* puts the ratios into r; frees */
const char *bench_peers_text(int i, const char **name); /* what the i-th open peer is; NULL after the last */

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct bench_report {
    const bench_result *results;
    int count, threads;
    const char *command; /* the whole line */
} bench_report;

void bench_json(FILE *f, const bench_report *report); /* bench_json.c */
void bench_cpu(char *name, size_t size);              /* what /proc/cpuinfo calls it */

/* bench_plot.c: a picture [height, width, 3], to be freed; false without memory. */
bool bench_plot(const bench_report *report, uint8_t **pixels, int *width, int *height);

#endif
