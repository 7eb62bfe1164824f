/* layout_sources.c: where the layouts of 'bstk layout' come from, and what 'stats' says of them. */
#include "cmd_layout.h"

#include <string.h>

/* ---- builders ---------------------------------------------------------------------------------------------------- */

/* What each kind looks at, beside heads and causal. */
static unsigned options_of(bstk_layout_kind kind) {
    switch (kind) {
    case BSTK_LAYOUT_LOCAL:
        return GIVEN_WINDOW;
    case BSTK_LAYOUT_FIXED:
        return GIVEN_WINDOW | GIVEN_GLOBAL | GIVEN_PATTERNS | GIVEN_HORIZONTAL;
    case BSTK_LAYOUT_VARIABLE:
        return GIVEN_WINDOW | GIVEN_WINDOWS | GIVEN_GLOBAL | GIVEN_GLOBALS | GIVEN_RANDOM | GIVEN_SEED |
               GIVEN_HORIZONTAL;
    case BSTK_LAYOUT_BIGBIRD:
        return GIVEN_WINDOW | GIVEN_GLOBAL | GIVEN_GLOBAL_LAST | GIVEN_RANDOM | GIVEN_SEED;
    case BSTK_LAYOUT_LONGFORMER:
        return GIVEN_WINDOW | GIVEN_GLOBAL | GIVEN_GLOBALS;
    case BSTK_LAYOUT_STRIDED:
        return GIVEN_WINDOW | GIVEN_STRIDE;
    case BSTK_LAYOUT_RANDOM:
        return GIVEN_RANDOM | GIVEN_DENSITY | GIVEN_SEED;
    default:
        return 0;
    }
}

static void refuse_idle_options(const layout_cmd *o) {
    static const char *const names[] = {"--window", "--windows", "--global", "--globals",  "--global-last",
                                        "--random", "--density", "--stride", "--patterns", "--horizontal"};
    /* A seed on a kind without randomness is harmless in scripts that run over all kinds. */
    unsigned idle = o->given & ~(options_of(o->build.kind) | GIVEN_CAUSAL | GIVEN_SEED);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (idle >> i & 1)
            usage_error("layout: %s has no effect on %s", names[i], o->files.arg[0]);
    if ((o->given & GIVEN_WINDOW) && (o->given & GIVEN_WINDOWS))
        usage_error("layout: --window and --windows exclude each other");
    if ((o->given & GIVEN_GLOBAL) && (o->given & GIVEN_GLOBALS))
        usage_error("layout: --global and --globals exclude each other");
    if ((o->given & GIVEN_RANDOM) && (o->given & GIVEN_DENSITY))
        usage_error("layout: --random and --density exclude each other");
}

/* --seq N gives ceil(N/b) block rows and columns of N x N elements; --rows and --cols count blocks. */
static void take_size(layout_cmd *o) {
    if (o->seq >= 0 && (o->rows >= 0 || o->cols >= 0))
        usage_error("layout: --seq and --rows/--cols exclude each other");
    if (o->seq < 0 && (o->rows < 0 || o->cols < 0))
        usage_error("layout: the size is missing: give --seq N, or --rows R and --cols C");
    if (o->block)
        o->build.block = o->block;
    if (o->seq >= 0) {
        int64_t blocks = o->seq / o->build.block + (o->seq % o->build.block != 0);
        o->build.rows = o->build.cols = blocks;
        o->build.shape[0] = o->build.shape[1] = o->seq;
    } else {
        o->build.rows = o->rows;
        o->build.cols = o->cols;
    }
    if (o->has_shape)
        memcpy(o->build.shape, o->shape, sizeof o->shape);
}

bstk_layout *layout_from_kind(bstk_context *ctx, layout_cmd *o) {
    expect_positionals(&o->common, &o->files, 1, "KIND");
    if (o->edge)
        usage_error("layout: --edge is for from-smtx and from-mtx");
    refuse_idle_options(o);
    take_size(o);
    layout_expect_output(o);
    bstk_layout_opts *build = &o->build;
    if (build->kind == BSTK_LAYOUT_VARIABLE && (o->given & GIVEN_WINDOW)) {
        build->windows = &build->window;
        build->n_windows = 1;
    } else {
        build->windows = o->windows.values;
        build->n_windows = o->windows.count;
    }
    build->globals = o->globals.values;
    build->n_globals = o->globals.count / 2;
    bstk_layout *layout = NULL;
    must(bstk_layout_build(ctx, build, &layout));
    return layout;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void refuse_pattern_options(const layout_cmd *o) {
    if (o->given || o->seq >= 0 || o->rows >= 0 || o->cols >= 0 || o->build.heads != 1)
        usage_error("layout: %s takes its pattern and size from the file; --seq, --rows, --cols, --heads and pattern "
                    "options are for kinds",
                    o->files.arg[0]);
}

static void expect_file(const layout_cmd *o, const char *what) {
    expect_positionals(&o->common, &o->files, 2, what);
    refuse_pattern_options(o);
    if (!o->block)
        usage_error("layout: --block is missing");
    layout_expect_output(o);
}

bstk_layout *layout_from_mask_file(bstk_context *ctx, layout_cmd *o) {
    expect_file(o, "from-mask MASK.npy");
    if (o->has_shape || o->edge)
        usage_error("layout: from-mask takes the shape from the mask; --shape and --edge are not for it");
    io_array mask;
    load_term(&o->common, "mask", o->files.arg[1], &mask);
    bstk_layout *layout = NULL;
    must(bstk_layout_from_dense_mask(ctx, &mask.t, o->block, &layout));
    io_array_free(&mask);
    return layout;
}

bstk_layout *layout_from_pattern_file(bstk_context *ctx, layout_cmd *o, bool mtx) {
    expect_file(o, mtx ? "from-mtx FILE" : "from-smtx FILE");
    const char *path = o->files.arg[1];
    io_pattern pattern;
    io_error error;
    if (!(mtx ? io_mtx_read(path, &pattern, &error) : io_smtx_read(path, &pattern, &error)))
        fail("layout: %s", error.text);
    bstk_layout_indices indices = BSTK_LAYOUT_INDICES_INIT;
    indices.rows = pattern.rows;
    indices.cols = pattern.cols;
    indices.edge = o->edge ? o->edge : 1;
    indices.count = pattern.count;
    indices.row = pattern.row;
    indices.row_ptr = pattern.row_ptr;
    indices.col = pattern.col;
    bstk_layout *layout = NULL;
    bstk_status status = bstk_layout_from_indices(ctx, &indices, o->block, o->has_shape ? o->shape : NULL, &layout);
    if (status != BSTK_OK)
        fail("%s; the file is %s", bstk_last_error(), path);
    io_pattern_free(&pattern);
    return layout;
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

void layout_stats(bstk_context *ctx, layout_cmd *o) {
    expect_positionals(&o->common, &o->files, 2, "stats LAYOUT");
    refuse_pattern_options(o);
    /* Without a block an array of blocks still has all figures but those in elements. */
    layout_opts from = {o->files.arg[1], o->block, {o->shape[0], o->shape[1]}, o->has_shape};
    bool sized = true;
    bstk_layout *layout = load_layout(ctx, &o->common, &from, &sized);
    bstk_layout_stats s = {.struct_size = sizeof s};
    must(bstk_layout_get_stats(layout, &s));
    long long heads = bstk_layout_heads(layout), rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    printf("heads: %lld\n", heads);
    printf("block rows, columns: %lld, %lld\n", rows, cols);
    if (sized) {
        printf("block: %d\n", bstk_layout_block(layout));
        printf("shape: %lld, %lld\n", (long long)bstk_layout_m(layout), (long long)bstk_layout_n(layout));
    }
    printf("nnz: %lld of %lld blocks\n", (long long)s.nnz, heads * rows * cols);
    printf("density: %.6g\n", s.density);
    printf("partly kept blocks: %lld\n", (long long)s.partial);
    printf("blocks in a row: min %lld, median %g, mean %.4g, max %lld\n", (long long)s.row_min, s.row_median,
           s.row_mean, (long long)s.row_max);
    printf("blocks in a column: min %lld, max %lld\n", (long long)s.col_min, (long long)s.col_max);
    printf("blocks in a head: min %lld, max %lld\n", (long long)s.head_min, (long long)s.head_max);
    printf("empty rows: %lld\n", (long long)s.empty_rows);
    printf("empty columns: %lld\n", (long long)s.empty_cols);
    printf("imbalance of a cut by rows: %.3f\n", s.row_imbalance);
    if (sized)
        printf("imbalance of the schedule on 8 threads: %.3f\n", s.task_imbalance);
    bstk_layout_release(layout);
}
