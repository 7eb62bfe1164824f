/* cmd_matmul.c: bstk matmul: C = alpha * op(A) . op(B) + beta * C, one of the three block-sparse. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_TRANS_A = KEY_COMMAND, KEY_TRANS_B, KEY_TRANS_C, KEY_ALPHA, KEY_BETA, KEY_C_IN };

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Product:", 2},
    {"trans-a", KEY_TRANS_A, 0, 0, "A is stored as its transpose", 2},
    {"trans-b", KEY_TRANS_B, 0, 0, "B is stored as its transpose", 2},
    {"trans-c", KEY_TRANS_C, 0, 0, "Write C as its transpose", 2},
    {"alpha", KEY_ALPHA, "X", 0, "Factor of the product (default: 1)", 2},
    {"beta", KEY_BETA, "X", 0, "Factor of --c-in (default: 1 with --c-in, else 0)", 2},
    {"c-in", KEY_C_IN, "FILE", 0, "C before the product, of the shape of the result", 2},
    {"output", 'o', "FILE", 0, "Result (.npy); packed blocks for sdd, else dense", 2},
    {0}};

typedef struct matmul_cmd {
    common_opts common;
    layout_opts layout;
    layout_input layout_input;
    positionals files;
    int32_t trans_a, trans_b, trans_c;
    double alpha, beta;
    bool beta_given;
    const char *c_in, *output;
} matmul_cmd;

static error_t parse_matmul(int key, char *arg, struct argp_state *state) {
    matmul_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        o->layout_input = (layout_input){&o->common, &o->layout};
        state->child_inputs[0] = &o->layout_input;
        state->child_inputs[1] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->files, arg);
        return 0;
    case KEY_TRANS_A:
        o->trans_a = 1;
        return 0;
    case KEY_TRANS_B:
        o->trans_b = 1;
        return 0;
    case KEY_TRANS_C:
        o->trans_c = 1;
        return 0;
    case KEY_ALPHA:
        o->alpha = option_double(&o->common, "--alpha", arg);
        return 0;
    case KEY_BETA:
        o->beta = option_double(&o->common, "--beta", arg);
        o->beta_given = true;
        return 0;
    case KEY_C_IN:
        o->c_in = arg;
        return 0;
    case 'o':
        o->output = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bstk_mode parse_mode(const char *text) {
    if (strcmp(text, "sdd") == 0)
        return BSTK_SDD;
    if (strcmp(text, "dsd") == 0)
        return BSTK_DSD;
    if (strcmp(text, "dds") == 0)
        return BSTK_DDS;
    usage_error("matmul: mode is '%s', expected sdd, dsd or dds", text);
}

/*
 * Shape of C, from what the library will hold it against. Axes that no input has are left out: [M,K] times one head of
 * packed blocks [nnz,b,b] is [M,N].
 */
static int result_shape(const matmul_cmd *o, bstk_mode mode, const bstk_layout *layout, const bstk_tensor *a,
                        const bstk_tensor *b, int64_t shape[4]) {
    const bstk_tensor *packed = mode == BSTK_DSD ? a : b; /* not of sdd */
    int64_t za = axis(a, 4), zb = axis(b, 4), z = za > zb ? za : zb;
    if (mode == BSTK_SDD) {
        int64_t ha = axis(a, 3), hb = axis(b, 3), heads = ha > hb ? ha : hb;
        int64_t copies = bstk_layout_heads(layout) == 1 ? heads : 1, block = bstk_layout_block(layout), blocks;
        if (__builtin_mul_overflow(copies, bstk_layout_nnz(layout), &blocks))
            fail("sdd: %lld heads of %lld blocks do not fit in 64 bits", (long long)copies,
                 (long long)bstk_layout_nnz(layout));
        bool batched = a->ndim == 4 || b->ndim == 4;
        memcpy(shape, (int64_t[]){z, blocks, block, block}, 4 * sizeof *shape);
        if (!batched)
            memmove(shape, shape + 1, 3 * sizeof *shape);
        return batched ? 4 : 3;
    }
    const bstk_tensor *dense = mode == BSTK_DSD ? b : a;
    int64_t h = packed_heads(layout, packed), hd = axis(dense, 3);
    if (bstk_layout_heads(layout) == 1 && hd > h)
        h = hd;
    int64_t m =
        mode == BSTK_DDS ? axis(a, o->trans_a ? 1 : 2) : (o->trans_a ? bstk_layout_n(layout) : bstk_layout_m(layout));
    int64_t n =
        mode == BSTK_DSD ? axis(b, o->trans_b ? 2 : 1) : (o->trans_b ? bstk_layout_m(layout) : bstk_layout_n(layout));
    int ndim = packed->ndim == 4 ? 4 : dense->ndim;
    if (h > 1 && ndim < 3)
        ndim = 3;
    int64_t full[4] = {z, h, o->trans_c ? n : m, o->trans_c ? m : n};
    memcpy(shape, full + 4 - ndim, (size_t)ndim * sizeof *shape);
    return ndim;
}

static void multiply(matmul_cmd *o, bstk_mode mode) {
    bstk_context *ctx = make_context(&o->common);
    bstk_layout *layout = load_layout(ctx, &o->common, &o->layout, NULL);
    io_array a, b, c;
    load_operand(&o->common, "a", o->files.arg[1], &a);
    load_operand(&o->common, "b", o->files.arg[2], &b);
    int64_t shape[4];
    int ndim = result_shape(o, mode, layout, &a.t, &b.t, shape);
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = mode;
    desc.trans_a = o->trans_a;
    desc.trans_b = o->trans_b;
    desc.trans_c = o->trans_c;
    desc.layout = layout;
    desc.a = &a.t;
    desc.b = &b.t;
    desc.c = &c.t;
    /* The plan holds every shape against the others before memory is taken for C. */
    bstk_dtype dtype = (mode == BSTK_DSD ? b : a).t.dtype; /* of a dense operand: packed values may be f32 beside it */
    c.t = bstk_tensor_make(NULL, dtype, ndim, shape);
    if (o->c_in)
        load_operand(&o->common, "c", o->c_in, &c);
    bstk_plan *plan = NULL;
    must(bstk_matmul_plan(ctx, &desc, &plan));
    if (!o->c_in)
        make_array(&c, dtype, ndim, shape);
    bstk_exec exec;
    void *scratch = make_scratch(plan, &exec);
    progress_begin_plan(&o->common, "matmul", plan);
    double start = now();
    must(bstk_matmul_run(plan, o->alpha, &a.t, &b.t, o->beta, &c.t, &exec));
    double seconds = now() - start;
    progress_end();
    write_array(&o->common, o->output, &c.t);
    report_run(&o->common, plan, seconds);
    free(scratch);
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    io_array_free(&a);
    io_array_free(&b);
    io_array_free(&c);
}

int cmd_matmul(int argc, char **argv) {
    static const struct argp_child children[] = {{&layout_argp, 0, 0, 0}, {&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_matmul,
        "sdd|dsd|dds --layout L --block B A.npy B.npy -o C.npy",
        "C = alpha * op(A) . op(B) + beta * C, where one of the three is block-sparse and held as packed blocks "
        "[Z,nnz,b,b]: C for sdd, A for dsd, B for dds. The layout is that of the sparse one as stored. Dense arrays "
        "are [Z,H,rows,columns]; leading axes may be left out.",
        children,
        0,
        0};
    matmul_cmd o = {.common.command = "matmul",
                    .common.examples =
                        "Examples:\n"
                        "  bstk matmul sdd --layout l.npy --block 32 q.npy k.npy --trans-b -o scores.npy\n"
                        "  bstk matmul dsd --layout l.npy --block 32 scores.npy v.npy -o o.npy",
                    .alpha = 1};
    parse_command(&argp, argc, argv, &o.common, &o);
    if (o.files.count == 0)
        usage_error("matmul: expected sdd|dsd|dds A.npy B.npy, got 0 arguments");
    bstk_mode mode = parse_mode(o.files.arg[0]);
    expect_positionals(&o.common, &o.files, 3, "sdd|dsd|dds A.npy B.npy");
    expect_option(&o.common, o.layout.path, "--layout");
    expect_option(&o.common, o.output, "-o");
    if (o.beta_given && o.beta != 0 && !o.c_in)
        usage_error("matmul: --beta needs --c-in");
    if (o.c_in && !o.beta_given)
        o.beta = 1;
    probe_output(&o.common, o.output);
    multiply(&o, mode);
    free(o.files.arg);
    return 0;
}
