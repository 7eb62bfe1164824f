/*
 * norm_kernel.h: the contract of the norm kernels. For each element row of a block row, over its n kept elements
 * (stored, inside the matrix, kept by the element mask):
 *
 *     mean = sum x / n (rmsnorm: 0)    rstd = 1 / sqrt(sum (x - mean)^2 / n + eps)    xhat = (x - mean) * rstd
 *     y = xhat * weight + bias, 0 where not kept
 *
 * and the gradient, g = d_y * weight, avg over the kept elements of the row:
 *     by rows     d_x = rstd * (g - avg(g) - xhat * avg(g * xhat))    (rmsnorm: without avg(g))
 *     by columns  d_weight = sum of d_y * xhat,  d_bias = sum of d_y  over z, kept rows, and heads where shared
 *
 * A row with n = 0 has mean = rstd = 0. What is not kept is never looked at; kept NaN and infinities do what the
 * formulas make of them, and so does eps = 0 with a variance of 0: rstd = inf, y = 0 * inf = NaN.
 *
 * Statistics take two passes, the mean first, so that a large mean does not cancel the variance (the vector kernels
 * leave the second out where the mean is small and squares are exact: docs/numerics.md, section 7). All sums are in
 * double. The bound, with B the blocks of the row, b the block edge, and u = 2^-53: the scalar kernels add in pieces of
 * one block, with no more than K = b/8 + 3 + B additions on one path; vectors of L doubles in lanes over runs of
 * blocks, with no more than K = B (b/L + 3), so that |mean^ - mean| <= gamma(K + 1) * avg|x| =: e,    |var^ - var| <=
 * gamma(K + 4) * var + e^2 (1 + gamma(K + 4)) (the cross term of the two is 0, since the exact deviations sum to 0).
 * For f32 and the halves that is far below one f32 rounding: avg|x| = 10^4 times the standard deviation makes e = 3e-10
 * of it for 256 blocks of 64.
 */
#ifndef BSTK_NORM_KERNEL_H
#define BSTK_NORM_KERNEL_H

#include "plan/registry.h"

#include <stdint.h>

/* Packed values [Z, blocks, b, b]. */
typedef struct bstk__norm_values {
    void *data;
    int64_t z, block, row, col;
} bstk__norm_values;

/* One value a column [H|1, N] of any floating type; NULL data: all are 1 (weight), 0 (bias), not wanted (gradients). */
typedef struct bstk__norm_columns {
    void *data;
    bstk_dtype dtype;
    int64_t heads; /* 1: shared by all, and then h is 0 */
    int64_t h, col;
} bstk__norm_columns;

/* One value a row [Z, H, M], f32 (f64 for f64); NULL data: not wanted. */
typedef struct bstk__norm_rows {
    void *data;
    int64_t z, h, row;
} bstk__norm_rows;

/*
 * Unit u by rows: part u % parts (8 element rows) of block row u / parts % (layout_heads * rows), of repeat
 * u / (parts * layout_heads * rows): batch items, and heads where they share a layout. By columns: part u % parts (8
 * element columns) of block column u / parts, of all heads and batch items.
 */
typedef struct bstk__norm_args {
    bstk__norm_values x, y, d_y, d_x;
    bstk__norm_columns weight, bias, d_weight, d_bias;
    bstk__norm_rows mean, rstd; /* written forward, read backward */
    double eps;
    int32_t by_columns; /* backward: 0 makes d_x, 1 d_weight and d_bias */
    const int64_t *row_ptr, *col_ptr, *col_perm;
    const int32_t *col_idx, *col_row_idx;
    const int64_t *partial_idx; /* [nnz]; NULL when every block is whole */
    const uint8_t *partial_masks;
    int64_t batches, heads, layout_heads;
    int64_t rows, cols, nnz; /* of one layout head, in blocks; of all */
    int64_t m, n;
    int32_t edge, parts;
} bstk__norm_args;

/* clang-format off */
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes) \
    void function(const void *args, int64_t begin, int64_t end, void *scratch);
#include "ops/norm/norm.def"
#undef BSTK_KERNEL
/* clang-format on */

#endif
