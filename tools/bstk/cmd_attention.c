/* cmd_attention.c: bstk attention: o = softmax(scale * q . k^T + terms) . v over the stored blocks. */
#include "report.h"
#include "terms.h"

#include <stdlib.h>

enum { KEY_LSE = KEY_COMMAND, KEY_REPORT, KEY_PNG, KEY_ASCII, KEY_COMPOSED };
enum { OUT_O, OUT_LSE, OUT_PNG, OUTPUTS };

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Output:", 2},
    {"output", 'o', "FILE", 0, "Result (.npy), [Z,H,M,Dv]; may be left out with --report", 2},
    {"lse", KEY_LSE, "FILE", 0, "Also write log(sum(exp(s))) of each row [Z,H,M], f32 (f64 for f64)", 2},
    {"png", KEY_PNG, "FILE", 0, "Picture of the layout", 2},
    {"report", KEY_REPORT, 0, 0,
     "Print the layout, time and memory beside dense attention, each head's error against the float64 reference, and "
     "how much of its dense attention the layout keeps",
     2},
    {"ascii", KEY_ASCII, 0, 0, "Draw the report with ASCII only", 2},
    {"composed", KEY_COMPOSED, 0, 0, "Run as sdd, softmax and dsd, which store the scores, instead of fused", 2},
    {0}};

typedef struct attention_cmd {
    common_opts common;
    layout_opts layout;
    layout_input layout_input;
    terms_opts terms;
    terms_input terms_input;
    positionals files;
    output_file out[OUTPUTS];
    bool report, ascii, composed;
} attention_cmd;

static error_t parse_attention(int key, char *arg, struct argp_state *state) {
    attention_cmd *o = state->input;
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
        o->out[OUT_O].path = arg;
        return 0;
    case KEY_LSE:
        o->out[OUT_LSE].path = arg;
        return 0;
    case KEY_PNG:
        o->out[OUT_PNG].path = arg;
        return 0;
    case KEY_REPORT:
        o->report = true;
        return 0;
    case KEY_ASCII:
        o->ascii = true;
        return 0;
    case KEY_COMPOSED:
        o->composed = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int largest(int a, int b, int c) {
    int ab = a > b ? a : b;
    return ab > c ? ab : c;
}

static bool attend(attention_cmd *o) {
    bstk_context *ctx = make_context(&o->common);
    bstk_layout *layout = load_layout(ctx, &o->common, &o->layout, NULL);
    io_array q, k, v, out, lse = {0};
    terms_arrays arrays;
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    load_operand(&o->common, "q", o->files.arg[0], &q);
    load_operand(&o->common, "k", o->files.arg[1], &k);
    load_operand(&o->common, "v", o->files.arg[2], &v);
    load_terms(&o->common, &o->terms, &arrays, &desc.terms);
    int64_t heads = bstk_layout_heads(layout) > 1 ? bstk_layout_heads(layout) : axis(&q.t, 3);
    int64_t full[4] = {axis(&q.t, 4), heads, axis(&q.t, 2), axis(&v.t, 1)};
    /* Axes that no input has are left out. */
    int ndim = largest(q.t.ndim, k.t.ndim, v.t.ndim);
    if (heads > 1 && ndim < 3)
        ndim = 3;
    const int64_t *shape = full + 4 - ndim;
    out.t = bstk_tensor_make(NULL, q.t.dtype, ndim, shape);
    lse.t = bstk_tensor_make(NULL, lse_dtype(q.t.dtype), 3, full);
    desc.layout = layout;
    desc.q = &q.t;
    desc.k = &k.t;
    desc.v = &v.t;
    desc.o = &out.t;
    desc.lse = o->out[OUT_LSE].path ? &lse.t : NULL;
    desc.kernel = o->composed ? "composed" : NULL;
    bstk_plan *plan = NULL;
    must(bstk_attention_plan(ctx, &desc, &plan));
    make_array(&out, q.t.dtype, ndim, shape);
    if (desc.lse)
        make_array(&lse, lse_dtype(q.t.dtype), 3, full);
    bstk_exec exec;
    void *scratch = make_scratch(plan, &exec);
    progress_begin_plan(&o->common, "attention", plan);
    double start = now();
    must(bstk_attention_run(plan, &q.t, &k.t, &v.t, &desc.terms, &out.t, desc.lse, &exec));
    double seconds = now() - start;
    progress_end();
    free(scratch);

    bstk_tensor lse_out = bstk_tensor_make(lse.t.data, lse.t.dtype, ndim - 1, shape);
    o->out[OUT_O].t = &out.t;
    o->out[OUT_LSE].t = &lse_out;
    o->out[OUT_PNG].layout = layout;
    write_outputs(&o->common, o->out, OUTPUTS);
    report_run(&o->common, plan, seconds);
    bool right = true;
    if (o->report) {
        report_input in = {.common = &o->common,
                           .ctx = ctx,
                           .layout = layout,
                           .layout_name = o->layout.path,
                           .z = full[0],
                           .h = full[1],
                           .m = full[2],
                           .n = axis(&k.t, 2),
                           .d = axis(&q.t, 1),
                           .dv = full[3],
                           .q = &q.t,
                           .k = &k.t,
                           .v = &v.t,
                           .terms = &desc.terms,
                           .o = &out.t,
                           .composed = o->composed,
                           .ascii = o->ascii};
        right = attention_report(&in);
    }
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    io_array_free(&q);
    io_array_free(&k);
    io_array_free(&v);
    io_array_free(&out);
    io_array_free(&lse);
    free_terms(&arrays);
    return right;
}

int cmd_attention(int argc, char **argv) {
    static const struct argp_child children[] = {
        {&layout_argp, 0, 0, 0}, {&terms_argp, 0, 0, 0}, {&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_attention,
        "--layout L --block B Q.npy K.npy V.npy -o O.npy",
        "Attention over the stored blocks of a layout: o = softmax(scale*q.k^T + rpe + rel - slope*|diagonal - j| + "
        "key "
        "padding + mask) . v. "
        "Q is [Z,H,M,D], K [Z,H,N,D], V [Z,H,N,Dv]; leading axes may be left out, and K and V may have fewer heads "
        "when their number divides H.",
        children,
        0,
        0};
    attention_cmd o = {.common.command = "attention",
                       .common.examples =
                           "Examples:\n"
                           "  bstk attention --layout l.npy --block 32 q.npy k.npy v.npy -o o.npy --lse lse.npy\n"
                           "  bstk attention --report --layout l.npy --block 32 q.npy k.npy v.npy --png layout.png",
                       .out = {{.option = "-o"}, {.option = "--lse"}, {.option = "--png", .picture = true}}};
    parse_command(&argp, argc, argv, &o.common, &o);
    expect_positionals(&o.common, &o.files, 3, "Q.npy K.npy V.npy");
    expect_option(&o.common, o.layout.path, "--layout");
    if (!o.report)
        expect_option(&o.common, o.out[OUT_O].path, "-o");
    probe_outputs(&o.common, o.out, OUTPUTS);
    bool right = attend(&o);
    free(o.files.arg);
    if (!right)
        fail("attention: an output is beyond its rounding bound");
    return 0;
}
