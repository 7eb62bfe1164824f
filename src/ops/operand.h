/*
 * operand.h: the shape rules that all ops share: how many rows a layout needs, which batches and heads go together.
 * Each function writes the message that names the argument.
 */
#ifndef BSTK_OPERAND_H
#define BSTK_OPERAND_H

#include "core/tensor_view.h"
#include "layout/layout_impl.h"

/* A dense size against the layout: "dsd: b has 1000 rows, but the layout needs 1024 (16 blocks of 64)". */
bstk_status bstk__check_extent(const char *who, const char *name, const char *axis, int64_t got, int64_t need,
                               int64_t blocks, int32_t edge);

/* Packed values must be [Z, nnz, b, b], or with a shared layout [Z, heads*nnz, b, b]. Checks the block axes only. */
bstk_status bstk__check_packed(const char *who, const char *name, const bstk_tensor *t, const bstk__view *view,
                               const bstk_layout *layout);

/* Combines `size` of argument `name` into *all, where 1 goes with anything. */
bstk_status bstk__broadcast(const char *who, const char *name, const char *axis, int64_t size, int64_t *all);

/* Checks that an output has the size that the inputs give. */
bstk_status bstk__check_size(const char *who, const char *name, const char *axis, int64_t got, int64_t need);

/* One value a row, [Z, H, M], beside values `name` of type `values`: f64 beside f64, else f32. `view` has it on axes 1
 * to 3. */
bstk_status bstk__check_rows(const char *who, const char *row_name, const bstk_tensor *t, const char *name,
                             bstk_dtype values, const int64_t sizes[3], bstk__view *view);

/* lse [Z, H, M] beside values of type `values`: f64 beside f64, else f32; no stride 0. `view` has it on axes 1 to 3. */
bstk_status bstk__check_lse(const char *who, const bstk_tensor *lse, const char *name, bstk_dtype values,
                            const int64_t sizes[3], bstk__view *view);

/* Elements of a view, as a double: for traffic figures only. */
double bstk__view_elements(const bstk__view *view);

#endif
