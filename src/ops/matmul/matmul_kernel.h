/*
 * matmul_kernel.h: the contract of the product kernels. All trans flags are gone here: a transposed dense operand is a
 * swap of strides, a transposed sparse one is the other order of the layout's index, and dds is dsd of the transposes
 * (C^T = B^T A^T). So there are two kinds:
 *
 *   sdd   C[n](p,q) = alpha * sum_k A(h, i*b+p, k) * B(h, k, j*b+q) + beta * C[n](p,q)   for blocks n = (h, i, j)
 *   spmm  C(h, i, n) = alpha * sum_k S(h, i, k) * B(h, k, n) + beta * C(h, i, n)         S sparse: rows for dsd and dds
 *
 * C may have fewer batch items and heads than the product: what was shared in a forward product gets the sum over all
 * that shared it as its gradient. The sum then runs over z, h and k, in this order, so one element is one chain of
 * additions however it came about:
 *
 *   C(zc, hc, ...) = alpha * sum_{z in zc*sum_z .. +sum_z} sum_{h in hc*sum_h .. +sum_h} sum_k ... + beta * C(zc, hc,
 * ...)
 *
 * sum_z and sum_h are 1 in a forward product.
 *
 * Strides are in elements and may be anything. Sums are in f32 (f64 for f64 operands), rounded once at the store. With
 * beta 0 C is not read; with alpha 0 A, B and S are not. What lies past a ragged edge in a packed block is written as 0
 * and never read.
 */
#ifndef BSTK_MATMUL_KERNEL_H
#define BSTK_MATMUL_KERNEL_H

#include "plan/registry.h"

#include <stdint.h>

/* A dense operand [Z, heads, rows, cols]; head h of the product reads head h / group. A C has a head of its own: hc. */
typedef struct bstk__dense {
    void *data;
    int64_t z, h, row, col; /* strides */
    int64_t group;
} bstk__dense;

/* Packed values [Z, blocks, b, b]. */
typedef struct bstk__packed {
    void *data;
    int64_t z, block, row, col; /* strides; row and col are swapped for a transposed sparse operand */
    int64_t head_blocks;        /* blocks from one head to the next where a shared layout has values a head; else 0 */
} bstk__packed;

/*
 * Unit u: part u % parts of block u / parts % nnz, of copy u / (parts * nnz) % copies, of batch item
 * zc = u / (parts * nnz * copies) of C; part g is its element rows g*8 .. +8. A block belongs to its layout's head
 * (copies 1, sum_h 1), or with a layout of one head to copy hc of it.
 */
typedef struct bstk__sdd_args {
    bstk__dense a, b;
    bstk__packed c;
    const int32_t *row_idx, *col_idx; /* [nnz] */
    const int64_t *head_ptr;          /* [layout heads + 1]: first block of each head */
    int64_t nnz, copies;
    int64_t sum_z, sum_h;
    int64_t m, n, k;     /* elements */
    int32_t edge, parts; /* b and b / 8 */
    double alpha, beta;
} bstk__sdd_args;

/*
 * Unit u: part u % parts of line u / parts % head_lines of head hc = u / (parts * head_lines) % heads of C, in column
 * group u / (parts * head_lines * heads) % groups, of batch item zc = u / (parts * head_lines * heads * groups) of C.
 * Group j is the columns [j * group_cols, + group_cols) of B and C that are below n: so many that all rows of B, in
 * these columns, stay in a cache while the lines pass.
 */
typedef struct bstk__spmm_args {
    bstk__packed s;
    bstk__dense b, c;
    const int64_t *line_ptr;        /* [lines + 1] */
    const int32_t *inner;           /* [nnz]: block index along k, in line order */
    const int64_t *perm;            /* [nnz]: number of the block in the packed values; NULL: in order */
    int64_t head_lines, line_shift; /* lines of a head; from a head's lines to the next one's: 0 in a shared layout */
    int64_t heads;                  /* of C */
    int64_t groups, group_cols;     /* a group has a multiple of 32 columns, or all */
    int64_t sum_z, sum_h;
    int64_t m, n, k;
    int32_t edge, parts;
    int32_t skip_zeros; /* 1: an S(i,k) of exactly 0 leaves B(k,:) unread, so that a NaN there does not spread */
    double alpha, beta;
} bstk__spmm_args;

/* clang-format off */
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes) \
    void function(const void *args, int64_t begin, int64_t end, void *scratch);
#include "ops/matmul/matmul.def"
#undef BSTK_KERNEL

/* Scratch of the vector kernels. */
#define SCRATCH(types) \
    size_t sdd_scratch_##types(const void *args); \
    size_t spmm_scratch_##types(const void *args);
SCRATCH(f64_avx512) SCRATCH(f32_avx512) SCRATCH(f16_avx512) SCRATCH(bf16_avx512)
SCRATCH(f16_packed_f32_avx512) SCRATCH(bf16_packed_f32_avx512)
SCRATCH(bf16_avx512_bf16)
SCRATCH(f64_avx2) SCRATCH(f32_avx2) SCRATCH(f16_avx2) SCRATCH(bf16_avx2)
SCRATCH(f16_packed_f32_avx2) SCRATCH(bf16_packed_f32_avx2)
SCRATCH(f64_neon) SCRATCH(f32_neon) SCRATCH(f16_neon) SCRATCH(bf16_neon)
SCRATCH(f16_packed_f32_neon) SCRATCH(bf16_packed_f32_neon)
#undef SCRATCH

const char *spmm_accepts_bf16_avx512_bf16(const void *args);
/* clang-format on */

#endif
