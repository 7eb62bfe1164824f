/*
 * npy_tool.c: makes and shows .npy files for the command-line tests, so that they need no NumPy.
 *
 *     npy_tool make FILE TYPE SHAPE VALUES    VALUES: zeros, ramp (0, 1, 2, ...), rand:SEED ([-1, 1)), or a,b,c
 * repeated npy_tool show FILE [TYPE]               type, shape and values; TYPE bf16 reads u2 as bfloat16 npy_tool near
 * FILE FILE TOLERANCE       says nothing when type, shape and values agree
 */
#include "check/gen.h"
#include "io/io.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bstk_dtype dtype;
} types[] = {{"f64", BSTK_F64}, {"f32", BSTK_F32}, {"f16", BSTK_F16}, {"bf16", BSTK_BF16}, {"bool", BSTK_BOOL},
             {"u8", BSTK_U8},   {"i8", BSTK_I8},   {"u16", BSTK_U16}, {"i32", BSTK_I32},   {"i64", BSTK_I64}};

_Noreturn static void stop(const char *why, const char *what) {
    fprintf(stderr, "npy_tool: %s: %s\n", what, why);
    exit(3);
}

static bstk_dtype type_of(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].dtype;
    stop("unknown type", name);
}

/* "2,3" to {2, 3}; "-" is no axes. */
static int shape_of(const char *text, int64_t shape[BSTK_MAX_NDIM]) {
    if (strcmp(text, "-") == 0)
        return 0;
    for (int ndim = 0; ndim < BSTK_MAX_NDIM;) {
        char *end = NULL;
        shape[ndim++] = strtoll(text, &end, 10);
        if (*end == '\0')
            return ndim;
        text = end + 1;
    }
    stop("too many axes", text);
}

static void make(const char *path, const char *type, const char *shape_text, const char *values) {
    io_error error;
    io_array array;
    int64_t shape[BSTK_MAX_NDIM];
    int ndim = shape_of(shape_text, shape);
    if (!io_array_make(&array, type_of(type), ndim, shape, &error))
        stop(error.text, path);
    int64_t count = gen_count(&array.t);
    const char *at = values;
    for (int64_t i = 0; i < count; i++) {
        double value = 0;
        if (strcmp(values, "ramp") == 0) {
            value = (double)i;
        } else if (strncmp(values, "rand:", 5) == 0) {
            value = 2 * gen_unit(strtoull(values + 5, NULL, 10), (uint64_t)i) - 1;
        } else if (strcmp(values, "zeros") != 0) {
            char *end = NULL;
            value = strtod(at, &end);
            at = *end ? end + 1 : values;
        }
        gen_store(array.t.dtype, array.t.data, i, value);
    }
    if (!io_npy_write(path, &array.t, &error))
        stop(error.text, path);
    io_array_free(&array);
}

static io_array load(const char *path) {
    io_error error;
    io_array array;
    if (!io_npy_read(path, &array, &error))
        stop(error.text, path);
    return array;
}

static void show(const char *path, const char *type) {
    io_array array = load(path);
    if (type)
        array.t.dtype = type_of(type);
    printf("%s [", bstk_dtype_name(array.t.dtype));
    for (int i = 0; i < array.t.ndim; i++)
        printf("%s%lld", i ? "," : "", (long long)array.t.shape[i]);
    printf("]");
    int64_t count = gen_count(&array.t);
    for (int64_t i = 0; i < count; i++)
        printf(" %g", gen_load(array.t.dtype, array.t.data, gen_offset(&array.t, i)));
    printf("\n");
    io_array_free(&array);
}

static void transpose(const char *path, const char *out) {
    io_error error;
    io_array array = load(path);
    bstk_tensor t = array.t;
    int last = t.ndim - 1;
    t.shape[last] = array.t.shape[last - 1];
    t.shape[last - 1] = array.t.shape[last];
    t.stride[last] = array.t.stride[last - 1];
    t.stride[last - 1] = array.t.stride[last];
    if (!io_npy_write(out, &t, &error))
        stop(error.text, out);
    io_array_free(&array);
}

static void near(const char *path_a, const char *path_b, double tolerance) {
    io_array a = load(path_a), b = load(path_b);
    if (a.t.dtype != b.t.dtype || a.t.ndim != b.t.ndim || memcmp(a.t.shape, b.t.shape, (size_t)a.t.ndim * 8) != 0)
        stop("types or shapes differ", path_b);
    int64_t count = gen_count(&a.t);
    for (int64_t i = 0; i < count; i++) {
        double x = gen_load(a.t.dtype, a.t.data, gen_offset(&a.t, i));
        double y = gen_load(b.t.dtype, b.t.data, gen_offset(&b.t, i));
        if (!(fabs(x - y) <= tolerance) && x != y) {
            printf("element %lld: %.9g, %.9g\n", (long long)i, x, y);
            exit(1);
        }
    }
    io_array_free(&a);
    io_array_free(&b);
}

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "make") == 0)
        make(argv[2], argv[3], argv[4], argv[5]);
    else if ((argc == 3 || argc == 4) && strcmp(argv[1], "show") == 0)
        show(argv[2], argv[3]);
    else if (argc == 4 && strcmp(argv[1], "transpose") == 0)
        transpose(argv[2], argv[3]);
    else if (argc == 5 && strcmp(argv[1], "near") == 0)
        near(argv[2], argv[3], strtod(argv[4], NULL));
    else
        stop("expected make, show, transpose or near", argc > 1 ? argv[1] : "");
    return 0;
}
