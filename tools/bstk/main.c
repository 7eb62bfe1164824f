/* main.c: the command table of the tool, its overview and its end. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"info", "versions, CPU features, threads and environment knobs", cmd_info},
    {"layout", "make, convert, show and measure layouts", cmd_layout},
    {"matmul", "block-sparse products sdd, dsd and dds", cmd_matmul},
    {"softmax", "softmax of each row over its stored blocks", cmd_softmax},
    {"norm", "layernorm and rmsnorm of each row over its stored elements", cmd_norm},
    {"attention", "block-sparse attention, and a report for choosing a layout", cmd_attention},
    {"pack", "dense matrix to packed blocks", cmd_pack},
    {"unpack", "packed blocks to dense matrix", cmd_unpack},
    {"bench", "time problems", cmd_bench},
    {"check", "every kernel on this machine against the float64 reference", cmd_check},
    {"kernels", "the registered kernels", cmd_kernels},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void overview(void) {
    puts("Usage: bstk COMMAND [OPTION...]\n"
         "Block-sparse matrix products, softmax and attention on NumPy files.\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-10s  %s\n", commands[i].name, commands[i].summary);
    puts("\n  -h, --help     Show this help; 'bstk COMMAND --help' shows a command's options and an example\n"
         "  -V, --version  Show the version\n"
         "\nExit status: 0; 1 with one line on standard error when a command fails; 2 for wrong usage.");
}

static const command *find_command(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *near = nearest(name, names, COMMANDS);
    if (near)
        usage_error("unknown command '%s'; did you mean '%s'?", name, near);
    usage_error("unknown command '%s'; 'bstk --help' lists them", name);
}

/* A table that does not reach its reader, on a full disk for example, is a failure like any other. */
static void close_stdout(void) {
    bool failed = ferror(stdout) != 0;
    if ((fclose(stdout) != 0 || failed)) {
        static const char text[] = "bstk: standard output: write failed\n";
        ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
        (void)ignored;
        _exit(1);
    }
}

int main(int argc, char **argv) {
    atexit(close_stdout);
    io_output_signals();
    if (argc < 2)
        usage_error("expected a command; 'bstk --help' lists them");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("bstk %s\n", bstk_version());
        return 0;
    }
    bool help = strcmp(name, "help") == 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (help && argc == 2)) {
        overview();
        return 0;
    }
    if (help) {
        char option[] = "--help";
        char *line[] = {argv[0], option, NULL};
        return find_command(argv[2])->run(2, line);
    }
    if (name[0] == '-')
        usage_error("unknown option '%s' before the command; 'bstk --help' lists the commands", name);
    return find_command(name)->run(argc - 1, argv + 1);
}
