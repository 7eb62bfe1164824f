/* tensor_view.h: checks and readings of bstk_tensor that every op shares. Depends on core only. */
#ifndef BSTK_CORE_TENSOR_VIEW_H
#define BSTK_CORE_TENSOR_VIEW_H

#include <bstk/tensor.h>

#include <stdbool.h>
#include <stdint.h>

/* A tensor seen with all four axes; missing leading axes have size 1 and stride 0. */
typedef struct bstk__view {
    bstk_dtype dtype;
    int64_t shape[4];
    int64_t stride[4];
} bstk__view;

/* Reads `t` as a 4-axis view. `who` and `name` make the message: "sdd: a has 5 axes, expected 2 to 4". */
bstk_status bstk__view_make(const char *who, const char *name, const bstk_tensor *t, int32_t min_ndim, int32_t max_ndim,
                            bstk__view *view);

/* True for f64, f32, f16, bf16. */
bool bstk__is_float(bstk_dtype dtype);

/* Refuses types other than the four floating ones. */
bstk_status bstk__check_float(const char *who, const char *name, bstk_dtype dtype);

/* Output views: no two elements may share memory, as writes would fall onto each other. Strides that interleave axes
 * within each other are refused too, though some of them would not. */
bstk_status bstk__check_output(const char *who, const char *name, const bstk_tensor *t);

/* Run-time tensor against the planned one: same type, axes, sizes and strides (of axes longer than 1), and data there
 * unless it is empty. */
bstk_status bstk__check_same(const char *who, const char *name, const bstk_tensor *planned, const bstk_tensor *given);

/* True when the two may share a byte. Exact for slices of one buffer whose runs repeat with a common step (q, k and v
 * of a fused projection); views that interleave otherwise count as overlapping. */
bool bstk__overlap(const bstk_tensor *x, const bstk_tensor *y);

/* True when both describe the same elements: same data, type, shape and strides. */
bool bstk__identical(const bstk_tensor *x, const bstk_tensor *y);

/* "[2, 3, 64, 64]" in a caller's buffer of at least 96 bytes; returns it. */
const char *bstk__shape_text(const bstk_tensor *t, char *text);

/* Value of one integer or boolean element, for masks and layouts (u64 above INT64_MAX gives INT64_MAX). */
int64_t bstk__load_integer(bstk_dtype dtype, const void *address);

#endif
