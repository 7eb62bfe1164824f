/* cmd_softmax.c: bstk softmax. */
#include "terms.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_LSE = KEY_COMMAND };

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Output:", 2},
    {"output", 'o', "FILE", 0, "Result (.npy), packed like the input", 2},
    {"lse", KEY_LSE, "FILE", 0, "Also write log(sum(exp(s))) of each row [Z,H,M], f32 (f64 for f64)", 2},
    {0}};

typedef struct softmax_cmd {
    common_opts common;
    layout_opts layout;
    layout_input layout_input;
    terms_opts terms;
    terms_input terms_input;
    positionals files;
    const char *output, *lse;
} softmax_cmd;

static error_t parse_softmax(int key, char *arg, struct argp_state *state) {
    softmax_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        o->layout_input = (layout_input){&o->common, &o->layout};
        o->terms_input = (terms_input){&o->common, &o->terms};
        state->child_inputs[0] = &o->layout_input;
        state->child_inputs[1] = &o->terms_input;
        state->child_inputs[2] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->files, arg);
        return 0;
    case 'o':
        o->output = arg;
        return 0;
    case KEY_LSE:
        o->lse = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void run_softmax(softmax_cmd *o) {
    bstk_context *ctx = make_context(&o->common);
    bstk_layout *layout = load_layout(ctx, &o->common, &o->layout, NULL);
    io_array x, y, lse = {0};
    terms_arrays arrays;
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    load_operand(&o->common, "x", o->files.arg[0], &x);
    load_terms(&o->common, &o->terms, layout, &arrays, &desc.terms);
    y.t = bstk_tensor_make(NULL, x.t.dtype, x.t.ndim, x.t.shape);
    int64_t rows[3] = {axis(&x.t, 4), packed_heads(layout, &x.t), bstk_layout_m(layout)};
    lse.t = bstk_tensor_make(NULL, lse_dtype(x.t.dtype), 3, rows);
    desc.layout = layout;
    desc.x = &x.t;
    desc.y = &y.t;
    desc.lse = o->lse ? &lse.t : NULL;
    bstk_plan *plan = NULL;
    must(bstk_softmax_plan(ctx, &desc, &plan));
    make_array(&y, x.t.dtype, x.t.ndim, x.t.shape);
    if (o->lse)
        make_array(&lse, lse_dtype(x.t.dtype), 3, rows);
    bstk_exec exec;
    void *scratch = make_scratch(plan, &exec);
    progress_begin_plan(&o->common, "softmax", plan);
    double start = now();
    must(bstk_softmax_run(plan, &x.t, &desc.terms, &y.t, desc.lse, NULL, &exec));
    double seconds = now() - start;
    progress_end();
    /* [Z,H,M] when x has a batch axis, else [H,M]. */
    bstk_tensor lse_out =
        bstk_tensor_make(lse.t.data, lse.t.dtype, x.t.ndim == 4 ? 3 : 2, x.t.ndim == 4 ? rows : rows + 1);
    write_arrays(&o->common, o->output, &y.t, o->lse, &lse_out);
    report_run(&o->common, plan, seconds);
    free(scratch);
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    io_array_free(&x);
    io_array_free(&y);
    io_array_free(&lse);
    free_terms(&arrays);
}

int cmd_softmax(int argc, char **argv) {
    static const struct argp_child children[] = {
        {&layout_argp, 0, 0, 0}, {&terms_argp, 0, 0, 0}, {&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_softmax,
        "--layout L --block B X.npy -o Y.npy",
        "Softmax of each row over its stored blocks: y = exp(s - max s) / sum exp(s - max s) over the columns that are "
        "kept, 0 elsewhere, where s = scale*x + rpe + rel + key padding + mask. X holds packed blocks [Z,nnz,b,b] or "
        "[nnz,b,b]. A row that keeps nothing is 0 and its lse is -inf.",
        children,
        0,
        0};
    softmax_cmd o = {
        .common.command = "softmax",
        .common.examples =
            "Example:\n  bstk softmax --layout l.npy --block 32 scores.npy --scale 0.125 --causal -o probs.npy"};
    parse_command(&argp, argc, argv, &o.common, &o);
    expect_positionals(&o.common, &o.files, 1, "X.npy");
    expect_option(&o.common, o.layout.path, "--layout");
    expect_option(&o.common, o.output, "-o");
    if (o.lse && strcmp(o.lse, o.output) == 0)
        usage_error("softmax: -o and --lse are the same file, %s", o.lse);
    probe_output(&o.common, o.output);
    probe_output(&o.common, o.lse);
    run_softmax(&o);
    free(o.files.arg);
    return 0;
}
