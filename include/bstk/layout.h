/*
 * layout.h: which blocks of a block-sparse matrix are stored.
 *
 * A layout is a 0/1 array [heads, rows, cols] in blocks of b x b elements, with everything the kernels need beside it:
 * the blocks of each block row, the blocks of each block column, and the permutation between the two orders. Block n is
 * the n-th one in (head, row, column) order; packed values [Z, nnz, b, b] are in that order.
 *
 * A layout is immutable and reference counted: any number of threads may use one at once.
 */
#ifndef BSTK_LAYOUT_H
#define BSTK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <bstk/context.h>
#include <bstk/export.h>
#include <bstk/status.h>
#include <bstk/tensor.h>

BSTK_BEGIN_DECLS

#define BSTK_MIN_BLOCK 8
#define BSTK_MAX_BLOCK 256

typedef struct bstk_layout bstk_layout;

/**
 * Layout from a 0/1 mask of blocks.
 *
 * @param mask   [heads, rows, cols] or [rows, cols] (one head), bool or any integer type, any strides; the first value
 *               that is neither 0 nor 1 is named in the error
 * @param block  block edge in elements: a multiple of 8 from 8 to 256
 * @param shape  {M, N} in elements, ceil(M/block) = rows and ceil(N/block) = cols; NULL: {rows*block, cols*block}
 * @param out    written on success only
 * @return BSTK_OK; BSTK_ERR_INVALID; BSTK_ERR_TYPE for a floating mask; BSTK_ERR_OVERFLOW; BSTK_ERR_NOMEM
 * Threads: any number at once.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_from_mask(bstk_context *ctx, const bstk_tensor *mask, int32_t block,
                                                          const int64_t shape[2], bstk_layout **out);

/**
 * Layout from a mask of elements: stores the blocks that hold at least one kept (nonzero) element, and keeps beside
 * each partly kept block which of its elements are kept. Softmax and attention drop the others; products, pack and
 * unpack work on whole blocks.
 *
 * @param mask   [heads, M, N] or [M, N], bool or any integer type (nonzero keeps), any strides
 * @param block  as above
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_from_dense_mask(bstk_context *ctx, const bstk_tensor *mask,
                                                                int32_t block, bstk_layout **out);

/*
 * Sparse indices, one entry a stored square of `edge` x `edge` elements: edge = block for block indices (BSR, or COO
 * and CSR of blocks), edge = 1 for element indices (scipy's COO and CSR). When edge < block, the layout stores the
 * blocks that hold at least one entry and keeps element masks of the partly kept ones, as from a mask of elements.
 */
typedef struct bstk_layout_indices {
    size_t struct_size; /* set by BSTK_LAYOUT_INDICES_INIT */
    int64_t heads;      /* 1 by default */
    int64_t rows, cols; /* of the index grid, in squares of `edge` elements */
    int32_t edge;       /* 0: the same as block; else it must divide block */
    int64_t count;      /* entries of all heads together */
    /* Either head, row and col of each entry (COO; head may be NULL when heads is 1), in any order ... */
    const int64_t *head;
    const int64_t *row;
    const int64_t *col; /* [count]; the column of each entry in both forms */
    /* ... or row_ptr (CSR, BSR): [heads*rows + 1], the entries of row (h, i) are row_ptr[h*rows+i] .. row_ptr[..+1]. */
    const int64_t *row_ptr;
} bstk_layout_indices;

/* clang-format off */
#define BSTK_LAYOUT_INDICES_INIT { sizeof(bstk_layout_indices), 1, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Layout from COO, CSR or BSR indices. Unsorted entries are sorted; duplicates are refused, naming the first.
 *
 * @param shape  {M, N} in elements, or NULL: {rows*edge, cols*edge}
 * @return BSTK_OK; BSTK_ERR_INVALID for an index outside the grid, a row_ptr that does not start at 0, falls or does
 * not end at count, a duplicate, or a block or edge that is not allowed; BSTK_ERR_OVERFLOW; BSTK_ERR_NOMEM
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_from_indices(bstk_context *ctx, const bstk_layout_indices *indices,
                                                             int32_t block, const int64_t shape[2], bstk_layout **out);

/* ---- builders -------------------------------------------------------------------------------------------------- */

/* i is the block row, j the block column; each picture is in docs/layouts.md. `causal` drops every j > i from all. */
typedef enum bstk_layout_kind {
    BSTK_LAYOUT_DENSE = 1,    /* every block */
    BSTK_LAYOUT_LOCAL = 2,    /* |i - j| <= window/2 (integer division: an even window acts as the next odd one) */
    BSTK_LAYOUT_FIXED = 3,    /* windows of `window` blocks, the last `global` of each seen by all; see DeepSpeed */
    BSTK_LAYOUT_VARIABLE = 4, /* windows of the sizes in windows[], global ranges in globals[], random blocks */
    BSTK_LAYOUT_BIGBIRD = 5,  /* local(window), global first `global` and last `global_last` rows and columns, random */
    BSTK_LAYOUT_LONGFORMER = 6, /* local(window), global rows and columns: globals[], or the first `global` */
    BSTK_LAYOUT_STRIDED = 7,    /* local(window) or (i - j) a multiple of `stride` */
    BSTK_LAYOUT_RANDOM = 8      /* each block with probability `density`, or `random` blocks in each row */
} bstk_layout_kind;

typedef struct bstk_layout_opts {
    size_t struct_size; /* set by BSTK_LAYOUT_OPTS_INIT */
    bstk_layout_kind kind;
    int64_t heads;          /* 1 by default; random draws differ by head */
    int64_t rows, cols;     /* in blocks */
    int32_t block;          /* 64 by default */
    int64_t shape[2];       /* {M, N} in elements; {0, 0}: rows*block, cols*block */
    int32_t causal;         /* 1: no block above the diagonal, for every kind */
    int64_t window;         /* blocks; 3 by default (fixed: 4) when -1 */
    int64_t global;         /* blocks; 1 by default when -1 */
    int64_t global_last;    /* bigbird: blocks at the end that are global too; 0 by default */
    int64_t random;         /* blocks a row; bigbird and variable draw from columns not stored otherwise, at most all of
                               them; by default 1 for bigbird, 0 for variable, unset for random, when -1 */
    int64_t stride;         /* strided: 4 by default when -1 */
    double density;         /* random: probability of a block, in [0, 1]; 0.1 by default when < 0 */
    uint64_t seed;          /* same seed, same layout, on every platform */
    int32_t horizontal;     /* fixed and variable, not causal: global rows as well as columns */
    int64_t patterns;       /* fixed: head h uses the global columns of pattern h mod patterns; 1 by default */
    const int64_t *windows; /* variable: window sizes in blocks, the last one repeats; NULL: {4} */
    int64_t n_windows;
    const int64_t *globals; /* variable, longformer: n_globals pairs {begin, end} of blocks; NULL: {0, global} */
    int64_t n_globals;
} bstk_layout_opts;

/* clang-format off */
#define BSTK_LAYOUT_OPTS_INIT { sizeof(bstk_layout_opts), BSTK_LAYOUT_DENSE, 1, 0, 0, 64, { 0, 0 }, 0, -1, -1, 0, -1, -1, \
    -1.0, 0, 0, 1, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Builds a named pattern. Memory and time grow with the stored blocks, never with rows*cols.
 *
 * @return BSTK_OK; BSTK_ERR_INVALID naming the option; BSTK_ERR_OVERFLOW; BSTK_ERR_NOMEM
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_build(bstk_context *ctx, const bstk_layout_opts *opts,
                                                      bstk_layout **out);

/** The kind called `name` ("bigbird"), or 0; and the name of a kind, "unknown" for an unknown one. */
BSTK_API bstk_layout_kind bstk_layout_kind_from_name(const char *name);
BSTK_API const char *bstk_layout_kind_name(bstk_layout_kind kind);

/* ---- life and queries ------------------------------------------------------------------------------------------ */

/** Adds a reference and returns the layout; NULL is fine.  Threads: any number at once. */
BSTK_API bstk_layout *bstk_layout_retain(const bstk_layout *layout);

/** Drops a reference; the last one frees the layout; NULL is fine.  Threads: any number at once. */
BSTK_API void bstk_layout_release(bstk_layout *layout);

BSTK_API int64_t bstk_layout_heads(const bstk_layout *layout);
BSTK_API int64_t bstk_layout_rows(const bstk_layout *layout); /* in blocks */
BSTK_API int64_t bstk_layout_cols(const bstk_layout *layout); /* in blocks */
BSTK_API int32_t bstk_layout_block(const bstk_layout *layout);
BSTK_API int64_t bstk_layout_m(const bstk_layout *layout);      /* element rows */
BSTK_API int64_t bstk_layout_n(const bstk_layout *layout);      /* element columns */
BSTK_API int64_t bstk_layout_nnz(const bstk_layout *layout);    /* stored blocks of all heads */
BSTK_API double bstk_layout_density(const bstk_layout *layout); /* nnz / (heads*rows*cols), in [0, 1]; 0 if empty */

/* Borrowed arrays, alive as long as the layout. Row order is (head, row, column), the order of the packed values. */
BSTK_API const int64_t *bstk_layout_row_ptr(const bstk_layout *layout); /* [heads*rows + 1] */
BSTK_API const int32_t *bstk_layout_row_idx(const bstk_layout *layout); /* [nnz] block row of block n */
BSTK_API const int32_t *bstk_layout_col_idx(const bstk_layout *layout); /* [nnz] block column of block n */
/* Column order is (head, column, row); col_perm[k] is the number n of the k-th block in it. */
BSTK_API const int64_t *bstk_layout_col_ptr(const bstk_layout *layout);     /* [heads*cols + 1] */
BSTK_API const int32_t *bstk_layout_col_row_idx(const bstk_layout *layout); /* [nnz] block row, in column order */
BSTK_API const int64_t *bstk_layout_col_perm(const bstk_layout *layout);    /* [nnz] */

/** Blocks that are only partly kept; 0 unless the layout came from elements. */
BSTK_API int64_t bstk_layout_partial_count(const bstk_layout *layout);

/** Element mask [block, block] of block n, 0 drops and 1 keeps; NULL when the block is wholly kept. */
BSTK_API const uint8_t *bstk_layout_partial_mask(const bstk_layout *layout, int64_t n);

/** Writes the 0/1 mask [heads, rows, cols] of blocks; mask is bool or any integer type, any strides. */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_to_mask(const bstk_layout *layout, const bstk_tensor *mask);

typedef struct bstk_layout_stats {
    size_t struct_size; /* set to sizeof(bstk_layout_stats) by the caller */
    int64_t nnz, partial;
    double density;
    int64_t row_min, row_max, col_min, col_max; /* blocks in a block row, in a block column */
    double row_median, row_mean;
    int64_t empty_rows, empty_cols; /* of all heads */
    int64_t head_min, head_max;     /* blocks of a head */
    double row_imbalance;           /* row_max / row_mean: how uneven a cut by rows would be; 1 is even */
    double task_imbalance;          /* of a dsd on 8 threads, as bstk_plan_imbalance tells it; 1 is even */
} bstk_layout_stats;

BSTK_API BSTK_NODISCARD bstk_status bstk_layout_get_stats(const bstk_layout *layout, bstk_layout_stats *stats);

/* ---- files ------------------------------------------------------------------------------------------------------ */

/**
 * Saves the whole layout (shape, block, indexes, element masks) in bstk's own file format, docs/layouts.md. Written to
 * a temporary name beside `path` and renamed: an interrupted call leaves no half-written file.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_save(const bstk_layout *layout, const char *path);

/** Loads what bstk_layout_save wrote. The file is not trusted: every count and index is checked. */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_load(bstk_context *ctx, const char *path, bstk_layout **out);

/** The same from memory, for callers that have the bytes at hand. */
BSTK_API BSTK_NODISCARD bstk_status bstk_layout_parse(bstk_context *ctx, const void *bytes, size_t size,
                                                      bstk_layout **out);

BSTK_END_DECLS

#endif
