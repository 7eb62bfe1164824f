/* cmd_softmax.c: bstk softmax. */
#include "terms.h"

#include <stdlib.h>

enum { KEY_LSE = KEY_COMMAND, KEY_SAVED };
enum { OUT_Y, OUT_LSE, OUT_SAVED, OUTPUTS };

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Output:", 2},
    {"output", 'o', "FILE", 0, "Result (.npy), packed like the input", 2},
    {"lse", KEY_LSE, "FILE", 0, "Also write log(sum(exp(s))) of each row [Z,H,M], f32 (f64 for f64)", 2},
    {"saved", KEY_SAVED, "FILE", 0, "Also write the result before the dropout, for the gradient", 2},
    {0}};

typedef struct softmax_cmd {
    common_opts common;
    layout_opts layout;
    layout_input layout_input;
    terms_opts terms;
    terms_input terms_input;
    positionals files;
    output_file out[OUTPUTS];
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
        o->out[OUT_Y].path = arg;
        return 0;
    case KEY_LSE:
        o->out[OUT_LSE].path = arg;
        return 0;
    case KEY_SAVED:
        o->out[OUT_SAVED].path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void run_softmax(softmax_cmd *o) {
    bstk_context *ctx = make_context(&o->common);
    bstk_layout *layout = load_layout(ctx, &o->common, &o->layout, NULL);
    io_array x, y, lse = {0}, saved = {0};
    terms_arrays arrays;
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    load_operand(&o->common, "x", o->files.arg[0], &x);
    load_terms(&o->common, &o->terms, &arrays, &desc.terms);
    y.t = saved.t = bstk_tensor_make(NULL, x.t.dtype, x.t.ndim, x.t.shape);
    int64_t rows[3] = {axis(&x.t, 4), packed_heads(layout, &x.t), bstk_layout_m(layout)};
    lse.t = bstk_tensor_make(NULL, lse_dtype(x.t.dtype), 3, rows);
    desc.layout = layout;
    desc.x = &x.t;
    desc.y = &y.t;
    desc.lse = o->out[OUT_LSE].path ? &lse.t : NULL;
    desc.saved = o->out[OUT_SAVED].path ? &saved.t : NULL;
    bstk_plan *plan = NULL;
    must(bstk_softmax_plan(ctx, &desc, &plan));
    make_array(&y, x.t.dtype, x.t.ndim, x.t.shape);
    if (desc.lse)
        make_array(&lse, lse_dtype(x.t.dtype), 3, rows);
    if (desc.saved)
        make_array(&saved, x.t.dtype, x.t.ndim, x.t.shape);
    bstk_exec exec;
    void *scratch = make_scratch(plan, &exec);
    progress_begin_plan(&o->common, "softmax", plan);
    double start = now();
    must(bstk_softmax_run(plan, &x.t, &desc.terms, &y.t, desc.lse, desc.saved, &exec));
    double seconds = now() - start;
    progress_end();
    /* [Z,H,M] when x has a batch axis, else [H,M]. */
    bstk_tensor lse_out =
        bstk_tensor_make(lse.t.data, lse.t.dtype, x.t.ndim == 4 ? 3 : 2, x.t.ndim == 4 ? rows : rows + 1);
    o->out[OUT_Y].t = &y.t;
    o->out[OUT_LSE].t = &lse_out;
    o->out[OUT_SAVED].t = &saved.t;
    write_outputs(&o->common, o->out, OUTPUTS);
    report_run(&o->common, plan, seconds);
    free(scratch);
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    io_array_free(&x);
    io_array_free(&y);
    io_array_free(&lse);
    io_array_free(&saved);
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
        "kept, 0 elsewhere, where s = scale*x + rpe + rel - slope*|diagonal - j| + key padding + mask. X holds packed "
        "blocks [Z,nnz,b,b] or "
        "[nnz,b,b]. A row that keeps nothing is 0 and its lse is -inf.",
        children,
        0,
        0};
    softmax_cmd o = {
        .common.command = "softmax",
        .common.examples =
            "Example:\n  bstk softmax --layout l.npy --block 32 scores.npy --scale 0.125 --causal -o probs.npy",
        .out = {{.option = "-o"}, {.option = "--lse"}, {.option = "--saved"}}};
    parse_command(&argp, argc, argv, &o.common, &o);
    expect_positionals(&o.common, &o.files, 1, "X.npy");
    expect_option(&o.common, o.layout.path, "--layout");
    expect_option(&o.common, o.out[OUT_Y].path, "-o");
    probe_outputs(&o.common, o.out, OUTPUTS);
    run_softmax(&o);
    free(o.files.arg);
    return 0;
}
