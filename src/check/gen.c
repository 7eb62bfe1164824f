/* gen.c: seeded values in any type and any strides, in watched memory; the judge's own half conversions. */
#include "gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ELEMENTS (INT64_C(1) << 40)
#define BAND         256 /* watched bytes on either side of an array */

/* ---- one element ------------------------------------------------------------------------------------------------- */

/* A binary format of 16 bits: p significant bits, exponents emin = 1 - emax to emax. */
typedef struct format {
    int p, emax;
} format;
static const format f16 = {11, 15}, bf16 = {8, 127};

static double decode(format f, uint16_t bits) {
    const int fraction_bits = f.p - 1, exponent_bits = 16 - f.p;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - f.emax - fraction_bits);
    else
        value = ldexp(fraction + (1 << fraction_bits), exponent - f.emax - fraction_bits);
    return (bits & 0x8000) != 0 ? -value : value;
}

/* Exponent of a finite magnitude, not below that of the smallest normal number. */
static int exponent_of(format f, double magnitude) {
    const int emin = 1 - f.emax;
    return magnitude > 0 && ilogb(magnitude) > emin ? ilogb(magnitude) : emin;
}

static double round_to(format f, double value) {
    if (isnan(value) || isinf(value))
        return value;
    const int shift = f.p - 1 - exponent_of(f, fabs(value));
    const double rounded = ldexp(nearbyint(ldexp(value, shift)), -shift);
    return fabs(rounded) >= ldexp(1, f.emax + 1) ? copysign(INFINITY, value) : rounded;
}

static uint16_t encode(format f, double value) {
    const int sign = signbit(value) ? 0x8000 : 0, infinity = 0x7fff & ~((1 << (f.p - 1)) - 1);
    const double rounded = fabs(round_to(f, value));
    if (isnan(rounded))
        return (uint16_t)(sign | infinity | 1 << (f.p - 2));
    if (isinf(rounded))
        return (uint16_t)(sign | infinity);
    const int exponent = exponent_of(f, rounded);
    const int significand = (int)ldexp(rounded, f.p - 1 - exponent);
    /* The leading 1 of a normal number adds 1 to the exponent field; a subnormal one has none and field 0. */
    return (uint16_t)(sign | (((exponent + f.emax - 1) << (f.p - 1)) + significand));
}

bool gen_is_float(bstk_dtype dtype) {
    return dtype == BSTK_F64 || dtype == BSTK_F32 || dtype == BSTK_F16 || dtype == BSTK_BF16;
}

double gen_load(bstk_dtype dtype, const void *data, int64_t index) {
    switch (dtype) {
    case BSTK_F64:
        return ((const double *)data)[index];
    case BSTK_F32:
        return (double)((const float *)data)[index];
    case BSTK_F16:
        return decode(f16, ((const uint16_t *)data)[index]);
    case BSTK_BF16:
        return decode(bf16, ((const uint16_t *)data)[index]);
    case BSTK_BOOL:
    case BSTK_U8:
        return ((const uint8_t *)data)[index];
    case BSTK_I8:
        return ((const int8_t *)data)[index];
    case BSTK_U16:
        return ((const uint16_t *)data)[index];
    case BSTK_I16:
        return ((const int16_t *)data)[index];
    case BSTK_U32:
        return ((const uint32_t *)data)[index];
    case BSTK_I32:
        return ((const int32_t *)data)[index];
    case BSTK_U64:
        return (double)((const uint64_t *)data)[index];
    case BSTK_I64:
        return (double)((const int64_t *)data)[index];
    }
    return NAN;
}

void gen_store(bstk_dtype dtype, void *data, int64_t index, double value) {
    switch (dtype) {
    case BSTK_F64:
        ((double *)data)[index] = value;
        break;
    case BSTK_F32:
        ((float *)data)[index] = (float)value;
        break;
    case BSTK_F16:
        ((uint16_t *)data)[index] = encode(f16, value);
        break;
    case BSTK_BF16:
        ((uint16_t *)data)[index] = encode(bf16, value);
        break;
    case BSTK_BOOL:
        ((uint8_t *)data)[index] = value != 0;
        break;
    case BSTK_U8:
    case BSTK_I8:
        ((uint8_t *)data)[index] = (uint8_t)(int64_t)value;
        break;
    case BSTK_U16:
    case BSTK_I16:
        ((uint16_t *)data)[index] = (uint16_t)(int64_t)value;
        break;
    case BSTK_U32:
    case BSTK_I32:
        ((uint32_t *)data)[index] = (uint32_t)(int64_t)value;
        break;
    case BSTK_U64:
    case BSTK_I64:
        ((int64_t *)data)[index] = (int64_t)value;
        break;
    }
}

double gen_round(bstk_dtype dtype, double value) {
    switch (dtype) {
    case BSTK_F32:
        return (double)(float)value;
    case BSTK_F16:
        return round_to(f16, value);
    case BSTK_BF16:
        return round_to(bf16, value);
    default:
        return value;
    }
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

uint64_t gen_hash(uint64_t seed, uint64_t counter) {
    /* Fractional bits of sqrt(2), sqrt(3) and sqrt(5), made odd. Each round: a product spreads low bits upwards, a
     * shift brings the high ones back down. */
    uint64_t x = (seed + 1) * UINT64_C(0x6a09e667f3bcc909) + counter * UINT64_C(0xbb67ae8584caa73b);
    for (int round = 0; round < 3; ++round) {
        x ^= x >> 32;
        x *= UINT64_C(0x3c6ef372fe94f82b);
        x ^= x >> 29;
        x *= UINT64_C(0xbb67ae8584caa73b);
    }
    return x ^ x >> 31;
}

double gen_unit(uint64_t seed, uint64_t counter) {
    return (double)(gen_hash(seed, counter) >> 11) * 0x1p-53;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/*
 * Watched bytes: every aligned 2, 4 or 8 of them are a NaN in every floating type (so that a kernel that reads them
 * spoils its result) and differ from place to place (so that one that copies them is seen).
 */
static void fill_watched(unsigned char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
        memory[i] = i % 2 == 1 ? 0xff : (unsigned char)(0xf1 + i / 2 % 14);
}

bool gen_array_make(gen_array *out, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style,
                    uint64_t seed) {
    int order[BSTK_MAX_NDIM]; /* axes, innermost in memory first */
    for (int i = 0; i < ndim; ++i)
        order[i] = ndim - 1 - i;
    if (style == GEN_TRANSPOSED && ndim >= 2) {
        order[0] = ndim - 2;
        order[1] = ndim - 1;
    }
    for (int i = ndim - 1; i > 0 && style == GEN_SHUFFLED; --i) {
        const int j = (int)(gen_hash(seed, (uint64_t)i) % (uint64_t)(i + 1)), axis = order[i];
        order[i] = order[j];
        order[j] = axis;
    }
    out->t = bstk_tensor_make(NULL, dtype, ndim, shape);
    int64_t span = style == GEN_SPREAD ? 3 : 1, start = 0;
    bool empty = false;
    for (int i = 0; i < ndim; ++i) {
        const int axis = order[i];
        const int64_t size = shape[axis];
        if (style == (axis == 0 ? GEN_ZERO_FIRST : GEN_ZERO_SECOND) && axis < 2) {
            out->t.stride[axis] = 0;
            continue;
        }
        const uint64_t draw = gen_hash(seed, 16 + (uint64_t)i);
        const bool backwards = style == GEN_NEGATIVE || (style == GEN_SHUFFLED && draw % 2 == 1);
        empty = empty || size == 0;
        out->t.stride[axis] = backwards ? -span : span;
        if (backwards && size > 0)
            start += (size - 1) * span;
        if (size > 1 && span > MAX_ELEMENTS / size)
            return false;
        span *= size > 1 ? size : 1;
        if (style != GEN_CONTIGUOUS && style != GEN_TRANSPOSED)
            span += 1 + (int64_t)(draw >> 8) % 7;
    }
    const size_t item = bstk_dtype_size(dtype);
    if (empty)
        span = start = 0;
    /* Arrays other than contiguous ones start one element past an aligned address. */
    const size_t before = BAND + (style == GEN_CONTIGUOUS ? 0 : item);
    out->bytes = (before + (size_t)span * item + BAND + 63) / 64 * 64;
    out->memory = aligned_alloc(64, out->bytes);
    if (out->memory == NULL)
        return false;
    fill_watched(out->memory, out->bytes);
    out->t.data = out->memory + before + (size_t)start * item;
    return true;
}

void gen_array_free(gen_array *array) {
    free(array->memory);
    memset(array, 0, sizeof *array);
}

int64_t gen_count(const bstk_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->ndim; ++i)
        count *= t->shape[i];
    return count;
}

int64_t gen_offset(const bstk_tensor *t, int64_t linear) {
    int64_t offset = 0;
    for (int i = t->ndim - 1; i >= 0; --i) {
        offset += linear % t->shape[i] * t->stride[i];
        linear /= t->shape[i];
    }
    return offset;
}

/* Offset of element i, given that of element i - 1: one addition inside a row, since this runs for every element. */
static int64_t next_offset(const bstk_tensor *t, int64_t i, int64_t previous) {
    return i % t->shape[t->ndim - 1] == 0 ? gen_offset(t, i) : previous + t->stride[t->ndim - 1];
}

static double special_value(bstk_dtype dtype, uint64_t seed, uint64_t index) {
    static const double tiny[] = {
        [BSTK_F64] = 0x1p-1074, [BSTK_F32] = 0x1p-149, [BSTK_F16] = 0x1p-24, [BSTK_BF16] = 0x1p-133};
    const uint64_t draw = gen_hash(seed + 1, index) % 512; /* rare enough to leave most rows of a product finite */
    const double uniform = 2 * gen_unit(seed, index) - 1;
    if (draw < 2)
        return draw == 0 ? INFINITY : -INFINITY;
    if (draw == 2)
        return NAN;
    if (draw < 16)
        return draw % 2 == 0 ? 0.0 : -0.0;
    return draw < 32 ? copysign(tiny[dtype] * (double)(draw - 15), uniform) : uniform;
}

void gen_fill(const bstk_tensor *t, gen_values values, uint64_t seed) {
    const int64_t count = gen_count(t);
    int64_t offset = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t index = (uint64_t)i;
        offset = next_offset(t, i, offset);
        double value = 0;
        switch (values) {
        case GEN_UNIFORM:
            value = 2 * gen_unit(seed, index) - 1;
            break;
        case GEN_INTEGERS:
            value = (double)(gen_hash(seed, index) % 9) - 4;
            break;
        case GEN_NANS:
            value = NAN;
            break;
        case GEN_SPECIAL:
            value = special_value(t->dtype, seed, index);
            break;
        case GEN_ZEROS:
            break;
        }
        gen_store(t->dtype, t->data, offset, value);
    }
}

double *gen_doubles(const bstk_tensor *t) {
    const int64_t count = gen_count(t);
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    int64_t offset = 0;
    for (int64_t i = 0; values != NULL && i < count; ++i) {
        offset = next_offset(t, i, offset);
        values[i] = gen_load(t->dtype, t->data, offset);
    }
    return values;
}

/* ---- watching memory --------------------------------------------------------------------------------------------- */

unsigned char *gen_snapshot(const gen_array *array) {
    unsigned char *copy = malloc(array->bytes + 1);
    if (copy != NULL && array->bytes > 0)
        memcpy(copy, array->memory, array->bytes);
    return copy;
}

bool gen_unchanged(const gen_array *array, const unsigned char *snapshot) {
    return array->bytes == 0 || memcmp(array->memory, snapshot, array->bytes) == 0;
}

bool gen_gaps_unchanged(const gen_array *array, const unsigned char *snapshot) {
    /* Put the elements of now into a copy of then: what still differs lies between or around them. */
    unsigned char *copy = malloc(array->bytes + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, snapshot, array->bytes);
    const size_t item = bstk_dtype_size(array->t.dtype);
    const int64_t count = gen_count(&array->t);
    int64_t offset = 0;
    for (int64_t i = 0; i < count; ++i) {
        offset = next_offset(&array->t, i, offset);
        const ptrdiff_t at = (const unsigned char *)array->t.data - array->memory + (ptrdiff_t)offset * (ptrdiff_t)item;
        memcpy(copy + at, array->memory + at, item);
    }
    const bool same = memcmp(copy, array->memory, array->bytes) == 0;
    free(copy);
    return same;
}
