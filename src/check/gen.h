/*
 * gen.h: test data: seeded values in any type and any strides, inside memory whose every other byte is watched.
 *
 * Conversions between double and the 16-bit types are written here once more, in the plainest way, because the judge
 * must not share them with the library it judges.
 */
#ifndef BSTK_CHECK_GEN_H
#define BSTK_CHECK_GEN_H

#include <bstk/tensor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- one element ------------------------------------------------------------------------------------------------- */

/* Element `index` (in elements from `data`) as a double; exact for every type but integers beyond 2^53. */
double gen_load(bstk_dtype dtype, const void *data, int64_t index);

/* Stores `value` rounded to nearest even; integers are truncated, bool stores value != 0. */
void gen_store(bstk_dtype dtype, void *data, int64_t index, double value);

/* `value` rounded to nearest even in a floating type. */
double gen_round(bstk_dtype dtype, double value);

bool gen_is_float(bstk_dtype dtype);

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Number `counter` of stream `seed`: 64 even bits, the same on every platform. */
uint64_t gen_hash(uint64_t seed, uint64_t counter);

/* The same as a double in [0, 1). */
double gen_unit(uint64_t seed, uint64_t counter);

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* How an array lies in memory. The last two are for inputs only: one element serves a whole axis. */
typedef enum gen_style {
    GEN_CONTIGUOUS,
    GEN_PADDED,                  /* gaps after each row, matrix and so on; the last axis dense */
    GEN_TRANSPOSED,              /* the last two axes swapped in memory */
    GEN_SPREAD,                  /* gaps between elements too: no axis of stride 1 */
    GEN_NEGATIVE,                /* every axis runs backwards */
    GEN_SHUFFLED,                /* axes in any order, gaps and directions by seed */
    GEN_STYLES,                  /* number of styles above */
    GEN_ZERO_FIRST = GEN_STYLES, /* stride 0 along axis 0 */
    GEN_ZERO_SECOND              /* stride 0 along axis 1 */
} gen_style;

typedef struct gen_array {
    bstk_tensor t;
    unsigned char *memory; /* NULL: no array */
    size_t bytes;          /* with a guard band on both sides and the gaps of the strides */
} gen_array;

/* Memory full of a watched pattern, no values yet. False when memory is out or a size overflows. */
bool gen_array_make(gen_array *out, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style,
                    uint64_t seed);
void gen_array_free(gen_array *array); /* also of a zeroed struct */

/* Number of elements of a tensor. */
int64_t gen_count(const bstk_tensor *t);

/* Position, in elements from t->data, of element `linear` in row-major order of the shape. */
int64_t gen_offset(const bstk_tensor *t, int64_t linear);

/* Elements along the last axis; 1 without axes. */
int64_t gen_width(const bstk_tensor *t);

typedef enum gen_values {
    GEN_UNIFORM,  /* [-1, 1) */
    GEN_INTEGERS, /* -4, -3, ... 4 */
    GEN_ZEROS,
    GEN_NANS,   /* floating types only */
    GEN_SPECIAL /* uniform with a few infinities, NaN, zeros of both signs, and subnormals */
} gen_values;

void gen_fill(const bstk_tensor *t, gen_values values, uint64_t seed);

/* The gen_width() elements from `row` on, which is a multiple of that. */
void gen_read_row(const bstk_tensor *t, int64_t row, double *out);

/* All elements as doubles in row-major order; free() it. NULL without memory (never for an empty tensor). */
double *gen_doubles(const bstk_tensor *t);

/* ---- watching memory --------------------------------------------------------------------------------------------- */

/* A copy of the bytes of an array, to compare with later; free() it. NULL without memory. */
unsigned char *gen_snapshot(const gen_array *array);

/* True when no byte changed since the snapshot. */
bool gen_unchanged(const gen_array *array, const unsigned char *snapshot);

/* True when no byte outside the elements changed since the snapshot: guard bands and gaps of the strides. */
bool gen_gaps_unchanged(const gen_array *array, const unsigned char *snapshot);

#endif
