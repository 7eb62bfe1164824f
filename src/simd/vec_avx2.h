/*
 * vec_avx2.h: vectors of 256 bits for the kernels' bodies: vf of 8 floats, vd of 4 doubles, with the names of
 * vec_avx512.h. Include it only from files compiled with AVX2, FMA and F16C.
 *
 * get_TYPE(p, n) reads the first n of a vector's elements and converts them; the rest are 0 and their memory is not
 * touched. put_TYPE(p, n, v) writes the first n, rounded to nearest even. n is 1 to LANES.
 */
#ifndef BSTK_SIMD_VEC_AVX2_H
#define BSTK_SIMD_VEC_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef __m256 vf;
typedef __m256d vd;

enum { vf_LANES = 8, vd_LANES = 4 };

static inline __m256i vf_first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline __m256i vd_first(int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}

static inline vf vf_zero(void) {
    return _mm256_setzero_ps();
}
static inline vf vf_all(float x) {
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}
/* A vector of two halves, and its halves to two places. */
static inline vf vf_halves(const float *low, const float *high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}
static inline void vf_put_halves(float *low, float *high, vf v) {
    _mm_storeu_ps(low, _mm256_castps256_ps128(v));
    _mm_storeu_ps(high, _mm256_extractf128_ps(v, 1));
}
static inline vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf sum) {
    return _mm256_fmadd_ps(a, b, sum);
}
/* sum + a * b where a is not 0 */
static inline vf vf_fma_nonzero(vf a, vf b, vf sum) {
    const vf there = _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    return _mm256_blendv_ps(sum, _mm256_fmadd_ps(a, b, sum), there);
}

/* ---- masks, comparisons, reductions --------------------------------------------------------------------------------
 */

typedef __m256 vf_mask; /* all bits of a lane, or none */

static inline vf_mask vf_less(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vf_mask vf_equal(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
static inline vf_mask vf_both(vf_mask a, vf_mask b) {
    return _mm256_and_ps(a, b);
}
static inline vf_mask vf_not(vf_mask a) {
    return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
}
static inline int vf_any(vf_mask m) {
    return _mm256_movemask_ps(m) != 0;
}
static inline vf_mask vf_flags(const uint8_t *p, int64_t n) {
    uint64_t bytes = 0;
    memcpy(&bytes, p, (size_t)n);
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()));
}
static inline vf vf_choose(vf_mask m, vf a, vf b) {
    return _mm256_blendv_ps(b, a, m);
}
static inline vf vf_keep(vf_mask m, vf a) {
    return _mm256_and_ps(m, a);
}
static inline vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
static inline vf vf_sqrt(vf a) {
    return _mm256_sqrt_ps(a);
}
static inline vf vf_abs(vf a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.f), a);
}
/* out[i] = the sum of v[i], or the largest. */
#define OF_EIGHT(name, one, OP, OP4)                                                                                   \
    static inline void name(const vf v[8], float out[8]) {                                                             \
        __m256 h[4];                                                                                                   \
        for (int i = 0; i < 4; i++)                                                                                    \
            h[i] = OP(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));         \
        for (int i = 0; i < 2; i++)                                                                                    \
            h[i] =                                                                                                     \
                OP(_mm256_shuffle_ps(h[2 * i], h[2 * i + 1], 0x44), _mm256_shuffle_ps(h[2 * i], h[2 * i + 1], 0xee));  \
        const __m256 low = _mm256_permute2f128_ps(h[0], h[1], 0x20), high = _mm256_permute2f128_ps(h[0], h[1], 0x31);  \
        _mm256_storeu_ps(out, OP(low, high));                                                                          \
    }                                                                                                                  \
    static inline float one(vf a) {                                                                                    \
        const __m128 four = OP4(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));                               \
        const __m128 two = OP4(four, _mm_movehl_ps(four, four));                                                       \
        return _mm_cvtss_f32(OP4(two, _mm_shuffle_ps(two, two, 1)));                                                   \
    }
OF_EIGHT(vf_sums, vf_sum, _mm256_add_ps, _mm_add_ps)
OF_EIGHT(vf_tops, vf_top, _mm256_max_ps, _mm_max_ps)
#undef OF_EIGHT

/* ---- exponentials --------------------------------------------------------------------------------------------------
 */

static inline vf vf_floor(vf x) {
    return _mm256_floor_ps(x);
}
/* p * 2^n for integers n and p from 1 to 2; 0 below 2^-126, infinite from 2^128 on. */
static inline vf vf_scale2(vf p, vf n) {
    const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const vf scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
    const vf some = vf_keep(vf_not(vf_less(n, vf_all(-126))), scaled);
    return vf_choose(vf_less(vf_all(127), n), vf_all(INFINITY), some);
}
/* Infinities would leave a NaN: to where scale2 gives the same result. */
static inline vf vf_split2(vf x, vf *n) {
    x = vf_max(vf_all(-200), vf_min(vf_all(200), x));
    *n = _mm256_floor_ps(x);
    return vf_sub(x, *n);
}

/* ---- loads and stores ----------------------------------------------------------------------------------------------
 */

static inline vf vf_get_f32(const float *p, int64_t n) {
    return n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_first(n));
}
static inline void vf_put_f32(float *p, int64_t n, vf v) {
    if (n == 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, vf_first(n), v);
}

/* There are no masks for 16 bits: tails go through memory. */
static inline __m128i vf_get_16(const uint16_t *p, int64_t n) {
    if (n == 8)
        return _mm_loadu_si128((const __m128i *)p);
    uint16_t line[8] = {0};
    memcpy(line, p, (size_t)n * sizeof *line);
    return _mm_loadu_si128((const __m128i *)line);
}
static inline void vf_put_16(uint16_t *p, int64_t n, __m128i v) {
    if (n == 8) {
        _mm_storeu_si128((__m128i *)p, v);
        return;
    }
    uint16_t line[8];
    _mm_storeu_si128((__m128i *)line, v);
    memcpy(p, line, (size_t)n * sizeof *line);
}

static inline vf vf_get_f16(const uint16_t *p, int64_t n) {
    return _mm256_cvtph_ps(vf_get_16(p, n));
}
static inline void vf_put_f16(uint16_t *p, int64_t n, vf v) {
    vf_put_16(p, n, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_get_bf16(const uint16_t *p, int64_t n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vf_get_16(p, n)), 16));
}
/* Adds half of the last place less one, and one more when the last bit is odd; a NaN keeps its top bits, made quiet. */
static inline void vf_put_bf16(uint16_t *p, int64_t n, vf v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    vf_put_16(p, n, _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}

/* Transposes 8 x 8: pairs of rows, then of pairs, then the halves. */
static inline void vf_transpose(vf r[8]) {
    vf t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0x44);
            r[i + 2 * k + 1] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0xee);
        }
    /* r[4q + c] now has columns c and c + 4 of the rows 4q to 4q + 3, one a half. */
    for (int c = 0; c < 4; c++) {
        t[c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x20);
        t[4 + c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x31);
    }
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

static inline vd vd_zero(void) {
    return _mm256_setzero_pd();
}
static inline vd vd_all(double x) {
    return _mm256_set1_pd(x);
}
static inline vd vd_load(const double *p) {
    return _mm256_loadu_pd(p);
}
static inline void vd_store(double *p, vd v) {
    _mm256_storeu_pd(p, v);
}
static inline vd vd_add(vd a, vd b) {
    return _mm256_add_pd(a, b);
}
static inline vd vd_mul(vd a, vd b) {
    return _mm256_mul_pd(a, b);
}
static inline vd vd_fma(vd a, vd b, vd sum) {
    return _mm256_fmadd_pd(a, b, sum);
}
static inline vd vd_fma_nonzero(vd a, vd b, vd sum) {
    const vd there = _mm256_cmp_pd(a, _mm256_setzero_pd(), _CMP_NEQ_UQ);
    return _mm256_blendv_pd(sum, _mm256_fmadd_pd(a, b, sum), there);
}
typedef __m256d vd_mask;

static inline vd_mask vd_less(vd a, vd b) {
    return _mm256_cmp_pd(a, b, _CMP_LT_OQ);
}
static inline vd_mask vd_equal(vd a, vd b) {
    return _mm256_cmp_pd(a, b, _CMP_EQ_OQ);
}
static inline vd_mask vd_both(vd_mask a, vd_mask b) {
    return _mm256_and_pd(a, b);
}
static inline vd_mask vd_not(vd_mask a) {
    return _mm256_xor_pd(a, _mm256_castsi256_pd(_mm256_set1_epi32(-1)));
}
static inline int vd_any(vd_mask m) {
    return _mm256_movemask_pd(m) != 0;
}
static inline vd_mask vd_flags(const uint8_t *p, int64_t n) {
    uint32_t bytes = 0;
    memcpy(&bytes, p, (size_t)n);
    const __m256i wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128((int32_t)bytes));
    return _mm256_castsi256_pd(_mm256_cmpgt_epi64(wide, _mm256_setzero_si256()));
}
static inline vd vd_choose(vd_mask m, vd a, vd b) {
    return _mm256_blendv_pd(b, a, m);
}
static inline vd vd_keep(vd_mask m, vd a) {
    return _mm256_and_pd(m, a);
}
static inline vd vd_max(vd a, vd b) {
    return _mm256_max_pd(a, b);
}
static inline vd vd_min(vd a, vd b) {
    return _mm256_min_pd(a, b);
}
static inline vd vd_sub(vd a, vd b) {
    return _mm256_sub_pd(a, b);
}
static inline vd vd_div(vd a, vd b) {
    return _mm256_div_pd(a, b);
}
static inline vd vd_sqrt(vd a) {
    return _mm256_sqrt_pd(a);
}
static inline vd vd_abs(vd a) {
    return _mm256_andnot_pd(_mm256_set1_pd(-0.), a);
}
static inline double vd_sum(vd a) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
static inline double vd_top(vd a) {
    const __m128d two = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_max_sd(two, _mm_unpackhi_pd(two, two)));
}
static inline void vd_sums(const vd v[8], double out[8]) {
    for (int i = 0; i < 8; i++)
        out[i] = vd_sum(v[i]);
}
static inline void vd_tops(const vd v[8], double out[8]) {
    for (int i = 0; i < 8; i++)
        out[i] = vd_top(v[i]);
}
static inline vd vd_floor(vd x) {
    return _mm256_floor_pd(x);
}
/* As vf_scale2, below 2^-1022 and from 2^1024 on. Adding 1.5 * 2^52 leaves n in the low bits. */
static inline vd vd_scale2(vd p, vd n) {
    const __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(vd_add(n, vd_all(0x1.8p52))), 52);
    const vd scaled = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), power));
    const vd some = vd_keep(vd_not(vd_less(n, vd_all(-1022))), scaled);
    return vd_choose(vd_less(vd_all(1023), n), vd_all(INFINITY), some);
}
static inline vd vd_split2(vd x, vd *n) {
    x = vd_max(vd_all(-1100), vd_min(vd_all(1100), x));
    *n = _mm256_floor_pd(x);
    return vd_sub(x, *n);
}
static inline vd vd_low(vf a) {
    return _mm256_cvtps_pd(_mm256_castps256_ps128(a));
}
static inline vd vd_high(vf a) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
}
static inline vd vd_get_f32(const float *p, int64_t n) {
    return _mm256_cvtps_pd(n == 4 ? _mm_loadu_ps(p) : _mm_maskload_ps(p, _mm256_castsi256_si128(vf_first(n))));
}
static inline __m128i vd_get_16(const uint16_t *p, int64_t n) {
    if (n == 4)
        return _mm_loadl_epi64((const __m128i *)p);
    uint16_t line[4] = {0};
    memcpy(line, p, (size_t)n * sizeof *line);
    return _mm_loadl_epi64((const __m128i *)line);
}
static inline vd vd_get_f16(const uint16_t *p, int64_t n) {
    return _mm256_cvtps_pd(_mm_cvtph_ps(vd_get_16(p, n)));
}
static inline vd vd_get_bf16(const uint16_t *p, int64_t n) {
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(vd_get_16(p, n)), 16)));
}
static inline vd vd_get_f64(const double *p, int64_t n) {
    return n == 4 ? _mm256_loadu_pd(p) : _mm256_maskload_pd(p, vd_first(n));
}
static inline void vd_put_f64(double *p, int64_t n, vd v) {
    if (n == 4)
        _mm256_storeu_pd(p, v);
    else
        _mm256_maskstore_pd(p, vd_first(n), v);
}

static inline void vd_transpose(vd r[4]) {
    const vd t0 = _mm256_unpacklo_pd(r[0], r[1]), t1 = _mm256_unpackhi_pd(r[0], r[1]);
    const vd t2 = _mm256_unpacklo_pd(r[2], r[3]), t3 = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(t0, t2, 0x20);
    r[1] = _mm256_permute2f128_pd(t1, t3, 0x20);
    r[2] = _mm256_permute2f128_pd(t0, t2, 0x31);
    r[3] = _mm256_permute2f128_pd(t1, t3, 0x31);
}

/* ---- integers ------------------------------------------------------------------------------------------------------
 */

typedef __m256i vu; /* of 64 bits */

enum { vu_LANES = 4 };

static inline vu vu_all(uint64_t x) {
    return _mm256_set1_epi64x((int64_t)x);
}
/* first, first + 1 and so on */
static inline vu vu_count(uint64_t first) {
    return _mm256_add_epi64(vu_all(first), _mm256_setr_epi64x(0, 1, 2, 3));
}
static inline vu vu_xor(vu a, vu b) {
    return _mm256_xor_si256(a, b);
}
/* The lower 32 bits of one times those of the other. */
static inline vu vu_product(vu a, vu b) {
    return _mm256_mul_epu32(a, b);
}
/* The upper 32 bits as a number. */
static inline vu vu_upper(vu a) {
    return _mm256_srli_epi64(a, 32);
}
/* Byte 4k + w of p becomes 1 where the lower 32 bits of v[w], lane k, are at least `least` (up to 2^32), else 0. */
static inline void vu_put_flags(uint8_t *p, const vu v[4], vu least) {
    __m256i flags = _mm256_setzero_si256();
    for (int w = 0; w < 4; w++) {
        const __m256i low = _mm256_and_si256(v[w], vu_all(0xffffffff));
        const __m256i drop = _mm256_cmpgt_epi64(least, low); /* both below 2^63 */
        flags = _mm256_or_si256(flags, _mm256_andnot_si256(drop, vu_all(UINT64_C(1) << 8 * w)));
    }
    const __m256i lower = _mm256_permutevar8x32_epi32(flags, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(lower));
}

/* ---- stores past the caches ----------------------------------------------------------------------------------------
 */

/* p is aligned to a vector; stream_end orders these stores before all that follow. */
static inline void vf_stream(float *p, vf v) {
    _mm256_stream_ps(p, v);
}
static inline void vf_stream_end(void) {
    _mm_sfence();
}
static inline void vd_stream(double *p, vd v) {
    _mm256_stream_pd(p, v);
}
static inline void vd_stream_end(void) {
    _mm_sfence();
}

#include "simd/vec_math.inc"

#endif
