/* half.h: f16 and bf16 to f32 and back, round to nearest even, in plain integer C. Leaf. */
#ifndef BSTK_CORE_HALF_H
#define BSTK_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float bstk__bits_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bstk__f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bstk__f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity, NaN with its payload */
        return bstk__bits_f32(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    /* Moved into place, the exponent is 112 too small; the product also makes subnormals right. */
    return bstk__bits_f32(sign | bstk__f32_bits(bstk__bits_f32(rest << 13) * 0x1p112f));
}

static inline uint16_t bstk__f32_to_f16(float value) {
    const uint32_t bits = bstk__f32_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN stays NaN: quiet bit set */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: the sum with 0.5 rounds at the f16 subnormal's last place */
        const uint32_t sum = bstk__f32_bits(bstk__bits_f32(magnitude) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static inline float bstk__bf16_to_f32(uint16_t h) {
    return bstk__bits_f32((uint32_t)h << 16);
}

static inline int bstk__bf16_is_finite(uint16_t h) {
    return (h & 0x7f80u) != 0x7f80u;
}

static inline uint16_t bstk__f32_to_bf16(float value) {
    const uint32_t bits = bstk__f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
