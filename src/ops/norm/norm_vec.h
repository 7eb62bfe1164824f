/* norm_vec.h: what the vector norm kernels of all types share: where a part of a block row lies, which of its elements
 * are kept, runs of whole blocks, weights as a line of vectors' elements. See norm_vec.inc. */
#ifndef BSTK_NORM_VEC_H
#define BSTK_NORM_VEC_H

#include "core/checked.h"
#include "core/half.h"
#include "ops/norm/norm_kernel.h"

#include <bstk/layout.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { PART = 8 }; /* element rows, or columns, of a unit */

/* Lines of one value, as long as the longest block row: what stands for a mask, weight, bias or shift that is not
 * there. */
#define LINE_4(x)  x, x, x, x
#define LINE_16(x) LINE_4(x), LINE_4(x), LINE_4(x), LINE_4(x)
#define LINE_64(x) LINE_16(x), LINE_16(x), LINE_16(x), LINE_16(x)
#define LINE_256(x)                                                                                                    \
    { LINE_64(x), LINE_64(x), LINE_64(x), LINE_64(x) }
static const uint8_t bstk__norm_all[BSTK_MAX_BLOCK] = LINE_256(1);
static const float bstk__norm_ones_f32[BSTK_MAX_BLOCK] = LINE_256(1);
static const double bstk__norm_ones_f64[BSTK_MAX_BLOCK] = LINE_256(1);
static const float bstk__norm_zeros_f32[BSTK_MAX_BLOCK] = {0};
static const double bstk__norm_zeros_f64[BSTK_MAX_BLOCK] = {0};

/* A part of 8 element rows of a block row, and the statistics of its rows. */
typedef struct bstk__norm_part {
    int64_t z, h, i0;    /* first row */
    int64_t rows;        /* inside the matrix, 0 to 8 */
    int64_t p0;          /* first row within the block */
    int64_t first, last; /* blocks */
    int64_t shift;       /* from a block's number to its place in the values */
    int64_t kept[PART];  /* elements of each row */
    double mean[PART], rstd[PART];
} bstk__norm_part;

enum {
    STRIP = 8,             /* parts that are walked together */
    STRIP_BYTES = 1 << 18, /* what they may read, so that a quarter of L2 holds it until it is read again */
    AHEAD = 4096           /* bytes of a column that are asked for before they are read */
};

static inline bstk__norm_part bstk__norm_part_make(const bstk__norm_args *g, int64_t unit) {
    const int64_t lines = g->layout_heads * g->rows, shared = g->heads / g->layout_heads;
    const int64_t line = unit / g->parts % lines, repeat = unit / g->parts / lines;
    bstk__norm_part part = {.z = repeat / shared, .h = shared > 1 ? repeat % shared : line / g->rows};
    part.p0 = unit % g->parts * PART;
    part.i0 = line % g->rows * g->edge + part.p0;
    part.rows = bstk__max(0, bstk__min(PART, g->m - part.i0));
    part.first = g->row_ptr[line];
    part.last = g->row_ptr[line + 1];
    part.shift = shared > 1 ? part.h * g->nnz : 0;
    return part;
}

/* Columns of block n that are inside the matrix. */
static inline int64_t bstk__norm_inside(const bstk__norm_args *g, int64_t n) {
    return bstk__min(g->edge, g->n - (int64_t)g->col_idx[n] * g->edge);
}

/* The elements that row p of block n keeps, NULL for all. */
static inline const uint8_t *bstk__norm_mask(const bstk__norm_args *g, int64_t n, int64_t p) {
    const int64_t number = g->partial_idx ? g->partial_idx[n] : -1;
    return number < 0 ? NULL : g->partial_masks + (number * g->edge + p) * g->edge;
}

/* Block n keeps everything. */
static inline bool bstk__norm_whole(const bstk__norm_args *g, int64_t n) {
    return (g->partial_idx == NULL || g->partial_idx[n] < 0) && bstk__norm_inside(g, n) == g->edge;
}

/* Parts from `unit` on that are walked together: of one block row, and no more than fit. */
static inline int64_t bstk__norm_strip(const bstk__norm_args *g, int64_t unit, int64_t end, int64_t size) {
    const int64_t line = unit / g->parts % (g->layout_heads * g->rows);
    const int64_t bytes = (g->row_ptr[line + 1] - g->row_ptr[line]) * g->edge * PART * size;
    const int64_t fit = bstk__max(1, bstk__min(STRIP, STRIP_BYTES / bstk__max(1, bytes)));
    return bstk__min(fit, bstk__min(end - unit, g->parts - unit % g->parts));
}

static inline int64_t bstk__norm_count(const uint8_t *mask, int64_t count) {
    int64_t kept = mask ? 0 : count;
    for (int64_t q = 0; mask && q < count; q++)
        kept += mask[q] != 0;
    return kept;
}

/* The value of a column, at `at` of its tensor. */
static inline double bstk__norm_column(const bstk__norm_columns *c, int64_t at) {
    if (c->dtype == BSTK_F64)
        return ((const double *)c->data)[at];
    if (c->dtype == BSTK_F32)
        return (double)((const float *)c->data)[at];
    const uint16_t half = ((const uint16_t *)c->data)[at];
    return (double)(c->dtype == BSTK_F16 ? bstk__f16_to_f32(half) : bstk__bf16_to_f32(half));
}

/*
 * A weight of f64 for a gradient in f32: rounded, but what is not 0 stays so, and what is finite, since 0 and infinity
 * make something else of an infinite or a zero d_y. Forward multiplies with finite numbers, where rounding is all.
 */
static inline double bstk__norm_factor(double value) {
    const double size = fabs(value);
    const bool keeps = value == 0 || isinf(value) || isnan(value) || (size >= 0x1p-149 && size <= FLT_MAX);
    return keeps ? value : copysign(size < 1 ? 0x1p-149 : FLT_MAX, value);
}

static inline void bstk__norm_store_columns(const bstk__norm_columns *c, int64_t h, int64_t j0, int64_t count,
                                            const double *from) {
    for (int64_t q = 0; q < count; q++) {
        const int64_t at = h * c->h + (j0 + q) * c->col;
        if (c->dtype == BSTK_F64)
            ((double *)c->data)[at] = from[q];
        else if (c->dtype == BSTK_F32)
            ((float *)c->data)[at] = (float)from[q];
        else if (c->dtype == BSTK_F16)
            ((uint16_t *)c->data)[at] = bstk__f32_to_f16((float)from[q]);
        else
            ((uint16_t *)c->data)[at] = bstk__f32_to_bf16((float)from[q]);
    }
}

#endif
