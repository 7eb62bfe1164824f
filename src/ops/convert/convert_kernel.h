/*
 * convert_kernel.h: the contract of the copies between a dense matrix and packed values. Bits are copied; the kernel's
 * type tells only the size of an element.
 */
#ifndef BSTK_CONVERT_KERNEL_H
#define BSTK_CONVERT_KERNEL_H

#include "plan/registry.h"

#include <stdint.h>

/*
 * pack: unit u is part u % parts (8 element rows) of block u / parts % nnz, of repeat u / (parts * nnz).
 * unpack: unit u is part u % parts of block row u / parts % lines, of repeat u / (parts * lines); writes the zeros of
 * its rows too.
 */
typedef struct bstk__convert_args {
    void *dense, *packed;
    int64_t dense_z, dense_h, dense_row, dense_col; /* strides, elements */
    int64_t packed_z, packed_block, packed_row, packed_col;
    const int64_t *line_ptr;          /* [lines + 1] */
    const int32_t *row_idx, *col_idx; /* [nnz] */
    int64_t nnz, lines, head_lines, layout_heads, heads;
    int64_t m, n;
    int32_t edge, parts;
} bstk__convert_args;

/* clang-format off */
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes) \
    void function(const void *args, int64_t begin, int64_t end, void *scratch);
#include "ops/convert/convert.def"
#undef BSTK_KERNEL
/* clang-format on */

#endif
