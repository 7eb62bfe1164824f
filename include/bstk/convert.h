/* convert.h: between a dense matrix [Z, H, M, N] and the packed values [Z, nnz, b, b] of a layout. */
#ifndef BSTK_CONVERT_H
#define BSTK_CONVERT_H

#include <bstk/context.h>
#include <bstk/layout.h>
#include <bstk/plan.h>

BSTK_BEGIN_DECLS

typedef enum bstk_convert_direction { BSTK_PACK = 1, BSTK_UNPACK = 2 } bstk_convert_direction;

/*
 * pack:   y[z, n, p, q] = x[z, h, i*b + p, j*b + q] for each stored block n = (h, i, j); 0 past a ragged edge
 * unpack: the other way; 0 where no block is stored
 * Each is the other's gradient: d_x of pack is unpack of d_y, d_x of unpack is pack of d_y.
 * Values are copied bit for bit. A layout of one head serves x of any number of heads: [Z, H*nnz, b, b].
 */
typedef struct bstk_convert_desc {
    size_t struct_size; /* set by BSTK_CONVERT_DESC_INIT */
    bstk_convert_direction direction;
    const bstk_layout *layout;
    const bstk_tensor
        *x; /* input: dense [Z, H, M, N] for pack, packed for unpack; f64, f32, f16 or bf16, any strides */
    const bstk_tensor *y; /* output of the same type; does not overlap x */
    const char *kernel;   /* as in bstk_matmul_desc */
} bstk_convert_desc;

/* clang-format off */
#define BSTK_CONVERT_DESC_INIT { sizeof(bstk_convert_desc), BSTK_PACK, 0, 0, 0, 0 }
/* clang-format on */

/** Plans a copy. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_convert_plan(bstk_context *ctx, const bstk_convert_desc *desc,
                                                      bstk_plan **out);

/** Runs a planned copy; needs no scratch.  Threads: any number on one plan.  Allocates: no. */
BSTK_API BSTK_NODISCARD bstk_status bstk_convert_run(const bstk_plan *plan, const bstk_tensor *x, const bstk_tensor *y,
                                                     const bstk_exec *exec);

/** Plans, runs and drops the plan, on the data of the descriptor's tensors. */
BSTK_API BSTK_NODISCARD bstk_status bstk_convert(bstk_context *ctx, const bstk_convert_desc *desc);

BSTK_END_DECLS

#endif
