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

#endif
