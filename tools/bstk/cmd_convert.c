/* cmd_convert.c: bstk pack and bstk unpack: between dense [Z,H,M,N] and packed blocks [Z,nnz,b,b]. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Output:", 2}, {"output", 'o', "FILE", 0, "Result (.npy), of the input's type", 2}, {0}};

typedef struct convert_cmd {
    common_opts common;
    layout_opts layout;
    layout_input layout_input;
    positionals files;
    const char *output;
} convert_cmd;

static error_t parse_convert(int key, char *arg, struct argp_state *state) {
    convert_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        o->layout_input = (layout_input){&o->common, &o->layout};
        state->child_inputs[0] = &o->layout_input;
        state->child_inputs[1] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->files, arg);
        return 0;
    case 'o':
        o->output = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Packed values have a batch axis when x has four axes, a dense matrix has one when the blocks have. */
static int result_shape(bstk_convert_direction direction, const bstk_layout *layout, const bstk_tensor *x,
                        int64_t shape[4]) {
    int64_t block = bstk_layout_block(layout), z = axis(x, 4), full[4];
    int ndim;
    if (direction == BSTK_PACK) {
        int64_t copies = bstk_layout_heads(layout) == 1 ? axis(x, 3) : 1, blocks;
        if (__builtin_mul_overflow(copies, bstk_layout_nnz(layout), &blocks))
            fail("pack: %lld heads of %lld blocks do not fit in 64 bits", (long long)copies,
                 (long long)bstk_layout_nnz(layout));
        memcpy(full, (int64_t[]){z, blocks, block, block}, sizeof full);
        ndim = x->ndim == 4 ? 4 : 3;
    } else {
        int64_t heads = packed_heads(layout, x);
        memcpy(full, (int64_t[]){z, heads, bstk_layout_m(layout), bstk_layout_n(layout)}, sizeof full);
        ndim = x->ndim == 4 ? 4 : heads > 1 ? 3 : 2;
    }
    memcpy(shape, full + 4 - ndim, (size_t)ndim * sizeof *shape);
    return ndim;
}

static void convert(convert_cmd *o, bstk_convert_direction direction) {
    bstk_context *ctx = make_context(&o->common);
    bstk_layout *layout = load_layout(ctx, &o->common, &o->layout, NULL);
    io_array x, y;
    load_operand(&o->common, "x", o->files.arg[0], &x);
    int64_t shape[4];
    int ndim = result_shape(direction, layout, &x.t, shape);
    y.t = bstk_tensor_make(NULL, x.t.dtype, ndim, shape);
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.direction = direction;
    desc.layout = layout;
    desc.x = &x.t;
    desc.y = &y.t;
    bstk_plan *plan = NULL;
    must(bstk_convert_plan(ctx, &desc, &plan));
    make_array(&y, x.t.dtype, ndim, shape);
    bstk_exec exec;
    void *scratch = make_scratch(plan, &exec);
    progress_begin_plan(&o->common, o->common.command, plan);
    double start = now();
    must(bstk_convert_run(plan, &x.t, &y.t, &exec));
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
}

static int convert_command(const struct argp *argp, const char *name, const char *examples,
                           bstk_convert_direction direction, int argc, char **argv) {
    convert_cmd o = {.common.command = name, .common.examples = examples};
    parse_command(argp, argc, argv, &o.common, &o);
    expect_positionals(&o.common, &o.files, 1, "X.npy");
    expect_option(&o.common, o.layout.path, "--layout");
    expect_option(&o.common, o.output, "-o");
    probe_output(&o.common, o.output);
    convert(&o, direction);
    free(o.files.arg);
    return 0;
}

static const struct argp_child children[] = {{&layout_argp, 0, 0, 0}, {&common_argp, 0, 0, 90}, {0}};

int cmd_pack(int argc, char **argv) {
    static const struct argp argp = {
        options,
        parse_convert,
        "--layout L --block B X.npy -o Y.npy",
        "Copies the stored blocks of a dense matrix [Z,H,M,N] (leading axes may be left out) to packed blocks "
        "[Z,nnz,b,b], bit for bit; what a block holds past a ragged edge is 0.",
        children,
        0,
        0};
    return convert_command(&argp, "pack", "Example:\n  bstk pack --layout l.npy --block 32 dense.npy -o blocks.npy",
                           BSTK_PACK, argc, argv);
}

int cmd_unpack(int argc, char **argv) {
    static const struct argp argp = {
        options,
        parse_convert,
        "--layout L --block B X.npy -o Y.npy",
        "Copies packed blocks [Z,nnz,b,b] (or [nnz,b,b]) to a dense matrix, bit for bit; 0 where no block is stored. "
        "A ragged edge needs --shape, or a .bstk layout that knows it.",
        children,
        0,
        0};
    return convert_command(&argp, "unpack",
                           "Example:\n  bstk unpack --layout l.npy --block 32 --shape 500,500 blocks.npy -o dense.npy",
                           BSTK_UNPACK, argc, argv);
}
