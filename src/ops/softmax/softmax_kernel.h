/*
 * softmax_kernel.h: the contract of the softmax kernels. For each element row i of a block row, over its stored blocks:
 *
 *     s(j) = c(scale * x(i,j)) + rpe + rel - ALiBi + key_padding + attn      for the kept j (bstk/softmax.h)
 *     saved(j) = exp(s(j) - max) / (sum exp(s - max) + exp(sink - max)), 0 for what is not kept or lies past the edge
 *     y = saved through the dropout;  lse = max + log(that sum)
 *
 * in f32 (f64 for f64), rounded once. A row without kept scores or a sink above -inf gives y = 0, lse = -inf; one with
 * a kept NaN or +inf gives NaN for all its kept places and lse. y may be x.
 */
#ifndef BSTK_SOFTMAX_KERNEL_H
#define BSTK_SOFTMAX_KERNEL_H

#include "ops/softmax/score_terms.h"
#include "plan/registry.h"

#include <stdint.h>

/* Packed values [Z, blocks, b, b], as in the product kernels. */
typedef struct bstk__softmax_values {
    void *data;
    int64_t z, block, row, col;
} bstk__softmax_values;

/* Unit u: 8 element rows of block row u / parts % lines, from 8 * (u % parts) on, of repeat u / (parts * lines). */
typedef struct bstk__softmax_args {
    bstk__softmax_values x, y, saved; /* saved.data NULL, or y before dropout */
    void *lse;                        /* NULL, or [Z, heads, M] with the strides below */
    int64_t lse_z, lse_h, lse_row;
    bstk__terms terms;
    const int64_t *line_ptr; /* [lines + 1] */
    const int32_t *col_idx;  /* [nnz] */
    int64_t nnz, lines, head_lines, layout_heads, heads;
    int64_t m, n;
    int64_t row_blocks;  /* of the longest block row: sizes the scratch */
    int32_t edge, parts; /* b, b / 8 */
} bstk__softmax_args;

/* Scratch of one worker: a score and a flag for each element of the longest row. */
size_t bstk__softmax_scratch_bytes(const bstk__softmax_args *args, size_t score_size);

/* clang-format off */
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes) \
    void function(const void *args, int64_t begin, int64_t end, void *scratch);
#include "ops/softmax/softmax.def"
#undef BSTK_KERNEL

/* Scratch of the vector kernels. */
#define SCRATCH(types) \
    size_t softmax_scratch_##types(const void *args); \
    size_t softmax_grad_scratch_##types(const void *args);
SCRATCH(f64_avx512) SCRATCH(f32_avx512) SCRATCH(f16_avx512) SCRATCH(bf16_avx512)
SCRATCH(f64_avx2) SCRATCH(f32_avx2) SCRATCH(f16_avx2) SCRATCH(bf16_avx2)
SCRATCH(f64_neon) SCRATCH(f32_neon) SCRATCH(f16_neon) SCRATCH(bf16_neon)
#undef SCRATCH
/* clang-format on */

#endif
