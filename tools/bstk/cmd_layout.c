/* cmd_layout.c: bstk layout: makes, converts, shows and measures layouts. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_layout.h"

enum {
    KEY_SEQ = KEY_COMMAND,
    KEY_ROWS,
    KEY_COLS,
    KEY_BLOCK_EDGE,
    KEY_HEADS,
    KEY_WINDOW,
    KEY_WINDOWS,
    KEY_GLOBAL,
    KEY_GLOBALS,
    KEY_GLOBAL_LAST,
    KEY_RANDOM,
    KEY_DENSITY,
    KEY_STRIDE,
    KEY_PATTERNS,
    KEY_HORIZONTAL,
    KEY_CAUSAL,
    KEY_SEED,
    KEY_SHAPE_MN,
    KEY_EDGE,
    KEY_PNG,
    KEY_SHOW,
    KEY_ASCII
};

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Size:", 1},
    {"seq", KEY_SEQ, "N", 0, "Square layout of N elements; --block need not divide N", 1},
    {"rows", KEY_ROWS, "R", 0, "Block rows (instead of --seq)", 1},
    {"cols", KEY_COLS, "C", 0, "Block columns (instead of --seq)", 1},
    {"block", KEY_BLOCK_EDGE, "B", 0, "Block edge, a multiple of 8 up to 256 (default: 64; from-*: none)", 1},
    {"heads", KEY_HEADS, "H", 0, "Heads (default: 1)", 1},
    {"shape", KEY_SHAPE_MN, "M,N", 0, "Element rows and columns (default: rows*B,cols*B)", 1},
    {"edge", KEY_EDGE, "E", 0, "from-smtx, from-mtx: an entry stands for E x E elements; E divides B (default: 1)", 1},
    {0, 0, 0, 0, "Pattern, in blocks:", 2},
    {"window", KEY_WINDOW, "W", 0, "local, bigbird, longformer, strided: band of W (default: 3); fixed: 4", 2},
    {"windows", KEY_WINDOWS, "LIST", 0, "variable: sizes of the windows, the last repeats: 1,2,3 (default: 4)", 2},
    {"global", KEY_GLOBAL, "G", 0, "Global blocks of fixed, variable, bigbird, longformer (default: 1)", 2},
    {"globals", KEY_GLOBALS, "LIST", 0, "variable, longformer: which are global: 0,5-7 (instead of --global)", 2},
    {"global-last", KEY_GLOBAL_LAST, "G", 0, "bigbird: global blocks at the end (default: 0)", 2},
    {"random", KEY_RANDOM, "R", 0, "Random blocks a row of bigbird (default: 1), variable (0), random", 2},
    {"density", KEY_DENSITY, "P", 0, "random: probability of a block (default: 0.1)", 2},
    {"stride", KEY_STRIDE, "S", 0, "strided: distance of the columns (default: 4)", 2},
    {"patterns", KEY_PATTERNS, "P", 0, "fixed: number of patterns that heads take in turn (default: 1)", 2},
    {"horizontal", KEY_HORIZONTAL, 0, 0, "fixed, variable: global rows as well as columns", 2},
    {"causal", KEY_CAUSAL, 0, 0, "No block above the diagonal", 2},
    {"seed", KEY_SEED, "S", 0, "Same seed, same layout, everywhere (default: 0)", 2},
    {0, 0, 0, 0, "Output, at least one:", 3},
    {"output", 'o', "FILE", 0, "x.npy: 0/1 array [H,R,C]; x.bstk: all of the layout, with its block and shape", 3},
    {"png", KEY_PNG, "FILE", 0, "Picture", 3},
    {"show", KEY_SHOW, 0, 0, "Picture on the terminal", 3},
    {"ascii", KEY_ASCII, 0, 0, "... of # and . only", 3},
    {0}};

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void append(layout_cmd *o, layout_list *list, int64_t value) {
    int64_t *grown = realloc(list->values, ((size_t)list->count + 1) * sizeof *grown);
    if (!grown)
        fail("%s: out of memory", o->common.command);
    list->values = grown;
    list->values[list->count++] = value;
}

/* "1,2,3" or, with ranges, "0,5-7": pairs {0,1} {5,8}. */
static void parse_list(layout_cmd *o, const char *option, const char *text, bool ranges, layout_list *list) {
    free(list->values);
    *list = (layout_list){0};
    const char *at = text;
    for (;;) {
        char *end = NULL;
        errno = 0;
        int64_t first = strtoll(at, &end, 10), last = first;
        bool good = end != at && errno == 0 && *at >= '0' && *at <= '9';
        if (good && ranges && *end == '-') {
            at = end + 1;
            last = strtoll(at, &end, 10);
            good = end != at && errno == 0 && *at >= '0' && *at <= '9' && last >= first && last < INT64_MAX;
        }
        if (!good || (*end != ',' && *end != '\0'))
            usage_error("layout: %s is '%s', expected a list such as %s", option, text, ranges ? "0,5-7" : "1,2,3");
        append(o, list, first);
        if (ranges)
            append(o, list, last + 1);
        if (*end == '\0')
            return;
        at = end + 1;
    }
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static error_t parse_layout_cmd(int key, char *arg, struct argp_state *state) {
    layout_cmd *o = state->input;
    const common_opts *common = &o->common;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        take_positional(&o->files, arg);
        return 0;
    case KEY_SEQ:
        o->seq = option_int(common, "--seq", arg, 0, INT64_MAX);
        return 0;
    case KEY_ROWS:
        o->rows = option_int(common, "--rows", arg, 0, INT64_MAX);
        return 0;
    case KEY_COLS:
        o->cols = option_int(common, "--cols", arg, 0, INT64_MAX);
        return 0;
    case KEY_BLOCK_EDGE:
        o->block = (int)option_int(common, "--block", arg, 1, INT32_MAX);
        return 0;
    case KEY_HEADS:
        o->build.heads = option_int(common, "--heads", arg, 1, INT64_MAX);
        return 0;
    case KEY_SHAPE_MN:
        option_pair(common, "--shape", arg, 0, "M,N in elements", o->shape);
        o->has_shape = true;
        return 0;
    case KEY_EDGE:
        o->edge = (int)option_int(common, "--edge", arg, 1, INT32_MAX);
        return 0;
    case KEY_WINDOW:
        o->build.window = option_int(common, "--window", arg, 0, INT64_MAX);
        o->given |= GIVEN_WINDOW;
        return 0;
    case KEY_WINDOWS:
        parse_list(o, "--windows", arg, false, &o->windows);
        o->given |= GIVEN_WINDOWS;
        return 0;
    case KEY_GLOBAL:
        o->build.global = option_int(common, "--global", arg, 0, INT64_MAX);
        o->given |= GIVEN_GLOBAL;
        return 0;
    case KEY_GLOBALS:
        parse_list(o, "--globals", arg, true, &o->globals);
        o->given |= GIVEN_GLOBALS;
        return 0;
    case KEY_GLOBAL_LAST:
        o->build.global_last = option_int(common, "--global-last", arg, 0, INT64_MAX);
        o->given |= GIVEN_GLOBAL_LAST;
        return 0;
    case KEY_RANDOM:
        o->build.random = option_int(common, "--random", arg, 0, INT64_MAX);
        o->given |= GIVEN_RANDOM;
        return 0;
    case KEY_DENSITY:
        o->build.density = option_range(common, "--density", arg, 0, 1);
        o->given |= GIVEN_DENSITY;
        return 0;
    case KEY_STRIDE:
        o->build.stride = option_int(common, "--stride", arg, 1, INT64_MAX);
        o->given |= GIVEN_STRIDE;
        return 0;
    case KEY_PATTERNS:
        o->build.patterns = option_int(common, "--patterns", arg, 1, INT64_MAX);
        o->given |= GIVEN_PATTERNS;
        return 0;
    case KEY_HORIZONTAL:
        o->build.horizontal = 1;
        o->given |= GIVEN_HORIZONTAL;
        return 0;
    case KEY_CAUSAL:
        o->build.causal = 1;
        o->given |= GIVEN_CAUSAL;
        return 0;
    case KEY_SEED:
        o->build.seed = option_seed(common, "--seed", arg);
        o->given |= GIVEN_SEED;
        return 0;
    case 'o':
        o->output = arg;
        return 0;
    case KEY_PNG:
        o->png = arg;
        return 0;
    case KEY_SHOW:
        o->show = true;
        return 0;
    case KEY_ASCII:
        o->ascii = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void expect_output(const layout_cmd *o) {
    if (!o->output && !o->png && !o->show)
        usage_error("layout: no output: give -o FILE, --png FILE or --show");
    if (o->output && !has_suffix(o->output, ".npy") && !has_suffix(o->output, ".bstk"))
        usage_error("layout: -o is '%s', expected a name that ends in .npy or .bstk", o->output);
    const output_file files[] = {{"-o", o->output, 0, 0, 0}, {"--png", o->png, 0, 0, 0}};
    probe_outputs(&o->common, files, 2);
}

static void deliver(const layout_cmd *o, const bstk_layout *layout) {
    const output_file files[] = {{"-o", o->output, NULL, layout, false}, {"--png", o->png, NULL, layout, true}};
    write_outputs(&o->common, files, 2);
    int64_t partial = bstk_layout_partial_count(layout);
    if (partial > 0 && o->output && has_suffix(o->output, ".npy"))
        note(&o->common, "layout: %lld blocks are partly kept; %s holds whole blocks, a .bstk file keeps the elements",
             (long long)partial, o->output);
    if (o->show)
        print_picture(layout, o->ascii);
}

static const char *const words[] = {"dense",   "local",  "fixed",     "variable",  "bigbird",  "longformer",
                                    "strided", "random", "from-mask", "from-smtx", "from-mtx", "stats"};

static bstk_layout *make_layout(bstk_context *ctx, layout_cmd *o, const char *what) {
    if (strcmp(what, "from-mask") == 0)
        return layout_from_mask_file(ctx, o);
    if (strcmp(what, "from-smtx") == 0 || strcmp(what, "from-mtx") == 0)
        return layout_from_pattern_file(ctx, o, strcmp(what, "from-mtx") == 0);
    o->build.kind = bstk_layout_kind_from_name(what);
    if (o->build.kind != 0)
        return layout_from_kind(ctx, o);
    const char *near = nearest(what, words, sizeof words / sizeof *words);
    if (near)
        usage_error("layout: unknown kind '%s'; did you mean '%s'?", what, near);
    usage_error("layout: unknown kind '%s', expected dense, local, fixed, variable, bigbird, longformer, strided, "
                "random, from-mask, from-smtx, from-mtx or stats",
                what);
}

int cmd_layout(int argc, char **argv) {
    static const struct argp_child children[] = {{&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_layout_cmd,
        "KIND [-o FILE]\nfrom-mask MASK.npy --block B [-o FILE]\nfrom-smtx|from-mtx FILE --block B [-o FILE]\n"
        "stats LAYOUT.npy|LAYOUT.bstk",
        "Makes, converts, shows and measures layouts: which blocks of a block-sparse matrix are stored. KIND is dense, "
        "local, fixed, variable, bigbird, longformer, strided or random; from-mask keeps the blocks that hold a "
        "nonzero element of a mask [H,M,N] or [M,N]; stats prints density, rows, columns and work balance.",
        children,
        0,
        0};
    layout_cmd o = {.common.command = "layout",
                    .common.examples =
                        "Examples:\n"
                        "  bstk layout bigbird --seq 512 --block 32 --window 3 --global 1 --random 1 --show -o l.npy\n"
                        "  bstk layout from-smtx weights.smtx --block 16 -o l.bstk --png l.png\n"
                        "  bstk layout stats l.bstk",
                    .build = BSTK_LAYOUT_OPTS_INIT,
                    .seq = -1,
                    .rows = -1,
                    .cols = -1};
    parse_command(&argp, argc, argv, &o.common, &o);
    if (o.files.count == 0)
        usage_error("layout: expected a kind, from-mask, from-smtx, from-mtx or stats");
    bstk_context *ctx = make_context(&o.common);
    const char *what = o.files.arg[0];
    if (strcmp(what, "stats") == 0) {
        layout_stats(ctx, &o);
    } else {
        progress_begin(&o.common, "layout", 0);
        bstk_layout *layout = make_layout(ctx, &o, what);
        progress_end();
        deliver(&o, layout);
        bstk_layout_release(layout);
    }
    bstk_context_release(ctx);
    free(o.windows.values);
    free(o.globals.values);
    free(o.files.arg);
    return 0;
}

void layout_expect_output(const layout_cmd *o) {
    expect_output(o);
}
