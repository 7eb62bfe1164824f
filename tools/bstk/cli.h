/*
 * cli.h: what the commands of the tool share. The tool stands on the public API and the file library only.
 *
 * Exit codes: 0; 1 a failure while running; 2 wrong usage. Either way one line "bstk: ..." on standard error: a command
 * ends the process through fail() or usage_error() wherever it stands.
 */
#ifndef BSTK_CLI_H
#define BSTK_CLI_H

#include <argp.h>
#include <bstk/bstk.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "io/io.h"

/* ---- errors (options.c) ------------------------------------------------------------------------------------------ */

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends with the library's message when `status` is not BSTK_OK, adding the file of the operand that it names. */
void must(bstk_status status);
/* A line on standard error that is no error; nothing with -q. */
struct common_opts;
void note(const struct common_opts *common, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- options (options.c) ----------------------------------------------------------------------------------------- */

typedef struct common_opts {
    const char *command;  /* "attention": begins messages about wrong usage */
    const char *examples; /* end of the help */
    bstk_device device;
    int threads;      /* 0: the library's choice */
    bstk_dtype dtype; /* 0: what the files say */
    bool quiet, verbose;
    char help_name[32], error_name[32];
} common_opts;

/* Child parser of every command: --device, --threads, --dtype, -q, -v, --help. Its input is a common_opts. */
extern const struct argp common_argp;

/* Options that every op with a layout has. */
typedef struct layout_opts {
    const char *path;
    int block;        /* 0: not given */
    int64_t shape[2]; /* {0, 0} when has_shape is false */
    bool has_shape;
} layout_opts;

typedef struct layout_input {
    common_opts *common;
    layout_opts *layout;
} layout_input;

/* Child parser: --layout, --block, --shape. Its input is a layout_input. */
extern const struct argp layout_argp;

typedef struct positionals {
    const char **arg;
    int count;
} positionals;

/* Keys of options without a short form start here; each parser has a range of its own. */
enum { KEY_COMMON = 0x100, KEY_LAYOUT = 0x200, KEY_TERMS = 0x300, KEY_COMMAND = 0x400 };

void parse_command(const struct argp *argp, int argc, char **argv, common_opts *common, void *input);
void take_positional(positionals *list, const char *arg);
/* Ends with a usage error unless `count` positionals were given; `what` names them: "A.npy B.npy". */
void expect_positionals(const common_opts *common, const positionals *list, int count, const char *what);
void expect_option(const common_opts *common, const char *value, const char *what);

/* Values of options; wrong ones are usage errors that name the option. */
int64_t option_int(const common_opts *common, const char *option, const char *text, int64_t min, int64_t max);
uint64_t option_seed(const common_opts *common, const char *option, const char *text);
double option_double(const common_opts *common, const char *option, const char *text);
double option_range(const common_opts *common, const char *option, const char *text, double min, double max);
/* Two integers of at least `min` with a comma between them; `what` says so: "M,N in elements". */
void option_pair(const common_opts *common, const char *option, const char *text, int64_t min, const char *what,
                 int64_t pair[2]);

/* The candidate nearest to `word` by edit distance, or NULL when none is near. */
const char *nearest(const char *word, const char *const *candidates, int count);

/* ---- running (runner.c) ------------------------------------------------------------------------------------------ */

/* A context with the threads asked for; refuses a device that this build does not serve. */
bstk_context *make_context(const common_opts *common);

/* Memory for one run of a plan, ready in `exec`; free what is returned. */
void *make_scratch(const bstk_plan *plan, bstk_exec *exec);

/* With -v: kernel, work and time of a run on standard error. */
void report_run(const common_opts *common, const bstk_plan *plan, double seconds);

double now(void); /* seconds on a clock that never steps */
int compare_doubles(const void *a, const void *b);
double median(double *values, int count); /* sorts them */

/* ---- arrays (arrays.c) ------------------------------------------------------------------------------------------- */

/*
 * Reads an operand and remembers its file for must(). --dtype states the type: bf16 reads 16-bit unsigned files as
 * bfloat16; files of another floating type are converted with one rounding.
 */
void load_operand(const common_opts *common, const char *name, const char *path, io_array *array);
/* Reads a mask or another term of the scores: never converted, but with --dtype bf16 a 16-bit file is bfloat16. */
void load_term(const common_opts *common, const char *name, const char *path, io_array *array);
void make_array(io_array *array, bstk_dtype dtype, int ndim, const int64_t *shape);
bstk_dtype lse_dtype(bstk_dtype dtype); /* f64 for f64, else f32 */
/* Remembers, and tells, which file an operand of this name came from; NULL: none. */
void remember_operand(const char *name, const char *path);
const char *operand_file(const char *name, size_t length);

/*
 * Reads a layout, a 0/1 array (.npy) or bstk's own file, told apart by content. An array needs a block edge, unless the
 * caller takes a layout without one: then *sized says whether its sizes in elements mean anything.
 */
bstk_layout *load_layout(bstk_context *ctx, const common_opts *common, const layout_opts *opts, bool *sized);
/* Size of axis `ndim - back` of a tensor, 1 when it has fewer axes: axis(t, 2) are the rows of a dense matrix. */
int64_t axis(const bstk_tensor *t, int back);
/* Heads that packed values hold: the layout's, or with a shared layout as many as the blocks tell. */
int64_t packed_heads(const bstk_layout *layout, const bstk_tensor *packed);

/* ---- output files (outputs.c) ------------------------------------------------------------------------------------ */

/* One file of a command: an array, a layout (by the ending of its name .npy or .bstk) or a picture of a layout. */
typedef struct output_file {
    const char *option; /* "-o" */
    const char *path;   /* NULL: not asked for */
    const bstk_tensor *t;
    const bstk_layout *layout;
    bool picture;
} output_file;

/* Ends the command when nothing can be written to `path` (NULL: fine): called before the work, not after it. */
void probe_output(const common_opts *common, const char *path);
/* The same for several files, which must differ. */
void probe_outputs(const common_opts *common, const output_file *files, int count);
/* Writes all of up to four files or none: a file that fails leaves the others as they were. */
void write_outputs(const common_opts *common, const output_file *files, int count);
void write_array(const common_opts *common, const char *path, const bstk_tensor *t);
bool has_suffix(const char *text, const char *suffix);

/* ---- terminal (term.c) ------------------------------------------------------------------------------------------- */

typedef enum style { STYLE_NONE, STYLE_BOLD, STYLE_DIM, STYLE_GOOD, STYLE_BAD } style;

const char *style_on(style s); /* escape sequence for standard output; "" when it is no terminal or NO_COLOR is set */
const char *style_off(void);
int term_columns(void); /* of standard output; 80 when unknown */

/* A bar on standard error, drawn from the second second on when that is a terminal. total 0: only the time. */
void progress_begin(const common_opts *common, const char *label, int64_t total);
void progress_begin_plan(const common_opts *common, const char *label, const bstk_plan *plan); /* moved by its tasks */
void progress_task(void *unused, int64_t total); /* for bstk_context_opts.progress */
void progress_add(int64_t done);
void progress_erase(void); /* before a line on the same terminal; the bar comes back by itself */
void progress_end(void);
bool progress_wanted(const common_opts *common);

void print_picture(const bstk_layout *layout, bool ascii);

/* ---- commands ---------------------------------------------------------------------------------------------------- */

int cmd_info(int argc, char **argv);
int cmd_layout(int argc, char **argv);
int cmd_matmul(int argc, char **argv);
int cmd_softmax(int argc, char **argv);
int cmd_attention(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_unpack(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_norm(int argc, char **argv);

#endif
