/* cpu_features.c: cpuid and XCR0 on x86, getauxval on Arm. */
#include "core/cpu_features.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Which register state the operating system saves: a CPU flag alone does not make AVX usable. */
static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static uint32_t detect(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    const unsigned osxsave = 1u << 27, fma = 1u << 12, f16c = 1u << 29;
    if ((c & osxsave) == 0)
        return 0;
    const int has_fma = (c & fma) && (c & f16c);
    const uint64_t xcr0 = read_xcr0();
    const int ymm = (xcr0 & 0x6) == 0x6, zmm = (xcr0 & 0xe6) == 0xe6;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    uint32_t found = 0;
    if (ymm && has_fma && (b & 1u << 5))
        found |= BSTK__F_AVX2;
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    if (zmm && (found & BSTK__F_AVX2) && (b & avx512) == avx512) {
        found |= BSTK__F_AVX512;
        if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5))
            found |= BSTK__F_AVX512_BF16;
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22))
            found |= BSTK__F_AMX_BF16;
    }
    return found;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static uint32_t detect(void) {
    uint32_t found = BSTK__F_NEON;        /* part of every AArch64 */
    const unsigned long bf16 = 1ul << 14; /* HWCAP2_BF16 */
    if (getauxval(AT_HWCAP2) & bf16)
        found |= BSTK__F_NEON_BF16;
    return found;
}
#else
static uint32_t detect(void) {
    return 0;
}
#endif

static uint32_t features;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void detect_once(void) {
    features = detect();
}

uint32_t bstk__cpu_features(void) {
    pthread_once(&once, detect_once);
    return features;
}

int bstk__isa_level(const char *name) {
    if (strcmp(name, "scalar") == 0)
        return 0;
    if (strcmp(name, "avx2") == 0 || strcmp(name, "neon") == 0)
        return 1;
    return strcmp(name, "avx512") == 0 ? 2 : -1;
}

uint32_t bstk__features_under_cap(uint32_t all, int level) {
    if (level == 0)
        return 0;
    if (level == 1)
        return all & (uint32_t) ~(BSTK__F_AVX512 | BSTK__F_AVX512_BF16 | BSTK__F_AMX_BF16);
    return all;
}

void bstk__features_text(uint32_t set, char *text, size_t bytes) {
    static const char *const names[] = {"avx2+fma+f16c", "avx512f/bw/dq/vl", "avx512bf16",
                                        "neon",          "neon-bf16",        "amx-bf16"};
    size_t used = 0;
    snprintf(text, bytes, "none");
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (set & 1u << i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " " : "", names[i]);
}
