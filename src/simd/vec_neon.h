/*
 * vec_neon.h: vectors of 128 bits for the kernels' bodies: vf of 4 floats, vd of 2 doubles, with the names of
 * vec_avx512.h. All of it is in every AArch64, the conversions of f16 included.
 *
 * get_TYPE(p, n) reads the first n of a vector's elements and converts them; the rest are 0 and their memory is not
 * touched. put_TYPE(p, n, v) writes the first n, rounded to nearest even. n is 1 to LANES.
 */
#ifndef BSTK_SIMD_VEC_NEON_H
#define BSTK_SIMD_VEC_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float32x4_t vf;
typedef float64x2_t vd;

enum { vf_LANES = 4, vd_LANES = 2 };

static inline vf vf_zero(void) {
    return vdupq_n_f32(0);
}
static inline vf vf_all(float x) {
    return vdupq_n_f32(x);
}
static inline vf vf_load(const float *p) {
    return vld1q_f32(p);
}
static inline void vf_store(float *p, vf v) {
    vst1q_f32(p, v);
}
/* A vector of two halves, and its halves to two places. */
static inline vf vf_halves(const float *low, const float *high) {
    return vcombine_f32(vld1_f32(low), vld1_f32(high));
}
static inline void vf_put_halves(float *low, float *high, vf v) {
    vst1_f32(low, vget_low_f32(v));
    vst1_f32(high, vget_high_f32(v));
}
static inline vf vf_add(vf a, vf b) {
    return vaddq_f32(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return vmulq_f32(a, b);
}
static inline vf vf_fma(vf a, vf b, vf sum) {
    return vfmaq_f32(sum, a, b);
}
/* Lane i: as a factor it is part of the multiply-add. */
static inline float vf_lane(vf a, int i) {
    return a[i];
}
/* sum + a * b where a is not 0 */
static inline vf vf_fma_nonzero(vf a, vf b, vf sum) {
    return vbslq_f32(vceqzq_f32(a), sum, vfmaq_f32(sum, a, b));
}

/* ---- masks, comparisons, reductions --------------------------------------------------------------------------------
 */

typedef uint32x4_t vf_mask; /* all bits of a lane, or none */

static inline vf_mask vf_less(vf a, vf b) {
    return vcltq_f32(a, b);
}
static inline vf_mask vf_equal(vf a, vf b) {
    return vceqq_f32(a, b);
}
static inline vf_mask vf_both(vf_mask a, vf_mask b) {
    return vandq_u32(a, b);
}
static inline vf_mask vf_not(vf_mask a) {
    return vmvnq_u32(a);
}
static inline int vf_any(vf_mask m) {
    return vmaxvq_u32(m) != 0;
}
/* The lanes whose byte of p[0..n) is not 0; false from n on. */
static inline vf_mask vf_flags(const uint8_t *p, int64_t n) {
    uint8_t line[8] = {0};
    memcpy(line, p, (size_t)n);
    const uint32x4_t wide = vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(line))));
    return vtstq_u32(wide, wide);
}
/* m ? a : b */
static inline vf vf_choose(vf_mask m, vf a, vf b) {
    return vbslq_f32(m, a, b);
}
/* m ? a : 0 */
static inline vf vf_keep(vf_mask m, vf a) {
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(a)));
}
/* a > b ? a : b, as on x86: b where either is NaN. The instruction of that name would give NaN. */
static inline vf vf_max(vf a, vf b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline vf vf_min(vf a, vf b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return vsubq_f32(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return vdivq_f32(a, b);
}
static inline vf vf_sqrt(vf a) {
    return vsqrtq_f32(a);
}
static inline vf vf_abs(vf a) {
    return vabsq_f32(a);
}
static inline float vf_sum(vf a) {
    return vaddvq_f32(a);
}
static inline float vf_top(vf a) {
    const vf two = vf_max(a, vextq_f32(a, a, 2));
    return vgetq_lane_f32(vf_max(two, vextq_f32(two, two, 1)), 0);
}
/* out[i] = the sum of v[i], or the largest. */
#define OF_EIGHT(name, OP)                                                                                             \
    static inline void name(const vf v[8], float out[8]) {                                                             \
        vf h[4];                                                                                                       \
        for (int i = 0; i < 4; i++)                                                                                    \
            h[i] = OP(vuzp1q_f32(v[2 * i], v[2 * i + 1]), vuzp2q_f32(v[2 * i], v[2 * i + 1]));                         \
        for (int i = 0; i < 2; i++)                                                                                    \
            vst1q_f32(out + 4 * i, OP(vuzp1q_f32(h[2 * i], h[2 * i + 1]), vuzp2q_f32(h[2 * i], h[2 * i + 1])));        \
    }
OF_EIGHT(vf_sums, vf_add)
OF_EIGHT(vf_tops, vf_max)
#undef OF_EIGHT

/* ---- exponentials --------------------------------------------------------------------------------------------------
 */

static inline vf vf_floor(vf x) {
    return vrndmq_f32(x);
}
/* p * 2^n for integers n and p from 1 to 2; 0 below 2^-126, infinite from 2^128 on. */
static inline vf vf_scale2(vf p, vf n) {
    const int32x4_t power = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
    const vf scaled = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), power));
    const vf some = vf_keep(vf_not(vf_less(n, vf_all(-126))), scaled);
    return vf_choose(vf_less(vf_all(127), n), vf_all(INFINITY), some);
}
/* Infinities would leave a NaN: to where scale2 gives the same result. */
static inline vf vf_split2(vf x, vf *n) {
    x = vf_max(vf_all(-200), vf_min(vf_all(200), x));
    *n = vrndmq_f32(x);
    return vf_sub(x, *n);
}

/* ---- loads and stores ----------------------------------------------------------------------------------------------
 */

static inline vf vf_get_f32(const float *p, int64_t n) {
    if (n == 4)
        return vld1q_f32(p);
    const float32x2_t none = vdup_n_f32(0);
    const float32x2_t low = n > 1 ? vld1_f32(p) : vld1_lane_f32(p, none, 0);
    return vcombine_f32(low, n == 3 ? vld1_lane_f32(p + 2, none, 0) : none);
}
static inline void vf_put_f32(float *p, int64_t n, vf v) {
    if (n == 4) {
        vst1q_f32(p, v);
        return;
    }
    if (n == 1)
        vst1q_lane_f32(p, v, 0);
    else
        vst1_f32(p, vget_low_f32(v));
    if (n == 3)
        vst1q_lane_f32(p + 2, v, 2);
}

static inline uint16x4_t vf_get_16(const uint16_t *p, int64_t n) {
    if (n == 4)
        return vld1_u16(p);
    uint16x4_t v = vld1_lane_u16(p, vdup_n_u16(0), 0);
    if (n > 1)
        v = vld1_lane_u16(p + 1, v, 1);
    return n > 2 ? vld1_lane_u16(p + 2, v, 2) : v;
}
static inline void vf_put_16(uint16_t *p, int64_t n, uint16x4_t v) {
    if (n == 4) {
        vst1_u16(p, v);
        return;
    }
    vst1_lane_u16(p, v, 0);
    if (n > 1)
        vst1_lane_u16(p + 1, v, 1);
    if (n > 2)
        vst1_lane_u16(p + 2, v, 2);
}

static inline vf vf_get_f16(const uint16_t *p, int64_t n) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vf_get_16(p, n)));
}
static inline void vf_put_f16(uint16_t *p, int64_t n, vf v) {
    vf_put_16(p, n, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
static inline vf vf_get_bf16(const uint16_t *p, int64_t n) {
    return vreinterpretq_f32_u32(vshll_n_u16(vf_get_16(p, n), 16));
}
/* Adds half of the last place less one, and one more when the last bit is odd; a NaN keeps its top bits, made quiet. */
static inline void vf_put_bf16(uint16_t *p, int64_t n, vf v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vf_put_16(p, n, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up, quiet), 16));
}

/* Transposes 4 x 4: pairs of rows, then the halves. */
static inline void vf_transpose(vf r[4]) {
    const vd t0 = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), t1 = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const vd t2 = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), t3 = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vzip1q_f64(t0, t2));
    r[1] = vreinterpretq_f32_f64(vzip1q_f64(t1, t3));
    r[2] = vreinterpretq_f32_f64(vzip2q_f64(t0, t2));
    r[3] = vreinterpretq_f32_f64(vzip2q_f64(t1, t3));
}

static inline vd vd_zero(void) {
    return vdupq_n_f64(0);
}
static inline vd vd_all(double x) {
    return vdupq_n_f64(x);
}
static inline vd vd_load(const double *p) {
    return vld1q_f64(p);
}
static inline void vd_store(double *p, vd v) {
    vst1q_f64(p, v);
}
static inline vd vd_add(vd a, vd b) {
    return vaddq_f64(a, b);
}
static inline vd vd_mul(vd a, vd b) {
    return vmulq_f64(a, b);
}
static inline vd vd_fma(vd a, vd b, vd sum) {
    return vfmaq_f64(sum, a, b);
}
static inline double vd_lane(vd a, int i) {
    return a[i];
}
static inline vd vd_fma_nonzero(vd a, vd b, vd sum) {
    return vbslq_f64(vceqzq_f64(a), sum, vfmaq_f64(sum, a, b));
}
typedef uint64x2_t vd_mask;

static inline vd_mask vd_less(vd a, vd b) {
    return vcltq_f64(a, b);
}
static inline vd_mask vd_equal(vd a, vd b) {
    return vceqq_f64(a, b);
}
static inline vd_mask vd_both(vd_mask a, vd_mask b) {
    return vandq_u64(a, b);
}
static inline vd_mask vd_not(vd_mask a) {
    return vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(a)));
}
static inline int vd_any(vd_mask m) {
    return vmaxvq_u32(vreinterpretq_u32_u64(m)) != 0;
}
static inline vd_mask vd_flags(const uint8_t *p, int64_t n) {
    const uint64x2_t wide = vcombine_u64(vcreate_u64(p[0]), vcreate_u64(n > 1 ? p[1] : 0));
    return vtstq_u64(wide, wide);
}
static inline vd vd_choose(vd_mask m, vd a, vd b) {
    return vbslq_f64(m, a, b);
}
static inline vd vd_keep(vd_mask m, vd a) {
    return vreinterpretq_f64_u64(vandq_u64(m, vreinterpretq_u64_f64(a)));
}
static inline vd vd_max(vd a, vd b) {
    return vbslq_f64(vcgtq_f64(a, b), a, b);
}
static inline vd vd_min(vd a, vd b) {
    return vbslq_f64(vcltq_f64(a, b), a, b);
}
static inline vd vd_sub(vd a, vd b) {
    return vsubq_f64(a, b);
}
static inline vd vd_div(vd a, vd b) {
    return vdivq_f64(a, b);
}
static inline vd vd_sqrt(vd a) {
    return vsqrtq_f64(a);
}
static inline vd vd_abs(vd a) {
    return vabsq_f64(a);
}
static inline double vd_sum(vd a) {
    return vaddvq_f64(a);
}
static inline double vd_top(vd a) {
    const double x = vgetq_lane_f64(a, 0), y = vgetq_lane_f64(a, 1);
    return x > y ? x : y;
}
static inline void vd_sums(const vd v[8], double out[8]) {
    for (int i = 0; i < 8; i += 2)
        vst1q_f64(out + i, vpaddq_f64(v[i], v[i + 1]));
}
static inline void vd_tops(const vd v[8], double out[8]) {
    for (int i = 0; i < 8; i += 2)
        vst1q_f64(out + i, vd_max(vzip1q_f64(v[i], v[i + 1]), vzip2q_f64(v[i], v[i + 1])));
}
static inline vd vd_floor(vd x) {
    return vrndmq_f64(x);
}
/* As vf_scale2, below 2^-1022 and from 2^1024 on. */
static inline vd vd_scale2(vd p, vd n) {
    const int64x2_t power = vshlq_n_s64(vcvtnq_s64_f64(n), 52);
    const vd scaled = vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(p), power));
    const vd some = vd_keep(vd_not(vd_less(n, vd_all(-1022))), scaled);
    return vd_choose(vd_less(vd_all(1023), n), vd_all(INFINITY), some);
}
static inline vd vd_split2(vd x, vd *n) {
    x = vd_max(vd_all(-1100), vd_min(vd_all(1100), x));
    *n = vrndmq_f64(x);
    return vd_sub(x, *n);
}
/* The two halves of a vector of floats. */
static inline vd vd_low(vf a) {
    return vcvt_f64_f32(vget_low_f32(a));
}
static inline vd vd_high(vf a) {
    return vcvt_high_f64_f32(a);
}
static inline vd vd_get_f32(const float *p, int64_t n) {
    return vcvt_f64_f32(n == 2 ? vld1_f32(p) : vld1_lane_f32(p, vdup_n_f32(0), 0));
}
static inline uint16x4_t vd_get_16(const uint16_t *p, int64_t n) {
    const uint16x4_t first = vld1_lane_u16(p, vdup_n_u16(0), 0);
    return n == 2 ? vld1_lane_u16(p + 1, first, 1) : first;
}
static inline vd vd_get_f16(const uint16_t *p, int64_t n) {
    return vd_low(vcvt_f32_f16(vreinterpret_f16_u16(vd_get_16(p, n))));
}
static inline vd vd_get_bf16(const uint16_t *p, int64_t n) {
    return vd_low(vreinterpretq_f32_u32(vshll_n_u16(vd_get_16(p, n), 16)));
}
static inline vd vd_get_f64(const double *p, int64_t n) {
    return n == 2 ? vld1q_f64(p) : vcombine_f64(vld1_f64(p), vdup_n_f64(0));
}
static inline void vd_put_f64(double *p, int64_t n, vd v) {
    if (n == 2)
        vst1q_f64(p, v);
    else
        vst1q_lane_f64(p, v, 0);
}

static inline void vd_transpose(vd r[2]) {
    const vd even = vzip1q_f64(r[0], r[1]);
    r[1] = vzip2q_f64(r[0], r[1]);
    r[0] = even;
}

/* ---- integers ------------------------------------------------------------------------------------------------------
 */

typedef uint64x2_t vu;

enum { vu_LANES = 2 };

static inline vu vu_all(uint64_t x) {
    return vdupq_n_u64(x);
}
/* first, first + 1 */
static inline vu vu_count(uint64_t first) {
    return vcombine_u64(vdup_n_u64(first), vdup_n_u64(first + 1));
}
static inline vu vu_xor(vu a, vu b) {
    return veorq_u64(a, b);
}
/* The lower 32 bits of one times those of the other. */
static inline vu vu_product(vu a, vu b) {
    return vmull_u32(vmovn_u64(a), vmovn_u64(b));
}
/* The upper 32 bits as a number. */
static inline vu vu_upper(vu a) {
    return vshrq_n_u64(a, 32);
}
/* Byte 4k + w of p becomes 1 where the lower 32 bits of v[w], lane k, are at least `least` (up to 2^32), else 0. */
static inline void vu_put_flags(uint8_t *p, const vu v[4], vu least) {
    vu flags = vu_all(0);
    for (int w = 0; w < 4; w++) {
        const vu kept = vcgeq_u64(vandq_u64(v[w], vu_all(0xffffffff)), least);
        flags = vorrq_u64(flags, vandq_u64(kept, vu_all(UINT64_C(1) << 8 * w)));
    }
    vst1_u8(p, vreinterpret_u8_u32(vmovn_u64(flags)));
}

/* ---- stores past the caches ----------------------------------------------------------------------------------------
 */

/* NEON has no such stores: those that are everywhere. */
static inline void vf_stream(float *p, vf v) {
    vst1q_f32(p, v);
}
static inline void vf_stream_end(void) {}
static inline void vd_stream(double *p, vd v) {
    vst1q_f64(p, v);
}
static inline void vd_stream_end(void) {}

#include "simd/vec_math.inc"

#endif
