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

/* 2^n for n from -1022 to 1023. */
static double power(int n) {
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double decode(format f, uint16_t bits) {
    const int fraction_bits = f.p - 1, exponent_bits = 16 - f.p;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        value = fraction * power(1 - f.emax - fraction_bits);
    else
        value = (fraction + (1 << fraction_bits)) * power(exponent - f.emax - fraction_bits);
    return (bits & 0x8000) != 0 ? -value : value;
}

/* Exponent of a finite magnitude, not below that of the smallest normal number. */
static int exponent_of(format f, double magnitude) {
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    const int exponent = (int)(bits >> 52) - 1023, emin = 1 - f.emax;
    return exponent > emin ? exponent : emin;
}

static double round_to(format f, double value) {
    if (!isfinite(value))
        return value;
    /* Scaled so that the last place is 1; adding 1.5 * 2^52 leaves no room for a fraction. */
    const int shift = f.p - 1 - exponent_of(f, fabs(value));
    const double scaled = fabs(value) * power(shift), rounded = ((scaled + 0x1.8p52) - 0x1.8p52) * power(-shift);
    return copysign(rounded >= power(f.emax) * 2 ? INFINITY : rounded, value);
}

static uint16_t encode(format f, double value) {
    const int sign = signbit(value) ? 0x8000 : 0, infinity = 0x7fff & ~((1 << (f.p - 1)) - 1);
    const double rounded = fabs(round_to(f, value));
    if (isnan(rounded))
        return (uint16_t)(sign | infinity | 1 << (f.p - 2));
    if (isinf(rounded))
        return (uint16_t)(sign | infinity);
    const int exponent = exponent_of(f, rounded);
    const int significand = (int)(rounded * power(f.p - 1 - exponent));
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
    enum { PERIOD = 28 };
    for (size_t i = 0; i < bytes && i < PERIOD; ++i)
        memory[i] = i % 2 == 1 ? 0xff : (unsigned char)(0xf1 + i / 2);
    for (size_t done = PERIOD; done < bytes; done *= 2)
        memcpy(memory + done, memory, done < bytes - done ? done : bytes - done);
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

int64_t gen_width(const bstk_tensor *t) {
    return t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
}

/* Elements of a row are this far apart. */
static int64_t step_of(const bstk_tensor *t) {
    return t->ndim > 0 ? t->stride[t->ndim - 1] : 0;
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

static double value_of(bstk_dtype dtype, gen_values values, uint64_t seed, uint64_t index) {
    switch (values) {
    case GEN_UNIFORM:
        return 2 * gen_unit(seed, index) - 1;
    case GEN_INTEGERS:
        return (double)(gen_hash(seed, index) % 9) - 4;
    case GEN_NANS:
        return NAN;
    case GEN_SPECIAL:
        return special_value(dtype, seed, index);
    case GEN_ZEROS:
        break;
    }
    return 0;
}

void gen_fill(const bstk_tensor *t, gen_values values, uint64_t seed) {
    const int64_t count = gen_count(t), width = gen_width(t), step = step_of(t);
    for (int64_t row = 0; row < count; row += width) {
        const int64_t start = gen_offset(t, row);
        for (int64_t c = 0; c < width; ++c)
            gen_store(t->dtype, t->data, start + c * step, value_of(t->dtype, values, seed, (uint64_t)(row + c)));
    }
}

void gen_read_row(const bstk_tensor *t, int64_t row, double *out) {
    const int64_t start = gen_offset(t, row), width = gen_width(t), step = step_of(t);
    for (int64_t c = 0; c < width; ++c)
        out[c] = gen_load(t->dtype, t->data, start + c * step);
}

double *gen_doubles(const bstk_tensor *t) {
    const int64_t count = gen_count(t), width = gen_width(t);
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    for (int64_t row = 0; values != NULL && row < count; row += width)
        gen_read_row(t, row, values + row);
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

/* True when the elements fill one stretch of memory without a gap: then [*first, *first + bytes) of `memory`. */
static bool is_solid(const gen_array *array, size_t *first) {
    const bstk_tensor *t = &array->t;
    const int64_t count = gen_count(t);
    int64_t low = 0, high = 0; /* offsets of the lowest and highest element */
    for (int axis = 0; axis < t->ndim && count > 0; ++axis) {
        const int64_t reach = (t->shape[axis] - 1) * t->stride[axis];
        *(reach < 0 ? &low : &high) += reach;
    }
    *first = (size_t)((const unsigned char *)t->data - array->memory + low * (int64_t)bstk_dtype_size(t->dtype));
    return count == 0 || high - low + 1 == count;
}

bool gen_gaps_unchanged(const gen_array *array, const unsigned char *snapshot) {
    const bstk_tensor *t = &array->t;
    const size_t item = bstk_dtype_size(t->dtype);
    const int64_t count = gen_count(t), width = gen_width(t), step = step_of(t);
    size_t first;
    if (is_solid(array, &first)) {
        const size_t end = first + (size_t)count * item;
        return memcmp(array->memory, snapshot, first) == 0 &&
               memcmp(array->memory + end, snapshot + end, array->bytes - end) == 0;
    }
    /* Put the elements of now into a copy of then: what still differs lies between or around them. */
    unsigned char *copy = malloc(array->bytes + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, snapshot, array->bytes);
    for (int64_t row = 0; row < count; row += width) {
        ptrdiff_t at = (const unsigned char *)t->data - array->memory + (ptrdiff_t)(gen_offset(t, row) * (int64_t)item);
        if (step == 1) {
            memcpy(copy + at, array->memory + at, (size_t)width * item);
            continue;
        }
        for (int64_t c = 0; c < width; ++c, at += (ptrdiff_t)(step * (int64_t)item)) {
            for (size_t byte = 0; byte < item; ++byte)
                copy[at + (ptrdiff_t)byte] = array->memory[at + (ptrdiff_t)byte];
        }
    }
    const bool same = memcmp(copy, array->memory, array->bytes) == 0;
    free(copy);
    return same;
}
