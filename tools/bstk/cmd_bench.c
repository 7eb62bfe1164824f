/*
 * cmd_bench.c: bstk bench: reads the problems, also from lists in files, times one after the other and prints a line
 * for each; the files come at the end, whole or not at all.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KEY_JSON = KEY_COMMAND, KEY_REPETITIONS, KEY_MIN_TIME, KEY_KERNEL, KEY_PEER, KEY_PLOT };
enum { MOST_LIST_BYTES = 1 << 20 };

static const struct argp_option options[] = {
    {"json", KEY_JSON, "FILE", 0, "Also write the results in google-benchmark's form", 1},
    {"repetitions", KEY_REPETITIONS, "N", 0,
     "Repetitions of each problem (default: at least 10, until the median is stable)", 1},
    {"min-time", KEY_MIN_TIME, "S", 0, "Seconds to spend on each problem at least (default: 0.5)", 1},
    {"kernel", KEY_KERNEL, "NAME", 0, "Time this kernel, not the one that dispatch would choose", 1},
    {"peer", KEY_PEER, "NAME[,NAME...]", 0,
     "Also time these, where they are on the machine and right: openblas libxsmm mkl onednn scipy torch, or all", 1},
    {"plot", KEY_PLOT, "FILE.png", 0, "Also draw the shares and ratios", 1},
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

typedef struct bench_cmd {
    common_opts common;
    positionals problems;
    const char *json, *plot, *kernel;
    bench_opts measure;
    char *command; /* the line as typed */
} bench_cmd;

typedef struct bench_problem {
    problem p;
    char text[PROBLEM_TEXT];
} bench_problem;

typedef struct bench_list {
    bench_problem *items;
    int count, room;
} bench_list;

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
        o->measure.repetitions = (int)option_int(&o->common, "--repetitions", arg, 1, BENCH_SAMPLES);
        return 0;
    case KEY_MIN_TIME:
        o->measure.min_time = option_double(&o->common, "--min-time", arg);
        if (o->measure.min_time < 0)
            usage_error("bench: --min-time is '%s', expected a number of at least 0", arg);
        return 0;
    case KEY_KERNEL:
        o->kernel = arg;
        return 0;
    case KEY_PEER:
        bench_peers_add(arg);
        return 0;
    case KEY_PLOT:
        if (!has_suffix(arg, ".png"))
            usage_error("bench: --plot is '%s', expected a name that ends in .png", arg);
        o->plot = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- problems ---------------------------------------------------------------------------------------------------- */

/* `where` is "FILE:LINE: ", or "" for an argument. */
static void add_problem(const bench_cmd *o, bench_list *list, const char *where, const char *text) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        bench_problem *items = realloc(list->items, (size_t)list->room * sizeof *items);
        if (!items)
            fail("bench: out of memory");
        list->items = items;
    }
    bench_problem *item = &list->items[list->count++];
    char error[PROBLEM_TEXT];
    if (!problem_parse(text, &item->p, error))
        usage_error("bench: %s%s", where, error);
    problem_print(&item->p, item->text);
    if (item->p.cuda)
        fail("bench: %s%s: this build has no GPU kernels", where, text);
    if (o->kernel && problem_is_product(item->p.op) && item->p.backward)
        usage_error("bench: %s--kernel does not go with %s: a gradient of a product is two products", where, text);
}

/* One problem a line; what follows a # at the start of a line or after a space is a comment. */
static void add_file(const bench_cmd *o, bench_list *list, const char *path) {
    void *bytes;
    size_t size;
    io_error error;
    if (!io_file_read(path, MOST_LIST_BYTES, &bytes, &size, &error))
        fail("bench: %s", error.text);
    const char *text = bytes, *end = text + size;
    for (int number = 1; text < end; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end;
        const size_t length = (size_t)((stop ? stop : end) - text);
        char line[PROBLEM_TEXT], where[PROBLEM_TEXT];
        snprintf(where, sizeof where, "%s:%d: ", path, number);
        if (length >= sizeof line)
            usage_error("bench: %s%zu bytes, expected at most %zu", where, length, sizeof line - 1);
        memcpy(line, text, length);
        line[length] = '\0';
        for (char *c = strchr(line, '#'); c; c = strchr(c + 1, '#'))
            if (c == line || c[-1] == ' ' || c[-1] == '\t')
                *c = '\0';
        char *first = line + strspn(line, " \t\r"), *last = first + strlen(first);
        while (last > first && strchr(" \t\r", last[-1]))
            *--last = '\0';
        if (*first)
            add_problem(o, list, where, first);
        text = next;
    }
    free(bytes);
}

/* A problem has colons, the name of a list need not: a file of the name, or a name that cannot be a problem. */
static bool is_list(const char *argument) {
    struct stat info;
    return stat(argument, &info) == 0 || (!strchr(argument, ':') && strpbrk(argument, "/."));
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_head(void) {
    printf("%s%-58s %10s %9s %8s %7s %13s  %-11s %7s  %s%s\n", style_on(STYLE_BOLD), "problem", "ms", "GFLOP/s", "GB/s",
           "share", "least-most", "of", "cyc/16", "kernel", style_off());
    fflush(stdout);
}

/* Peers without a ratio, those with one reason together. */
static void print_notes(const bench_result *r) {
    bool said[BENCH_NOTES] = {false};
    for (int i = 0; i < r->note_count; i++) {
        if (said[i])
            continue;
        printf("    no ratio: %s", r->notes[i].peer);
        for (int j = i + 1; j < r->note_count; j++)
            if (strcmp(r->notes[j].why, r->notes[i].why) == 0) {
                printf(" %s", r->notes[j].peer);
                said[j] = true;
            }
        printf(": %s\n", r->notes[i].why);
    }
}

static void print_result(const bench_result *r, bool quiet) {
    char range[32] = "-";
    const double time = r->seconds.median;
    printf("%-58s %10.4f", r->problem, 1e3 * time);
    if (r->flops > 0)
        printf(" %9.2f", 1e-9 * r->flops / time);
    else
        printf(" %9s", "-");
    printf(" %8.2f", 1e-9 * r->bytes / time);
    if (r->share.most > 0) {
        snprintf(range, sizeof range, "%.1f-%.1f", 100 * r->share.least, 100 * r->share.most);
        printf(" %5.1f %%", 100 * r->share.median);
    } else {
        printf(" %7s", "-");
    }
    printf(" %13s  %-11s", range, r->of_copy ? "copy" : r->loop);
    if (r->of_copy)
        printf(" %7.2f", r->cycles_per_16);
    else
        printf(" %7s", "-");
    printf("  %s\n", r->kernel);
    if (r->wrong)
        printf("    WRONG: %s\n", r->error);
    for (int i = 0; i < r->ratio_count; i++)
        printf("    %-18s %8.2f x  (%.2f-%.2f)  %10.4f ms  %s\n", r->ratios[i].key, r->ratios[i].ratio.median,
               r->ratios[i].ratio.least, r->ratios[i].ratio.most, 1e3 * r->ratios[i].seconds, r->ratios[i].how);
    if (!quiet)
        print_notes(r);
    fflush(stdout);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void bench_one(const bench_cmd *o, bstk_context *ctx, const problem *p, bool with_peers, bench_result *r) {
    char error[PROBLEM_TEXT];
    workload w;
    if (!workload_make(p, WORKLOAD_UNIFORM, 0, 0, &w, error))
        fail("bench: %s", error);
    must(workload_plan(&w, ctx, o->kernel));
    problem_print(p, r->problem);
    snprintf(r->kernel, sizeof r->kernel, "%s", bstk_plan_kernel(w.plan));
    r->flops = bstk_plan_flops(w.plan);
    r->bytes = bstk_plan_bytes(w.plan);
    r->of_copy = r->bytes > 0 && !problem_is_product(p->op) && p->op != PROBLEM_ATTENTION;
    bench_rivals *rivals = with_peers ? bench_rivals_make(&w, &o->measure, r) : NULL;
    bench_measure(&o->measure, &w, rivals, r);
    if (rivals)
        bench_rivals_end(rivals, r);
    workload_free(&w);
}

static void put_json(io_output *output, const bench_report *report, io_error *error, bool *good) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        fail("bench: out of memory");
    bench_json(f, report);
    if (fclose(f) != 0)
        fail("bench: out of memory");
    *good = io_output_write(output, text, size, error);
    free(text);
}

static void put_plot(const bench_cmd *o, io_output *output, const bench_report *report, io_error *error, bool *good) {
    uint8_t *pixels;
    int width, height;
    if (!bench_plot(report, &pixels, &width, &height))
        fail("bench: out of memory for the picture");
    *good = io_png_put(output, o->plot, pixels, width, height, error);
    free(pixels);
    if (*good && !o->common.quiet)
        printf("%s: %d x %d pixels\n", o->plot, width, height);
}

/* Both files or none. */
static void write_files(const bench_cmd *o, const bench_report *report) {
    io_error error;
    io_output *outputs[2] = {NULL, NULL};
    bool good = true;
    if (o->json && good && (good = (outputs[0] = io_output_open(o->json, &error)) != NULL))
        put_json(outputs[0], report, &error, &good);
    if (o->plot && good && (good = (outputs[1] = io_output_open(o->plot, &error)) != NULL))
        put_plot(o, outputs[1], report, &error, &good);
    for (int i = 0; i < 2 && good; i++)
        good = !outputs[i] || io_output_flush(outputs[i], &error);
    for (int i = 0; i < 2; i++)
        if (outputs[i] && good)
            good = io_output_commit(outputs[i], &error);
        else if (outputs[i])
            io_output_abort(outputs[i]);
    if (!good)
        fail("bench: %s", error.text);
}

static void bench(bench_cmd *o, const bench_list *list) {
    bench_result *results = calloc((size_t)list->count, sizeof *results);
    if (!results)
        fail("bench: out of memory");
    const output_file files[] = {{"--json", o->json, NULL, NULL, false}, {"--plot", o->plot, NULL, NULL, true}};
    probe_outputs(&o->common, files, 2);
    bstk_context *ctx = make_context(&o->common);
    o->measure.threads = bstk_context_num_threads(ctx);
    const bool with_peers = bench_peers_open(&o->common, o->measure.threads);
    print_head();
    int wrong = 0;
    for (int i = 0; i < list->count; i++) {
        char label[32];
        snprintf(label, sizeof label, "bench %d/%d", i + 1, list->count);
        progress_begin(&o->common, label, o->measure.repetitions);
        bench_one(o, ctx, &list->items[i].p, with_peers, &results[i]);
        progress_end();
        print_result(&results[i], o->common.quiet);
        wrong += results[i].wrong;
    }
    const bench_report report = {results, list->count, o->measure.threads, o->command};
    write_files(o, &report);
    bench_peers_close();
    bstk_context_release(ctx);
    free(results);
    if (wrong > 0)
        fail("bench: %d of %d results are wrong", wrong, list->count);
}

/* The words of the command line as a shell would take them, as long as they have no quotes of their own. */
static char *command_line(int argc, char **argv) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        fail("bench: out of memory");
    fputs("bstk", f);
    for (int i = 0; i < argc; i++)
        fprintf(f, argv[i][strcspn(argv[i], " ()*;&|<>$\"\\#")] ? " '%s'" : " %s", argv[i]);
    if (fclose(f) != 0)
        fail("bench: out of memory");
    return text;
}

int cmd_bench(int argc, char **argv) {
    static const struct argp_child children[] = {{&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_bench,
        "[PROBLEM...]",
        "Times problems, some typical ones when none is given: median time of a run, useful GFLOP/s (stored blocks "
        "only), GB/s (each operand once) and the share of what this core can do at most, measured between the runs: a "
        "loop of multiply-adds, or a copy of as many bytes where memory is the bound. A PROBLEM is "
        "OP:DTYPE:bB[:zZ][:hH]:mM:nN[:kK|:dD]:PATTERN[:ta][:tb][:tc][:causal][:bwd], or a file with one a line; OP: "
        "sdd "
        "dsd dds softmax layernorm rmsnorm attention pack unpack; bwd: the gradient; PATTERN: ones diag tril "
        "bernoulli(p,seed) local(w) bigbird(w,g,r,seed) longformer(w,g) file(path).",
        children,
        0,
        0};
    bench_cmd o = {.common.command = "bench",
                   .common.examples =
                       "Example:\n  bstk bench 'dsd:f32:b64:m2048:n2048:k2048:bernoulli(0.5,0)' --json out.json",
                   .measure.min_time = 0.5};
    o.command = command_line(argc, argv);
    parse_command(&argp, argc, argv, &o.common, &o);
    bench_list list = {0};
    for (int i = 0; i < o.problems.count; i++) /* all are read before the first one runs */
        if (is_list(o.problems.arg[i]))
            add_file(&o, &list, o.problems.arg[i]);
        else
            add_problem(&o, &list, "", o.problems.arg[i]);
    for (size_t i = 0; o.problems.count == 0 && i < sizeof default_problems / sizeof *default_problems; i++)
        add_problem(&o, &list, "", default_problems[i]);
    if (list.count == 0)
        usage_error("bench: no problem in the lists given");
    bench(&o, &list);
    free(list.items);
    free(o.problems.arg);
    free(o.command);
    return 0;
}
