/* io_internal.h: what the files of the file library share. */
#ifndef BSTK_IO_INTERNAL_H
#define BSTK_IO_INTERNAL_H

#include "io/io.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Writes "name: text" and returns false, so that a check is one line: return io__fail(...). Control bytes, which may
 * come from a file, become '?': the message stays one line and says nothing to a terminal. Of a long name the end is
 * kept, so that the reason always fits.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), cold))
#endif
bool io__fail(io_error *error, const char *name, const char *format, ...);

/* The same with the system's text for errno: "q.npy: No such file or directory". */
bool io__fail_errno(io_error *error, const char *name);

/* Opens for reading: a descriptor, and the size of a regular file (-1 for a pipe); directories are refused. */
bool io__open(const char *path, int *fd, int64_t *size, io_error *error);

/* Fills `bytes`; fewer only at the end of the file; -1 and errno on failure. Goes on after interrupting signals. */
int64_t io__read(int fd, void *bytes, size_t size);

/* Ends an output: commits it when what was written is `good`, else removes it. The caller's message stays. */
bool io__output_end(io_output *output, bool good, io_error *error);

/* What the dictionary of a .npy header says. */
typedef struct io__npy_header {
    bstk_dtype dtype;
    bool fortran;
    int32_t ndim;
    int64_t shape[BSTK_MAX_NDIM];
} io__npy_header;

bool io__npy_header_parse(const char *name, const char *text, size_t size, io__npy_header *out, io_error *error);

/*
 * Pictures: the stored blocks of each cell in row `row` of the cells, a cell being height x width blocks. counts has
 * ceil(cols / width) entries.
 */
void io__count_cells(const bstk_layout *layout, int64_t head, int64_t row, int64_t height, int64_t width,
                     int64_t *counts);

static inline int64_t io__ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

#endif
