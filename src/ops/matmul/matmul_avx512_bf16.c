/*
 * matmul_avx512_bf16.c: sdd, dsd and dds of bf16 with vdpbf16ps, which adds two products in one instruction: twice the
 * multiply-adds of f32. It takes and gives subnormal numbers as 0 and rounds twice a pair; see docs/numerics.md. The
 * algorithm is in matmul_vec.inc.
 */
#include "core/checked.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/matmul_vec.h"
#include "simd/vec_avx512.h"

#include <string.h>

#define ROWS        8
#define VECS        2
#define PAIRS       1
#define ACC         float
#define ACC_AS      f32
#define VEC         vf
#define V(name)     vf_##name
#define HALF_BLOCKS 1 /* blocks of 8 */

#define SUFFIX      bf16_avx512_bf16
#define DENSE       uint16_t
#define DENSE_AS    bf16
#define DENSE_SAME  0
#define PACKED      uint16_t
#define PACKED_AS   bf16
#define PACKED_SAME 0
#include "ops/matmul/matmul_vec.inc"

const char *spmm_accepts_bf16_avx512_bf16(const void *args) {
    const bstk__spmm_args *g = args;
    return g->skip_zeros ? "does not skip single zeros" : NULL;
}
