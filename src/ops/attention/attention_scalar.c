/* attention_scalar.c: portable fused attention for every type. The algorithm is in attention_scalar.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "core/tensor_view.h"
#include "ops/attention/attention_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { TILE = BSTK__ATTENTION_TILE, PART = BSTK__ATTENTION_PART };

size_t bstk__attention_scratch_bytes(const bstk__attention_args *args, size_t element) {
    const int64_t side = bstk__min(TILE, args->edge), padded = bstk__ceil_div(args->dv, 8) * 8;
    return (size_t)(2 * side * (args->d + padded)) * element;
}

#include "ops/attention/attention_exp.inc"

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
#include "ops/attention/attention_scalar.inc"

#define SUFFIX        f32_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define TILE_ADD      tile_add_f32
#define TILE_SELECTED tile_add_selected_f32
#define VALUE         float
#define LOAD          SAME
#define STORE         SAME
#define EXP           exp_of_f32
#include "ops/attention/attention_scalar.inc"

#define SUFFIX        f16_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define TILE_ADD      tile_add_f32
#define TILE_SELECTED tile_add_selected_f32
#define VALUE         uint16_t
#define LOAD          bstk__f16_to_f32
#define STORE         bstk__f32_to_f16
#define EXP           exp_of_f32
#include "ops/attention/attention_scalar.inc"

#define SUFFIX        bf16_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define TILE_ADD      tile_add_f32
#define TILE_SELECTED tile_add_selected_f32
#define VALUE         uint16_t
#define LOAD          bstk__bf16_to_f32
#define STORE         bstk__f32_to_bf16
#define EXP           exp_of_f32
#include "ops/attention/attention_scalar.inc"
