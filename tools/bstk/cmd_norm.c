/* cmd_norm.c: bstk norm. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_WEIGHT = KEY_COMMAND, KEY_BIAS, KEY_EPS };

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Terms:", 1},
    {"weight", KEY_WEIGHT, "FILE", 0, "Factor of each column, [N] or [H,N]; default: 1", 1},
    {"bias", KEY_BIAS, "FILE", 0, "Addend of each column, [N] or [H,N]; default: 0", 1},
    {"eps", KEY_EPS, "E", 0, "Added to the variance, 0 or more; default: 1e-5", 1},
    {0, 0, 0, 0, "Output:", 2},
    {"output", 'o', "FILE", 0, "Result (.npy), packed like the input", 2},
    {0}};

typedef struct norm_cmd {
    common_opts common;
    layout_opts layout;
    layout_input layout_input;
    positionals files; /* "layer" or "rms", and X */
    const char *weight, *bias, *output;
    double eps;
} norm_cmd;

static error_t parse_norm(int key, char *arg, struct argp_state *state) {
    norm_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        o->layout_input = (layout_input){&o->common, &o->layout};
        state->child_inputs[0] = &o->layout_input;
        state->child_inputs[1] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->files, arg);
        return 0;
    case KEY_WEIGHT:
        o->weight = arg;
        return 0;
    case KEY_BIAS:
        o->bias = arg;
        return 0;
    case KEY_EPS:
        o->eps = option_double(&o->common, "--eps", arg);
        if (o->eps < 0)
            usage_error("norm: --eps is '%s', expected 0 or more", arg);
        return 0;
    case 'o':
        o->output = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bstk_norm_kind parse_kind(const char *text) {
    if (strcmp(text, "layer") == 0)
        return BSTK_LAYERNORM;
    if (strcmp(text, "rms") == 0)
        return BSTK_RMSNORM;
    usage_error("norm: kind is '%s', expected layer or rms", text);
}

static void run_norm(norm_cmd *o, bstk_norm_kind kind) {
    bstk_context *ctx = make_context(&o->common);
    bstk_layout *layout = load_layout(ctx, &o->common, &o->layout, NULL);
    io_array x, y, weight = {0}, bias = {0};
    bstk_norm_desc desc = BSTK_NORM_DESC_INIT;
    load_operand(&o->common, "x", o->files.arg[1], &x);
    if (o->weight)
        load_term(&o->common, "weight", o->weight, &weight);
    if (o->bias)
        load_term(&o->common, "bias", o->bias, &bias);
    y.t = bstk_tensor_make(NULL, x.t.dtype, x.t.ndim, x.t.shape);
    desc.kind = kind;
    desc.layout = layout;
    desc.x = &x.t;
    desc.weight = o->weight ? &weight.t : NULL;
    desc.bias = o->bias ? &bias.t : NULL;
    desc.y = &y.t;
    desc.eps = o->eps;
    bstk_plan *plan = NULL;
    must(bstk_norm_plan(ctx, &desc, &plan));
    make_array(&y, x.t.dtype, x.t.ndim, x.t.shape);
    bstk_exec exec;
    void *scratch = make_scratch(plan, &exec);
    progress_begin_plan(&o->common, "norm", plan);
    double start = now();
    must(bstk_norm_run(plan, &desc, &exec));
    double seconds = now() - start;
    progress_end();
    write_array(&o->common, o->output, &y.t);
    report_run(&o->common, plan, seconds);
    free(scratch);
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    io_array_free(&x);
    io_array_free(&y);
    io_array_free(&weight);
    io_array_free(&bias);
}

int cmd_norm(int argc, char **argv) {
    static const struct argp_child children[] = {{&layout_argp, 0, 0, 0}, {&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_norm,
        "layer|rms --layout L --block B X.npy -o Y.npy",
        "Layernorm or rmsnorm of each row over its stored elements: y = (x - mean) / sqrt(variance + eps) * weight + "
        "bias, where mean is 0 and the variance the mean square for rms; 0 where an element is not kept. X holds "
        "packed blocks [Z,nnz,b,b] or [nnz,b,b].",
        children,
        0,
        0};
    norm_cmd o = {
        .common.command = "norm",
        .common.examples =
            "Example:\n  bstk norm layer --layout l.npy --block 32 x.npy --weight w.npy --bias b.npy -o y.npy",
        .eps = 1e-5};
    parse_command(&argp, argc, argv, &o.common, &o);
    if (o.files.count == 0)
        usage_error("norm: expected layer|rms X.npy, got 0 arguments");
    bstk_norm_kind kind = parse_kind(o.files.arg[0]);
    expect_positionals(&o.common, &o.files, 2, "layer|rms X.npy");
    expect_option(&o.common, o.layout.path, "--layout");
    expect_option(&o.common, o.output, "-o");
    probe_output(&o.common, o.output);
    run_norm(&o, kind);
    free(o.files.arg);
    return 0;
}
