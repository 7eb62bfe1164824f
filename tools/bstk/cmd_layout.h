/* cmd_layout.h: between the arguments of 'bstk layout' (cmd_layout.c) and its sources (layout_sources.c). */
#ifndef BSTK_CMD_LAYOUT_H
#define BSTK_CMD_LAYOUT_H

#include "cli.h"

typedef struct layout_list {
    int64_t *values;
    int64_t count;
} layout_list;

/* Options of a pattern that were given: a kind refuses those that it would not look at. */
enum {
    GIVEN_WINDOW = 1 << 0,
    GIVEN_WINDOWS = 1 << 1,
    GIVEN_GLOBAL = 1 << 2,
    GIVEN_GLOBALS = 1 << 3,
    GIVEN_GLOBAL_LAST = 1 << 4,
    GIVEN_RANDOM = 1 << 5,
    GIVEN_DENSITY = 1 << 6,
    GIVEN_STRIDE = 1 << 7,
    GIVEN_PATTERNS = 1 << 8,
    GIVEN_HORIZONTAL = 1 << 9,
    GIVEN_CAUSAL = 1 << 10,
    GIVEN_SEED = 1 << 11
};

typedef struct layout_cmd {
    common_opts common;
    bstk_layout_opts build;
    positionals files;       /* KIND, or from-mask FILE and so on */
    int64_t seq, rows, cols; /* -1: not given */
    int block, edge;         /* 0: not given */
    int64_t shape[2];
    bool has_shape;
    unsigned given;
    layout_list windows, globals; /* globals: pairs {begin, end} */
    const char *output, *png;
    bool show, ascii;
} layout_cmd;

/* Each checks the options first, then that there is an output. */
bstk_layout *layout_from_kind(bstk_context *ctx, layout_cmd *o);
bstk_layout *layout_from_mask_file(bstk_context *ctx, layout_cmd *o);
bstk_layout *layout_from_pattern_file(bstk_context *ctx, layout_cmd *o, bool mtx);
void layout_stats(bstk_context *ctx, layout_cmd *o);

void layout_expect_output(const layout_cmd *o);

#endif
