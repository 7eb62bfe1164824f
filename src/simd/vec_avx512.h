/*
 * vec_avx512.h: vectors of 512 bits for the kernels' bodies: vf of 16 floats, vd of 8 doubles. vec_avx2.h has the same
 * names at half the width, so that one body serves both. Include it only from files compiled with AVX-512 F, BW, DQ,
 * VL.
 *
 * get_TYPE(p, n) reads the first n of a vector's elements and converts them; the rest are 0 and their memory is not
 * touched. put_TYPE(p, n, v) writes the first n, rounded to nearest even. n is 1 to LANES.
 */
#ifndef BSTK_SIMD_VEC_AVX512_H
#define BSTK_SIMD_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
typedef __m512d vd;

enum { vf_LANES = 16, vd_LANES = 8 };

static inline __mmask16 vf_first(int64_t n) {
    return (__mmask16)((1u << n) - 1);
}
static inline __mmask8 vd_first(int64_t n) {
    return (__mmask8)((1u << n) - 1);
}

static inline vf vf_zero(void) {
    return _mm512_setzero_ps();
}
static inline vf vf_all(float x) {
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}
/* A vector of two halves, and its halves to two places. */
static inline vf vf_halves(const float *low, const float *high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high), 1);
}
static inline void vf_put_halves(float *low, float *high, vf v) {
    _mm256_storeu_ps(low, _mm512_castps512_ps256(v));
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(v, 1));
}
static inline vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf sum) {
    return _mm512_fmadd_ps(a, b, sum);
}
/* sum + a * b where a is not 0 */
static inline vf vf_fma_nonzero(vf a, vf b, vf sum) {
    return _mm512_mask3_fmadd_ps(a, b, sum, _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ));
}

/* ---- masks, comparisons, reductions --------------------------------------------------------------------------------
 */

typedef __mmask16 vf_mask;

static inline vf_mask vf_less(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vf_mask vf_equal(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static inline vf_mask vf_both(vf_mask a, vf_mask b) {
    return a & b;
}
static inline vf_mask vf_not(vf_mask a) {
    return (vf_mask)~a;
}
static inline int vf_any(vf_mask m) {
    return m != 0;
}
/* The lanes whose byte of p[0..n) is not 0; false from n on. */
static inline vf_mask vf_flags(const uint8_t *p, int64_t n) {
    const __m128i bytes = _mm_maskz_loadu_epi8(vf_first(n), p);
    return _mm_test_epi8_mask(bytes, bytes);
}
/* m ? a : b */
static inline vf vf_choose(vf_mask m, vf a, vf b) {
    return _mm512_mask_blend_ps(m, b, a);
}
/* m ? a : 0 */
static inline vf vf_keep(vf_mask m, vf a) {
    return _mm512_maskz_mov_ps(m, a);
}
static inline vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
static inline vf vf_sqrt(vf a) {
    return _mm512_sqrt_ps(a);
}
static inline vf vf_abs(vf a) {
    return _mm512_abs_ps(a);
}
static inline float vf_sum(vf a) {
    return _mm512_reduce_add_ps(a);
}
static inline float vf_top(vf a) {
    return _mm512_reduce_max_ps(a);
}
/* out[i] = the sum of v[i], or the largest: eight rows at once cost a third of eight times one. */
#define OF_EIGHT(name, OP)                                                                                             \
    static inline void name(const vf v[8], float out[8]) {                                                             \
        __m256 h[8];                                                                                                   \
        for (int i = 0; i < 8; i++)                                                                                    \
            h[i] = OP(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));                                  \
        for (int i = 0; i < 4; i++)                                                                                    \
            h[i] = OP(_mm256_unpacklo_ps(h[2 * i], h[2 * i + 1]), _mm256_unpackhi_ps(h[2 * i], h[2 * i + 1]));         \
        for (int i = 0; i < 2; i++)                                                                                    \
            h[i] =                                                                                                     \
                OP(_mm256_shuffle_ps(h[2 * i], h[2 * i + 1], 0x44), _mm256_shuffle_ps(h[2 * i], h[2 * i + 1], 0xee));  \
        const __m256 low = _mm256_permute2f128_ps(h[0], h[1], 0x20), high = _mm256_permute2f128_ps(h[0], h[1], 0x31);  \
        _mm256_storeu_ps(out, OP(low, high));                                                                          \
    }
OF_EIGHT(vf_sums, _mm256_add_ps)
OF_EIGHT(vf_tops, _mm256_max_ps)
#undef OF_EIGHT

/* ---- exponentials --------------------------------------------------------------------------------------------------
 */

static inline vf vf_floor(vf x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
/* p * 2^n for integers n: also where the result is subnormal or infinite. */
static inline vf vf_scale2(vf p, vf n) {
    return _mm512_scalef_ps(p, n);
}
/* What exp2 takes apart: n = floor(x) is left to scale2, which floors its power, and an infinity has fraction 0. */
static inline vf vf_split2(vf x, vf *n) {
    *n = x;
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* ---- loads and stores ----------------------------------------------------------------------------------------------
 */

static inline vf vf_get_f32(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}
static inline void vf_put_f32(float *p, int64_t n, vf v) {
    _mm512_mask_storeu_ps(p, vf_first(n), v);
}
static inline vf vf_get_f16(const uint16_t *p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf_first(n), p));
}
static inline void vf_put_f16(uint16_t *p, int64_t n, vf v) {
    _mm256_mask_storeu_epi16(p, vf_first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_get_bf16(const uint16_t *p, int64_t n) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_first(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* Adds half of the last place less one, and one more when the last bit is odd; a NaN keeps its top bits, made quiet. */
static inline void vf_put_bf16(uint16_t *p, int64_t n, vf v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i sum = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_mask_storeu_epi16(p, vf_first(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
}

/* Pairs of bf16, one in each 32 bits: the first n elements of two lines side by side (NULL: zeros), or the first n
 * (1 to 32) of one line. */
static inline vf vf_pair(const uint16_t *even, const uint16_t *odd, int64_t n) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_first(n), even));
    if (odd == NULL)
        return _mm512_castsi512_ps(low);
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_first(n), odd));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
static inline vf vf_pairs(const uint16_t *p, int64_t n) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p));
}
#ifdef __AVX512BF16__
/* sum + both products of each pair */
static inline vf vf_dot(vf a, vf b, vf sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
/* The same with one pair from memory for all lanes, in one instruction: two would cost a third more where each pair is
 * used once (Zen 4), and compilers make two. */
static inline vf vf_dot_one(const void *pair, vf b, vf sum) {
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*(const char(*)[4])pair));
    return sum;
}
/* Pairs of bf16, rounded as vf_put_flushed does. */
static inline vf vf_narrow(vf even, vf odd) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}
/* Writes 16 in one instruction, which like vf_dot takes subnormal numbers as 0. */
static inline void vf_put_flushed(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
}
#endif

/* Transposes 16 x 16: pairs of rows, then of pairs, then the quarters of 128 bits. */
static inline void vf_transpose(vf r[16]) {
    vf t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) {
            const __m512d a = _mm512_castps_pd(t[i + k]), b = _mm512_castps_pd(t[i + k + 2]);
            r[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    /* r[4q + c] now has columns c, c + 4, c + 8, c + 12 of the rows 4q to 4q + 3, one a quarter. */
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        t[8 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    }
    for (int c = 0; c < 4; c++) {
        r[c] = _mm512_shuffle_f32x4(t[c], t[8 + c], 0x88);
        r[8 + c] = _mm512_shuffle_f32x4(t[c], t[8 + c], 0xdd);
        r[4 + c] = _mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0x88);
        r[12 + c] = _mm512_shuffle_f32x4(t[4 + c], t[12 + c], 0xdd);
    }
}

static inline vd vd_zero(void) {
    return _mm512_setzero_pd();
}
static inline vd vd_all(double x) {
    return _mm512_set1_pd(x);
}
static inline vd vd_load(const double *p) {
    return _mm512_loadu_pd(p);
}
static inline void vd_store(double *p, vd v) {
    _mm512_storeu_pd(p, v);
}
static inline vd vd_add(vd a, vd b) {
    return _mm512_add_pd(a, b);
}
static inline vd vd_mul(vd a, vd b) {
    return _mm512_mul_pd(a, b);
}
static inline vd vd_fma(vd a, vd b, vd sum) {
    return _mm512_fmadd_pd(a, b, sum);
}
static inline vd vd_fma_nonzero(vd a, vd b, vd sum) {
    return _mm512_mask3_fmadd_pd(a, b, sum, _mm512_cmp_pd_mask(a, _mm512_setzero_pd(), _CMP_NEQ_UQ));
}
typedef __mmask8 vd_mask;

static inline vd_mask vd_less(vd a, vd b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ);
}
static inline vd_mask vd_equal(vd a, vd b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ);
}
static inline vd_mask vd_both(vd_mask a, vd_mask b) {
    return a & b;
}
static inline vd_mask vd_not(vd_mask a) {
    return (vd_mask)~a;
}
static inline int vd_any(vd_mask m) {
    return m != 0;
}
static inline vd_mask vd_flags(const uint8_t *p, int64_t n) {
    const __m128i bytes = _mm_maskz_loadu_epi8(vd_first(n), p);
    return (vd_mask)_mm_test_epi8_mask(bytes, bytes);
}
static inline vd vd_choose(vd_mask m, vd a, vd b) {
    return _mm512_mask_blend_pd(m, b, a);
}
static inline vd vd_keep(vd_mask m, vd a) {
    return _mm512_maskz_mov_pd(m, a);
}
static inline vd vd_max(vd a, vd b) {
    return _mm512_max_pd(a, b);
}
static inline vd vd_min(vd a, vd b) {
    return _mm512_min_pd(a, b);
}
static inline vd vd_sub(vd a, vd b) {
    return _mm512_sub_pd(a, b);
}
static inline vd vd_div(vd a, vd b) {
    return _mm512_div_pd(a, b);
}
static inline vd vd_sqrt(vd a) {
    return _mm512_sqrt_pd(a);
}
static inline vd vd_abs(vd a) {
    return _mm512_abs_pd(a);
}
static inline double vd_sum(vd a) {
    return _mm512_reduce_add_pd(a);
}
static inline double vd_top(vd a) {
    return _mm512_reduce_max_pd(a);
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
    return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
static inline vd vd_scale2(vd p, vd n) {
    return _mm512_scalef_pd(p, n);
}
static inline vd vd_split2(vd x, vd *n) {
    *n = x;
    return _mm512_reduce_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
/* The two halves of a vector of floats, and back. */
static inline vd vd_low(vf a) {
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}
static inline vd vd_high(vf a) {
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}
static inline vd vd_get_f32(const float *p, int64_t n) {
    return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(vd_first(n), p));
}
static inline vd vd_get_f16(const uint16_t *p, int64_t n) {
    return _mm512_cvtps_pd(_mm256_maskz_cvtph_ps(0xff, _mm_maskz_loadu_epi16(vd_first(n), p)));
}
static inline vd vd_get_bf16(const uint16_t *p, int64_t n) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(vd_first(n), p));
    return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
}
static inline vd vd_get_f64(const double *p, int64_t n) {
    return _mm512_maskz_loadu_pd(vd_first(n), p);
}
static inline void vd_put_f64(double *p, int64_t n, vd v) {
    _mm512_mask_storeu_pd(p, vd_first(n), v);
}

static inline void vd_transpose(vd r[8]) {
    vd t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
    /* t[2q + c] has columns c, c + 2, c + 4, c + 6 of the rows 2q and 2q + 1. */
    for (int c = 0; c < 2; c++) {
        r[c] = _mm512_shuffle_f64x2(t[c], t[2 + c], 0x88);
        r[2 + c] = _mm512_shuffle_f64x2(t[c], t[2 + c], 0xdd);
        r[4 + c] = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0x88);
        r[6 + c] = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0xdd);
    }
    for (int c = 0; c < 2; c++) {
        t[c] = _mm512_shuffle_f64x2(r[c], r[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_f64x2(r[c], r[4 + c], 0xdd);
        t[2 + c] = _mm512_shuffle_f64x2(r[2 + c], r[6 + c], 0x88);
        t[6 + c] = _mm512_shuffle_f64x2(r[2 + c], r[6 + c], 0xdd);
    }
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

/* ---- integers ------------------------------------------------------------------------------------------------------
 */

typedef __m512i vu; /* of 64 bits */

enum { vu_LANES = 8 };

static inline vu vu_all(uint64_t x) {
    return _mm512_set1_epi64((int64_t)x);
}
/* first, first + 1 and so on */
static inline vu vu_count(uint64_t first) {
    return _mm512_add_epi64(vu_all(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vu vu_xor(vu a, vu b) {
    return _mm512_xor_si512(a, b);
}
/* The lower 32 bits of one times those of the other. */
static inline vu vu_product(vu a, vu b) {
    return _mm512_mul_epu32(a, b);
}
/* The upper 32 bits as a number. */
static inline vu vu_upper(vu a) {
    return _mm512_srli_epi64(a, 32);
}
/* Byte 4k + w of p becomes 1 where the lower 32 bits of v[w], lane k, are at least `least` (up to 2^32), else 0. */
static inline void vu_put_flags(uint8_t *p, const vu v[4], vu least) {
    __m512i flags = _mm512_setzero_si512();
    for (int w = 0; w < 4; w++) {
        const __m512i low = _mm512_and_si512(v[w], vu_all(0xffffffff));
        flags = _mm512_mask_or_epi64(flags, _mm512_cmpge_epu64_mask(low, least), flags, vu_all(UINT64_C(1) << 8 * w));
    }
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi64_epi32(flags));
}

/* ---- stores past the caches ----------------------------------------------------------------------------------------
 */

/* p is aligned to a vector; stream_end orders these stores before all that follow. */
static inline void vf_stream(float *p, vf v) {
    _mm512_stream_ps(p, v);
}
static inline void vf_stream_end(void) {
    _mm_sfence();
}
static inline void vd_stream(double *p, vd v) {
    _mm512_stream_pd(p, v);
}
static inline void vd_stream_end(void) {
    _mm_sfence();
}

#include "simd/vec_math.inc"

#endif
