/* attention_grad_vec.h: what the vector kernels of the gradient of attention share; see attention_grad_vec.inc. */
#ifndef BSTK_ATTENTION_GRAD_VEC_H
#define BSTK_ATTENTION_GRAD_VEC_H

#include "core/half.h"
#include "ops/attention/attention_kernel.h"
#include "ops/attention/attention_vec.h"

#include <bstk/layout.h>

#include <float.h>
#include <math.h>
#include <string.h>

/*
 * Blocks longer than PIECE go in pieces. A panel is PANEL rows by PANEL columns, of whole pieces: products of
 * weights then have chains of up to PANEL steps, and q, d_o, k, v, their gradients and ds stay in a cache of 1 MiB.
 */
enum { PIECE = 64, PANEL = 128, SLOTS = PANEL / 8, TILE = BSTK__ATTENTION_TILE };

static const double LOG2E = 1.4426950408889634074;

/* Rows or columns [at, at + count), all within one block. */
typedef struct bstk__grad_piece {
    int64_t at, count;
} bstk__grad_piece;

/* The next piece of a block column: piece `part` of its entry `n`. */
typedef struct bstk__grad_cursor {
    int64_t n, last, part;
} bstk__grad_cursor;

/* A piece of a block: its rows [first, last), counted from the piece's, keep something. */
typedef struct bstk__grad_block {
    int64_t index; /* -1: none */
    int64_t first, last;
    bool whole; /* all of these rows keep all of the columns, and have no terms */
} bstk__grad_block;

/* Columns that a row keeps. */
typedef struct bstk__grad_interval {
    int64_t first, last;
} bstk__grad_interval;

/* Elements of a worker's arrays. */
typedef struct bstk__grad_sizes {
    int64_t pieces;               /* of a block, along one edge */
    int64_t slots;                /* pieces of a panel */
    int64_t piece, width;         /* edge of a piece, and in whole vectors */
    int64_t d, dv;                /* head sizes in whole vectors */
    int64_t tile, rows_q, rows_v; /* weights of a piece, rows of q (or k), of v (or d_o) of one */
} bstk__grad_sizes;

static inline bstk__grad_sizes bstk__grad_sizes_of(const bstk__attention_grad_args *g, int64_t lanes) {
    bstk__grad_sizes s = {.pieces = bstk__ceil_div(g->edge, PIECE),
                          .piece = bstk__min(g->edge, PIECE),
                          .d = bstk__ceil_div(g->d, BSTK__ATTENTION_ROOM) * BSTK__ATTENTION_ROOM,
                          .dv = bstk__ceil_div(g->dv, BSTK__ATTENTION_ROOM) * BSTK__ATTENTION_ROOM};
    s.slots = PANEL / s.piece;
    s.width = bstk__ceil_div(s.piece, lanes) * lanes;
    s.tile = s.piece * s.width;
    s.rows_q = s.width * s.d;
    s.rows_v = s.width * s.dv;
    return s;
}

/* Rows (of `size`) or columns of piece `part` of block row or column `line`; count 0: past the edge. */
static inline bstk__grad_piece bstk__grad_piece_of(const bstk__attention_grad_args *g, int64_t line, int64_t part,
                                                   int64_t size) {
    const int64_t at = line * g->edge + part * PIECE;
    return (bstk__grad_piece){at, bstk__max(0, bstk__min(bstk__min(PIECE, g->edge - part * PIECE), size - at))};
}

static inline bool bstk__grad_has_intervals(const bstk__terms *t) {
    return t->causal || t->window_left >= 0 || t->window_right >= 0 || t->sequences >= 0; /* data is not there yet */
}

#endif
