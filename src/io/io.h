/*
 * io.h: files of the command line and of the tests: .npy, .smtx, .mtx, PNG pictures, safe writing.
 * A static library beside libbstk, on the public API only. Files are untrusted: sizes are checked before memory is
 * taken, nothing is read past the end.
 */
#ifndef BSTK_IO_H
#define BSTK_IO_H

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every function that can fail returns false and writes one line here: "q.npy: header says ..., expected ...". */
typedef struct io_error {
    char text[512];
} io_error;

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* An array in memory that it owns. */
typedef struct io_array {
    bstk_tensor t;
    void *memory;
    size_t bytes;
} io_array;

/* Zeroed, contiguous, 64-byte aligned. False when the size overflows or memory is out. */
bool io_array_make(io_array *out, bstk_dtype dtype, int32_t ndim, const int64_t *shape, io_error *error);
void io_array_free(io_array *array); /* also of a zeroed struct */

/*
 * Reads .npy, versions 1.0 to 3.0, little-endian, C or Fortran order (as strides), 0 to 4 axes; types f8 f4 f2 b1 and
 * u1..u8, i1..i8. Object, complex, string and big-endian types are refused by name, as are more than 4 axes, negative
 * sizes, a size that overflows or that is more than the file holds, and trailing bytes.
 */
bool io_npy_read(const char *path, io_array *out, io_error *error);
bool io_npy_parse(const char *name, const void *bytes, size_t size, io_array *out, io_error *error); /* copies */

/*
 * Writes .npy version 1.0, C order, from any strides, through a temporary file (below). bf16 is written as u2, for
 * NumPy has no such type.
 */
bool io_npy_write(const char *path, const bstk_tensor *t, io_error *error);

/* The 0/1 mask [heads, rows, cols] u1 of a layout, row by row: a layout of a million tokens needs no such array. */
bool io_npy_write_layout(const char *path, const bstk_layout *layout, io_error *error);

/* ---- sparse patterns ----------------------------------------------------------------------------------------------
 */

/* Indices of a pattern file; entries are elements. Free with io_pattern_free. */
typedef struct io_pattern {
    int64_t rows, cols, count;
    int64_t *row_ptr; /* .smtx: [rows + 1]; NULL for .mtx */
    int64_t *row;     /* .mtx: [count]; NULL for .smtx */
    int64_t *col;     /* [count] */
} io_pattern;

void io_pattern_free(io_pattern *pattern);
/* DLMC's .smtx: "rows, cols, nnz", row pointers, column indices (line absent when nnz is 0). */
bool io_smtx_read(const char *path, io_pattern *out, io_error *error);
bool io_smtx_parse(const char *name, const void *bytes, size_t size, io_pattern *out, io_error *error);
/*
 * Matrix Market coordinate files: pattern, integer, real or complex; general, or symmetric, skew-symmetric, hermitian
 * (both halves come out). Every listed entry counts, also one whose value is 0.
 */
bool io_mtx_read(const char *path, io_pattern *out, io_error *error);
bool io_mtx_parse(const char *name, const void *bytes, size_t size, io_pattern *out, io_error *error);

/* ---- whole files --------------------------------------------------------------------------------------------------
 */

/* Reads a regular file or pipe whole; free(*bytes). `limit` bytes at most. */
bool io_file_read(const char *path, size_t limit, void **bytes, size_t *size, io_error *error);

/*
 * Writing: a temporary file beside `path`, renamed onto it at the end, so that neither an error nor Ctrl-C leaves a
 * half-written or a lost file. io_output_signals() makes SIGINT, SIGTERM, SIGHUP, SIGPIPE and SIGXFSZ remove what is
 * unfinished, then end the process as the signal would; signals that are ignored stay so. An existing file keeps its
 * mode, a link stays a link; /dev/stdout and other non-regular files are written directly. 64 may be open at once.
 */
typedef struct io_output io_output;
void io_output_signals(void);
io_output *io_output_open(const char *path, io_error *error); /* NULL on failure */
/*
 * For commands that write several files or none: put into all, flush all, then commit all. `name` is for messages.
 */
bool io_npy_put(io_output *output, const char *name, const bstk_tensor *t, io_error *error);
bool io_npy_put_layout(io_output *output, const char *name, const bstk_layout *layout, io_error *error);
bool io_picture_put(io_output *output, const char *name, const bstk_layout *layout, io_error *error);
bool io_output_flush(io_output *output, io_error *error); /* to the disk; frees nothing */
bool io_output_write(io_output *output, const void *bytes, size_t size, io_error *error);
/* Both free `output`, also on failure; commit flushes and renames, abort removes. */
bool io_output_commit(io_output *output, io_error *error);
void io_output_abort(io_output *output);

/* ---- pictures -----------------------------------------------------------------------------------------------------
 */

/*
 * The layout as text: heads side by side or one under the other as `columns` allows, two block rows a line by
 * half-block characters (with `ascii` one a line, # and .). A layout of more rows or cols than `columns` is reduced: a
 * character then stands for many blocks, how many the first line says, and its shade for the share of them that is
 * stored (with `ascii` . : + * #). Returns a malloc'ed string, or NULL without memory.
 */
char *io_picture_text(const bstk_layout *layout, int columns, bool ascii);

/*
 * The layout as a PNG: a square of a few pixels a block, with light lines between blocks when they are few, the
 * diagonal faintly marked, partly kept blocks in a lighter shade, heads beside each other with a gap; large layouts
 * reduced to shades by density. Written through io_output.
 */
bool io_picture_png(const char *path, const bstk_layout *layout, io_error *error);

/* Any picture, [height, width, 3] bytes of red, green and blue, as a PNG. */
bool io_png_put(io_output *output, const char *name, const uint8_t *pixels, int width, int height, io_error *error);

#endif
