/*
 * pattern_file.c: sparse patterns in text files: DLMC's .smtx and Matrix Market's .mtx. Both are parsed from memory,
 * line by line; a count is believed only when the rest of the file is long enough to hold so many numbers.
 */
#include "io/io_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_ROOM = 64 };

typedef struct text {
    const char *at, *end;
    int64_t line; /* from 1 */
    const char *name;
    io_error *error;
} text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
fail(text *t, const char *format, ...) {
    char reason[256];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return io__fail(t->error, t->name, "line %" PRId64 ": %s", t->line, reason);
}

static bool out_of_memory(text *t) {
    return io__fail(t->error, t->name, "out of memory");
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Skips blanks; true at the end of the line or of the file. */
static bool at_line_end(text *t) {
    while (t->at < t->end && is_blank(*t->at))
        t->at++;
    return t->at == t->end || *t->at == '\n';
}

static void skip_line(text *t) {
    const char *stop = memchr(t->at, '\n', (size_t)(t->end - t->at));
    t->at = stop ? stop + 1 : t->end;
    t->line += stop != NULL;
}

/* The next word of the line, cut to WORD_ROOM - 1 bytes; "" at its end. */
static void read_word(text *t, char *word) {
    size_t length = 0;
    if (!at_line_end(t))
        for (; t->at < t->end && !is_blank(*t->at) && *t->at != '\n'; t->at++)
            if (length < WORD_ROOM - 1)
                word[length++] = *t->at ? *t->at : '?';
    word[length] = '\0';
}

static bool end_line(text *t) {
    if (!at_line_end(t)) {
        char word[WORD_ROOM];
        read_word(t, word);
        return fail(t, "'%s' where the line should end", word);
    }
    skip_line(t);
    return true;
}

static bool end_file(text *t) {
    while (at_line_end(t) && t->at < t->end)
        skip_line(t);
    return t->at == t->end || fail(t, "text after the end of the data");
}

/* A decimal integer from low to high; `what` is its name in messages. */
static bool read_integer(text *t, const char *what, int64_t low, int64_t high, int64_t *out) {
    if (at_line_end(t))
        return fail(t, "the %s ends where %s was expected", t->at < t->end ? "line" : "file", what);
    const char *from = t->at;
    const bool negative = *t->at == '-';
    int64_t value = 0;
    bool fits = true;
    t->at += negative;
    const char *digits = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        fits =
            fits && !__builtin_mul_overflow(value, 10, &value) && !__builtin_add_overflow(value, *t->at - '0', &value);
    if (t->at == digits || (t->at < t->end && !is_blank(*t->at) && *t->at != '\n' && *t->at != ',')) {
        char word[WORD_ROOM];
        t->at = from;
        read_word(t, word);
        return fail(t, "'%s' where %s was expected", word, what);
    }
    if (negative)
        value = -value;
    if (!fits || value < low || value > high) {
        const int length = t->at - from < WORD_ROOM ? (int)(t->at - from) : WORD_ROOM;
        char expected[64];
        if (high >= INT64_MAX - 1)
            snprintf(expected, sizeof expected, "%" PRId64 " or more, of 64 bits", low);
        else if (low == high)
            snprintf(expected, sizeof expected, "%" PRId64, low);
        else
            snprintf(expected, sizeof expected, "%" PRId64 " to %" PRId64, low, high);
        return fail(t, "%s is %.*s, expected %s", what, length, from, expected);
    }
    *out = value;
    return true;
}

/* Whether what is left can hold `count` entries of at least `bytes` bytes each; the last may lack its newline. */
static bool can_hold(text *t, int64_t count, const char *what, int64_t bytes) {
    const int64_t left = t->end - t->at;
    return count <= (left + 1) / bytes ||
           fail(t, "%" PRId64 " %s announced, but only %" PRId64 " bytes follow", count, what, left);
}

static bool can_be(text *t, int64_t count, int64_t rows, int64_t cols) {
    int64_t elements;
    return __builtin_mul_overflow(rows, cols, &elements) || count <= elements ||
           fail(t, "%" PRId64 " entries in a matrix of %" PRId64 " x %" PRId64, count, rows, cols);
}

static int64_t *new_indices(int64_t count) {
    return malloc(((size_t)count + 1) * sizeof(int64_t)); /* can_hold keeps count below a half of the file's bytes */
}

void io_pattern_free(io_pattern *pattern) {
    free(pattern->row_ptr);
    free(pattern->row);
    free(pattern->col);
    *pattern = (io_pattern){.rows = 0};
}

static bool read_smtx_sizes(text *t, io_pattern *p) {
    static const char *const names[] = {"rows", "cols", "nnz"};
    int64_t *sizes[] = {&p->rows, &p->cols, &p->count};
    for (int i = 0; i < 3; i++) {
        if (!read_integer(t, names[i], 0, INT64_MAX - 1, sizes[i]))
            return false;
        if (i < 2 && !at_line_end(t) && *t->at == ',')
            t->at++;
    }
    return can_be(t, p->count, p->rows, p->cols) && can_hold(t, p->rows + 1, "row pointers", 2) &&
           can_hold(t, p->count, "column indices", 2) && end_line(t);
}

static bool read_smtx(text *t, io_pattern *p) {
    if (!read_smtx_sizes(t, p))
        return false;
    p->row_ptr = new_indices(p->rows + 1);
    p->col = new_indices(p->count);
    if (p->row_ptr == NULL || p->col == NULL)
        return out_of_memory(t);
    for (int64_t i = 0; i <= p->rows; i++) { /* from 0, never falling, to nnz */
        const int64_t low = i == p->rows ? p->count : i > 0 ? p->row_ptr[i - 1] : 0;
        if (!read_integer(t, "a row pointer", low, i > 0 ? p->count : 0, &p->row_ptr[i]))
            return false;
    }
    if (!end_line(t))
        return false;
    for (int64_t i = 0; i < p->count; i++)
        if (!read_integer(t, "a column index", 0, p->cols - 1, &p->col[i]))
            return false;
    return end_file(t);
}

/* Reads a word of the banner in any case: its place in the list `allowed`, which `expected` spells out. */
static bool read_banner_word(text *t, const char *what, const char *const *allowed, const char *expected, int *which) {
    char word[WORD_ROOM];
    read_word(t, word);
    for (char *c = word; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    for (*which = 0; allowed[*which]; ++*which)
        if (strcmp(word, allowed[*which]) == 0)
            return true;
    return fail(t, "%s is '%s', expected %s", what, word, expected);
}

enum { FIELD_PATTERN, FIELD_INTEGER, FIELD_REAL, FIELD_COMPLEX };
enum { GENERAL, SYMMETRIC, SKEW_SYMMETRIC, HERMITIAN };

static bool read_banner(text *t, int *field, int *symmetry) {
    static const char *const banners[] = {"%%matrixmarket", NULL}, *const objects[] = {"matrix", NULL},
                             *const formats[] = {"coordinate", NULL};
    static const char *const fields[] = {"pattern", "integer", "real", "complex", NULL};
    static const char *const symmetries[] = {"general", "symmetric", "skew-symmetric", "hermitian", NULL};
    int only;
    return read_banner_word(t, "the first word", banners, "%%MatrixMarket", &only) &&
           read_banner_word(t, "the object", objects, "matrix", &only) &&
           read_banner_word(t, "the format", formats, "coordinate (array files list every element)", &only) &&
           read_banner_word(t, "the field", fields, "pattern, integer, real or complex", field) &&
           read_banner_word(t, "the symmetry", symmetries, "general, symmetric, skew-symmetric or hermitian",
                            symmetry) &&
           end_line(t);
}

/* A value counts for nothing, but must be a number: what is no number shows that lines or columns are shifted. */
static bool skip_value(text *t) {
    char word[WORD_ROOM];
    read_word(t, word); /* not strtod, which follows the locale */
    return (word[0] && word[strspn(word, "+-.0123456789eEdDinfaINFA")] == '\0') ||
           fail(t, "'%s' where a value was expected", word);
}

static bool read_mtx(text *t, io_pattern *p) {
    int field, symmetry;
    int64_t entries;
    if (!read_banner(t, &field, &symmetry))
        return false;
    while (t->at < t->end && (*t->at == '%' || (at_line_end(t) && t->at < t->end)))
        skip_line(t);
    if (!read_integer(t, "rows", 0, INT64_MAX, &p->rows) || !read_integer(t, "cols", 0, INT64_MAX, &p->cols) ||
        !read_integer(t, "the number of entries", 0, INT64_MAX, &entries) || !can_be(t, entries, p->rows, p->cols) ||
        !can_hold(t, entries, "entries", 4) || !end_line(t)) /* "1 1\n" */
        return false;
    if (symmetry != GENERAL && p->rows != p->cols)
        return fail(t, "a symmetric matrix of %" PRId64 " x %" PRId64 ", expected a square", p->rows, p->cols);
    p->row = new_indices(symmetry == GENERAL ? entries : 2 * entries);
    p->col = new_indices(symmetry == GENERAL ? entries : 2 * entries);
    if (p->row == NULL || p->col == NULL)
        return out_of_memory(t);
    for (int64_t entry = 0; entry < entries; entry++) {
        int64_t row, col;
        while (at_line_end(t) && t->at < t->end)
            skip_line(t);
        if (!read_integer(t, "a row", 1, p->rows, &row) || !read_integer(t, "a column", 1, p->cols, &col))
            return false;
        const int values = field == FIELD_COMPLEX ? 2 : field != FIELD_PATTERN;
        for (int i = 0; i < values; i++)
            if (!skip_value(t))
                return false;
        if (symmetry == SKEW_SYMMETRIC && row == col)
            return fail(t, "an entry on the diagonal of a skew-symmetric matrix, which has only zeros there");
        if (!end_line(t))
            return false;
        p->row[p->count] = row - 1;
        p->col[p->count++] = col - 1;
        if (symmetry != GENERAL && row != col) {
            p->row[p->count] = col - 1;
            p->col[p->count++] = row - 1;
        }
    }
    return end_file(t);
}

static bool parse(bool (*reader)(text *, io_pattern *), const char *name, const void *bytes, size_t size,
                  io_pattern *out, io_error *error) {
    if (size > PTRDIFF_MAX)
        return io__fail(error, name, "%zu bytes, which is no object's size", size);
    const char *begin = size ? bytes : "";
    text t = {.at = begin, .end = begin + size, .line = 1, .name = name, .error = error};
    io_pattern pattern = {.rows = 0};
    if (!reader(&t, &pattern)) {
        io_pattern_free(&pattern);
        return false;
    }
    *out = pattern;
    return true;
}

static bool parse_file(bool (*reader)(text *, io_pattern *), const char *path, io_pattern *out, io_error *error) {
    /* 8 GiB, a thousand million indices and more; a quarter of the address space where that is less. */
    const uint64_t limit = SIZE_MAX / 4 < UINT64_C(1) << 33 ? SIZE_MAX / 4 : UINT64_C(1) << 33;
    void *bytes;
    size_t size;
    if (!io_file_read(path, (size_t)limit, &bytes, &size, error))
        return false;
    const bool good = parse(reader, path, bytes, size, out, error);
    free(bytes);
    return good;
}

bool io_smtx_parse(const char *name, const void *bytes, size_t size, io_pattern *out, io_error *error) {
    return parse(read_smtx, name, bytes, size, out, error);
}

bool io_smtx_read(const char *path, io_pattern *out, io_error *error) {
    return parse_file(read_smtx, path, out, error);
}

bool io_mtx_parse(const char *name, const void *bytes, size_t size, io_pattern *out, io_error *error) {
    return parse(read_mtx, name, bytes, size, out, error);
}

bool io_mtx_read(const char *path, io_pattern *out, io_error *error) {
    return parse_file(read_mtx, path, out, error);
}
