/*
 * npy.c: arrays in memory and in NumPy's .npy files:
 *     "\x93NUMPY", major, minor, header length (u16 in version 1, u32 in 2 and 3), header, elements
 * Elements are read as they lie in the file, which is little-endian, as is every machine that bstk runs on.
 */
#include "io/io_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "npy.c copies little-endian elements as they are");

enum {
    ALIGN = 64,           /* a cache line, and a vector of AVX-512 */
    HEADER_LIMIT = 65536, /* a header of four axes needs 150 bytes; the rest may be padding */
    FIRST_CHUNK = 1 << 20 /* of a pipe, whose length nobody knows */
};

/* ---- arrays in memory ------------------------------------------------------------------------------------------ */

/* Axes of size 0 count as 1, as in NumPy, so that every stride fits as well. */
static bool array_bytes(const char *name, bstk_dtype dtype, int32_t ndim, const int64_t *shape, size_t *bytes,
                        io_error *error) {
    int64_t all = (int64_t)bstk_dtype_size(dtype);
    bool fits = true, empty = false;
    for (int32_t axis = 0; axis < ndim; axis++) {
        if (shape[axis] < 0)
            return io__fail(error, name, "size %" PRId64 " on axis %d, expected 0 or more", shape[axis], (int)axis);
        empty |= shape[axis] == 0;
        fits = fits && !__builtin_mul_overflow(all, shape[axis] ? shape[axis] : 1, &all);
    }
    if (!fits || (uint64_t)all > PTRDIFF_MAX - ALIGN)
        return io__fail(error, name, "the size of the array overflows");
    *bytes = empty ? 0 : (size_t)all;
    return true;
}

static bool make(const char *name, bstk_dtype dtype, int32_t ndim, const int64_t *shape, io_array *out,
                 io_error *error) {
    size_t bytes;
    if (!array_bytes(name, dtype, ndim, shape, &bytes, error))
        return false;
    /* calloc takes large blocks as untouched zero pages from the system: zeroing costs nothing until they are used. */
    void *memory = calloc(1, bytes + ALIGN);
    if (memory == NULL)
        return io__fail(error, name, "out of memory (%zu bytes)", bytes);
    const size_t shift = (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN;
    out->t = bstk_tensor_make((char *)memory + shift, dtype, ndim, shape);
    out->memory = memory;
    out->bytes = bytes;
    return true;
}

bool io_array_make(io_array *out, bstk_dtype dtype, int32_t ndim, const int64_t *shape, io_error *error) {
    if (bstk_dtype_size(dtype) == 0)
        return io__fail(error, "array", "unknown type %d", (int)dtype);
    if (ndim < 0 || ndim > BSTK_MAX_NDIM)
        return io__fail(error, "array", "%d axes, expected 0 to %d", (int)ndim, BSTK_MAX_NDIM);
    return make("array", dtype, ndim, shape, out, error);
}

void io_array_free(io_array *array) {
    free(array->memory);
    *array = (io_array){.memory = NULL};
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Bytes from a file or from memory. */
typedef struct source {
    const char *name;
    const char *memory; /* NULL: read from fd */
    int fd;
    int64_t left; /* bytes not yet taken; -1 when only the end will tell */
} source;

/* Takes `size` bytes, fewer at the end: then *got is smaller. */
static bool take(source *s, void *bytes, size_t size, size_t *got, io_error *error) {
    *got = 0;
    if (s->memory) {
        *got = size < (uint64_t)s->left ? size : (size_t)s->left;
        memcpy(bytes, s->memory, *got);
        s->memory += *got;
    } else {
        const int64_t count = io__read(s->fd, bytes, size);
        if (count < 0)
            return io__fail_errno(error, s->name);
        *got = (size_t)count;
    }
    if (s->left >= 0)
        s->left = s->left > (int64_t)*got ? s->left - (int64_t)*got : 0;
    return true;
}

static bool read_header(source *s, io__npy_header *header, io_error *error) {
    unsigned char start[12]; /* magic, version, length of 2 or 4 bytes */
    size_t got;
    if (!take(s, start, 8, &got, error))
        return false;
    if (got < 8 || memcmp(start, "\x93NUMPY", 6) != 0)
        return io__fail(error, s->name, "not a .npy file");
    if (start[6] < 1 || start[6] > 3 || start[7] != 0)
        return io__fail(error, s->name, ".npy version %d.%d, expected 1.0, 2.0 or 3.0", start[6], start[7]);
    const size_t field = start[6] == 1 ? 2 : 4;
    if (!take(s, start + 8, field, &got, error))
        return false;
    if (got < field)
        return io__fail(error, s->name, "the file ends within its header");
    size_t length = 0;
    for (size_t i = field; i-- > 0;)
        length = length << 8 | start[8 + i];
    if (length > HEADER_LIMIT)
        return io__fail(error, s->name, "header of %zu bytes, expected at most %d", length, HEADER_LIMIT);
    if (s->left >= 0 && length > (uint64_t)s->left)
        return io__fail(error, s->name, "header of %zu bytes, but the file ends %lld bytes after its start", length,
                        (long long)s->left);
    char *text = malloc(length + 1);
    if (text == NULL)
        return io__fail(error, s->name, "out of memory (%zu bytes)", length + 1);
    bool good = take(s, text, length, &got, error);
    if (good && got < length)
        good = io__fail(error, s->name, "the file ends within its header");
    good = good && io__npy_header_parse(s->name, text, length, header, error);
    free(text);
    return good;
}

static bool wrong_size(source *s, const char *more, uint64_t got, size_t expected, io_error *error) {
    return io__fail(error, s->name, "%s%llu bytes of data, expected %zu", more, (unsigned long long)got, expected);
}

/* Into `array`, whose memory the file is known to back. */
static bool read_known(source *s, io_array *array, io_error *error) {
    size_t got;
    if (!take(s, array->t.data, array->bytes, &got, error))
        return false;
    return got == array->bytes || wrong_size(s, "", got, array->bytes, error); /* the file shrank meanwhile */
}

/* From a pipe: memory grows with what arrives, so that a header alone takes none. */
static bool read_unknown(source *s, size_t bytes, char **data, io_error *error) {
    char *buffer = NULL;
    size_t used = 0, capacity = bytes < FIRST_CHUNK ? bytes : FIRST_CHUNK, got;
    bool good = true;
    do {
        char *larger = realloc(buffer, capacity + 1);
        good = larger != NULL || io__fail(error, s->name, "out of memory (%zu bytes)", capacity);
        if (!good)
            break;
        buffer = larger;
        good = take(s, buffer + used, capacity - used, &got, error);
        used += good ? got : 0;
        if (good && used < capacity)
            good = wrong_size(s, "", used, bytes, error);
        capacity = capacity > bytes / 2 ? bytes : capacity * 2;
    } while (good && used < bytes);
    char beyond;
    good = good && take(s, &beyond, 1, &got, error);
    if (good && got > 0)
        good = wrong_size(s, "more than ", bytes, bytes, error);
    if (!good) {
        free(buffer);
        return false;
    }
    *data = buffer;
    return true;
}

static bool read_array(source *s, io_array *out, io_error *error) {
    io__npy_header header;
    size_t bytes;
    if (!read_header(s, &header, error) ||
        !array_bytes(s->name, header.dtype, header.ndim, header.shape, &bytes, error))
        return false;
    char *piped = NULL;
    if (s->left >= 0 && (uint64_t)s->left != bytes)
        return wrong_size(s, "", (uint64_t)s->left, bytes, error);
    if (s->left < 0 && !read_unknown(s, bytes, &piped, error))
        return false;
    io_array array;
    bool good = make(s->name, header.dtype, header.ndim, header.shape, &array, error);
    if (good && piped)
        memcpy(array.t.data, piped, bytes);
    free(piped);
    if (good && !piped && !read_known(s, &array, error)) {
        io_array_free(&array);
        good = false;
    }
    if (!good)
        return false;
    int64_t stride = 1;
    for (int32_t axis = 0; header.fortran && axis < header.ndim; axis++) {
        array.t.stride[axis] = stride;
        stride *= header.shape[axis]; /* array_bytes saw that the product fits */
    }
    *out = array;
    return true;
}

bool io_npy_parse(const char *name, const void *bytes, size_t size, io_array *out, io_error *error) {
    if (size > PTRDIFF_MAX)
        return io__fail(error, name, "%zu bytes, which is no object's size", size);
    source s = {.name = name, .memory = size ? bytes : "", .fd = -1, .left = (int64_t)size};
    return read_array(&s, out, error);
}

bool io_npy_read(const char *path, io_array *out, io_error *error) {
    source s = {.name = path};
    if (!io__open(path, &s.fd, &s.left, error))
        return false;
    const bool good = read_array(&s, out, error);
    close(s.fd);
    return good;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static const char *descr_of(bstk_dtype dtype) {
    static const char *const names[] = {NULL,  "<f8", "<f4", "<f2", "<u2", "|b1", "|u1",
                                        "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"};
    return names[dtype];
}

/* Padded with blanks to a multiple of 64 bytes, so that elements are aligned when the file is mapped. */
static bool write_header(io_output *output, bstk_dtype dtype, int32_t ndim, const int64_t *shape, io_error *error) {
    char text[256]; /* 4 axes of at most 19 digits: 150 bytes */
    char sizes[96] = "";
    int used = 0;
    for (int32_t axis = 0; axis < ndim; axis++)
        used += sprintf(sizes + used, "%s%" PRId64, axis ? ", " : "", shape[axis]);
    if (ndim == 1)
        sprintf(sizes + used, ",");
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    size_t length = 10 + (size_t)sprintf(text + 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                                         descr_of(dtype), sizes);
    while ((length + 1) % 64 != 0)
        text[length++] = ' ';
    text[length++] = '\n';
    text[8] = (char)((length - 10) & 0xff);
    text[9] = (char)((length - 10) >> 8);
    return io_output_write(output, text, length, error);
}

/* Copies n elements that lie `step` bytes apart. Fixed sizes make each memcpy one load and one store. */
static void gather(char *to, const char *from, int64_t n, int64_t step, size_t size) {
    for (int64_t i = 0; i < n; i++, to += size, from += step) {
        if (size == 1)
            *to = *from;
        else if (size == 2)
            memcpy(to, from, 2);
        else if (size == 4)
            memcpy(to, from, 4);
        else
            memcpy(to, from, 8);
    }
}

static bool write_row(io_output *output, const char *row, int64_t n, int64_t stride, size_t size, io_error *error) {
    enum { CHUNK = 2048 };
    char buffer[CHUNK * 8];
    if (stride == 1)
        return io_output_write(output, row, (size_t)n * size, error);
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t count = n - done < CHUNK ? n - done : CHUNK;
        const int64_t step = stride * (int64_t)size;
        gather(buffer, row + done * step, count, step, size);
        if (!io_output_write(output, buffer, (size_t)count * size, error))
            return false;
    }
    return true;
}

static bool write_elements(io_output *output, const bstk_tensor *t, size_t bytes, io_error *error) {
    const bstk_tensor dense = bstk_tensor_make(NULL, t->dtype, t->ndim, t->shape);
    bool contiguous = true;
    int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    for (int32_t axis = 0; axis < t->ndim; axis++) {
        shape[4 - t->ndim + axis] = t->shape[axis];
        stride[4 - t->ndim + axis] = t->stride[axis];
        contiguous = contiguous && (t->shape[axis] == 1 || t->stride[axis] == dense.stride[axis]);
    }
    if (bytes == 0)
        return true;
    if (contiguous)
        return io_output_write(output, t->data, bytes, error);
    const size_t size = bstk_dtype_size(t->dtype);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++) {
                const int64_t offset = a * stride[0] + b * stride[1] + c * stride[2];
                const char *row = (const char *)t->data + offset * (int64_t)size;
                if (!write_row(output, row, shape[3], stride[3], size, error))
                    return false;
            }
    return true;
}

bool io_npy_put(io_output *output, const char *name, const bstk_tensor *t, io_error *error) {
    size_t bytes;
    if (bstk_dtype_size(t->dtype) == 0)
        return io__fail(error, name, "cannot write the unknown type %d", (int)t->dtype);
    if (t->ndim < 0 || t->ndim > BSTK_MAX_NDIM)
        return io__fail(error, name, "cannot write %d axes, expected 0 to %d", (int)t->ndim, BSTK_MAX_NDIM);
    if (t->device.kind != BSTK_CPU)
        return io__fail(error, name, "cannot write an array on device kind %d, expected the CPU", (int)t->device.kind);
    if (!array_bytes(name, t->dtype, t->ndim, t->shape, &bytes, error))
        return false;
    if (bytes > 0 && t->data == NULL)
        return io__fail(error, name, "cannot write an array whose data is NULL");
    return write_header(output, t->dtype, t->ndim, t->shape, error) && write_elements(output, t, bytes, error);
}

bool io_npy_write(const char *path, const bstk_tensor *t, io_error *error) {
    io_output *output = io_output_open(path, error);
    return output != NULL && io__output_end(output, io_npy_put(output, path, t, error), error);
}

static bool write_mask(io_output *output, const bstk_layout *layout, const int64_t *shape, unsigned char *row,
                       io_error *error) {
    const int64_t *row_ptr = bstk_layout_row_ptr(layout);
    const int32_t *col_idx = bstk_layout_col_idx(layout);
    if (!write_header(output, BSTK_U8, 3, shape, error))
        return false;
    for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
        for (int64_t n = row_ptr[i]; n < row_ptr[i + 1]; n++)
            row[col_idx[n]] = 1;
        if (!io_output_write(output, row, (size_t)shape[2], error))
            return false;
        for (int64_t n = row_ptr[i]; n < row_ptr[i + 1]; n++)
            row[col_idx[n]] = 0;
    }
    return true;
}

bool io_npy_put_layout(io_output *output, const char *name, const bstk_layout *layout, io_error *error) {
    const int64_t shape[] = {bstk_layout_heads(layout), bstk_layout_rows(layout), bstk_layout_cols(layout)};
    unsigned char *row = calloc((size_t)shape[2] + 1, 1);
    if (row == NULL)
        return io__fail(error, name, "out of memory (%lld bytes)", (long long)shape[2]);
    const bool good = write_mask(output, layout, shape, row, error);
    free(row);
    return good;
}

bool io_npy_write_layout(const char *path, const bstk_layout *layout, io_error *error) {
    io_output *output = io_output_open(path, error);
    return output != NULL && io__output_end(output, io_npy_put_layout(output, path, layout, error), error);
}
