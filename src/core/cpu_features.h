/* cpu_features.h: what this CPU and its operating system let a kernel use. Leaf. */
#ifndef BSTK_CORE_CPU_FEATURES_H
#define BSTK_CORE_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

/* A kernel row needs a set of these bits; sets are compared, families are never asked. */
enum {
    BSTK__F_AVX2 = 1 << 0,   /* with FMA and F16C: every CPU with AVX2 has had all three */
    BSTK__F_AVX512 = 1 << 1, /* F, BW, DQ, VL */
    BSTK__F_AVX512_BF16 = 1 << 2,
    BSTK__F_NEON = 1 << 3,
    BSTK__F_NEON_BF16 = 1 << 4,
    BSTK__F_AMX_BF16 = 1 << 5 /* for what it says of vdpbf16ps: see registry.c */
};

/* Features of this machine, the state saved by the operating system included (XCR0). Detected once. */
uint32_t bstk__cpu_features(void);

/* Levels for the user-facing cap: "scalar" 0, "avx2" 1, "avx512" 2, "neon" 1; -1 for another name. */
int bstk__isa_level(const char *name);

/* Features that the cap `level` leaves; a negative level leaves all. */
uint32_t bstk__features_under_cap(uint32_t features, int level);

/* Writes the names of `features`, separated by spaces; "none" for 0. */
void bstk__features_text(uint32_t features, char *text, size_t bytes);

#endif
