/* cmd_check.c: bstk check: every registered kernel on this machine against the float64 reference. */
#include "cli.h"

#include "check/check.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_KERNEL = KEY_COMMAND, KEY_SEED, KEY_VARIANTS };

static const struct argp_option options[] = {
    {"kernel", KEY_KERNEL, "NAME", 0,
     "Only this kernel; 'bstk kernels' lists them, and 'composed' (attention of products and softmax), 'sdd_grad', "
     "'dsd_grad' and 'dds_grad' are ones too",
     1},
    {"seed", KEY_SEED, "S", 0, "Seed of the data (default: 0)", 1},
    {"variants", KEY_VARIANTS, "N", 0,
     "Variants of each problem: strides, broadcasts, score terms and so on; 1: the plain one only (default: 6)", 1},
    {0}};

typedef struct check_cmd {
    common_opts common;
    positionals problems;
    check_options options;
    const char *kernel;
    /* The line of the table that is being filled: one a kernel. */
    char row[64];
    int64_t row_problems, row_failed;
    double row_worst;
    int64_t passed, failed;
} check_cmd;

static error_t parse_check(int key, char *arg, struct argp_state *state) {
    check_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->problems, arg);
        return 0;
    case KEY_KERNEL:
        o->kernel = o->options.kernel = arg;
        return 0;
    case KEY_SEED:
        o->options.seed = (uint64_t)option_int(&o->common, "--seed", arg, 0, INT64_MAX);
        return 0;
    case KEY_VARIANTS:
        o->options.variants = (int32_t)option_int(&o->common, "--variants", arg, 1, 1000);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void end_row(check_cmd *o) {
    if (o->row_problems == 0)
        return;
    progress_erase();
    bool good = o->row_failed == 0;
    printf("%-32s %9lld %14.3f   %s%s%s\n", o->row, (long long)o->row_problems, o->row_worst,
           style_on(good ? STYLE_GOOD : STYLE_BAD), good ? "pass" : "FAIL", style_off());
    fflush(stdout);
    o->row_problems = o->row_failed = 0;
    o->row_worst = 0;
}

static void add_result(check_cmd *o, const char *kernel, const check_report *report) {
    if (strcmp(o->row, kernel) != 0) {
        end_row(o);
        snprintf(o->row, sizeof o->row, "%s", kernel);
    }
    o->row_problems++;
    o->row_worst = report->worst > o->row_worst ? report->worst : o->row_worst;
    if (report->passed) {
        o->passed++;
        return;
    }
    o->failed++;
    o->row_failed++;
    progress_erase();
    printf("%sFAIL%s %s\n", style_on(STYLE_BAD), style_off(), report->message);
}

static bool after_problem(void *user, const char *kernel, const problem *p, const check_report *report) {
    (void)p;
    check_cmd *o = user;
    progress_add(1);
    add_result(o, kernel, report);
    return true;
}

/* ---- problems ---------------------------------------------------------------------------------------------------- */

/* A row's op is the problem's, with "_grad" when the problem is a gradient. */
static const char *op_of(const problem *p, char text[32]) {
    snprintf(text, 32, "%s%s", problem_op_name(p->op), p->backward ? "_grad" : "");
    return text;
}

static bool row_fits(const bstk_kernel_info *row, const problem *p) {
    char op[32];
    return row->available && strcmp(row->op, op_of(p, op)) == 0 && row->dtype == p->dtype &&
           (!problem_is_product(p->op) || row->packed_dtype == p->packed_dtype) &&
           (row->block == 0 || row->block == p->block);
}

static void check_on(check_cmd *o, const problem *p, const char *name, const char *kernel) {
    check_report report;
    check_problem(p, kernel, &o->options, &report);
    add_result(o, name, &report);
}

/* Rows, and compositions of rows, that are to run a problem; 0 for none. */
static int run_rows(check_cmd *o, const problem *p, bool count_only) {
    int rows = 0;
    for (int32_t i = 0; i < bstk_kernel_count(); i++) {
        bstk_kernel_info row = {.struct_size = sizeof row};
        must(bstk_kernel_get(i, &row));
        if (!row_fits(&row, p) || (o->kernel && strcmp(row.name, o->kernel) != 0))
            continue;
        if (!count_only)
            check_on(o, p, row.name, row.name);
        rows++;
    }
    for (const char *const *name = check_composed; *name; name++) {
        char op[32];
        bool attention = strcmp(*name, "composed") == 0;
        if (strcmp(attention ? "attention" : *name, op_of(p, op)) != 0 || (o->kernel && strcmp(*name, o->kernel) != 0))
            continue;
        if (!count_only)
            check_on(o, p, *name, attention ? *name : NULL);
        rows++;
    }
    return rows;
}

/* All problems are read before the first one runs. */
static problem *read_problems(check_cmd *o) {
    problem *problems = calloc((size_t)o->problems.count + 1, sizeof *problems);
    if (!problems)
        fail("check: out of memory");
    for (int i = 0; i < o->problems.count; i++) {
        const char *text = o->problems.arg[i];
        char error[PROBLEM_TEXT];
        if (!problem_parse(text, &problems[i], error))
            usage_error("check: %s", error);
        if (problems[i].cuda)
            fail("check: %s: this build has no GPU kernels", text);
        if (run_rows(o, &problems[i], true) > 0)
            continue;
        if (o->kernel)
            usage_error("check: --kernel %s does not run %s", o->kernel, text);
        fail("check: no kernel on this machine runs %s", text);
    }
    return problems;
}

static void expect_known_kernel(const char *name) {
    enum { MOST = 256 };
    const char *names[MOST];
    int count = 0;
    for (const char *const *composed = check_composed; *composed; composed++)
        names[count++] = *composed;
    for (int32_t i = 0; i < bstk_kernel_count() && count < MOST; i++) {
        bstk_kernel_info row = {.struct_size = sizeof row};
        must(bstk_kernel_get(i, &row));
        names[count++] = row.name;
    }
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return;
    const char *near = nearest(name, names, count);
    if (near)
        usage_error("check: unknown kernel '%s'; did you mean '%s'?", name, near);
    usage_error("check: unknown kernel '%s'; 'bstk kernels' lists them", name);
}

int cmd_check(int argc, char **argv) {
    static const struct argp_child children[] = {{&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_check,
        "[PROBLEM...]",
        "Runs every registered kernel of this machine, or those that fit the PROBLEMs, and holds each element of each "
        "result against a float64 reference: random values within the rounding bound, small integers to the bit, "
        "special "
        "values, the same bits on 1, 2 and 7 threads. A PROBLEM is "
        "OP:DTYPE:bB[:zZ][:hH]:mM:nN[:kK|:dD]:PATTERN[:ta][:tb][:tc][:causal][:bwd].",
        children,
        0,
        0};
    check_cmd o = {.common.command = "check",
                   .common.examples = "Examples:\n"
                                      "  bstk check\n"
                                      "  bstk check 'dsd:f32:b64:m256:n256:k256:bernoulli(0.5,0)'\n"
                                      "Exit status 1 when anything failed."};
    parse_command(&argp, argc, argv, &o.common, &o);
    if (o.common.device.kind == BSTK_CUDA)
        fail("check: device cuda:%d: this build has no GPU kernels", o.common.device.index);
    if (o.kernel)
        expect_known_kernel(o.kernel);
    problem *problems = read_problems(&o);
    printf("%s%-32s %9s %14s   %s%s\n", style_on(STYLE_BOLD), "kernel", "problems", "error / bound", "result",
           style_off());
    if (o.problems.count == 0) {
        progress_begin(&o.common, "check", check_all_count(&o.options));
        check_all_rows(&o.options, after_problem, &o);
        progress_end();
    }
    for (int i = 0; i < o.problems.count; i++)
        run_rows(&o, &problems[i], false);
    free(problems);
    end_row(&o);
    printf("%lld passed, %lld failed\n", (long long)o.passed, (long long)o.failed);
    free(o.problems.arg);
    if (o.failed > 0)
        fail("check: %lld of %lld problems failed", (long long)o.failed, (long long)(o.passed + o.failed));
    return 0;
}
