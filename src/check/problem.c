/* problem.c: reads, prints and lays out problem strings. */
#include "problem.h"

#include "io/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes up to this are taken: every product of three of them, times 8 bytes, still fits the library's checks. */
#define MAX_SIZE INT64_C(1000000000000)

static const char *const op_names[] = {"",          "sdd",     "dsd",       "dds",  "softmax",
                                       "layernorm", "rmsnorm", "attention", "pack", "unpack"};
static const char *const pattern_names[] = {"",      "ones",    "diag",       "tril", "bernoulli",
                                            "local", "bigbird", "longformer", "file"};

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static bool fail(char error[PROBLEM_TEXT], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error, PROBLEM_TEXT, format, args);
    va_end(args);
    return false;
}

const char *problem_op_name(problem_op op) {
    return (int)op > 0 && (int)op < LENGTH(op_names) ? op_names[op] : "unknown";
}

bool problem_is_product(problem_op op) {
    return op == PROBLEM_SDD || op == PROBLEM_DSD || op == PROBLEM_DDS;
}

bool problem_has_scores(problem_op op) {
    return op == PROBLEM_SOFTMAX || op == PROBLEM_ATTENTION;
}

bool problem_is_norm(problem_op op) {
    return op == PROBLEM_LAYERNORM || op == PROBLEM_RMSNORM;
}

/* Both of these report what a colon-separated part should have been. */
static bool parse_op(const char *part, problem *p, char error[PROBLEM_TEXT]) {
    for (int i = 1; i < LENGTH(op_names); ++i) {
        if (strcmp(part, op_names[i]) == 0) {
            p->op = (problem_op)i;
            return true;
        }
    }
    return fail(error,
                "problem: op is '%s', expected sdd, dsd, dds, softmax, layernorm, rmsnorm, attention, pack or unpack",
                part);
}

static bool parse_dtype(const char *part, problem *p, char error[PROBLEM_TEXT]) {
    static const struct {
        const char *name;
        bstk_dtype dense, packed;
    } types[] = {{"f64", BSTK_F64, BSTK_F64},    {"f32", BSTK_F32, BSTK_F32},     {"f16", BSTK_F16, BSTK_F16},
                 {"bf16", BSTK_BF16, BSTK_BF16}, {"f16+f32", BSTK_F16, BSTK_F32}, {"bf16+f32", BSTK_BF16, BSTK_F32}};
    for (int i = 0; i < LENGTH(types); ++i) {
        if (strcmp(part, types[i].name) == 0) {
            p->dtype = types[i].dense;
            p->packed_dtype = types[i].packed;
            if (p->dtype != p->packed_dtype && !problem_is_product(p->op))
                return fail(error, "problem: dtype %s is for sdd, dsd and dds only, not for %s", part,
                            problem_op_name(p->op));
            return true;
        }
    }
    return fail(error, "problem: dtype is '%s', expected f64, f32, f16, bf16, f16+f32 or bf16+f32", part);
}

static bool parse_count(const char *text, uint64_t max, uint64_t *out) {
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || errno != 0 || value > max)
        return false;
    *out = value;
    return true;
}

static bool parse_size(const char *part, int64_t min, int64_t max, int64_t *out, char error[PROBLEM_TEXT]) {
    uint64_t value;
    if (!parse_count(part + 1, (uint64_t)max, &value) || (int64_t)value < min)
        return fail(error, "problem: size '%s', expected %c and a number from %" PRId64 " to %" PRId64, part, part[0],
                    min, max);
    *out = (int64_t)value;
    return true;
}

/* PATTERN with its arguments, `name` of `arguments` numbers apart from bernoulli and file. */
static bool parse_pattern(const char *part, problem *p, char error[PROBLEM_TEXT]) {
    char name[32] = "", inside[256] = "";
    const char *open = strchr(part, '(');
    const size_t length = open != NULL ? (size_t)(open - part) : strlen(part);
    if (length < sizeof name)
        memcpy(name, part, length);
    p->pattern = 0;
    for (int i = 1; i < LENGTH(pattern_names); ++i) {
        if (strcmp(name, pattern_names[i]) == 0)
            p->pattern = (problem_pattern)i;
    }
    if (p->pattern == 0)
        return fail(error,
                    "problem: '%s' is neither a size, a flag nor a pattern (ones diag tril bernoulli(p,seed) local(w) "
                    "bigbird(w,g,r,seed) longformer(w,g) file(path))",
                    part);
    if (open != NULL) {
        const size_t rest = strlen(open);
        if (open[rest - 1] != ')')
            return fail(error, "problem: pattern '%s' has no closing bracket", part);
        if (rest - 2 >= sizeof inside)
            return fail(error, "problem: pattern %s(...) holds %zu bytes, expected at most %zu", name, rest - 2,
                        sizeof inside - 1);
        memcpy(inside, open + 1, rest - 2);
    }
    if (p->pattern == PROBLEM_FILE) {
        if (inside[0] == '\0')
            return fail(error, "problem: pattern 'file' has no path, expected file(path)");
        memcpy(p->path, inside, sizeof inside);
        return true;
    }
    static const char *const forms[] = {"",
                                        "ones",
                                        "diag",
                                        "tril",
                                        "bernoulli(p,seed), p from 0 to 1",
                                        "local(w)",
                                        "bigbird(w,g,r,seed)",
                                        "longformer(w,g)"};
    static const int wanted[] = {0, 0, 0, 0, 2, 1, 4, 2};
    uint64_t number[4] = {0};
    int count = 0;
    for (char *next = inside; open != NULL && next != NULL && count <= 4; ++count) {
        char *text = next;
        next = strchr(text, ',');
        if (next != NULL)
            *next++ = '\0';
        if (count == 0 && p->pattern == PROBLEM_BERNOULLI) {
            char *end;
            p->density = strtod(text, &end);
            if (end == text || *end != '\0' || !(p->density >= 0 && p->density <= 1))
                count = 4;
        } else if (count == 4 ||
                   !parse_count(text, count == wanted[p->pattern] - 1 ? UINT64_MAX : MAX_SIZE, &number[count])) {
            count = 4;
        }
    }
    if (count != wanted[p->pattern])
        return fail(error, "problem: pattern is '%s', expected %s", part, forms[p->pattern]);
    if (p->pattern == PROBLEM_BERNOULLI) {
        p->seed = number[1];
    } else {
        p->window = (int64_t)number[0];
        p->global = (int64_t)number[1];
        p->random = (int64_t)number[2];
        p->seed = number[3];
    }
    return true;
}

/* Flags and sizes may stand in any order; each at most once. `seen` has one bit a part. */
enum { SEEN_B = 1, SEEN_Z = 2, SEEN_H = 4, SEEN_M = 8, SEEN_N = 16, SEEN_K = 32, SEEN_PATTERN = 64, SEEN_TA = 128 };
enum { SEEN_TB = 256, SEEN_TC = 512, SEEN_CAUSAL = 1024, SEEN_DEVICE = 2048, SEEN_BWD = 4096 };

static bool parse_part(const char *part, problem *p, unsigned *seen, char error[PROBLEM_TEXT]) {
    static const struct {
        const char *name;
        unsigned bit;
    } flags[] = {{"ta", SEEN_TA},   {"tb", SEEN_TB},      {"tc", SEEN_TC},      {"causal", SEEN_CAUSAL},
                 {"bwd", SEEN_BWD}, {"cpu", SEEN_DEVICE}, {"cuda", SEEN_DEVICE}};
    unsigned bit = 0;
    for (int i = 0; i < LENGTH(flags); ++i) {
        if (strcmp(part, flags[i].name) == 0)
            bit = flags[i].bit;
    }
    if (bit != 0) {
        p->trans_a |= bit == SEEN_TA;
        p->trans_b |= bit == SEEN_TB;
        p->trans_c |= bit == SEEN_TC;
        p->causal |= bit == SEEN_CAUSAL;
        p->backward |= bit == SEEN_BWD;
        p->cuda |= strcmp(part, "cuda") == 0;
        if ((bit & (SEEN_TA | SEEN_TB | SEEN_TC)) != 0 && !problem_is_product(p->op))
            return fail(error, "problem: %s is for sdd, dsd and dds only, not for %s", part, problem_op_name(p->op));
        if (bit == SEEN_CAUSAL && !problem_has_scores(p->op))
            return fail(error, "problem: causal is for softmax and attention only, not for %s", problem_op_name(p->op));
        if (bit == SEEN_BWD && (p->op == PROBLEM_PACK || p->op == PROBLEM_UNPACK))
            return fail(error, "problem: bwd of %s is %s: ask for that", problem_op_name(p->op),
                        p->op == PROBLEM_PACK ? "unpack" : "pack");
    } else if (part[0] != '\0' && strchr("bzhmnkd", part[0]) != NULL && part[1] >= '0' && part[1] <= '9') {
        int64_t block = 0;
        switch (part[0]) {
        case 'b':
            bit = SEEN_B;
            if (!parse_size(part, BSTK_MIN_BLOCK, BSTK_MAX_BLOCK, &block, error))
                return false;
            if (block % 8 != 0)
                return fail(error, "problem: block is %" PRId64 ", expected a multiple of 8", block);
            p->block = (int32_t)block;
            break;
        case 'z':
            bit = SEEN_Z;
            if (!parse_size(part, 1, MAX_SIZE, &p->z, error))
                return false;
            break;
        case 'h':
            bit = SEEN_H;
            if (!parse_size(part, 1, MAX_SIZE, &p->h, error))
                return false;
            break;
        case 'm':
        case 'n':
            bit = part[0] == 'm' ? SEEN_M : SEEN_N;
            if (!parse_size(part, 0, MAX_SIZE, part[0] == 'm' ? &p->m : &p->n, error))
                return false;
            break;
        default:
            bit = SEEN_K;
            if (part[0] == 'k' ? !problem_is_product(p->op) : p->op != PROBLEM_ATTENTION)
                return fail(error, "problem: size '%s' does not belong to %s", part, problem_op_name(p->op));
            if (!parse_size(part, part[0] == 'k' ? 0 : 1, part[0] == 'k' ? MAX_SIZE : 256, &p->k, error))
                return false;
        }
    } else {
        bit = SEEN_PATTERN;
        if (!parse_pattern(part, p, error))
            return false;
    }
    if (*seen & bit)
        return fail(error, "problem: '%s' comes after another part of its kind", part);
    *seen |= bit;
    return true;
}

bool problem_parse(const char *text, problem *out, char error[PROBLEM_TEXT]) {
    problem p = {.z = 1, .h = 1};
    unsigned seen = 0;
    int index = 0;
    for (const char *start = text; start != NULL; ++index) {
        /* A path may hold colons: the part then ends behind its bracket. */
        const char *end = strchr(start, ':');
        if (strncmp(start, "file(", 5) == 0) {
            const char *close = strstr(start, "):");
            end = close != NULL ? close + 1 : NULL;
        }
        char part[PROBLEM_TEXT - 128];
        const size_t length = end != NULL ? (size_t)(end - start) : strlen(start);
        if (length >= sizeof part)
            return fail(error, "problem: part %d has %zu bytes, expected at most %zu", index + 1, length,
                        sizeof part - 1);
        memcpy(part, start, length);
        part[length] = '\0';
        if (index == 0 ? !parse_op(part, &p, error)
                       : (index == 1 ? !parse_dtype(part, &p, error) : !parse_part(part, &p, &seen, error)))
            return false;
        start = end != NULL ? end + 1 : NULL;
    }
    if (index < 2)
        return fail(error, "problem: '%s' has no dtype, expected OP:DTYPE:bB:mM:nN:...", text);
    const struct {
        unsigned bit;
        const char *name;
        bool needed;
    } parts[] = {{SEEN_B, "block (bB)", true},
                 {SEEN_M, "rows (mM)", true},
                 {SEEN_N, "columns (nN)", true},
                 {SEEN_K, "inner size (kK)", problem_is_product(p.op)},
                 {SEEN_K, "head size (dD)", p.op == PROBLEM_ATTENTION},
                 {SEEN_PATTERN, "pattern", true}};
    for (int i = 0; i < LENGTH(parts); ++i) {
        if (parts[i].needed && !(seen & parts[i].bit))
            return fail(error, "problem: %s is missing in '%s'", parts[i].name, text);
    }
    *out = p;
    return true;
}

static void print_pattern(const problem *p, char *text, size_t size) {
    const char *name = pattern_names[p->pattern];
    char density[32];
    int digits = 0;
    switch (p->pattern) {
    case PROBLEM_BERNOULLI:
        do { /* the shortest text that reads back as the same number */
            snprintf(density, sizeof density, "%.*g", ++digits, p->density);
        } while (digits < 17 && strtod(density, NULL) != p->density);
        snprintf(text, size, "%s(%s,%" PRIu64 ")", name, density, p->seed);
        break;
    case PROBLEM_LOCAL:
        snprintf(text, size, "%s(%" PRId64 ")", name, p->window);
        break;
    case PROBLEM_BIGBIRD:
        snprintf(text, size, "%s(%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ")", name, p->window, p->global,
                 p->random, p->seed);
        break;
    case PROBLEM_LONGFORMER:
        snprintf(text, size, "%s(%" PRId64 ",%" PRId64 ")", name, p->window, p->global);
        break;
    case PROBLEM_FILE:
        snprintf(text, size, "%s(%s)", name, p->path);
        break;
    default:
        snprintf(text, size, "%s", name);
    }
}

const char *problem_print(const problem *p, char text[PROBLEM_TEXT]) {
    char dtype[16], batch[32] = "", heads[32] = "", inner[32] = "", pattern[288];
    const char *const names[] = {"", "f64", "f32", "f16", "bf16"};
    snprintf(dtype, sizeof dtype, "%s%s", names[p->dtype], p->packed_dtype != p->dtype ? "+f32" : "");
    if (p->z != 1)
        snprintf(batch, sizeof batch, ":z%" PRId64, p->z);
    if (p->h != 1)
        snprintf(heads, sizeof heads, ":h%" PRId64, p->h);
    if (problem_is_product(p->op) || p->op == PROBLEM_ATTENTION)
        snprintf(inner, sizeof inner, ":%c%" PRId64, p->op == PROBLEM_ATTENTION ? 'd' : 'k', p->k);
    print_pattern(p, pattern, sizeof pattern);
    snprintf(text, PROBLEM_TEXT, "%s:%s:b%d%s%s:m%" PRId64 ":n%" PRId64 "%s:%s%s%s%s%s%s%s", problem_op_name(p->op),
             dtype, (int)p->block, batch, heads, p->m, p->n, inner, pattern, p->trans_a ? ":ta" : "",
             p->trans_b ? ":tb" : "", p->trans_c ? ":tc" : "", p->causal ? ":causal" : "", p->backward ? ":bwd" : "",
             p->cuda ? ":cuda" : "");
    return text;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

void problem_layout_shape(const problem *p, int64_t shape[2]) {
    int64_t rows = p->m, cols = p->n;
    bool transposed = p->trans_c && p->op == PROBLEM_SDD;
    if (p->op == PROBLEM_DSD) {
        cols = p->k;
        transposed = p->trans_a;
    } else if (p->op == PROBLEM_DDS) {
        rows = p->k;
        transposed = p->trans_b;
    }
    shape[0] = transposed ? cols : rows;
    shape[1] = transposed ? rows : cols;
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool library_error(bstk_status status, char error[PROBLEM_TEXT]) {
    return status == BSTK_OK || fail(error, "%s", bstk_last_error());
}

static bool file_layout(bstk_context *ctx, const problem *p, const int64_t shape[2], bstk_layout **out,
                        char error[PROBLEM_TEXT]) {
    io_error io;
    if (ends_with(p->path, ".npy")) {
        io_array mask = {0};
        if (!io_npy_read(p->path, &mask, &io))
            return fail(error, "%s", io.text);
        const bool ok = library_error(bstk_layout_from_mask(ctx, &mask.t, p->block, shape, out), error);
        io_array_free(&mask);
        return ok;
    }
    const bool smtx = ends_with(p->path, ".smtx");
    if (smtx || ends_with(p->path, ".mtx")) {
        io_pattern pattern = {0};
        if (smtx ? !io_smtx_read(p->path, &pattern, &io) : !io_mtx_read(p->path, &pattern, &io))
            return fail(error, "%s", io.text);
        bstk_layout_indices indices = BSTK_LAYOUT_INDICES_INIT;
        indices.rows = pattern.rows;
        indices.cols = pattern.cols;
        indices.edge = 1;
        indices.count = pattern.count;
        indices.row = pattern.row;
        indices.row_ptr = pattern.row_ptr;
        indices.col = pattern.col;
        const bool ok = library_error(bstk_layout_from_indices(ctx, &indices, p->block, NULL, out), error);
        io_pattern_free(&pattern);
        return ok;
    }
    return library_error(bstk_layout_load(ctx, p->path, out), error);
}

bool problem_layout(bstk_context *ctx, const problem *p, bstk_layout **out, char error[PROBLEM_TEXT]) {
    int64_t shape[2];
    problem_layout_shape(p, shape);
    if (p->pattern == PROBLEM_FILE) {
        bstk_layout *layout = NULL;
        if (!file_layout(ctx, p, shape, &layout, error))
            return false;
        const int64_t m = bstk_layout_m(layout), n = bstk_layout_n(layout), heads = bstk_layout_heads(layout);
        const int32_t block = bstk_layout_block(layout);
        if (m != shape[0] || n != shape[1] || heads != p->h || block != p->block) {
            bstk_layout_release(layout);
            return fail(error,
                        "problem: %s has %" PRId64 " heads of %" PRId64 " x %" PRId64
                        " elements in blocks of %d, expected h%" PRId64 ", %" PRId64 " x %" PRId64 ", b%d",
                        p->path, heads, m, n, (int)block, p->h, shape[0], shape[1], (int)p->block);
        }
        *out = layout;
        return true;
    }
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    opts.heads = p->h;
    opts.block = p->block;
    opts.rows = (shape[0] + p->block - 1) / p->block;
    opts.cols = (shape[1] + p->block - 1) / p->block;
    opts.shape[0] = shape[0];
    opts.shape[1] = shape[1];
    opts.window = p->window;
    opts.global = p->global;
    opts.random = p->random;
    opts.seed = p->seed;
    opts.causal = p->causal;
    switch (p->pattern) {
    case PROBLEM_DIAG:
        opts.kind = BSTK_LAYOUT_LOCAL;
        opts.window = 1;
        opts.causal = 0;
        break;
    case PROBLEM_LOCAL:
        opts.kind = BSTK_LAYOUT_LOCAL;
        break;
    case PROBLEM_BIGBIRD:
        opts.kind = BSTK_LAYOUT_BIGBIRD;
        break;
    case PROBLEM_LONGFORMER:
        opts.kind = BSTK_LAYOUT_LONGFORMER;
        break;
    case PROBLEM_BERNOULLI:
        opts.kind = BSTK_LAYOUT_RANDOM;
        opts.density = p->density;
        opts.random = -1;
        opts.causal = 0;
        break;
    default: /* ones and tril */
        opts.kind = BSTK_LAYOUT_DENSE;
        opts.causal = p->pattern == PROBLEM_TRIL;
    }
    return library_error(bstk_layout_build(ctx, &opts, out), error);
}
