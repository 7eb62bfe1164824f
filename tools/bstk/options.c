/* options.c: errors, the options that commands share, and the values of options. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void message(const char *format, va_list args) {
    progress_end();
    fflush(stdout);
    fputs("bstk: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    message(format, args);
    va_end(args);
    exit(1);
}

void usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    message(format, args);
    va_end(args);
    exit(2);
}

void note(const common_opts *common, const char *format, ...) {
    if (common->quiet)
        return;
    va_list args;
    va_start(args, format);
    message(format, args);
    va_end(args);
}

void must(bstk_status status) {
    if (status == BSTK_OK)
        return;
    /* "dsd: b has 1000 rows, ...": the word after the op names an argument, and arguments came from files. */
    const char *text = bstk_last_error();
    const char *name = strstr(text, ": ");
    name = name ? name + 2 : text;
    size_t length = strcspn(name, " :[.,'");
    const char *file = operand_file(name, length);
    if (file)
        fail("%s; %.*s is %s", text, (int)length, name, file);
    fail("%s", text);
}

/* ---- common options ---------------------------------------------------------------------------------------------- */

enum { KEY_DEVICE = KEY_COMMON, KEY_THREADS, KEY_DTYPE };

static const struct argp_option common_options[] = {
    {0, 0, 0, 0, "Common:", 90},
    {"device", KEY_DEVICE, "DEV", 0, "Where to run: cpu or cuda[:N] (default: cpu)", 90},
    {"threads", KEY_THREADS, "T", 0, "CPU threads (default: BSTK_NUM_THREADS, or all cores)", 90},
    {"dtype", KEY_DTYPE, "TYPE", 0,
     "Element type f64, f32, f16 or bf16: files of another floating type are converted; bf16 lies in files as 16-bit "
     "unsigned integers (default: the files' own)",
     90},
    {"quiet", 'q', 0, 0, "No progress bar and no notes", 90},
    {"verbose", 'v', 0, 0, "Kernel, work and time on standard error", 90},
    {"help", 'h', 0, 0, "Show this help", 91},
    {0}};

static bstk_device parse_device(const common_opts *common, const char *text) {
    if (strcmp(text, "cpu") == 0)
        return (bstk_device){BSTK_CPU, 0};
    if (strcmp(text, "cuda") == 0)
        return (bstk_device){BSTK_CUDA, 0};
    if (strncmp(text, "cuda:", 5) == 0)
        return (bstk_device){BSTK_CUDA, (int32_t)option_int(common, "--device cuda:N", text + 5, 0, 1023)};
    usage_error("%s: --device is '%s', expected cpu, cuda or cuda:N", common->command, text);
}

static bstk_dtype parse_dtype(const common_opts *common, const char *text) {
    static const struct {
        const char *name;
        bstk_dtype dtype;
    } types[] = {{"f64", BSTK_F64}, {"f32", BSTK_F32}, {"f16", BSTK_F16}, {"bf16", BSTK_BF16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(text, types[i].name) == 0)
            return types[i].dtype;
    usage_error("%s: --dtype is '%s', expected f64, f32, f16 or bf16", common->command, text);
}

/* argp writes the options; the examples are ours, for argp would wrap them. */
_Noreturn static void show_help(common_opts *common, struct argp_state *state) {
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    state->name = common->help_name;
    argp_state_help(state, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG);
    printf("\n%s\n", common->examples);
    exit(0);
}

static error_t parse_common(int key, char *arg, struct argp_state *state) {
    common_opts *common = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        /* getopt prints the one line that we want, headed by argv[0]; argp's "Try ... --help" lines go nowhere. */
        state->err_stream = NULL;
        return 0;
    case KEY_DEVICE:
        common->device = parse_device(common, arg);
        return 0;
    case KEY_THREADS:
        common->threads = (int)option_int(common, "--threads", arg, 1, 4096);
        return 0;
    case KEY_DTYPE:
        common->dtype = parse_dtype(common, arg);
        return 0;
    case 'q':
        common->quiet = true;
        return 0;
    case 'v':
        common->verbose = true;
        return 0;
    case 'h':
        show_help(common, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp common_argp = {common_options, parse_common, 0, 0, 0, 0, 0};

void parse_command(const struct argp *argp, int argc, char **argv, common_opts *common, void *input) {
    common->device.kind = BSTK_CPU;
    snprintf(common->help_name, sizeof common->help_name, "bstk %s", common->command);
    snprintf(common->error_name, sizeof common->error_name, "bstk: %s", common->command);
    argv[0] = common->error_name;
    if (argp_parse(argp, argc, argv, ARGP_NO_HELP, NULL, input) != 0)
        exit(2);
}

/* ---- layout options ---------------------------------------------------------------------------------------------- */

enum { KEY_LAYOUT_FILE = KEY_LAYOUT, KEY_BLOCK, KEY_SHAPE };

static const struct argp_option layout_options[] = {
    {0, 0, 0, 0, "Layout:", 1},
    {"layout", KEY_LAYOUT_FILE, "FILE", 0,
     "Which blocks are stored: a 0/1 array [H,R,C] or [R,C] (.npy), or a .bstk file", 1},
    {"block", KEY_BLOCK, "B", 0,
     "Block edge in elements, a multiple of 8 up to 256; a .bstk layout knows its own (no default for .npy)", 1},
    {"shape", KEY_SHAPE, "M,N", 0,
     "Element rows and columns of the sparse matrix when the last block is cut by the edge (default: rows*B,cols*B)",
     1},
    {0}};

static error_t parse_layout(int key, char *arg, struct argp_state *state) {
    layout_input *input = state->input;
    switch (key) {
    case KEY_LAYOUT_FILE:
        input->layout->path = arg;
        return 0;
    case KEY_BLOCK:
        input->layout->block = (int)option_int(input->common, "--block", arg, 1, INT32_MAX);
        return 0;
    case KEY_SHAPE:
        option_pair(input->common, "--shape", arg, 0, "M,N in elements", input->layout->shape);
        input->layout->has_shape = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp layout_argp = {layout_options, parse_layout, 0, 0, 0, 0, 0};

/* ---- values ------------------------------------------------------------------------------------------------------ */

void take_positional(positionals *list, const char *arg) {
    const char **grown = realloc(list->arg, ((size_t)list->count + 1) * sizeof *grown);
    if (!grown)
        fail("out of memory");
    list->arg = grown;
    list->arg[list->count++] = arg;
}

void expect_positionals(const common_opts *common, const positionals *list, int count, const char *what) {
    if (list->count > count)
        usage_error("%s: unexpected argument '%s'; expected %s", common->command, list->arg[count], what);
    if (list->count < count)
        usage_error("%s: expected %s, got %d argument%s", common->command, what, list->count,
                    list->count == 1 ? "" : "s");
}

void expect_option(const common_opts *common, const char *value, const char *what) {
    if (!value)
        usage_error("%s: %s is missing", common->command, what);
}

int64_t option_int(const common_opts *common, const char *option, const char *text, int64_t min, int64_t max) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max) {
        if (max == INT64_MAX || max == INT32_MAX)
            usage_error("%s: %s is '%s', expected an integer of at least %lld", common->command, option, text,
                        (long long)min);
        usage_error("%s: %s is '%s', expected an integer from %lld to %lld", common->command, option, text,
                    (long long)min, (long long)max);
    }
    return value;
}

double option_double(const common_opts *common, const char *option, const char *text) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        usage_error("%s: %s is '%s', expected a finite number", common->command, option, text);
    return value;
}

double option_range(const common_opts *common, const char *option, const char *text, double min, double max) {
    double value = option_double(common, option, text);
    if (value < min || value > max)
        usage_error("%s: %s is '%s', expected a number from %g to %g", common->command, option, text, min, max);
    return value;
}

uint64_t option_seed(const common_opts *common, const char *option, const char *text) {
    char *end = NULL;
    errno = 0;
    unsigned long long seed = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || *text == '-')
        usage_error("%s: %s is '%s', expected an integer from 0 to 2^64 - 1", common->command, option, text);
    return seed;
}

void option_pair(const common_opts *common, const char *option, const char *text, int64_t min, const char *what,
                 int64_t pair[2]) {
    const char *at = text;
    char *end = NULL;
    bool good = true;
    for (int i = 0; i < 2 && good; i++) {
        errno = 0;
        pair[i] = strtoll(at, &end, 10);
        good = end != at && errno == 0 && pair[i] >= min && *end == (i == 0 ? ',' : '\0');
        at = i == 0 && good ? end + 1 : at;
    }
    if (!good)
        usage_error("%s: %s is '%s', expected %s", common->command, option, text, what);
}

/* ---- suggestions ------------------------------------------------------------------------------------------------- */

/* Letters to insert, delete or change to get from a to b; words of up to 31 letters. */
static int edit_distance(const char *a, const char *b) {
    enum { LIMIT = 32 };
    int row[LIMIT];
    int length_a = (int)strlen(a), length_b = (int)strlen(b);
    if (length_a >= LIMIT || length_b >= LIMIT)
        return LIMIT;
    for (int j = 0; j <= length_b; j++)
        row[j] = j;
    for (int i = 1; i <= length_a; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= length_b; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            int insert = row[j - 1] + 1, delete = row[j] + 1;
            diagonal = row[j];
            row[j] = change < insert ? change : insert;
            row[j] = row[j] < delete ? row[j] : delete;
        }
    }
    return row[length_b];
}

const char *nearest(const char *word, const char *const *candidates, int count) {
    const char *best = NULL;
    int best_distance = 4; /* farther than three letters is another word */
    for (int i = 0; i < count; i++) {
        int distance = edit_distance(word, candidates[i]);
        if (distance < best_distance && distance < (int)strlen(candidates[i])) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}
