/* cmd_info.c: bstk info. */
#include "cli.h"

#include <stdlib.h>

typedef struct info_opts {
    common_opts common;
} info_opts;

static error_t parse_info(int key, char *arg, struct argp_state *state) {
    info_opts *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        usage_error("info: unexpected argument '%s'", arg);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cmd_info(int argc, char **argv) {
    static const struct argp_child children[] = {{&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        .parser = parse_info,
        .doc = "What this build and this machine are: version, compiler, threads, CPU features and environment knobs, "
               "as lines of 'key: value' for bug reports.",
        .children = children,
    };
    info_opts o = {.common.command = "info", .common.examples = "Example:\n  bstk info"};
    parse_command(&argp, argc, argv, &o.common, &o);
    size_t length = bstk_build_info(NULL, 0);
    char *text = malloc(length + 1);
    if (!text)
        fail("info: out of memory");
    bstk_build_info(text, length + 1);
    fputs(text, stdout);
    free(text);
    return 0;
}
