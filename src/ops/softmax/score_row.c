/* score_row.c: what kernels ask of the terms of a score, row by row. Sees pointers and sizes only. */
#include "ops/softmax/score_terms.h"

#include "core/checked.h"
#include "core/half.h"
#include "core/philox.h"

double bstk__term_float(const bstk__term *term, int64_t index) {
    switch (term->dtype) {
    case BSTK_F64:
        return ((const double *)term->data)[index];
    case BSTK_F32:
        return (double)((const float *)term->data)[index];
    case BSTK_F16:
        return (double)bstk__f16_to_f32(((const uint16_t *)term->data)[index]);
    default:
        return (double)bstk__bf16_to_f32(((const uint16_t *)term->data)[index]);
    }
}

int64_t bstk__term_integer(const bstk__term *term, int64_t index) {
    return bstk__load_integer(term->dtype, (const char *)term->data + index * (int64_t)bstk_dtype_size(term->dtype));
}

bool bstk__term_keeps(const bstk__term *term, int64_t index) {
    switch (term->dtype) {
    case BSTK_F64:
        return ((const double *)term->data)[index] != 0;
    case BSTK_F32:
        return ((const float *)term->data)[index] != 0;
    case BSTK_F16:
    case BSTK_BF16:
        return (((const uint16_t *)term->data)[index] & 0x7fffu) != 0;
    default:
        return bstk__term_integer(term, index) != 0;
    }
}

/* Largest s with cu[s] <= i: the sequence of token i (empty sequences have no token). */
static int64_t sequence_of(const bstk__term *cu, int64_t sequences, int64_t i) {
    int64_t low = 0, high = sequences;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (bstk__term_integer(cu, middle * cu->col) <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t cut(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* a + b, or the end of the range that it passes. */
static int64_t add_to_end(int64_t a, int64_t b) {
    int64_t sum;
    return bstk__add(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}

bstk__score_row bstk__score_row_make(const bstk__terms *t, int64_t z, int64_t h, int64_t i) {
    int64_t q_first = 0, q_last = t->m, k_first = 0, k_last = t->n;
    if (t->cu_seqlens_q.data) {
        const int64_t s = sequence_of(&t->cu_seqlens_q, t->sequences, i);
        q_first = bstk__term_integer(&t->cu_seqlens_q, s * t->cu_seqlens_q.col);
        q_last = bstk__term_integer(&t->cu_seqlens_q, (s + 1) * t->cu_seqlens_q.col);
        k_first = bstk__term_integer(&t->cu_seqlens_k, s * t->cu_seqlens_k.col);
        k_last = bstk__term_integer(&t->cu_seqlens_k, (s + 1) * t->cu_seqlens_k.col);
    }
    bstk__score_row row = {.z = z, .h = h, .i = i, .first = k_first, .last = k_last};
    row.rel_origin = i - q_first + k_first;
    /* Offsets and windows may be any 64-bit numbers. They are summed first, as one may undo the other: where that stops
     * at an end of the range, places in the matrix (below 2^62) cannot bring it back. */
    int64_t base = row.rel_origin;
    if (t->bottom_right)
        base += (k_last - k_first) - (q_last - q_first);
    const int64_t offset = t->causal_offset, diagonal = add_to_end(base, offset);
    row.diagonal = cut(diagonal, INT64_MIN / 2, INT64_MAX / 2); /* distances from it fit 64 bits */
    if (t->causal)
        row.last = bstk__min(row.last, cut(add_to_end(diagonal, 1), -1, t->n));
    if (t->window_right >= 0)
        row.last =
            bstk__min(row.last, cut(add_to_end(add_to_end(base, add_to_end(offset, t->window_right)), 1), -1, t->n));
    if (t->window_left >= 0)
        row.first = bstk__max(row.first, cut(add_to_end(base, add_to_end(offset, -t->window_left)), -1, t->n));
    if (t->q_documents.data)
        row.document = bstk__term_integer(&t->q_documents, z * t->q_documents.z + i * t->q_documents.col);
    return row;
}

double bstk__dropout_factor(const bstk__terms *t) {
    return t->dropout <= 0 ? 1 : t->dropout >= 1 ? 0 : 1 / (1 - t->dropout);
}

void bstk__dropout_mask(const bstk__terms *t, int64_t z, int64_t h, int64_t i, int64_t j0, int64_t count,
                        uint8_t *keep) {
    /* Of the 2^32 words the lowest p * 2^32 drop: p = 1 drops all of them. */
    const uint64_t drops = (uint64_t)(t->dropout * 4294967296.0);
    const uint32_t key[2] = {(uint32_t)t->dropout_seed,
                             (uint32_t)(t->dropout_seed >> 32) ^ (uint32_t)(t->dropout_offset >> 32)};
    uint32_t words[4] = {0};
    int64_t have = -1; /* j / 4 of `words` */
    for (int64_t q = 0; q < count; q++) {
        const int64_t j = j0 + q;
        if (j / 4 != have) {
            const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)(z * t->heads + h),
                                         (uint32_t)t->dropout_offset};
            bstk__philox(counter, key, words);
            have = j / 4;
        }
        keep[q] = words[j % 4] >= drops;
    }
}
