/*
 * cmd_bench.c: bstk bench: times problems. Each repetition runs a problem until it has taken at least a tenth of
 * --min-time, so that the clock's grain does not show; what is reported is the median repetition.
 */
#include "cli.h"

#include "check/workload.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEY_JSON = KEY_COMMAND, KEY_REPETITIONS, KEY_MIN_TIME, KEY_KERNEL, KEY_PEER, KEY_PLOT };
enum { MOST_REPETITIONS = 1000 };

static const struct argp_option options[] = {
    {"json", KEY_JSON, "FILE", 0, "Also write the results in google-benchmark's form", 1},
    {"repetitions", KEY_REPETITIONS, "N", 0, "Repetitions of each problem (default: 10)", 1},
    {"min-time", KEY_MIN_TIME, "S", 0, "Seconds to spend on each problem at least (default: 0.5)", 1},
    {"kernel", KEY_KERNEL, "NAME", 0, "Time this kernel, not the one that dispatch would choose", 1},
    {"peer", KEY_PEER, "NAME", OPTION_HIDDEN, "", 1},
    {"plot", KEY_PLOT, "FILE", OPTION_HIDDEN, "", 1},
    {0}};

static const char *const default_problems[] = {
    "sdd:f32:b32:h4:m1024:n1024:k64:local(5)",
    "dsd:f32:b32:h4:m1024:n64:k1024:local(5)",
    "dds:f32:b32:h4:m64:n1024:k1024:local(5)",
    "dsd:f32:b64:m2048:n256:k2048:bernoulli(0.1,0)",
    "softmax:f32:b32:h4:m1024:n1024:local(5)",
    "attention:f32:b32:h4:m1024:n1024:d64:bigbird(3,1,2,0)",
    "attention:f16:b32:h4:m1024:n1024:d64:bigbird(3,1,2,0)",
    "attention:f32:b32:h4:m1024:n1024:d64:bigbird(3,1,2,0):bwd",
    "softmax:f32:b32:h4:m1024:n1024:local(5):bwd",
    "layernorm:f32:b32:h4:m1024:n1024:local(5)",
    "layernorm:f32:b32:h4:m1024:n1024:local(5):bwd",
};

typedef struct bench_result {
    char problem[PROBLEM_TEXT], kernel[128];
    double median, least, most; /* seconds of one run */
    double flops, bytes;
    int64_t iterations; /* runs in all, without warm-up */
} bench_result;

typedef struct bench_cmd {
    common_opts common;
    positionals problems;
    const char *json, *kernel;
    int repetitions;
    double min_time;
} bench_cmd;

static error_t parse_bench(int key, char *arg, struct argp_state *state) {
    bench_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->problems, arg);
        return 0;
    case KEY_JSON:
        o->json = arg;
        return 0;
    case KEY_REPETITIONS:
        o->repetitions = (int)option_int(&o->common, "--repetitions", arg, 1, MOST_REPETITIONS);
        return 0;
    case KEY_MIN_TIME:
        o->min_time = option_double(&o->common, "--min-time", arg);
        if (o->min_time < 0)
            usage_error("bench: --min-time is '%s', expected a number of at least 0", arg);
        return 0;
    case KEY_KERNEL:
        o->kernel = arg;
        return 0;
    case KEY_PEER:
        usage_error("bench: --peer is not in this version");
    case KEY_PLOT:
        usage_error("bench: --plot is not in this version");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- timing ------------------------------------------------------------------------------------------------------ */

static double run_many(workload *w, int64_t count) {
    double start = now();
    for (int64_t i = 0; i < count; i++)
        must(workload_run(w));
    return now() - start;
}

static void measure(const bench_cmd *o, bstk_context *ctx, const problem *p, bench_result *r) {
    char error[PROBLEM_TEXT];
    workload w;
    if (!workload_make(p, WORKLOAD_UNIFORM, 0, 0, &w, error))
        fail("bench: %s", error);
    must(workload_plan(&w, ctx, o->kernel));
    problem_print(p, r->problem);
    snprintf(r->kernel, sizeof r->kernel, "%s", bstk_plan_kernel(w.plan));
    r->flops = bstk_plan_flops(w.plan);
    r->bytes = bstk_plan_bytes(w.plan);
    run_many(&w, 1); /* first touch of memory, start of threads */
    double once = run_many(&w, 1), wanted = o->min_time / o->repetitions;
    int64_t runs = once < wanted ? (int64_t)(wanted / (once > 1e-9 ? once : 1e-9)) + 1 : 1;
    double times[MOST_REPETITIONS];
    for (int i = 0; i < o->repetitions; i++) {
        times[i] = run_many(&w, runs) / (double)runs;
        progress_add(1);
    }
    r->median = median(times, o->repetitions);
    r->least = times[0];
    r->most = times[o->repetitions - 1];
    r->iterations = runs * o->repetitions;
    workload_free(&w);
}

static void print_result(const bench_result *r) {
    printf("%-56s %11.4f %11.4f %11.4f", r->problem, 1e3 * r->median, 1e3 * r->least, 1e3 * r->most);
    if (r->flops > 0 && r->median > 0)
        printf(" %9.2f", 1e-9 * r->flops / r->median);
    else
        printf(" %9s", "-");
    printf(" %8.2f  %s\n", r->median > 0 ? 1e-9 * r->bytes / r->median : 0.0, r->kernel);
    fflush(stdout);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Problem strings may hold a file name: quotes, backslashes and control characters are escaped. */
static void json_string(FILE *f, const char *text) {
    fputc('"', f);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(f, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(f, "\\u%04x", *c);
        else
            fputc(*c, f);
    }
    fputc('"', f);
}

static void json_document(FILE *f, bstk_context *ctx, const bench_result *results, int count) {
    char date[32], host[256] = "";
    time_t seconds = time(NULL);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
    gethostname(host, sizeof host - 1);
    fprintf(f, "{\n  \"context\": {\n    \"date\": \"%s\",\n    \"host_name\": ", date);
    json_string(f, host);
    fprintf(f, ",\n    \"executable\": \"bstk\",\n    \"num_cpus\": %ld,\n    \"num_threads\": %d,\n",
            sysconf(_SC_NPROCESSORS_ONLN), bstk_context_num_threads(ctx));
    fprintf(f, "    \"bstk_version\": \"%s\"\n  },\n  \"benchmarks\": [", bstk_version());
    for (int i = 0; i < count; i++) {
        const bench_result *r = &results[i];
        fprintf(f, "%s\n    {\n      \"name\": ", i ? "," : "");
        json_string(f, r->problem);
        fprintf(f, ",\n      \"run_type\": \"iteration\",\n      \"iterations\": %lld,\n", (long long)r->iterations);
        fprintf(f, "      \"real_time\": %.9g,\n      \"real_time_min\": %.9g,\n      \"real_time_max\": %.9g,\n",
                1e9 * r->median, 1e9 * r->least, 1e9 * r->most);
        fprintf(f, "      \"time_unit\": \"ns\",\n      \"useful_gflops\": %.6g,\n      \"gbytes_per_second\": %.6g,\n",
                r->median > 0 ? 1e-9 * r->flops / r->median : 0, r->median > 0 ? 1e-9 * r->bytes / r->median : 0);
        fprintf(f, "      \"kernel\": \"%s\"\n    }", r->kernel);
    }
    fputs("\n  ]\n}\n", f);
}

static void write_json(const bench_cmd *o, bstk_context *ctx, const bench_result *results, int count) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        fail("bench: out of memory");
    json_document(f, ctx, results, count);
    if (fclose(f) != 0)
        fail("bench: out of memory");
    io_error error;
    io_output *output = io_output_open(o->json, &error);
    if (!output)
        fail("bench: %s", error.text);
    if (!io_output_write(output, text, size, &error)) {
        io_output_abort(output);
        fail("bench: %s", error.text);
    }
    if (!io_output_commit(output, &error))
        fail("bench: %s", error.text);
    free(text);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void bench(const bench_cmd *o, const char *const *texts, int count) {
    problem *problems = calloc((size_t)count, sizeof *problems);
    bench_result *results = calloc((size_t)count, sizeof *results);
    if (!problems || !results)
        fail("bench: out of memory");
    for (int i = 0; i < count; i++) { /* all are read before the first one runs */
        char error[PROBLEM_TEXT];
        if (!problem_parse(texts[i], &problems[i], error))
            usage_error("bench: %s", error);
        if (problems[i].cuda)
            fail("bench: %s: this build has no GPU kernels", texts[i]);
        if (o->kernel && problem_is_product(problems[i].op) && problems[i].backward)
            usage_error("bench: --kernel does not go with %s: a gradient of a product is two products", texts[i]);
    }
    probe_output(&o->common, o->json);
    bstk_context *ctx = make_context(&o->common);
    printf("%s%-56s %11s %11s %11s %9s %8s  %s%s\n", style_on(STYLE_BOLD), "problem", "median ms", "min ms", "max ms",
           "GFLOP/s", "GB/s", "kernel", style_off());
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        progress_begin(&o->common, "bench", o->repetitions);
        measure(o, ctx, &problems[i], &results[i]);
        progress_end();
        print_result(&results[i]);
    }
    if (o->json)
        write_json(o, ctx, results, count);
    bstk_context_release(ctx);
    free(problems);
    free(results);
}

int cmd_bench(int argc, char **argv) {
    static const struct argp_child children[] = {{&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_bench,
        "[PROBLEM...]",
        "Times problems, some typical ones when none is given: median, least and largest time of one run, useful "
        "GFLOP/s (stored blocks only) and GB/s (each operand once). A PROBLEM is "
        "OP:DTYPE:bB[:zZ][:hH]:mM:nN[:kK|:dD]:PATTERN[:ta][:tb][:tc][:causal][:bwd]; OP: sdd dsd dds softmax layernorm "
        "rmsnorm attention pack unpack; bwd: the gradient; PATTERN: ones diag tril bernoulli(p,seed) local(w) "
        "bigbird(w,g,r,seed) longformer(w,g) file(path).",
        children,
        0,
        0};
    bench_cmd o = {.common.command = "bench",
                   .common.examples =
                       "Example:\n  bstk bench 'dsd:f32:b64:m2048:n2048:k2048:bernoulli(0.5,0)' --json out.json",
                   .repetitions = 10,
                   .min_time = 0.5};
    parse_command(&argp, argc, argv, &o.common, &o);
    if (o.problems.count > 0)
        bench(&o, o.problems.arg, o.problems.count);
    else
        bench(&o, default_problems, sizeof default_problems / sizeof *default_problems);
    free(o.problems.arg);
    return 0;
}
