/*
 * bench_roof.c: what this machine can do at most, measured beside every call: multiply-adds on registers alone, copies,
 * and the clock.
 *
 * A loop has at least 12 independent sums of vectors, for two units with a latency of 4 cycles need 8, and four with 3
 * need 12. Everything is in one asm statement, so that no compiler flag changes the loop and nothing else has to be
 * compiled for the instruction set. The inputs are ordinary numbers: zeros take less power, and so a higher clock.
 */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_clock(int threads) {
    return seconds_of(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

/* ---- multiply-add loops ------------------------------------------------------------------------------------------ */

#define SIX_SUMS(X)    X(0) X(1) X(2) X(3) X(4) X(5)
#define TWELVE_SUMS(X) SIX_SUMS(X) X(6) X(7) X(8) X(9) X(10) X(11)

#if defined(__x86_64__)
#define SUMS_CLOBBERED                                                                                                 \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm13", "cc"
#define CLEAR(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"

/* 24 instructions a pass: the two of the loop itself then cost no slot that these need. */
#define VECTOR_LOOP(function, broadcast, step, type, value)                                                            \
    static void function(int64_t passes) {                                                                             \
        static const type number = value;                                                                              \
        __asm__ volatile(TWELVE_SUMS(CLEAR) broadcast "\n"                                                             \
                                                      "1:\n\t" TWELVE_SUMS(step) TWELVE_SUMS(step) "dec %0\n\t"        \
                                                                                                   "jnz 1b\n\t"        \
                                                                                                   "vzeroupper"        \
                         : "+r"(passes)                                                                                \
                         : "m"(number)                                                                                 \
                         : SUMS_CLOBBERED);                                                                            \
    }

#define ZMM_PS(i)   "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n\t"
#define ZMM_PD(i)   "vfmadd231pd %%zmm12, %%zmm13, %%zmm" #i "\n\t"
#define ZMM_BF16(i) "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #i "\n\t"
#define YMM_PS(i)   "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n\t"
#define YMM_PD(i)   "vfmadd231pd %%ymm12, %%ymm13, %%ymm" #i "\n\t"
VECTOR_LOOP(zmm_f32, "vbroadcastss %1, %%zmm12\n\tvbroadcastss %1, %%zmm13", ZMM_PS, float, 0.75f)
VECTOR_LOOP(zmm_f64, "vbroadcastsd %1, %%zmm12\n\tvbroadcastsd %1, %%zmm13", ZMM_PD, double, 0.75)
VECTOR_LOOP(zmm_bf16, "vpbroadcastd %1, %%zmm12\n\tvpbroadcastd %1, %%zmm13", ZMM_BF16, uint32_t, 0x3f403f40u)
VECTOR_LOOP(ymm_f32, "vbroadcastss %1, %%ymm12\n\tvbroadcastss %1, %%ymm13", YMM_PS, float, 0.75f)
VECTOR_LOOP(ymm_f64, "vbroadcastsd %1, %%ymm12\n\tvbroadcastsd %1, %%ymm13", YMM_PD, double, 0.75)

/* Portable code is SSE2 here: 4 floats a vector, and multiplications apart from additions, six sums of each. */
#define SSE_LOOP(function, clear, multiply, add, type, value)                                                          \
    static void function(int64_t passes) {                                                                             \
        static const type number[16 / sizeof(type)] __attribute__((aligned(16))) = {value};                            \
        __asm__ volatile(TWELVE_SUMS(clear) "movaps %1, %%xmm12\n\t"                                                   \
                                            "movaps %1, %%xmm13\n"                                                     \
                                            "1:\n\t" SSE_STEPS(multiply, add) SSE_STEPS(multiply, add) "dec %0\n\t"    \
                                                                                                       "jnz 1b"        \
                         : "+r"(passes)                                                                                \
                         : "m"(number)                                                                                 \
                         : SUMS_CLOBBERED);                                                                            \
    }
#define SSE_PAIR(multiply, add, i, j) multiply " %%xmm12, %%xmm" #i "\n\t" add " %%xmm13, %%xmm" #j "\n\t"
#define SSE_STEPS(multiply, add)                                                                                       \
    SSE_PAIR(multiply, add, 0, 6)                                                                                      \
    SSE_PAIR(multiply, add, 1, 7)                                                                                      \
    SSE_PAIR(multiply, add, 2, 8)                                                                                      \
    SSE_PAIR(multiply, add, 3, 9)                                                                                      \
    SSE_PAIR(multiply, add, 4, 10) SSE_PAIR(multiply, add, 5, 11)
#define SSE_CLEAR(i)  "xorps %%xmm" #i ", %%xmm" #i "\n\t"
#define FOUR_TIMES(x) x, x, x, x
SSE_LOOP(sse_f32, SSE_CLEAR, "mulps", "addps", float, FOUR_TIMES(0.75f))
SSE_LOOP(sse_f64, SSE_CLEAR, "mulpd", "addpd", double, 0.75)

enum { BEST_F32, BEST_F64, BEST_BF16, WIDE_F32, WIDE_F64, PORTABLE_F32, PORTABLE_F64 };
static roof_loop loops[] = {
    [BEST_F32] = {"avx512 f32", 24 * 32, 0, zmm_f32},    [BEST_F64] = {"avx512 f64", 24 * 16, 0, zmm_f64},
    [BEST_BF16] = {"avx512 bf16", 24 * 64, 0, zmm_bf16}, [WIDE_F32] = {"avx2 f32", 24 * 16, 0, ymm_f32},
    [WIDE_F64] = {"avx2 f64", 24 * 8, 0, ymm_f64},       [PORTABLE_F32] = {"sse2 f32", 24 * 4, 0, sse_f32},
    [PORTABLE_F64] = {"sse2 f64", 24 * 2, 0, sse_f64},
};

static roof_loop *loop_of(const bstk_kernel_info *info) {
    const bool f64 = info->dtype == BSTK_F64;
    if (strstr(info->name, "avx512_bf16"))
        return &loops[BEST_BF16];
    if (strcmp(info->isa, "avx512") == 0)
        return &loops[f64 ? BEST_F64 : BEST_F32];
    if (strcmp(info->isa, "avx2") == 0)
        return &loops[f64 ? WIDE_F64 : WIDE_F32];
    return &loops[f64 ? PORTABLE_F64 : PORTABLE_F32];
}

#elif defined(__aarch64__)
#define TWENTY_FOUR_SUMS(X) TWELVE_SUMS(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define CLEAR(i)            "movi v" #i ".2d, #0\n\t"

/* Four units with a latency of 4 cycles need 16 sums; here are 24. */
#define VECTOR_LOOP(function, broadcast, step, type, value)                                                            \
    static void function(int64_t passes) {                                                                             \
        static const type number = value;                                                                              \
        __asm__ volatile(TWENTY_FOUR_SUMS(CLEAR) broadcast "\n"                                                        \
                                                           "1:\n\t" TWENTY_FOUR_SUMS(step) "subs %0, %0, #1\n\t"       \
                                                                                           "b.ne 1b"                   \
                         : "+r"(passes)                                                                                \
                         : "r"(&number), "m"(number)                                                                   \
                         : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",     \
                           "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31", "cc");  \
    }
#define NEON_F32(i) "fmla v" #i ".4s, v30.4s, v31.4s\n\t"
#define NEON_F64(i) "fmla v" #i ".2d, v30.2d, v31.2d\n\t"
VECTOR_LOOP(neon_f32, "ld1r {v30.4s}, [%1]\n\tld1r {v31.4s}, [%1]", NEON_F32, float, 0.75f)
VECTOR_LOOP(neon_f64, "ld1r {v30.2d}, [%1]\n\tld1r {v31.2d}, [%1]", NEON_F64, double, 0.75)

enum { BEST_F32, BEST_F64 };
static roof_loop loops[] = {
    [BEST_F32] = {"neon f32", 24 * 8, 0, neon_f32},
    [BEST_F64] = {"neon f64", 24 * 4, 0, neon_f64},
};

static roof_loop *loop_of(const bstk_kernel_info *info) { /* portable code has the same instructions */
    return &loops[info->dtype == BSTK_F64 ? BEST_F64 : BEST_F32];
}

#else
static volatile double sink;

static void plain_f64(int64_t passes) {
    double sums[12] = {0};
    for (int64_t i = 0; i < passes; i++)
        for (int j = 0; j < 12; j++)
            sums[j] = sums[j] * 0.75 + 0.75;
    for (int j = 0; j < 12; j++)
        sink = sums[j];
}

static void plain_f32(int64_t passes) {
    float sums[12] = {0};
    for (int64_t i = 0; i < passes; i++)
        for (int j = 0; j < 12; j++)
            sums[j] = sums[j] * 0.75f + 0.75f;
    for (int j = 0; j < 12; j++)
        sink = sums[j];
}

enum { BEST_F32, BEST_F64 };
static roof_loop loops[] = {
    [BEST_F32] = {"portable f32", 24, 0, plain_f32},
    [BEST_F64] = {"portable f64", 24, 0, plain_f64},
};

static roof_loop *loop_of(const bstk_kernel_info *info) {
    return &loops[info->dtype == BSTK_F64 ? BEST_F64 : BEST_F32];
}
#endif

roof_loop *roof_loop_of(const char *kernel) {
    roof_loop *best = NULL;
    for (const char *part = kernel; *part != '\0';) {
        const size_t length = strcspn(part, "+");
        for (int32_t i = 0; i < bstk_kernel_count(); i++) {
            bstk_kernel_info info = {.struct_size = sizeof info};
            must(bstk_kernel_get(i, &info));
            if (strlen(info.name) != length || strncmp(info.name, part, length) != 0)
                continue;
            roof_loop *loop = loop_of(&info);
            if (best == NULL || loop->flops > best->flops)
                best = loop;
        }
        part += length + (part[length] == '+');
    }
    return best;
}

double roof_rate(const roof_loop *loop) {
    const double start = bench_clock(1);
    loop->run(loop->passes);
    return loop->flops * (double)loop->passes / (bench_clock(1) - start);
}

void roof_calibrate(roof_loop *loop) {
    static const double wanted = 5e-4;
    for (loop->passes = 1000;; loop->passes *= 2) {
        const double start = bench_clock(1);
        loop->run(loop->passes);
        const double seconds = bench_clock(1) - start;
        if (seconds < 0.2 * wanted)
            continue;
        loop->passes = (int64_t)(wanted / seconds * (double)loop->passes) + 1;
        return;
    }
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

double roof_hertz(void) {
    enum { PASSES = 25000, CHAIN = 8 };
    uint64_t sum = 1;
    const double start = bench_clock(1);
    for (int i = 0; i < PASSES; i++)
        for (int j = 0; j < CHAIN; j++) {
            sum += sum; /* one after the other: the compiler cannot see through the next line */
            __asm__ volatile("" : "+r"(sum));
        }
    return (double)PASSES * CHAIN / (bench_clock(1) - start);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

typedef struct copier {
    roof_copy *copy;
    size_t begin, end;
    pthread_t thread;
} copier;

struct roof_copy {
    size_t bytes;
    int threads; /* that copy, this one among them */
    char *from, *to;
    copier *others;
    pthread_barrier_t begin, end;
    int64_t count; /* of copies in this round; 0: leave */
};

/* memcpy, in so many steps that the compiler cannot drop one of several equal ones. */
static void copy_part(const roof_copy *copy, size_t begin, size_t end, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        memcpy(copy->to + begin, copy->from + begin, end - begin);
        __asm__ volatile("" : : "r"(copy->to) : "memory");
    }
}

static void *copy_on_request(void *arg) {
    const copier *me = arg;
    for (;;) {
        pthread_barrier_wait(&me->copy->begin);
        if (me->copy->count == 0)
            return NULL;
        copy_part(me->copy, me->begin, me->end, me->copy->count);
        pthread_barrier_wait(&me->copy->end);
    }
}

roof_copy *roof_copy_make(size_t bytes, int threads) {
    roof_copy *copy = calloc(1, sizeof *copy);
    if (!copy)
        return NULL;
    copy->bytes = bytes;
    copy->threads = threads;
    const size_t room = (bytes / 4096 + 1) * 4096;
    copy->from = aligned_alloc(4096, room);
    copy->to = aligned_alloc(4096, room);
    copy->others = calloc((size_t)threads, sizeof *copy->others);
    if (!copy->from || !copy->to || !copy->others) {
        copy->threads = 1;
        roof_copy_free(copy);
        return NULL;
    }
    memset(copy->from, 1, room);
    memset(copy->to, 2, room);
    if (threads > 1) {
        pthread_barrier_init(&copy->begin, NULL, (unsigned)threads);
        pthread_barrier_init(&copy->end, NULL, (unsigned)threads);
    }
    for (int i = 1; i < threads; i++) {
        copier *c = &copy->others[i];
        *c = (copier){copy, bytes / (size_t)threads * (size_t)i, bytes / (size_t)threads * (size_t)(i + 1), 0};
        if (pthread_create(&c->thread, NULL, copy_on_request, c) != 0)
            fail("bench: cannot start a thread for copies");
    }
    return copy;
}

void roof_copy_free(roof_copy *copy) {
    if (!copy)
        return;
    if (copy->threads > 1) {
        copy->count = 0;
        pthread_barrier_wait(&copy->begin);
        for (int i = 1; i < copy->threads; i++)
            pthread_join(copy->others[i].thread, NULL);
        pthread_barrier_destroy(&copy->begin);
        pthread_barrier_destroy(&copy->end);
    }
    free(copy->others);
    free(copy->from);
    free(copy->to);
    free(copy);
}

double roof_copy_seconds(roof_copy *copy, int64_t count) {
    const double start = bench_clock(copy->threads);
    copy->count = count;
    if (copy->threads > 1)
        pthread_barrier_wait(&copy->begin);
    copy_part(copy, 0, copy->threads > 1 ? copy->bytes / (size_t)copy->threads : copy->bytes, count);
    if (copy->threads > 1)
        pthread_barrier_wait(&copy->end);
    return (bench_clock(copy->threads) - start) / (double)count;
}
