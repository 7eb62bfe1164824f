/*
 * layout_file.c: layouts in files. Everything is little-endian, whatever the host.
 *
 *     offset  bytes                   what
 *     0       8                       "BSTKLAY" and a zero byte
 *     8       4                       version of the format, u32: 1
 *     12      4                       block, u32
 *     16      7 * 8                   heads, rows, cols, m, n, nnz, partial count, i64
 *     72      8 * (heads*rows + 1)    row_ptr, i64
 *     ..      8 * (heads*cols + 1)    col_ptr, i64
 *     ..      4 * nnz                 col_idx, i32
 *     ..      8 * partial             numbers of the partly kept blocks, i64, rising
 *     ..      partial * block^2 / 8   their element masks: bit k of byte q is element 8*q + k of the block, 1 keeps
 *
 * and nothing behind it. col_ptr could be counted from the rest; it is there so that no reader has to take more memory
 * than a small multiple of the file's size, and it has to agree.
 */
#include "layout/layout_index.h"

#include "core/checked.h"
#include "core/context_impl.h"
#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_BYTES = 8, HEADER_BYTES = 72, VERSION = 1 };
static const char magic[MAGIC_BYTES] = "BSTKLAY";

static uint32_t load_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int64_t load_i64(const uint8_t *at) {
    return (int64_t)((uint64_t)load_u32(at) | (uint64_t)load_u32(at + 4) << 32);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* The file's header and where its parts are. */
typedef struct parts {
    uint32_t block;
    int64_t heads, rows, cols, shape[2], nnz, partial;
    const uint8_t *row_ptr, *col_ptr, *col_idx, *partial_idx, *partial_masks;
} parts;

/* Gives the next `count` things of `size` bytes in [*at, *at + *left) and moves on; false when there are not as many.
 */
static bool take(const uint8_t **at, uint64_t *left, int64_t count, int64_t size, const uint8_t **part) {
    int64_t bytes;
    if (!bstk__mul(count, size, &bytes) || (uint64_t)bytes > *left)
        return false;
    *part = *at;
    *at += bytes;
    *left -= (uint64_t)bytes;
    return true;
}

static bstk_status parse_parts(const char *name, const uint8_t *bytes, uint64_t size, parts *p) {
    if (size < MAGIC_BYTES || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return bstk__fail(BSTK_ERR_FORMAT, "%s: not a layout file: it does not start with BSTKLAY", name);
    if (size < HEADER_BYTES)
        return bstk__fail(BSTK_ERR_FORMAT, "%s: the file ends in its header, after %llu bytes", name,
                          (unsigned long long)size);
    if (load_u32(bytes + 8) != VERSION)
        return bstk__fail(BSTK_ERR_FORMAT, "%s: format version is %lu, expected %d", name,
                          (unsigned long)load_u32(bytes + 8), VERSION);
    int64_t fields[7];
    for (int k = 0; k < 7; k++)
        fields[k] = load_i64(bytes + 16 + 8 * k);
    *p = (parts){.block = load_u32(bytes + 12),
                 .heads = fields[0],
                 .rows = fields[1],
                 .cols = fields[2],
                 .shape = {fields[3], fields[4]},
                 .nnz = fields[5],
                 .partial = fields[6]};
    const int32_t block = p->block > BSTK_MAX_BLOCK ? 0 : (int32_t)p->block;
    if (bstk__layout_check(name, p->heads, p->rows, p->cols, block, p->shape) != BSTK_OK)
        return BSTK_ERR_FORMAT; /* the message is there */
    if (p->nnz < 0)
        return bstk__fail(BSTK_ERR_FORMAT, "%s: nnz is %lld, expected 0 or more", name, (long long)p->nnz);
    if (p->partial < 0 || p->partial > p->nnz)
        return bstk__fail(BSTK_ERR_FORMAT, "%s: partial count is %lld, expected 0 to %lld (nnz)", name,
                          (long long)p->partial, (long long)p->nnz);
    const uint8_t *at = bytes + HEADER_BYTES;
    uint64_t left = size - HEADER_BYTES;
    if (!take(&at, &left, p->heads * p->rows + 1, 8, &p->row_ptr) ||
        !take(&at, &left, p->heads * p->cols + 1, 8, &p->col_ptr) || !take(&at, &left, p->nnz, 4, &p->col_idx) ||
        !take(&at, &left, p->partial, 8, &p->partial_idx) ||
        !take(&at, &left, p->partial, (int64_t)block * block / 8, &p->partial_masks))
        return bstk__fail(BSTK_ERR_FORMAT, "%s: the file ends early: %llu bytes are less than its header says", name,
                          (unsigned long long)size);
    if (left > 0)
        return bstk__fail(BSTK_ERR_FORMAT, "%s: %llu bytes too many at the end", name, (unsigned long long)left);
    return BSTK_OK;
}

static bstk_status parse_row_ptr(const char *name, const parts *p, bstk_layout *layout) {
    const int64_t lines = p->heads * p->rows;
    int64_t before = 0;
    for (int64_t line = 0; line <= lines; line++) {
        const int64_t value = load_i64(p->row_ptr + 8 * line);
        if (value < before || value > p->nnz || (line == 0 && value != 0) || (line == lines && value != p->nnz))
            return bstk__fail(BSTK_ERR_FORMAT,
                              "%s: row_ptr[%lld] is %lld, expected row_ptr to rise from 0 to %lld (nnz)", name,
                              (long long)line, (long long)value, (long long)p->nnz);
        layout->row_ptr[line] = before = value;
    }
    return BSTK_OK;
}

static bstk_status parse_col_idx(const char *name, const parts *p, bstk_layout *layout) {
    const int64_t lines = p->heads * p->rows;
    for (int64_t line = 0; line < lines; line++) {
        int64_t before = -1;
        for (int64_t n = layout->row_ptr[line]; n < layout->row_ptr[line + 1]; n++) {
            const int64_t col = (int64_t)load_u32(p->col_idx + 4 * n);
            if (col <= before || col >= p->cols)
                return bstk__fail(BSTK_ERR_FORMAT, "%s: col_idx[%lld] is %lld, expected %lld to %lld", name,
                                  (long long)n, (long long)col, (long long)(before + 1), (long long)(p->cols - 1));
            before = col;
            layout->col_idx[n] = (int32_t)col;
        }
    }
    return BSTK_OK;
}

static bstk_status check_col_ptr(const char *name, const parts *p, const bstk_layout *layout) {
    for (int64_t k = 0; k <= p->heads * p->cols; k++)
        if (load_i64(p->col_ptr + 8 * k) != layout->col_ptr[k])
            return bstk__fail(BSTK_ERR_FORMAT, "%s: col_ptr[%lld] is %lld, but the blocks say %lld", name, (long long)k,
                              (long long)load_i64(p->col_ptr + 8 * k), (long long)layout->col_ptr[k]);
    return BSTK_OK;
}

/* Unpacks one element mask. Good: it keeps some element and drops some, both in the matrix, and none past the edge. */
static bool unpack_mask(const uint8_t *bits, const bstk_layout *layout, int64_t n, uint8_t *mask) {
    const int64_t block = layout->block;
    const int64_t height = bstk__min(block, layout->m - layout->row_idx[n] * block);
    const int64_t width = bstk__min(block, layout->n - layout->col_idx[n] * block);
    int64_t kept = 0;
    bool inside = true;
    for (int64_t k = 0; k < block * block; k++) {
        mask[k] = bits[k / 8] >> (k % 8) & 1;
        kept += mask[k];
        inside = inside && (mask[k] == 0 || (k / block < height && k % block < width));
    }
    return inside && kept > 0 && kept < height * width;
}

static bstk_status parse_partial(const char *name, const parts *p, bstk_layout *layout) {
    const int64_t area = (int64_t)layout->block * layout->block;
    int64_t before = -1;
    for (int64_t n = 0; p->partial > 0 && n < p->nnz; n++)
        layout->partial_idx[n] = -1;
    for (int64_t k = 0; k < p->partial; k++) {
        const int64_t n = load_i64(p->partial_idx + 8 * k);
        if (n <= before || n >= p->nnz)
            return bstk__fail(BSTK_ERR_FORMAT, "%s: partly kept block %lld is number %lld, expected %lld to %lld", name,
                              (long long)k, (long long)n, (long long)(before + 1), (long long)(p->nnz - 1));
        before = n;
        layout->partial_idx[n] = k;
        if (!unpack_mask(p->partial_masks + k * area / 8, layout, n, layout->partial_masks + k * area))
            return bstk__fail(BSTK_ERR_FORMAT,
                              "%s: the mask of block %lld keeps all, nothing or something past the edge", name,
                              (long long)n);
    }
    return BSTK_OK;
}

static bstk_status parse_blocks(const char *name, const parts *p, bstk_layout *layout) {
    BSTK_TRY(parse_row_ptr(name, p, layout));
    BSTK_TRY(bstk__layout_alloc_blocks(layout, name, p->partial));
    BSTK_TRY(parse_col_idx(name, p, layout));
    bstk__layout_index(layout);
    BSTK_TRY(check_col_ptr(name, p, layout));
    return parse_partial(name, p, layout);
}

static bstk_status parse(bstk_context *ctx, const char *name, const uint8_t *bytes, uint64_t size, bstk_layout **out) {
    parts p = {0};
    bstk_layout *layout;
    BSTK_TRY(parse_parts(name, bytes, size, &p));
    BSTK_TRY(bstk__layout_new(ctx, name, p.heads, p.rows, p.cols, (int32_t)p.block, p.shape, &layout));
    bstk_status status = parse_blocks(name, &p, layout);
    if (status == BSTK_OK)
        *out = layout;
    else
        bstk_layout_release(layout);
    return status;
}

bstk_status bstk_layout_parse(bstk_context *ctx, const void *bytes, size_t size, bstk_layout **out) {
    if ((bytes == NULL && size > 0) || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s is NULL", out ? "bytes" : "out");
    return parse(ctx, "layout", bytes, size, out);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* The system's reason for a failed call on `path`. */
static bstk_status fail_io(const char *path, const char *what, int error) {
    char reason[128] = "unknown error";
    if (strerror_r(error, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", error);
    return bstk__fail(BSTK_ERR_IO, "%s: cannot %s: %s", path, what, reason);
}

static bstk_status read_all(const char *path, int file, uint8_t *bytes, int64_t size) {
    for (int64_t done = 0; done < size;) {
        const ssize_t got = read(file, bytes + done, (size_t)(size - done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_io(path, "read", errno);
        if (got == 0)
            return bstk__fail(BSTK_ERR_IO, "%s: became shorter while it was read", path);
        done += got;
    }
    return BSTK_OK;
}

static bstk_status load_open_file(bstk_context *ctx, const char *path, int file, bstk_layout **out) {
    struct stat info;
    if (fstat(file, &info) != 0)
        return fail_io(path, "read", errno);
    if (!S_ISREG(info.st_mode))
        return bstk__fail(BSTK_ERR_IO, "%s: not a regular file", path);
    ctx = bstk__context_resolve(ctx);
    uint8_t *bytes = bstk__alloc(ctx, info.st_size, 1);
    if (bytes == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld bytes)", path, (long long)info.st_size);
    bstk_status status = read_all(path, file, bytes, info.st_size);
    if (status == BSTK_OK)
        status = parse(ctx, path, bytes, (uint64_t)info.st_size, out);
    bstk__free(ctx, bytes);
    return status;
}

bstk_status bstk_layout_load(bstk_context *ctx, const char *path, bstk_layout **out) {
    if (path == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s is NULL", path ? "out" : "path");
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a pipe's writer */
    if (file < 0)
        return fail_io(path, "open", errno);
    bstk_status status = load_open_file(ctx, path, file, out);
    close(file);
    return status;
}

/* Little-endian integers into a stream; errors stay in the stream until it is closed. */
static void put(FILE *file, uint64_t value, int bytes) {
    for (int k = 0; k < bytes; k++)
        putc_unlocked((int)(value >> 8 * k & 0xff), file);
}

static void write_layout(FILE *file, const bstk_layout *layout) {
    const int64_t fields[7] = {layout->heads, layout->rows, layout->cols,         layout->m,
                               layout->n,     layout->nnz,  layout->partial_count};
    const int64_t area = (int64_t)layout->block * layout->block;
    fwrite(magic, 1, MAGIC_BYTES, file);
    put(file, VERSION, 4);
    put(file, (uint64_t)layout->block, 4);
    for (int k = 0; k < 7; k++)
        put(file, (uint64_t)fields[k], 8);
    for (int64_t k = 0; k <= layout->heads * layout->rows; k++)
        put(file, (uint64_t)layout->row_ptr[k], 8);
    for (int64_t k = 0; k <= layout->heads * layout->cols; k++)
        put(file, (uint64_t)layout->col_ptr[k], 8);
    for (int64_t n = 0; n < layout->nnz; n++)
        put(file, (uint64_t)layout->col_idx[n], 4);
    for (int64_t n = 0; layout->partial_count > 0 && n < layout->nnz; n++)
        if (layout->partial_idx[n] >= 0) /* mask k belongs to the k-th of them: both rise */
            put(file, (uint64_t)n, 8);
    for (int64_t q = 0; q < layout->partial_count * area / 8; q++) {
        unsigned bits = 0;
        for (int k = 0; k < 8; k++)
            bits |= (unsigned)layout->partial_masks[8 * q + k] << k;
        put(file, bits, 1);
    }
}

/* A new file beside `path`, under a name that no other thread or process uses; its mode follows the umask. */
static int open_temporary(const char *path, char *name, size_t bytes) {
    static atomic_uint counter;
    for (int attempt = 0;; attempt++) {
        snprintf(name, bytes, "%s.%ld.%u.tmp", path, (long)getpid(), atomic_fetch_add(&counter, 1u));
        const int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST || attempt == 100) /* EEXIST: left by a process that had our number */
            return file;
    }
}

/* Writes, forces to the disk and closes; 0 or the error number. */
static int write_and_close(int file, const bstk_layout *layout) {
    FILE *stream = fdopen(file, "wb");
    if (stream == NULL) {
        const int error = errno;
        close(file);
        return error;
    }
    errno = 0;
    write_layout(stream, layout);
    int error = ferror(stream) || fflush(stream) != 0 || fsync(file) != 0 ? (errno ? errno : EIO) : 0;
    if (fclose(stream) != 0 && error == 0)
        error = errno;
    return error;
}

bstk_status bstk_layout_save(const bstk_layout *layout, const char *path) {
    if (layout == NULL || path == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s is NULL", layout ? "path" : "layout");
    bstk_context *ctx = layout->ctx;
    const size_t bytes = strlen(path) + 64; /* ".", a process id, ".", a counter, ".tmp" */
    char *name = bstk__alloc(ctx, (int64_t)bytes, 1);
    if (name == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory", path);
    bstk_status status = BSTK_OK;
    const int file = open_temporary(path, name, bytes);
    if (file < 0) {
        status = fail_io(path, "create", errno);
    } else {
        int error = write_and_close(file, layout);
        if (error == 0 && rename(name, path) != 0)
            error = errno;
        if (error != 0) {
            unlink(name);
            status = fail_io(path, "write", error);
        }
    }
    bstk__free(ctx, name);
    return status;
}
