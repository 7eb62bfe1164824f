/*
 * npy_header.c: the dictionary in the header of a .npy file, a Python literal:
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * Exactly these three keys, in any order and spacing; both kinds of quotes; nothing but blanks after the brace.
 */
#include "io/io_internal.h"

#include <string.h>

#define NPY_TYPES "f8 f4 f2 b1 u1 u2 u4 u8 i1 i2 i4 i8"

typedef struct scanner {
    const char *begin, *at, *end;
    const char *name;
    io_error *error;
} scanner;

static bool malformed(scanner *s, const char *expected) {
    return io__fail(s->error, s->name, "malformed header: expected %s at byte %lld", expected,
                    (long long)(s->at - s->begin));
}

static char peek(scanner *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
    return s->at < s->end ? *s->at : '\0';
}

static bool accept(scanner *s, char c) {
    if (peek(s) != c || s->at == s->end)
        return false;
    s->at++;
    return true;
}

static bool accept_word(scanner *s, const char *word) {
    peek(s);
    const size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return false;
    s->at += length;
    return true;
}

/* A string without escapes of less than `room` bytes. */
static bool parse_string(scanner *s, const char *expected, char *text, size_t room) {
    const char quote = peek(s);
    if (quote != '\'' && quote != '"')
        return malformed(s, expected);
    const char *from = s->at + 1;
    const char *to = memchr(from, quote, (size_t)(s->end - from));
    const size_t length = to ? (size_t)(to - from) : 0;
    if (to == NULL || length >= room || memchr(from, '\\', length) || memchr(from, '\0', length))
        return malformed(s, expected);
    memcpy(text, from, length);
    text[length] = '\0';
    s->at = to + 1;
    return true;
}

static bool refuse_type(scanner *s, const char *descr, const char *what) {
    return io__fail(s->error, s->name, "type '%s': %s are not supported, expected one of " NPY_TYPES, descr, what);
}

static bool parse_descr(scanner *s, bstk_dtype *dtype) {
    static const struct {
        char code[3];
        bstk_dtype dtype;
    } types[] = {{"f8", BSTK_F64}, {"f4", BSTK_F32}, {"f2", BSTK_F16}, {"b1", BSTK_BOOL},
                 {"u1", BSTK_U8},  {"u2", BSTK_U16}, {"u4", BSTK_U32}, {"u8", BSTK_U64},
                 {"i1", BSTK_I8},  {"i2", BSTK_I16}, {"i4", BSTK_I32}, {"i8", BSTK_I64}};
    if (peek(s) == '[' || peek(s) == '(')
        return io__fail(s->error, s->name, "structured types are not supported, expected one of " NPY_TYPES);
    char descr[64];
    if (!parse_string(s, "a type as a string", descr, sizeof descr))
        return false;
    const char order = strchr("<>=|", descr[0]) ? descr[0] : '='; /* '\0' of an empty one falls through to the end */
    const char *code = descr[0] && order == descr[0] ? descr + 1 : descr;
    if (order == '>')
        return refuse_type(s, descr, "big-endian arrays");
    switch (code[0]) {
    case 'O':
        return refuse_type(s, descr, "object arrays");
    case 'c':
        return refuse_type(s, descr, "complex numbers");
    case 'S':
    case 'U':
    case 'a':
        return refuse_type(s, descr, "strings");
    case 'M':
    case 'm':
        return refuse_type(s, descr, "dates and times");
    case 'V': /* what NumPy makes of a bfloat16 array, among others */
        return refuse_type(s, descr, "raw bytes (save bfloat16 as u2)");
    default:
        break;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(code, types[i].code) == 0 && (order != '|' || bstk_dtype_size(types[i].dtype) == 1)) {
            *dtype = types[i].dtype;
            return true;
        }
    return io__fail(s->error, s->name, "type '%s' is not supported, expected one of " NPY_TYPES, descr);
}

static bool parse_size(scanner *s, int32_t axis, int64_t *size) {
    if (peek(s) == '-')
        return io__fail(s->error, s->name, "header has a negative size on axis %d, expected 0 or more", (int)axis);
    if (peek(s) < '0' || peek(s) > '9')
        return malformed(s, "a size");
    int64_t value = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *s->at - '0', &value))
            return io__fail(s->error, s->name, "size of axis %d does not fit in 64 bits", (int)axis);
    if (s->at < s->end && *s->at == 'L') /* NumPy under Python 2 wrote (3L, 4L) */
        s->at++;
    *size = value;
    return true;
}

static bool parse_shape(scanner *s, io__npy_header *out) {
    if (!accept(s, '('))
        return malformed(s, "a tuple of sizes");
    int32_t axes = 0;
    bool comma = true;
    while (!accept(s, ')')) {
        int64_t size = 0;
        if (!comma)
            return malformed(s, "a comma or )");
        if (!parse_size(s, axes, &size))
            return false;
        if (axes < BSTK_MAX_NDIM)
            out->shape[axes] = size;
        axes++; /* a header is 64 KiB at most */
        comma = accept(s, ',');
    }
    if (axes == 1 && !comma)
        return malformed(s, "a tuple of sizes"); /* (3) is a number to Python */
    if (axes > BSTK_MAX_NDIM)
        return io__fail(s->error, s->name, "array has %d axes, expected %d at most", (int)axes, BSTK_MAX_NDIM);
    out->ndim = axes;
    return true;
}

bool io__npy_header_parse(const char *name, const char *text, size_t size, io__npy_header *out, io_error *error) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    scanner s = {.begin = text, .at = text, .end = text + size, .name = name, .error = error};
    bool seen[3] = {false, false, false}, comma = true;
    if (!accept(&s, '{'))
        return malformed(&s, "{");
    while (!accept(&s, '}')) {
        char key[32];
        int which = 0;
        if (!comma)
            return malformed(&s, "a comma or }");
        if (!parse_string(&s, "a key", key, sizeof key))
            return false;
        while (which < 3 && strcmp(key, keys[which]) != 0)
            which++;
        if (which == 3)
            return io__fail(error, name, "header has the key '%s', expected descr, fortran_order and shape", key);
        if (seen[which])
            return io__fail(error, name, "header has the key '%s' twice", key);
        seen[which] = true;
        if (!accept(&s, ':'))
            return malformed(&s, "a colon");
        if (which == 0 && !parse_descr(&s, &out->dtype))
            return false;
        if (which == 1) {
            out->fortran = accept_word(&s, "True");
            if (!out->fortran && !accept_word(&s, "False"))
                return malformed(&s, "True or False");
        }
        if (which == 2 && !parse_shape(&s, out))
            return false;
        comma = accept(&s, ',');
    }
    for (int which = 0; which < 3; which++)
        if (!seen[which])
            return io__fail(error, name, "header has no key '%s'", keys[which]);
    peek(&s);
    return s.at == s.end || malformed(&s, "nothing more");
}
