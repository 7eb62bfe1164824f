/* test_npy.c: .npy files: what NumPy writes, what bstk writes, and everything that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io_test.h"

#define CORPUS "fuzz/corpus/npy/"

static const bstk_dtype all_types[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BOOL, BSTK_U8,  BSTK_I8,
                                       BSTK_U16, BSTK_I16, BSTK_U32, BSTK_I32,  BSTK_U64, BSTK_I64};
enum { TYPES = sizeof all_types / sizeof all_types[0] };

static io_array read_good(const char *path) {
    io_array array;
    io_error error;
    if (!io_npy_read(path, &array, &error))
        fail_msg("%s", error.text);
    return array;
}

static void read_bad(const char *path, const char *message) {
    io_array array = {.bytes = 12345};
    io_error error = {""};
    assert_false(io_npy_read(path, &array, &error));
    io_test_message(&error, message);
    assert_memory_equal(error.text, path, strlen(path));
    assert_int_equal(array.bytes, 12345);
    assert_null(array.memory);
}

static void write_good(const char *path, const bstk_tensor *t) {
    io_error error;
    if (!io_npy_write(path, t, &error))
        fail_msg("%s", error.text);
}

static int64_t offset(const bstk_tensor *t, int64_t a, int64_t b, int64_t c) {
    return a * t->stride[0] + b * t->stride[1] + c * t->stride[2];
}

/* ---- files that NumPy wrote ------------------------------------------------------------------------------------- */

static double element(const bstk_tensor *t, int64_t i) {
    switch (t->dtype) {
    case BSTK_F64:
        return ((const double *)t->data)[i];
    case BSTK_F32:
        return ((const float *)t->data)[i];
    case BSTK_I8:
        return ((const int8_t *)t->data)[i];
    case BSTK_I16:
        return ((const int16_t *)t->data)[i];
    case BSTK_I32:
        return ((const int32_t *)t->data)[i];
    case BSTK_I64:
        return (double)((const int64_t *)t->data)[i];
    case BSTK_U16:
        return ((const uint16_t *)t->data)[i];
    case BSTK_U32:
        return ((const uint32_t *)t->data)[i];
    case BSTK_U64:
        return (double)((const uint64_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

static void numpy_types(void **state) {
    (void)state;
    static const char *const codes[TYPES] = {"f8", "f4", "f2", "b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"};
    static const uint16_t halves[] = {0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000}; /* -3 to 2 */
    for (int type = 0; type < TYPES; type++) {
        char path[64];
        snprintf(path, sizeof path, CORPUS "numpy_%s.npy", codes[type]);
        io_array array = read_good(path);
        assert_int_equal(array.t.dtype, all_types[type]);
        assert_int_equal(array.t.ndim, 2);
        assert_int_equal(array.t.shape[0], 2);
        assert_int_equal(array.t.shape[1], 3);
        assert_int_equal(array.t.stride[0], 3);
        assert_int_equal(array.t.stride[1], 1);
        assert_int_equal((uintptr_t)array.t.data % 64, 0);
        if (array.t.dtype == BSTK_F16)
            assert_memory_equal(array.t.data, halves, sizeof halves);
        const bool negative = codes[type][0] == 'f' || codes[type][0] == 'i';
        for (int i = 0; i < 6 && array.t.dtype != BSTK_F16; i++)
            assert_true(element(&array.t, i) == (array.t.dtype == BSTK_BOOL ? i % 2 : negative ? i - 3 : i));
        /* What bstk writes is the same file, byte for byte. */
        void *bytes;
        size_t size;
        io_error error;
        assert_true(io_file_read(path, 1000, &bytes, &size, &error));
        write_good(io_test_path("again.npy"), &array.t);
        io_test_expect(io_test_path("again.npy"), bytes, size);
        free(bytes);
        io_array_free(&array);
        assert_null(array.memory);
    }
}

static void numpy_shapes(void **state) {
    (void)state;
    io_array array = read_good(CORPUS "numpy_fortran.npy");
    assert_int_equal(array.t.ndim, 3);
    for (int64_t a = 0; a < 2; a++)
        for (int64_t b = 0; b < 3; b++)
            for (int64_t c = 0; c < 4; c++)
                assert_true(element(&array.t, offset(&array.t, a, b, c)) == (double)(12 * a + 4 * b + c));
    io_array_free(&array);
    array = read_good(CORPUS "numpy_scalar.npy");
    assert_int_equal(array.t.ndim, 0);
    assert_true(element(&array.t, 0) == 2.5);
    io_array_free(&array);
    array = read_good(CORPUS "numpy_1d.npy");
    assert_int_equal(array.t.ndim, 1);
    assert_int_equal(array.t.shape[0], 3);
    io_array_free(&array);
    array = read_good(CORPUS "numpy_4d.npy");
    assert_int_equal(array.t.ndim, 4);
    assert_true(element(&array.t, 15) == 15);
    io_array_free(&array);
    array = read_good(CORPUS "numpy_empty.npy");
    assert_int_equal(array.bytes, 0);
    assert_int_equal(array.t.shape[2], 3);
    assert_non_null(array.t.data);
    io_array_free(&array);
    static const char *const versions[] = {CORPUS "numpy_version2.npy", CORPUS "numpy_version3.npy"};
    for (int i = 0; i < 2; i++) {
        array = read_good(versions[i]);
        assert_true(element(&array.t, 3) == 3);
        io_array_free(&array);
    }
    array = read_good(CORPUS "odd_order.npy"); /* other order, quotes, spacing, no last comma, sizes with L */
    assert_int_equal(array.t.dtype, BSTK_F32);
    assert_int_equal(array.t.stride[0], 1);
    assert_int_equal(array.t.stride[1], 2);
    io_array_free(&array);
    array = read_good(CORPUS "odd_tight.npy");
    assert_true(element(&array.t, 0) == 7);
    io_array_free(&array);
}

/* ---- refused ---------------------------------------------------------------------------------------------------- */

static void refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"bad_after", "malformed header: expected nothing more at byte 56"},
        {"bad_big_endian", "type '>f4': big-endian arrays are not supported, expected one of f8 f4"},
        {"bad_bool", "expected True or False at byte 34"},
        {"bad_bytes", "type '|S2': strings are not supported"},
        {"bad_complex", "type '<c16': complex numbers are not supported"},
        {"bad_date", "dates and times are not supported"},
        {"bad_delta", "dates and times are not supported"},
        {"bad_duplicate", "header has the key 'descr' twice"},
        {"bad_empty", "not a .npy file"},
        {"bad_escape", "malformed header: expected a key at byte 1"},
        {"bad_extra", "header has the key 'x', expected descr, fortran_order and shape"},
        {"bad_five_axes", "array has 5 axes, expected 4 at most"},
        {"bad_header_length", "header of 65000 bytes, but the file ends 74 bytes after its start"},
        {"bad_header_length2", "header of 4294967295 bytes, expected at most 65536"},
        {"bad_huge", "40 bytes of data, expected 4000000000000000"},
        {"bad_longdouble", "type '<f16' is not supported"},
        {"bad_magic", "not a .npy file"},
        {"bad_missing", "header has no key 'fortran_order'"},
        {"bad_negative", "header has a negative size on axis 0, expected 0 or more"},
        {"bad_no_end", "expected a comma or }"},
        {"bad_object", "object arrays are not supported"},
        {"bad_overflow", "the size of the array overflows"},
        {"bad_overflow_zero", "the size of the array overflows"},
        {"bad_shape_commas", "expected a size at byte 53"},
        {"bad_shape_list", "expected a tuple of sizes"},
        {"bad_shape_number", "expected a tuple of sizes"},
        {"bad_short", "the file ends within its header"},
        {"bad_size_digits", "size of axis 0 does not fit in 64 bits"},
        {"bad_struct", "structured types are not supported"},
        {"bad_trailing", "17 bytes of data, expected 16"},
        {"bad_truncated", "15 bytes of data, expected 16"},
        {"bad_unicode", "strings are not supported"},
        {"bad_version", ".npy version 9.0, expected 1.0, 2.0 or 3.0"},
        {"bad_void", "raw bytes (save bfloat16 as u2) are not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[96];
        snprintf(path, sizeof path, CORPUS "%s.npy", cases[i][0]);
        read_bad(path, cases[i][1]);
    }
}

/* A version 1 file in memory with this descr. */
static bool parse_descr(const char *descr, io_error *error) {
    char bytes[256];
    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    const int length = sprintf(bytes + 10, "{'descr': %s, 'fortran_order': False, 'shape': (0,), }", descr);
    bytes[8] = (char)length;
    bytes[9] = 0;
    io_array array;
    if (!io_npy_parse("x.npy", bytes, (size_t)length + 10, &array, error))
        return false;
    io_array_free(&array);
    return true;
}

static void descr_strings(void **state) {
    (void)state;
    io_error error = {""};
    static const char *const good[] = {"'<f4'", "'=f4'", "'f4'", "'|u1'", "'<u1'", "'=i8'", "\"|b1\""};
    static const char *const bad[][2] = {
        {"'|f4'", "type '|f4' is not supported"},   {"''", "type '' is not supported"},
        {"'<'", "type '<' is not supported"},       {"'<f'", "type '<f' is not supported"},
        {"'<f44'", "type '<f44' is not supported"}, {"'<f4", "type '<f4, ' is not supported"},
        {"None", "expected a type as a string"},    {"'>u1'", "big-endian"},
        {"('<f4', (2,))", "structured types"},      {"'a\tb\x7f'", "type 'a?b?': strings"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!parse_descr(good[i], &error))
            fail_msg("%s", error.text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(parse_descr(bad[i][0], &error));
        io_test_message(&error, bad[i][1]);
    }
}

static void unreadable(void **state) {
    (void)state;
    read_bad(io_test_path("none.npy"), "none.npy: No such file or directory");
    read_bad(io_test_folder, ": Is a directory");
    /* Of a long path the end is kept, so that the reason still fits. */
    char path[700];
    io_array array;
    io_error error;
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_false(io_npy_read(path, &array, &error));
    io_test_message(&error, "ppp: File name too long");
    assert_memory_equal(error.text, "...ppp", 6);
}

static int read_closed(void) {
    io_array array;
    io_error error;
    return !io_npy_read(io_test_path("closed.npy"), &array, &error) &&
           strstr(error.text, "closed.npy: Permission denied") != NULL;
}

static void no_permission(void **state) {
    (void)state;
    io_test_put(io_test_path("closed.npy"), "", 0);
    assert_int_equal(chmod(io_test_path("closed.npy"), 0), 0);
    assert_int_equal(io_test_as_nobody(read_closed), 1);
}

/* Every beginning of a good file is refused, in memory (of exactly that size, for the sanitizer) and as a file. */
static void truncated(void **state) {
    (void)state;
    static const char *const files[] = {CORPUS "numpy_f4.npy", CORPUS "numpy_version3.npy", CORPUS "odd_order.npy",
                                        CORPUS "numpy_4d.npy"};
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        void *bytes;
        size_t size;
        io_error error;
        assert_true(io_file_read(files[f], 1000, &bytes, &size, &error));
        for (size_t part = 0; part < size; part++) {
            io_array array;
            char *copy = malloc(part + (part == 0));
            memcpy(copy, bytes, part);
            assert_false(io_npy_parse("part", copy, part, &array, &error));
            assert_memory_equal(error.text, "part: ", 6);
            io_test_put(io_test_path("part.npy"), copy, part);
            read_bad(io_test_path("part.npy"), ": ");
            free(copy);
        }
        free(bytes);
    }
}

/* Any one byte changed: read or refused, never a crash; what is read lies within the file. */
static void mutated(void **state) {
    (void)state;
    static const unsigned char values[] = {0, 1, '\n', ' ', '(', ')', '{', '}', '\'', ',', '0', '9', '-', 0x7f, 0xff};
    void *bytes;
    size_t size;
    io_error error;
    assert_true(io_file_read(CORPUS "numpy_i4.npy", 1000, &bytes, &size, &error));
    for (size_t at = 0; at < size; at++)
        for (size_t v = 0; v < sizeof values; v++) {
            unsigned char *copy = malloc(size);
            io_array array;
            memcpy(copy, bytes, size);
            copy[at] = values[v];
            if (io_npy_parse("mutant", copy, size, &array, &error)) {
                assert_true(array.bytes <= size);
                io_array_free(&array);
            }
            free(copy);
        }
    free(bytes);
}

/* ---- pipes ------------------------------------------------------------------------------------------------------ */

/* Reads bytes that come through a pipe; a child writes them, for they may be more than a pipe holds. */
static bool read_piped(const void *bytes, size_t size, io_array *array, io_error *error) {
    int ends[2];
    char path[32];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        for (size_t done = 0; done < size;) {
            const ssize_t n = write(ends[1], (const char *)bytes + done, size - done < 10000 ? size - done : 10000);
            if (n < 0)
                _exit(1);
            done += (size_t)n;
        }
        _exit(0);
    }
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    const bool good = io_npy_read(path, array, error);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return good;
}

static void piped(void **state) {
    (void)state;
    enum { N = 1500000 }; /* doubles: 12 MB, several rounds of growing */
    io_array array, got;
    io_error error;
    assert_true(io_array_make(&array, BSTK_F64, 1, (int64_t[]){N}, &error));
    for (int i = 0; i < N; i++)
        ((double *)array.t.data)[i] = i;
    write_good(io_test_path("pipe.npy"), &array.t);
    void *bytes;
    size_t size;
    assert_true(io_file_read(io_test_path("pipe.npy"), (size_t)1 << 30, &bytes, &size, &error));
    if (!read_piped(bytes, size, &got, &error))
        fail_msg("%s", error.text);
    assert_int_equal(got.bytes, array.bytes);
    assert_memory_equal(got.t.data, array.t.data, array.bytes);
    io_array_free(&got);
    assert_false(read_piped(bytes, size - 1, &got, &error));
    io_test_message(&error, ": 11999999 bytes of data, expected 12000000");
    assert_false(read_piped(bytes, 100, &got, &error));
    io_test_message(&error, ": the file ends within its header");
    ((char *)bytes)[size - 1] = 0;
    char *longer = realloc(bytes, size + 1);
    longer[size] = 0;
    assert_false(read_piped(longer, size + 1, &got, &error));
    io_test_message(&error, ": more than 12000000 bytes of data, expected 12000000");
    free(longer);
    io_array_free(&array);
    /* An array of 4 PB is announced in 136 bytes: no memory is taken for it. */
    assert_true(io_file_read(CORPUS "bad_huge.npy", 1000, &bytes, &size, &error));
    assert_false(read_piped(bytes, size, &got, &error));
    io_test_message(&error, ": 40 bytes of data, expected 4000000000000000");
    free(bytes);
    assert_true(io_file_read(CORPUS "numpy_empty.npy", 1000, &bytes, &size, &error));
    assert_true(read_piped(bytes, size, &got, &error));
    free(bytes);
    io_array_free(&got);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* A view with the given order of axes, direction and step, over memory of its own; 3 axes of 3, 4 and 5. */
static void round_trip(bstk_dtype dtype, const int order[3], const int64_t step[3]) {
    const size_t size = bstk_dtype_size(dtype);
    const int64_t shape[] = {3, 4, 5};
    enum { ROOM = 3 * 4 * 5 * 8 };
    unsigned char *memory = malloc(ROOM * size);
    for (size_t i = 0; i < ROOM * size; i++)
        memory[i] = (unsigned char)(i * 7 + i / 251);
    bstk_tensor t = bstk_tensor_make(memory, dtype, 3, shape);
    int64_t stride = 1, start = 0;
    for (int i = 2; i >= 0; i--) {
        const int axis = order[i];
        t.stride[axis] = stride * step[axis];
        if (step[axis] < 0)
            start -= t.stride[axis] * (shape[axis] - 1);
        stride *= shape[axis] * (step[axis] == 0 ? 1 : step[axis] < 0 ? -step[axis] : step[axis]);
    }
    assert_true(stride <= ROOM);
    t.data = memory + (size_t)start * size;
    write_good(io_test_path("trip.npy"), &t);
    io_array got = read_good(io_test_path("trip.npy"));
    assert_int_equal(got.t.dtype, dtype == BSTK_BF16 ? BSTK_U16 : dtype);
    for (int64_t a = 0; a < 3; a++)
        for (int64_t b = 0; b < 4; b++)
            for (int64_t c = 0; c < 5; c++)
                assert_memory_equal((char *)got.t.data + offset(&got.t, a, b, c) * (int64_t)size,
                                    (char *)t.data + offset(&t, a, b, c) * (int64_t)size, size);
    io_array_free(&got);
    free(memory);
}

static void strided(void **state) {
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}};
    static const int64_t steps[][3] = {{1, 1, 1}, {1, 1, 2}, {-1, 1, -2}, {0, 1, 1}, {1, 0, 0}, {2, -1, 1}};
    for (int type = 0; type <= TYPES; type++)
        for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++)
            for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
                round_trip(type < TYPES ? all_types[type] : BSTK_BF16, orders[o], steps[s]);
    assert_int_equal(io_test_count(), 1);
}

static void written_shapes(void **state) {
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[4];
    } cases[] = {{0, {0}}, {1, {0}}, {1, {1}}, {1, {7}}, {2, {3, 0}}, {4, {0, 1, 2, 3}}, {4, {2, 1, 1, 3}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        io_array array;
        io_error error;
        assert_true(io_array_make(&array, BSTK_I16, cases[i].ndim, cases[i].shape, &error));
        for (size_t n = 0; n < array.bytes / 2; n++)
            ((int16_t *)array.t.data)[n] = (int16_t)(n * 3 + 1);
        write_good(io_test_path("shape.npy"), &array.t);
        io_array got = read_good(io_test_path("shape.npy"));
        assert_int_equal(got.t.ndim, cases[i].ndim);
        assert_memory_equal(got.t.shape, array.t.shape, sizeof got.t.shape);
        assert_int_equal(got.bytes, array.bytes);
        assert_memory_equal(got.t.data, array.t.data, array.bytes);
        io_array_free(&got);
        io_array_free(&array);
    }
}

/* Rows longer than the buffer that gathers them. */
static void long_rows(void **state) {
    (void)state;
    enum { N = 5000 };
    int32_t *values = malloc(2 * N * sizeof *values);
    for (int i = 0; i < 2 * N; i++)
        values[i] = i;
    bstk_tensor t = bstk_tensor_make(values, BSTK_I32, 2, (int64_t[]){2, N});
    t.stride[0] = 1;
    t.stride[1] = 2;
    write_good(io_test_path("rows.npy"), &t);
    io_array got = read_good(io_test_path("rows.npy"));
    for (int i = 0; i < N; i++) {
        assert_int_equal(((int32_t *)got.t.data)[i], 2 * i);
        assert_int_equal(((int32_t *)got.t.data)[N + i], 2 * i + 1);
    }
    io_array_free(&got);
    free(values);
}

static void write_bad(bstk_tensor t, const char *message) {
    io_error error = {""};
    assert_false(io_npy_write(io_test_path("bad.npy"), &t, &error));
    io_test_message(&error, message);
    assert_int_equal(io_test_count(), 0);
}

static void refused_writes(void **state) {
    (void)state;
    float value = 1;
    const bstk_tensor good = bstk_tensor_make(&value, BSTK_F32, 1, (int64_t[]){1});
    bstk_tensor t = good;
    t.dtype = (bstk_dtype)99;
    write_bad(t, "bad.npy: cannot write the unknown type 99");
    t = good;
    t.ndim = 5;
    write_bad(t, "cannot write 5 axes");
    t = good;
    t.device.kind = BSTK_CUDA;
    write_bad(t, "device kind 2");
    t = good;
    t.data = NULL;
    write_bad(t, "data is NULL");
    t = good;
    t.shape[0] = -1;
    write_bad(t, "size -1 on axis 0");
    t.shape[0] = INT64_MAX;
    write_bad(t, "the size of the array overflows");
    io_error error;
    assert_false(io_npy_write(io_test_path("no/bad.npy"), &good, &error));
    io_test_message(&error, "no/bad.npy: No such file or directory");
    assert_false(io_npy_write("/dev/full", &good, &error));
    io_test_message(&error, "/dev/full: No space left on device");
}

static void written_layout(void **state) {
    (void)state;
    const uint8_t mask[2][2][3] = {{{1, 0, 1}, {0, 0, 0}}, {{0, 1, 0}, {1, 1, 1}}};
    bstk_tensor t = bstk_tensor_make((void *)(uintptr_t)mask, BSTK_U8, 3, (int64_t[]){2, 2, 3});
    bstk_layout *layout;
    io_error error;
    assert_int_equal(bstk_layout_from_mask(NULL, &t, 16, NULL, &layout), BSTK_OK);
    assert_true(io_npy_write_layout(io_test_path("layout.npy"), layout, &error));
    io_array got = read_good(io_test_path("layout.npy"));
    assert_int_equal(got.t.dtype, BSTK_U8);
    assert_int_equal(got.t.ndim, 3);
    assert_memory_equal(got.t.data, mask, sizeof mask);
    io_array_free(&got);
    assert_false(io_npy_write_layout("/dev/full", layout, &error));
    io_test_message(&error, "/dev/full: No space left on device");
    bstk_layout_release(layout);
}

static void arrays(void **state) {
    (void)state;
    io_array array = {.bytes = 1};
    io_error error;
    assert_true(io_array_make(&array, BSTK_F32, 3, (int64_t[]){2, 3, 4}, &error));
    assert_int_equal(array.bytes, 96);
    assert_int_equal((uintptr_t)array.t.data % 64, 0);
    assert_int_equal(array.t.stride[0], 12);
    for (int i = 0; i < 24; i++)
        assert_true(((float *)array.t.data)[i] == 0);
    io_array_free(&array);
    io_array_free(&array);
    assert_false(io_array_make(&array, (bstk_dtype)0, 1, (int64_t[]){1}, &error));
    io_test_message(&error, "unknown type 0");
    assert_false(io_array_make(&array, BSTK_F32, 5, (int64_t[]){1, 1, 1, 1, 1}, &error));
    io_test_message(&error, "5 axes");
    assert_false(io_array_make(&array, BSTK_F32, 1, (int64_t[]){-2}, &error));
    io_test_message(&error, "size -2 on axis 0");
    assert_false(io_array_make(&array, BSTK_F32, 2, (int64_t[]){INT64_MAX / 2, 3}, &error));
    io_test_message(&error, "overflows");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, io_test_begin, io_test_end)
    const struct CMUnitTest tests[] = {
        TEST(numpy_types),    TEST(numpy_shapes), TEST(refused),        TEST(descr_strings),  TEST(unreadable),
        TEST(no_permission),  TEST(truncated),    TEST(mutated),        TEST(piped),          TEST(strided),
        TEST(written_shapes), TEST(long_rows),    TEST(refused_writes), TEST(written_layout), TEST(arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
