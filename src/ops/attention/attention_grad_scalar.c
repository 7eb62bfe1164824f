/* attention_grad_scalar.c: portable gradient of attention for every type. The algorithm is in
 * attention_grad_scalar.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "core/tensor_view.h"
#include "ops/attention/attention_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { TILE = BSTK__ATTENTION_TILE, PART = BSTK__ATTENTION_PART, DIAGONALS = BSTK__ATTENTION_DIAGONALS };

/* Elements of the tiles of one worker; see tiles_of in attention_grad_scalar.inc. */
typedef struct tile_sizes {
    int64_t side, d, dv;     /* longest side of a tile, head sizes rounded up to 8 */
    int64_t rows, sums;      /* rows of q and d_o held at once; doubles of a term's sums */
    int64_t weights, k, d_q; /* elements of w and ds each, of rows of k, of sums of d_q or d_k; d_v has one too */
    int64_t d_v;
} tile_sizes;

static tile_sizes sizes_of(const bstk__attention_grad_args *g) {
    tile_sizes s = {
        .side = bstk__min(TILE, g->edge), .d = bstk__ceil_div(g->d, 8) * 8, .dv = bstk__ceil_div(g->dv, 8) * 8};
    const bool rows = g->pass == BSTK__ATTENTION_ROWS, columns = g->pass == BSTK__ATTENTION_COLUMNS;
    s.rows = rows || columns ? s.side : PART;
    s.weights = columns ? s.side * TILE : PART * TILE;
    s.k = rows ? s.side * s.d : 0;
    s.d_q = rows || columns ? s.side * s.d : 0;
    s.d_v = columns ? s.side * s.dv : 0;
    s.sums = columns                                     ? TILE
             : g->pass == BSTK__ATTENTION_TERM_DIAGONALS ? DIAGONALS
             : g->pass == BSTK__ATTENTION_TERM_ROWS      ? g->term.columns
                                                         : 0;
    return s;
}

bool bstk__attention_grad_scratch_bytes(const bstk__attention_grad_args *args, int64_t element, int64_t *bytes) {
    const tile_sizes s = sizes_of(args);
    const int64_t tiles = s.side * (args->d + args->dv) + s.rows * (s.d + s.dv) + 2 * s.weights + s.k + s.d_q + s.d_v;
    int64_t sums;
    *bytes = 0;
    if (args->pass == BSTK__ATTENTION_DELTA || args->pass == BSTK__ATTENTION_SINKS ||
        args->pass == BSTK__ATTENTION_JOIN)
        return true;
    return bstk__mul(s.sums, args->pass == BSTK__ATTENTION_TERM_ROWS ? PART : 1, &sums) &&
           bstk__mul(sums, sizeof(double), &sums) && bstk__add(sums, tiles * element, bytes);
}

#include "ops/attention/attention_exp.inc"
#include "ops/attention/attention_grad_store.inc"

#define SAME(x) (x)

#define SUFFIX f64
#define ACC    double
#define TANH   tanh
#include "ops/softmax/score_segment.inc"
#define SUFFIX f64
#include "ops/attention/attention_tile.inc"
#undef ACC

#define SUFFIX f32
#define ACC    float
#define TANH   tanhf
#include "ops/softmax/score_segment.inc"
#define SUFFIX f32
#include "ops/attention/attention_tile.inc"
#undef ACC

#define SUFFIX        f64_scalar
#define ACC           double
#define SCORE_SEGMENT score_segment_f64
#define TILE_ADD      tile_add_f64
#define TILE_SELECTED tile_add_selected_f64
#define VALUE         double
#define LOAD          SAME
#define STORE         SAME
#define EXP           exp
#include "ops/attention/attention_grad_scalar.inc"

#define SUFFIX        f32_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define TILE_ADD      tile_add_f32
#define TILE_SELECTED tile_add_selected_f32
#define VALUE         float
#define LOAD          SAME
#define STORE         SAME
#define EXP           exp_of_f32
#include "ops/attention/attention_grad_scalar.inc"

#define SUFFIX        f16_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define TILE_ADD      tile_add_f32
#define TILE_SELECTED tile_add_selected_f32
#define VALUE         uint16_t
#define LOAD          bstk__f16_to_f32
#define STORE         bstk__f32_to_f16
#define EXP           exp_of_f32
#include "ops/attention/attention_grad_scalar.inc"

#define SUFFIX        bf16_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define TILE_ADD      tile_add_f32
#define TILE_SELECTED tile_add_selected_f32
#define VALUE         uint16_t
#define LOAD          bstk__bf16_to_f32
#define STORE         bstk__f32_to_bf16
#define EXP           exp_of_f32
#include "ops/attention/attention_grad_scalar.inc"
