/* softmax_scalar.c: portable softmax for every type. The algorithm is in softmax_scalar.inc, the scores in
 * score_segment.inc. */
#include "core/checked.h"
#include "core/half.h"
#include "core/tensor_view.h"
#include "ops/softmax/softmax_kernel.h"

#include <bstk/layout.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

size_t bstk__softmax_scratch_bytes(const bstk__softmax_args *args, size_t score_size) {
    return (size_t)(args->row_blocks * args->edge) * (score_size + 1);
}

#define SAME(x) (x)

#define SUFFIX f64
#define ACC    double
#define TANH   tanh
#include "ops/softmax/score_segment.inc"
#undef ACC

#define SUFFIX f32
#define ACC    float
#define TANH   tanhf
#include "ops/softmax/score_segment.inc"
#undef ACC

#define SUFFIX        f64_scalar
#define ACC           double
#define SCORE_SEGMENT score_segment_f64
#define VALUE         double
#define LOAD          SAME
#define STORE         SAME
#define EXP           exp
#include "ops/softmax/softmax_scalar.inc"

#define SUFFIX        f32_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define VALUE         float
#define LOAD          SAME
#define STORE         SAME
#define EXP           expf
#include "ops/softmax/softmax_scalar.inc"

#define SUFFIX        f16_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define VALUE         uint16_t
#define LOAD          bstk__f16_to_f32
#define STORE         bstk__f32_to_f16
#define EXP           expf
#include "ops/softmax/softmax_scalar.inc"

#define SUFFIX        bf16_scalar
#define ACC           float
#define SCORE_SEGMENT score_segment_f32
#define VALUE         uint16_t
#define LOAD          bstk__bf16_to_f32
#define STORE         bstk__f32_to_bf16
#define EXP           expf
#include "ops/softmax/softmax_scalar.inc"
