/*
 * report.c: how good and how fast a layout is for given queries, keys and values.
 *
 * The mass that a layout keeps of row i is the sum of the dense softmax's probabilities over the kept columns:
 *     sum_{kept j} exp(s_ij) / sum_j exp(s_ij) = exp(lse_layout(i) - lse_dense(i)),
 * both from the float64 reference, so it needs no second copy of the scores' rules. A sink's part of both sums is taken
 * out first. Dense is the same call on a layout of ones.
 */
#include "report.h"

#include "check/gen.h"
#include "check/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_RUNS = 3, MOST_RUNS = 15 };
static const double TIME_BUDGET = 1.0; /* seconds, for the runs of both layouts */

typedef struct head_figures {
    double error;            /* largest |o - reference| */
    double of_bound;         /* largest error / rounding bound */
    double mass, worst_mass; /* mean and smallest kept share of a row */
    int64_t rows, worst_row; /* rows that attend to anything; the row of worst_mass */
} head_figures;

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* 12345678 as "12,345,678". */
static const char *grouped(int64_t value, char text[32]) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static const char *memory(double bytes, char text[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, 32, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

static const char *duration(double seconds, char text[32]) {
    snprintf(text, 32, seconds < 1 ? "%.3f ms" : "%.3f s", seconds < 1 ? 1e3 * seconds : seconds);
    return text;
}

static void heading(const char *text) {
    printf("\n%s%s%s\n\n", style_on(STYLE_BOLD), text, style_off());
}

/* Plans for the layout and for the dense one, by way. */
typedef struct both_ways {
    bstk_plan *fused[2], *composed[2];
} both_ways;

/* ---- time -------------------------------------------------------------------------------------------------------- */

static double run_once(const report_input *in, const bstk_plan *plan, const bstk_exec *exec, const bstk_tensor *o) {
    double start = now();
    must(bstk_attention_run(plan, in->q, in->k, in->v, in->terms, o, NULL, exec));
    return now() - start;
}

/* Medians of runs in turn, so that a change of the machine's mood meets both; one of each to warm up. */
static int measure(const report_input *in, bstk_plan *const plans[2], double medians[2]) {
    double times[2][MOST_RUNS];
    bstk_exec exec[2];
    void *scratch[2];
    io_array o;
    make_array(&o, in->o->dtype, in->o->ndim, in->o->shape);
    for (int p = 0; p < 2; p++)
        scratch[p] = make_scratch(plans[p], &exec[p]);
    double pair = 0;
    for (int p = 0; p < 2; p++)
        pair += run_once(in, plans[p], &exec[p], &o.t);
    int runs = pair > 0 ? (int)fmin(MOST_RUNS, fmax(LEAST_RUNS, TIME_BUDGET / pair)) : MOST_RUNS;
    for (int r = 0; r < runs; r++)
        for (int p = 0; p < 2; p++)
            times[p][r] = run_once(in, plans[p], &exec[p], &o.t);
    for (int p = 0; p < 2; p++) {
        medians[p] = median(times[p], runs);
        free(scratch[p]);
    }
    io_array_free(&o);
    return runs;
}

/* ---- figures of each head ---------------------------------------------------------------------------------------- */

static double *doubles(int64_t count) {
    double *values = calloc((size_t)count + 1, sizeof *values);
    if (!values)
        fail("attention: out of memory for the reference of %lld values", (long long)count);
    return values;
}

typedef struct reference {
    double *o, *o_bound, *lse, *lse_bound;
} reference;

static reference make_reference(const report_input *in, const bstk_layout *layout, bool dots) {
    int64_t rows = in->z * in->h * in->m;
    reference r = {doubles(rows * in->dv), doubles(rows * in->dv), doubles(rows), doubles(rows)};
    ref_scores scores = {.layout = layout,
                         .z = in->z,
                         .h = in->h,
                         .m = in->m,
                         .n = in->n,
                         .d = in->d,
                         .dtype = in->q->dtype,
                         .q = in->q,
                         .k = in->k,
                         .terms = in->terms,
                         .dots = dots};
    if (!ref_attention(&scores, in->v, r.o, r.o_bound, r.lse, r.lse_bound))
        fail("attention: out of memory for the reference");
    return r;
}

static void free_reference(reference *r) {
    free(r->o);
    free(r->o_bound);
    free(r->lse);
    free(r->lse_bound);
}

/* NaN counts as the largest error unless the reference has it too. */
static void add_errors(const report_input *in, const reference *ref, int64_t row, head_figures *f) {
    for (int64_t e = row * in->dv; e < (row + 1) * in->dv; e++) {
        double got = gen_load(in->o->dtype, in->o->data, e), want = ref->o[e];
        if (got == want || (isnan(got) && isnan(want)) || (isinf(ref->o_bound[e]) && isfinite(want)))
            continue;
        double error = fabs(got - want);
        error = isnan(error) ? INFINITY : error;
        f->error = fmax(f->error, error);
        f->of_bound = fmax(f->of_bound, ref->o_bound[e] > 0 ? error / ref->o_bound[e] : INFINITY);
    }
}

static double sink_of(const report_input *in, int64_t h) {
    const bstk_tensor *sinks = in->terms->sinks;
    return sinks ? gen_load(sinks->dtype, sinks->data, h * sinks->stride[0]) : -INFINITY;
}

static void add_mass(double lse_layout, double lse_dense, double sink, int64_t i, head_figures *f) {
    /* Shares of the dense sum. What is left beside the sink is its attention to keys; below 2^-40 it is rounding. */
    double in_sink = exp(sink - lse_dense), to_keys = 1 - in_sink;
    if (lse_dense == -INFINITY || to_keys < 0x1p-40)
        return; /* nothing to attend to, whatever the layout */
    double mass = fmax(0.0, fmin(1.0, (exp(lse_layout - lse_dense) - in_sink) / to_keys));
    f->mass += mass;
    f->rows++;
    if (f->worst_row < 0 || !(mass >= f->worst_mass)) {
        f->worst_mass = mass;
        f->worst_row = i;
    }
}

/* `kernel`: what made o. */
static head_figures *figures_of_heads(const report_input *in, const bstk_layout *dense, const char *kernel) {
    const bool dots = strstr(kernel, "avx512_bf16") != NULL;
    progress_begin(in->common, "float64 reference", 2);
    reference layout_ref = make_reference(in, in->layout, dots);
    progress_add(1);
    reference dense_ref = make_reference(in, dense, dots);
    progress_end();
    head_figures *figures = calloc((size_t)in->h + 1, sizeof *figures);
    if (!figures)
        fail("attention: out of memory");
    for (int64_t h = 0; h < in->h; h++) {
        head_figures *f = &figures[h];
        f->worst_row = -1;
        for (int64_t z = 0; z < in->z; z++)
            for (int64_t i = 0; i < in->m; i++) {
                int64_t row = (z * in->h + h) * in->m + i;
                add_errors(in, &layout_ref, row, f);
                add_mass(layout_ref.lse[row], dense_ref.lse[row], sink_of(in, h), i, f);
            }
        f->mass = f->rows ? f->mass / (double)f->rows : 1;
        f->worst_mass = f->rows ? f->worst_mass : 1;
    }
    free_reference(&layout_ref);
    free_reference(&dense_ref);
    return figures;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void print_memory(const char *label, bstk_plan *const plans[2]) {
    char text[2][32];
    double bytes[2];
    for (int p = 0; p < 2; p++)
        bytes[p] = (double)bstk_plan_scratch_bytes(plans[p]);
    printf("  %-22s %14s %14s %9.2fx\n", label, memory(bytes[0], text[0]), memory(bytes[1], text[1]),
           bytes[0] > 0 ? bytes[1] / bytes[0] : 1.0);
}

static void print_comparison(const report_input *in, const bstk_layout *dense, const both_ways *ways,
                             const double medians[2], int runs) {
    const bstk_layout *layouts[2] = {in->layout, dense};
    char text[2][32];
    char title[160];
    snprintf(title, sizeof title,
             "Block-sparse and dense attention: batch %lld, %lld heads, %lld queries, %lld keys, head "
             "size %lld, %s",
             (long long)in->z, (long long)in->h, (long long)in->m, (long long)in->n, (long long)in->d,
             bstk_dtype_name(in->q->dtype));
    heading(title);
    printf("  %s%-22s %14s %14s %10s%s\n", style_on(STYLE_DIM), "", "block-sparse", "dense", "ratio", style_off());
    char label[64];
    snprintf(label, sizeof label, "time, median of %d", runs);
    printf("  %-22s %14s %14s %9.2fx\n", label, duration(medians[0], text[0]), duration(medians[1], text[1]),
           medians[0] > 0 ? medians[1] / medians[0] : 1.0);
    double stored[2];
    for (int p = 0; p < 2; p++)
        stored[p] = (double)bstk_layout_nnz(layouts[p]) * (bstk_layout_heads(layouts[p]) == 1 ? (double)in->h : 1);
    printf("  %-22s %14s %14s %9.2fx\n", "stored blocks", grouped((int64_t)stored[0], text[0]),
           grouped((int64_t)stored[1], text[1]), stored[0] > 0 ? stored[1] / stored[0] : INFINITY);
    printf("  %-22s %12.1f %% %12.1f %%\n", "density", 100 * bstk_layout_density(in->layout),
           100 * bstk_layout_density(dense));
    print_memory("memory, fused", ways->fused);
    print_memory("memory, composed", ways->composed);
    printf("\n  Time is that of the %s way%s: %s.\n", in->composed ? "composed" : "fused",
           in->composed ? "" : ", which stores no scores",
           bstk_plan_kernel((in->composed ? ways->composed : ways->fused)[0]));
    puts("  memory: what a run takes beside its arrays. The composed way (sdd, softmax, dsd: --composed) holds the\n"
         "  scores of all stored blocks there.");
}

static void print_bar(double share, bool ascii) {
    enum { CELLS = 20 };
    int full = (int)floor(share * CELLS + 0.5);
    printf("%s", style_on(share >= 0.9 ? STYLE_GOOD : share < 0.5 ? STYLE_BAD : STYLE_NONE));
    for (int i = 0; i < CELLS; i++)
        fputs(i < full ? (ascii ? "#" : "\u2588") : (ascii ? "." : "\u00b7"), stdout);
    printf("%s", style_off());
}

static void print_head(const char *name, const head_figures *f, bool ascii) {
    printf("  %4s    %10.2e  %6.1f %%    %6.2f %%  ", name, f->error, 100 * f->of_bound, 100 * f->mass);
    print_bar(f->mass, ascii);
    if (f->worst_row >= 0)
        printf("    %6.2f %%  row %lld\n", 100 * f->worst_mass, (long long)f->worst_row);
    else
        puts("    (no row attends to anything)");
}

/* Returns whether every output is within its bound. */
static bool print_heads(const report_input *in, const head_figures *figures) {
    heading("Each head: error against the float64 reference on the same layout; dense attention that the layout keeps");
    printf("  %s%4s    %10s  %8s    %8s  %-20s    %8s%s\n", style_on(STYLE_DIM), "head", "error", "of bound", "kept",
           "(mean of the rows)", "worst", style_off());
    head_figures all = {.worst_row = -1, .worst_mass = 1};
    for (int64_t h = 0; h < in->h; h++) {
        const head_figures *f = &figures[h];
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)h);
        print_head(name, f, in->ascii);
        all.error = fmax(all.error, f->error);
        all.of_bound = fmax(all.of_bound, f->of_bound);
        all.mass += f->mass / (double)in->h;
        if (f->worst_row >= 0 && (all.worst_row < 0 || f->worst_mass < all.worst_mass)) {
            all.worst_mass = f->worst_mass;
            all.worst_row = f->worst_row;
        }
    }
    print_head("all", &all, in->ascii);
    bool right = all.of_bound <= 1;
    printf("\n  %s%s%s\n", style_on(right ? STYLE_GOOD : STYLE_BAD),
           right ? "Every output is within its rounding bound." : "FAIL: an output is beyond its rounding bound.",
           style_off());
    puts("  error: largest |o - reference|.  of bound: that of the rounding bound, 100 % is the most allowed.\n"
         "  kept: sum of the dense softmax's probabilities over the stored places of a row; the nearer to 100 %,\n"
         "  the less the layout changes the head. worst: the row that loses most.");
    return right;
}

static void print_layout(const report_input *in) {
    const bstk_layout *l = in->layout;
    char title[256], text[2][32];
    int64_t heads = bstk_layout_heads(l);
    int64_t all = heads * bstk_layout_rows(l) * bstk_layout_cols(l);
    snprintf(title, sizeof title, "Layout %s: %lld x %lld blocks of %d x %d, %s of %s stored%s", in->layout_name,
             (long long)bstk_layout_rows(l), (long long)bstk_layout_cols(l), bstk_layout_block(l), bstk_layout_block(l),
             grouped(bstk_layout_nnz(l), text[0]), grouped(all, text[1]),
             heads == 1 && in->h > 1 ? ", the same for every head" : "");
    heading(title);
    print_picture(l, in->ascii);
}

/* Without lse, so that all are alike. */
static bstk_plan *make_plan(const report_input *in, const bstk_layout *layout, const char *kernel) {
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = layout;
    desc.q = in->q;
    desc.k = in->k;
    desc.v = in->v;
    desc.o = in->o;
    desc.terms = *in->terms;
    desc.kernel = kernel;
    bstk_plan *plan = NULL;
    must(bstk_attention_plan(in->ctx, &desc, &plan));
    return plan;
}

bool attention_report(const report_input *in) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    opts.rows = bstk_layout_rows(in->layout);
    opts.cols = bstk_layout_cols(in->layout);
    opts.block = bstk_layout_block(in->layout);
    opts.shape[0] = bstk_layout_m(in->layout);
    opts.shape[1] = bstk_layout_n(in->layout);
    bstk_layout *dense = NULL;
    must(bstk_layout_build(in->ctx, &opts, &dense));
    both_ways ways = {{make_plan(in, in->layout, NULL), make_plan(in, dense, NULL)},
                      {make_plan(in, in->layout, "composed"), make_plan(in, dense, "composed")}};

    print_layout(in);
    double medians[2];
    progress_begin(in->common, "timing", 0);
    int runs = measure(in, in->composed ? ways.composed : ways.fused, medians);
    progress_end();
    print_comparison(in, dense, &ways, medians, runs);
    fflush(stdout);
    head_figures *figures =
        figures_of_heads(in, dense, bstk_plan_kernel((in->composed ? ways.composed : ways.fused)[0]));
    bool right = print_heads(in, figures);
    free(figures);
    for (int p = 0; p < 2; p++) {
        bstk_plan_release(ways.fused[p]);
        bstk_plan_release(ways.composed[p]);
    }
    bstk_layout_release(dense);
    return right;
}
