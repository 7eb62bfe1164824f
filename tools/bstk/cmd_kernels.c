/* cmd_kernels.c: bstk kernels: the registry, as a table for people or for a document. */
#include "cli.h"

#include <string.h>

enum { KEY_MARKDOWN = KEY_COMMAND, KEY_COMPILE };

static const struct argp_option options[] = {
    {"markdown", KEY_MARKDOWN, 0, 0, "Print a Markdown table", 1},
    {"compile", KEY_COMPILE, "ARCHS", 0, "Compile the GPU kernels for sm_80,sm_90a,... (this build has none)", 1},
    {0}};

typedef struct kernels_cmd {
    common_opts common;
    bool markdown;
    const char *compile;
} kernels_cmd;

static error_t parse_kernels(int key, char *arg, struct argp_state *state) {
    kernels_cmd *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->common;
        return 0;
    case ARGP_KEY_ARG:
        usage_error("kernels: unexpected argument '%s'", arg);
    case KEY_MARKDOWN:
        o->markdown = true;
        return 0;
    case KEY_COMPILE:
        o->compile = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_kernel(const bstk_kernel_info *k, bool markdown) {
    char block[16] = "any", types[48];
    if (k->block)
        snprintf(block, sizeof block, "%d", k->block);
    if (k->packed_dtype && k->packed_dtype != k->dtype)
        snprintf(types, sizeof types, "%s, packed %s", bstk_dtype_name(k->dtype), bstk_dtype_name(k->packed_dtype));
    else
        snprintf(types, sizeof types, "%s", bstk_dtype_name(k->dtype));
    const char *available = k->available ? "yes" : k->why_not;
    if (markdown)
        printf("| `%s` | %s | %s | %s | %s | %s%s |\n", k->name, k->op, types, block, k->isa,
               k->available ? "" : "no: ", available);
    else
        printf("%-28s %-14s %-25s %-6s %-8s %s%s\n", k->name, k->op, types, block, k->isa,
               k->available ? "" : "no: ", available);
}

int cmd_kernels(int argc, char **argv) {
    static const struct argp_child children[] = {{&common_argp, 0, 0, 90}, {0}};
    static const struct argp argp = {
        options,
        parse_kernels,
        0,
        "The registered kernels, in order of preference within an op: the first that takes a problem runs it. "
        "BSTK_LOG=dispatch tells why others did not.",
        children,
        0,
        0};
    kernels_cmd o = {.common.command = "kernels", .common.examples = "Example:\n  bstk kernels --markdown"};
    parse_command(&argp, argc, argv, &o.common, &o);
    if (o.compile)
        fail("kernels: no GPU kernels in this build");
    if (o.markdown)
        puts("| kernel | op | types | block | instructions | available here |\n|---|---|---|---|---|---|");
    else
        printf("%s%-28s %-14s %-25s %-6s %-8s %s%s\n", style_on(STYLE_BOLD), "kernel", "op", "types", "block", "isa",
               "available", style_off());
    for (int32_t i = 0; i < bstk_kernel_count(); i++) {
        bstk_kernel_info info = {.struct_size = sizeof info};
        must(bstk_kernel_get(i, &info));
        print_kernel(&info, o.markdown);
    }
    return 0;
}
