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

#endif
