/*
 * test_core.c: the leaf layer: half types against the simplest reference, checked arithmetic, environment knobs (in
 * child processes, as they are read once), caps on CPU features, and the readings of tensors.
 */
#include "support/cm.h"

#include "check/gen.h"
#include "core/checked.h"
#include "core/context_impl.h"
#include "core/cpu_features.h"
#include "core/env.h"
#include "core/error.h"
#include "core/half.h"
#include "core/tensor_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- half types -------------------------------------------------------------------------------------------------- */

typedef struct half {
    int fraction_bits, bias, last; /* `last`: exponent field of infinities and NaN */
    float (*decode)(uint16_t h);
    uint16_t (*encode)(float value);
} half;

static const half halves[] = {{10, 15, 31, bstk__f16_to_f32, bstk__f32_to_f16},
                              {7, 127, 255, bstk__bf16_to_f32, bstk__f32_to_bf16}};

/* sign * fraction * 2^exponent, straight from the definition. */
static double value_of(const half *f, unsigned h) {
    const int exponent = (int)(h >> f->fraction_bits) & f->last, fraction = (int)h & ((1 << f->fraction_bits) - 1);
    double magnitude;
    if (exponent == f->last)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, 1 - f->bias - f->fraction_bits);
    else
        magnitude = ldexp(fraction + (1 << f->fraction_bits), exponent - f->bias - f->fraction_bits);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_half_round_trip(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; ++i)
        for (unsigned h = 0; h < 65536; ++h) {
            const half *f = &halves[i];
            const float decoded = f->decode((uint16_t)h);
            const double want = value_of(f, h);
            if (isnan(want)) {
                assert_true(isnan(decoded) && isnan(f->decode(f->encode(decoded))));
                continue;
            }
            assert_true((double)decoded == want && !signbit(decoded) == !signbit(want));
            assert_int_equal(f->encode(decoded), h);
        }
}

/* The nearest of the two neighbours of |value|, found by bisection; a tie goes to the one with an even last bit. */
static uint16_t nearest(const half *f, float value) {
    const double magnitude = fabs((double)value);
    const unsigned infinity = (unsigned)f->last << f->fraction_bits;
    unsigned low = 0, high = infinity; /* value_of(low) <= magnitude < value_of(high) */
    if (isinf(value))
        return (uint16_t)(infinity | (signbit(value) ? 0x8000u : 0));
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (value_of(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    /* Infinity stands for the number that would follow the largest one. */
    const double above = high == infinity ? ldexp(1, f->last - f->bias) : value_of(f, high);
    const double down = magnitude - value_of(f, low), up = above - magnitude;
    const unsigned best = down < up || (down == up && low % 2 == 0) ? low : high;
    return (uint16_t)(best | (signbit(value) ? 0x8000u : 0));
}

static void check_rounding(const half *f, uint32_t bits) {
    const float value = bstk__bits_f32(bits);
    const uint16_t got = f->encode(value);
    if (isnan(value)) {
        assert_true(isnan(f->decode(got)));
        assert_int_equal(got >> 15, bits >> 31);
    } else if (got != nearest(f, value)) {
        fail_msg("%s of %a is %#x, expected %#x", f->bias == 15 ? "f16" : "bf16", (double)value, got,
                 nearest(f, value));
    }
}

static void test_half_rounding(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; ++i) {
        const half *f = &halves[i];
        for (unsigned h = 0; h < ((unsigned)f->last << f->fraction_bits); ++h) {
            /* The middle between each two neighbours, and the numbers beside it, of both signs. */
            const double above =
                h + 1 == ((unsigned)f->last << f->fraction_bits) ? ldexp(1, f->last - f->bias) : value_of(f, h + 1);
            const uint32_t middle = bstk__f32_bits((float)(value_of(f, h) / 2 + above / 2));
            for (uint32_t step = 0; step < 3; ++step) {
                check_rounding(f, middle - 1 + step);
                check_rounding(f, (middle - 1 + step) | 0x80000000u);
            }
        }
        for (uint64_t n = 0; n < 300000; ++n)
            check_rounding(f, (uint32_t)gen_hash(7, n));
        static const uint32_t specials[] = {0,           0x80000000u, 1,           0x007fffffu, 0x00800000u,
                                            0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fc00000u,
                                            0xffffffffu, 0x7f803fffu, 0x477fefffu, 0x477ff000u, 0x33000000u,
                                            0x33000001u, 0x32ffffffu, 0x38800000u};
        for (size_t n = 0; n < sizeof specials / sizeof *specials; ++n)
            check_rounding(f, specials[n]);
    }
}

/* ---- checked arithmetic ------------------------------------------------------------------------------------------ */

static void test_checked(void **state) {
    (void)state;
    int64_t out = 0;
    assert_true(bstk__mul(INT64_C(1) << 31, INT64_C(1) << 31, &out));
    assert_true(out == INT64_C(1) << 62);
    assert_false(bstk__mul(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_true(bstk__mul(INT64_C(1) << 32, -(INT64_C(1) << 31), &out));
    assert_true(out == INT64_MIN);
    assert_false(bstk__mul(INT64_MIN, -1, &out));
    assert_true(bstk__mul(0, INT64_MAX, &out) && out == 0);
    assert_true(bstk__add(INT64_MAX, INT64_MIN, &out) && out == -1);
    assert_false(bstk__add(INT64_MAX, 1, &out));
    assert_false(bstk__add(INT64_MIN, -1, &out));
    assert_int_equal(bstk__ceil_div(0, 16), 0);
    assert_int_equal(bstk__ceil_div(1, 16), 1);
    assert_int_equal(bstk__ceil_div(16, 16), 1);
    assert_int_equal(bstk__ceil_div(17, 16), 2);
    assert_true(bstk__ceil_div(INT64_MAX, 2) == INT64_MAX / 2 + 1);
}

static void test_alloc(void **state) {
    (void)state;
    bstk_context *ctx = bstk__context_resolve(NULL);
    assert_null(bstk__alloc(ctx, -1, 1));
    assert_null(bstk__alloc(ctx, INT64_MAX, 2));
    assert_null(bstk__alloc(ctx, 2, SIZE_MAX));
    assert_null(bstk__alloc_zeroed(ctx, INT64_MAX / 4, 8));
    unsigned char *some = bstk__alloc_zeroed(ctx, 100, 3);
    assert_non_null(some);
    assert_int_equal((uintptr_t)some % 64, 0);
    for (int i = 0; i < 300; ++i)
        assert_int_equal(some[i], 0);
    void *none = bstk__alloc(ctx, 0, 8);
    assert_non_null(none);
    bstk__free(ctx, none);
    bstk__free(ctx, some);
    bstk__free(ctx, NULL);
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static void test_status(void **state) {
    (void)state;
    static const char *const names[] = {
        "BSTK_OK",           "BSTK_ERR_INVALID", "BSTK_ERR_TYPE",     "BSTK_ERR_UNSUPPORTED",
        "BSTK_ERR_MISMATCH", "BSTK_ERR_NOMEM",   "BSTK_ERR_OVERFLOW", "BSTK_ERR_IO",
        "BSTK_ERR_FORMAT",   "BSTK_ERR_DEVICE",  "BSTK_ERR_COMM"};
    for (int i = 0; i <= (int)BSTK_ERR_COMM; ++i)
        assert_string_equal(bstk_status_name((bstk_status)i), names[i]);
    assert_string_equal(bstk_status_name((bstk_status)11), "BSTK_ERR_?");
    assert_string_equal(bstk_status_name((bstk_status)-1), "BSTK_ERR_?");
    refused(bstk__fail(BSTK_ERR_IO, "%s: %d", "x", 5), BSTK_ERR_IO, "x: 5");
    char *text = malloc(5001); /* a longer message than the buffer is cut, with a final NUL */
    assert_non_null(text);
    memset(text, 'a', 5000);
    text[5000] = 0;
    assert_int_equal(bstk__fail(BSTK_ERR_IO, "%s", text), BSTK_ERR_IO);
    assert_int_equal(strlen(bstk_last_error()), 1023);
    free(text);
}

/* ---- environment ------------------------------------------------------------------------------------------------- */

/* Runs `body` in a child with one variable set (value NULL: unset); returns its exit code, its standard error in text.
 */
static int in_child(const char *name, const char *value, int (*body)(void), char *text, size_t bytes) {
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        unsetenv("BSTK_NUM_THREADS");
        unsetenv("BSTK_MAX_ISA");
        unsetenv("BSTK_LOG");
        unsetenv("BSTK_CACHE_DIR");
        if (value)
            setenv(name, value, 1);
        _exit(body());
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used + 1 < bytes && (got = read(ends[0], text + used, bytes - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int threads_body(void) {
    return (int)bstk__env_get()->num_threads & 0xff;
}

static int threads_agree(void) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *given = NULL, *plain = NULL;
    opts.num_threads = 3;
    if (bstk_context_create(&opts, &given) || bstk_context_create(NULL, &plain))
        return 100;
    const bool right = bstk_context_num_threads(NULL) == 5 && bstk_context_num_threads(plain) == 5 &&
                       bstk_context_num_threads(given) == 3; /* what the options say wins */
    bstk_context_release(given);
    bstk_context_release(plain);
    return right;
}

static void test_env_threads(void **state) {
    (void)state;
    char text[512];
    static const char *const bad[] = {"0", "-1", "4097", "abc", "3x", "3 ", "1e2", "99999999999999999999", "+-1"};
    static const char *const good[] = {"1", "7", "200"};
    assert_int_equal(in_child("BSTK_NUM_THREADS", NULL, threads_body, text, sizeof text), 0);
    assert_int_equal(in_child("BSTK_NUM_THREADS", "", threads_body, text, sizeof text), 0);
    assert_string_equal(text, "");
    for (size_t i = 0; i < sizeof good / sizeof *good; ++i) {
        assert_int_equal(in_child("BSTK_NUM_THREADS", good[i], threads_body, text, sizeof text), atoi(good[i]));
        assert_string_equal(text, "");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        char want[128];
        snprintf(want, sizeof want, "bstk: BSTK_NUM_THREADS=%s is ignored: expected a number from 1 to 4096\n", bad[i]);
        assert_int_equal(in_child("BSTK_NUM_THREADS", bad[i], threads_body, text, sizeof text), 0);
        assert_string_equal(text, want);
    }
    assert_int_equal(in_child("BSTK_NUM_THREADS", "5", threads_agree, text, sizeof text), 1);
}

static int isa_body(void) {
    const bstk_context *ctx = bstk__context_resolve(NULL);
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *wide = NULL;
    opts.max_isa = "avx512"; /* above the environment's cap: has no effect */
    if (bstk_context_create(&opts, &wide))
        return 100;
    const bool lowered = wide->features == ctx->features;
    bstk_context_release(wide);
    return ctx->features == 0 && lowered ? 1 : ctx->features == bstk__cpu_features() && lowered ? 2 : 3;
}

static void test_env_isa(void **state) {
    (void)state;
    char text[512];
    const int all = bstk__cpu_features() == 0 ? 1 : 2;
    assert_int_equal(in_child("BSTK_MAX_ISA", "scalar", isa_body, text, sizeof text), 1);
    assert_int_equal(in_child("BSTK_MAX_ISA", NULL, isa_body, text, sizeof text), all);
    assert_int_equal(in_child("BSTK_MAX_ISA", "avx512", isa_body, text, sizeof text), all);
    assert_string_equal(text, "");
    assert_int_equal(in_child("BSTK_MAX_ISA", "sse9", isa_body, text, sizeof text), all);
    assert_string_equal(text, "bstk: BSTK_MAX_ISA=sse9 is ignored: expected scalar, avx2, avx512 or neon\n");
}

static int log_body(void) {
    return (int)bstk__context_resolve(NULL)->log_mask;
}

static void test_env_log(void **state) {
    (void)state;
    char text[512];
    assert_int_equal(in_child("BSTK_LOG", NULL, log_body, text, sizeof text), 0);
    assert_int_equal(in_child("BSTK_LOG", "dispatch", log_body, text, sizeof text), BSTK__LOG_DISPATCH);
    assert_int_equal(in_child("BSTK_LOG", "plan", log_body, text, sizeof text), BSTK__LOG_PLAN);
    assert_int_equal(in_child("BSTK_LOG", "plan,dispatch", log_body, text, sizeof text), 3);
    assert_int_equal(in_child("BSTK_LOG", "all", log_body, text, sizeof text), 3);
    assert_int_equal(in_child("BSTK_LOG", "none", log_body, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(in_child("BSTK_LOG", "plan,loud", log_body, text, sizeof text), 0);
    assert_string_equal(text, "bstk: BSTK_LOG=plan,loud is ignored: expected dispatch, plan, all or none\n");
}

static int cache_body(void) {
    const char *cache = bstk__env_get()->cache_dir;
    return cache == NULL ? 1 : strcmp(cache, "/a b") == 0 ? 2 : 3;
}

static void test_env_cache(void **state) {
    (void)state;
    char text[64];
    assert_int_equal(in_child("BSTK_CACHE_DIR", NULL, cache_body, text, sizeof text), 1);
    assert_int_equal(in_child("BSTK_CACHE_DIR", "/a b", cache_body, text, sizeof text), 2);
}

static int info_body(void) {
    char text[4096], cut[10];
    const size_t length = bstk_build_info(text, sizeof text);
    memset(cut, 'x', sizeof cut);
    const bool right = length == strlen(text) && bstk_build_info(NULL, 0) == length &&
                       bstk_build_info(cut, sizeof cut) == length && memcmp(cut, text, 9) == 0 && cut[9] == 0;
    return right && strstr(text, "version: " BSTK_VERSION "\n") && strstr(text, "\nthreads: 6\n") &&
           strstr(text, "\nBSTK_NUM_THREADS: 6\n") && strstr(text, "\nBSTK_LOG: (unset)\n");
}

static void test_build_info(void **state) {
    (void)state;
    char text[512];
    assert_int_equal(in_child("BSTK_NUM_THREADS", "6", info_body, text, sizeof text), 1);
    assert_string_equal(bstk_version(), BSTK_VERSION);
}

/* ---- cpu features ------------------------------------------------------------------------------------------------ */

static void test_features(void **state) {
    (void)state;
    const uint32_t x86 = BSTK__F_AVX2 | BSTK__F_AVX512 | BSTK__F_AVX512_BF16, arm = BSTK__F_NEON | BSTK__F_NEON_BF16;
    assert_int_equal(bstk__isa_level("scalar"), 0);
    assert_int_equal(bstk__isa_level("avx2"), 1);
    assert_int_equal(bstk__isa_level("neon"), 1);
    assert_int_equal(bstk__isa_level("avx512"), 2);
    assert_int_equal(bstk__isa_level("AVX2"), -1);
    assert_int_equal(bstk__isa_level(""), -1);
    assert_int_equal(bstk__features_under_cap(x86, -1), x86);
    assert_int_equal(bstk__features_under_cap(x86, 2), x86);
    assert_int_equal(bstk__features_under_cap(x86, 1), BSTK__F_AVX2);
    assert_int_equal(bstk__features_under_cap(x86 | BSTK__F_AMX_BF16, 1), BSTK__F_AVX2);
    assert_int_equal(bstk__features_under_cap(x86, 0), 0);
    assert_int_equal(bstk__features_under_cap(arm, 1), arm);
    assert_int_equal(bstk__features_under_cap(arm, 0), 0);
    /* A cap lowers and never raises: "avx512" on a machine without it leaves what is there. */
    assert_int_equal(bstk__features_under_cap(BSTK__F_AVX2, 2), BSTK__F_AVX2);
    for (uint32_t set = 0; set < 32; set++)
        for (int level = -1; level <= 2; level++) {
            assert_int_equal(bstk__features_under_cap(set, level) & ~set, 0);
            assert_int_equal(bstk__features_under_cap(set, level) &
                                 ~bstk__features_under_cap(set, level < 0 || level == 2 ? -1 : level + 1),
                             0);
        }
    char text[128], small[8];
    bstk__features_text(0, text, sizeof text);
    assert_string_equal(text, "none");
    bstk__features_text(x86, text, sizeof text);
    assert_string_equal(text, "avx2+fma+f16c avx512f/bw/dq/vl avx512bf16");
    bstk__features_text(arm, text, sizeof text);
    assert_string_equal(text, "neon neon-bf16");
    bstk__features_text(x86, small, sizeof small);
    assert_string_equal(small, "avx2+fm");
    const uint32_t found = bstk__cpu_features(); /* a machine has one family, and no 512 without 256 */
    assert_true((found & x86) == 0 || (found & arm) == 0);
    assert_true((found & BSTK__F_AVX512) == 0 || (found & BSTK__F_AVX2) != 0);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void test_tensor_make(void **state) {
    (void)state;
    const bstk_tensor t = bstk_tensor_make(NULL, BSTK_F16, 3, shape(2, 3, 5));
    assert_true(t.stride[0] == 15 && t.stride[1] == 5 && t.stride[2] == 1 && t.device.kind == BSTK_CPU);
    assert_int_equal(bstk_tensor_make(NULL, BSTK_F32, 9, shape(1, 2, 3, 4)).ndim, 4);
    assert_int_equal(bstk_tensor_make(NULL, BSTK_F32, -1, NULL).ndim, 0);
    const bstk_tensor huge = bstk_tensor_make(NULL, BSTK_F32, 3, shape(INT64_MAX, INT64_MAX, 2));
    bstk__view v;
    assert_int_equal(bstk__view_make("op", "x", &huge, 2, 4, &v), BSTK_ERR_OVERFLOW);
}

static void test_dtypes(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 8, 4, 2, 2, 1, 1, 1, 2, 2, 4, 4, 8, 8};
    static const char *const names[] = {"unknown", "float64", "float32", "float16", "bfloat16", "bool",   "uint8",
                                        "int8",    "uint16",  "int16",   "uint32",  "int32",    "uint64", "int64"};
    for (int i = 0; i < 14; ++i) {
        assert_int_equal(bstk_dtype_size((bstk_dtype)i), sizes[i]);
        assert_string_equal(bstk_dtype_name((bstk_dtype)i), names[i]);
        assert_int_equal(bstk__is_float((bstk_dtype)i), i >= 1 && i <= 4);
    }
    assert_int_equal(bstk_dtype_size((bstk_dtype)14), 0);
    assert_string_equal(bstk_dtype_name((bstk_dtype)14), "unknown");
    assert_string_equal(bstk_dtype_name((bstk_dtype)-5), "unknown");
}

static void test_load_integer(void **state) {
    (void)state;
    for (int i = BSTK_BOOL; i <= BSTK_I64; ++i) {
        unsigned char raw[8];
        memset(raw, 0xff, sizeof raw);
        const int64_t got = bstk__load_integer((bstk_dtype)i, raw);
        switch ((bstk_dtype)i) {
        case BSTK_BOOL:
            assert_int_equal(got, 1);
            break;
        case BSTK_U8:
            assert_int_equal(got, 255);
            break;
        case BSTK_U16:
            assert_int_equal(got, 65535);
            break;
        case BSTK_U32:
            assert_true(got == UINT32_MAX);
            break;
        case BSTK_U64:
            assert_true(got == INT64_MAX);
            break;
        default:
            assert_true(got == -1);
            break;
        }
    }
    unsigned char odd[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8}; /* any address will do */
    assert_true(bstk__load_integer(BSTK_I64, odd + 1) == INT64_C(0x0807060504030201));
}

static void test_view(void **state) {
    (void)state;
    bstk__view v;
    bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(3, 4));
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));
    assert_true(v.shape[0] == 1 && v.shape[1] == 1 && v.shape[2] == 3 && v.shape[3] == 4);
    assert_true(v.stride[0] == 0 && v.stride[1] == 0 && v.stride[2] == 4 && v.stride[3] == 1);
    t.stride[0] = -4;
    t.stride[1] = 0;
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));
    assert_true(v.stride[2] == -4 && v.stride[3] == 0);
    t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(1, 4)); /* the stride of one element is not looked at ... */
    t.stride[0] = INT64_MIN;
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));
    assert_int_equal(v.stride[2], 0);
    t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(0, 4)); /* ... nor that of none */
    t.stride[1] = INT64_C(1) << 50;
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));

    refused(bstk__view_make("op", "x", NULL, 2, 4, &v), BSTK_ERR_INVALID, "op: x is NULL");
    t = bstk_tensor_make(NULL, (bstk_dtype)99, 2, shape(3, 4));
    refused(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_TYPE, "op: x has the unknown type 99");
    t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(3, 4));
    t.device.kind = BSTK_CUDA;
    refused(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_UNSUPPORTED,
            "op: x is on device kind 2, expected the CPU (1)");
    t = bstk_tensor_make(NULL, BSTK_F32, 1, shape(3));
    refused(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_INVALID, "op: x has 1 axes, expected 2 to 4");
    t.ndim = 5;
    refused(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_INVALID, "op: x has 5 axes, expected 2 to 4");
    t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(3, -4));
    refused(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_INVALID,
            "op: x has size -4 on axis 1, expected 0 or more");
}

static void test_view_offsets(void **state) {
    (void)state;
    bstk__view v;
    bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(3, 4));
    t.stride[0] = INT64_C(1) << 60; /* elements fit, bytes do not */
    refused(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_OVERFLOW,
            "op: x has offsets beyond 64 bits (axis 0: size 3, stride 1152921504606846976)");
    t.stride[0] = INT64_MIN;
    assert_int_equal(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_OVERFLOW);
    t.stride[0] = INT64_C(1) << 59; /* 2^60 elements, 2^62 bytes: fits; a second such axis does not */
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));
    t.stride[1] = INT64_C(1) << 59;
    assert_int_equal(bstk__view_make("op", "x", &t, 2, 4, &v), BSTK_ERR_OVERFLOW);
    t.stride[0] = -(INT64_C(1) << 59); /* one up and one down fit */
    t.stride[1] = INT64_C(1) << 58;
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));
    t.shape[0] = t.shape[1] = INT64_MAX; /* broadcasts of any size reach nowhere */
    t.stride[0] = t.stride[1] = 0;
    ok(bstk__view_make("op", "x", &t, 2, 4, &v));
}

static void test_output(void **state) {
    (void)state;
    bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 3, shape(2, 1, 4));
    ok(bstk__check_output("op", "c", &t));
    t.stride[1] = 0;
    ok(bstk__check_output("op", "c", &t));
    t.stride[0] = 0;
    refused(bstk__check_output("op", "c", &t), BSTK_ERR_INVALID,
            "op: output c has stride 0 on axis 0 of size 2: its elements share memory");
    t.shape[2] = 0;
    ok(bstk__check_output("op", "c", &t));
}

static void test_same(void **state) {
    (void)state;
    float data[12];
    const bstk_tensor planned = bstk_tensor_make(NULL, BSTK_F32, 2, shape(3, 4));
    bstk_tensor t = bstk_tensor_make(data, BSTK_F32, 2, shape(3, 4));
    ok(bstk__check_same("op", "x", &planned, &t));
    refused(bstk__check_same("op", "x", &planned, NULL), BSTK_ERR_INVALID, "op: x is NULL");
    refused(bstk__check_same("op", "x", &planned, &planned), BSTK_ERR_INVALID, "op: x.data is NULL");
    t = bstk_tensor_make(data, BSTK_F32, 2, shape(4, 3));
    refused(bstk__check_same("op", "x", &planned, &t), BSTK_ERR_MISMATCH,
            "op: x is float32 [4, 3], but the plan was made for float32 [3, 4] (or other strides)");
    t = bstk_tensor_make(data, BSTK_F16, 2, shape(3, 4));
    assert_int_equal(bstk__check_same("op", "x", &planned, &t), BSTK_ERR_MISMATCH);
    t = bstk_tensor_make(data, BSTK_F32, 2, shape(3, 4));
    t.stride[0] = 5;
    assert_int_equal(bstk__check_same("op", "x", &planned, &t), BSTK_ERR_MISMATCH);
    t = bstk_tensor_make(data, BSTK_F32, 2, shape(3, 4));
    t.device.kind = BSTK_CUDA;
    assert_int_equal(bstk__check_same("op", "x", &planned, &t), BSTK_ERR_MISMATCH);
    t.ndim = 77; /* more axes than a tensor has are not read */
    refused(bstk__check_same("op", "x", &planned, &t), BSTK_ERR_MISMATCH,
            "op: x has 77 axes, but the plan was made for 2");
    const bstk_tensor empty = bstk_tensor_make(NULL, BSTK_F32, 2, shape(0, 4));
    ok(bstk__check_same("op", "x", &empty, &empty));
    const bstk_tensor row = bstk_tensor_make(NULL, BSTK_F32, 2, shape(1, 4));
    t = bstk_tensor_make(data, BSTK_F32, 2, shape(1, 4));
    t.stride[0] = 1234; /* never walked */
    ok(bstk__check_same("op", "x", &row, &t));
}

/* Marks the bytes of a tensor of at most 4 axes; `mark` is where address 0 of `base` is. */
static void mark_bytes(const bstk_tensor *t, const char *base, unsigned char *mark, unsigned char bit) {
    int64_t i[4] = {0};
    for (;;) {
        int64_t offset = (const char *)t->data - base;
        for (int32_t axis = 0; axis < t->ndim; ++axis)
            offset += i[axis] * t->stride[axis] * (int64_t)bstk_dtype_size(t->dtype);
        for (size_t byte = 0; byte < bstk_dtype_size(t->dtype); ++byte)
            mark[offset + (int64_t)byte] |= bit;
        int32_t axis = t->ndim - 1;
        for (; axis >= 0 && ++i[axis] == t->shape[axis]; --axis)
            i[axis] = 0;
        if (axis < 0)
            return;
    }
}

/* Random views against their bytes: what overlaps is never called apart. Slices of one buffer are called apart. */
static void test_interleaved(void **state) {
    (void)state;
    enum { BYTES = 12288, MIDDLE = 6144 }; /* no view reaches further */
    static char data[BYTES];
    uint64_t seed = 1;
    int apart = 0;
    for (int round = 0; round < 5000; ++round) {
        bstk_tensor t[2];
        unsigned char mark[BYTES] = {0};
        for (int k = 0; k < 2; ++k) {
            t[k] = bstk_tensor_make(data + MIDDLE, k ? BSTK_F32 : BSTK_F16, 3, shape(1, 1, 1));
            for (int axis = 0; axis < 3; ++axis) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                t[k].shape[axis] = 1 + (int64_t)(seed >> 60) % 4;
                t[k].stride[axis] = (int64_t)(seed >> 40 & 31) * (round % 2 ? 1 : 4) - (round % 3 ? 0 : 16);
            }
            t[k].data = data + MIDDLE + (seed >> 20 & 63);
            mark_bytes(&t[k], data, mark, (unsigned char)(1 << k));
        }
        bool together = false;
        for (int byte = 0; byte < BYTES; ++byte)
            together |= mark[byte] == 3;
        const bool said = bstk__overlap(&t[0], &t[1]);
        assert_true(said == bstk__overlap(&t[1], &t[0]));
        assert_true(said || !together);
        apart += !said;
    }
    assert_true(apart > 1000);
    /* q, k and v of a projection [2, 5, 3, 4, 8] (batch, token, which, head, size), as [Z, H, M, D]. */
    bstk_tensor q = bstk_tensor_make(data, BSTK_F32, 4, shape(2, 4, 5, 8));
    q.stride[0] = 5 * 96;
    q.stride[1] = 8;
    q.stride[2] = 96;
    bstk_tensor k = q, v = q;
    k.data = data + 32 * 4;
    v.data = data + 64 * 4;
    assert_false(bstk__overlap(&q, &k) || bstk__overlap(&k, &v) || bstk__overlap(&v, &q));
    k.data = data + 31 * 4;
    assert_true(bstk__overlap(&q, &k));
}

static void test_overlap(void **state) {
    (void)state;
    float data[64] = {0};
    bstk_tensor x = bstk_tensor_make(data, BSTK_F32, 2, shape(4, 4));
    bstk_tensor y = bstk_tensor_make(data + 16, BSTK_F32, 2, shape(4, 4));
    assert_false(bstk__overlap(&x, &y) || bstk__overlap(&y, &x));
    y.data = data + 15;
    assert_true(bstk__overlap(&x, &y) && bstk__overlap(&y, &x));
    y = x;
    y.data = data + 35; /* backwards: from 35 down to 20 */
    y.stride[0] = -4;
    y.stride[1] = -1;
    assert_false(bstk__overlap(&x, &y));
    y.data = data + 30; /* down to 15 */
    assert_true(bstk__overlap(&x, &y));
    y = bstk_tensor_make(data, BSTK_F32, 2, shape(0, 4));
    assert_false(bstk__overlap(&x, &y));
    y = x; /* all reads of one element */
    y.stride[0] = y.stride[1] = 0;
    y.data = data + 16;
    assert_false(bstk__overlap(&x, &y));
    y = bstk_tensor_make((char *)data + 63, BSTK_U8, 2, shape(1, 1)); /* the last byte of x */
    assert_true(bstk__overlap(&x, &y));
    y.data = (char *)data + 64;
    assert_false(bstk__overlap(&x, &y));
    y = x;
    assert_true(bstk__identical(&x, &y));
    y.stride[0] = 8;
    assert_false(bstk__identical(&x, &y));
    y = x;
    y.dtype = BSTK_I32;
    assert_false(bstk__identical(&x, &y));
    /* A reach whose end is the last byte that 64 bits can name: no wrap while the ranges are compared. */
    y = x;
    y.shape[0] = 2;
    y.stride[0] = (INT64_MAX >> 2) - 3;
    assert_true(bstk__overlap(&x, &y));
}

static void test_shape_text(void **state) {
    (void)state;
    char text[96];
    const bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 4, shape(INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN));
    assert_string_equal(bstk__shape_text(&t, text), "[-9223372036854775808, -9223372036854775808, "
                                                    "-9223372036854775808, -9223372036854775808]");
    const bstk_tensor none = bstk_tensor_make(NULL, BSTK_F32, 0, NULL);
    assert_string_equal(bstk__shape_text(&none, text), "[]");
}

int main(void) {
    /* Those of the environment first: their children must be the first to read it. */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_env_threads),   cmocka_unit_test(test_env_isa),
                                       cmocka_unit_test(test_env_log),       cmocka_unit_test(test_env_cache),
                                       cmocka_unit_test(test_build_info),    cmocka_unit_test(test_half_round_trip),
                                       cmocka_unit_test(test_half_rounding), cmocka_unit_test(test_checked),
                                       cmocka_unit_test(test_alloc),         cmocka_unit_test(test_status),
                                       cmocka_unit_test(test_features),      cmocka_unit_test(test_tensor_make),
                                       cmocka_unit_test(test_dtypes),        cmocka_unit_test(test_load_integer),
                                       cmocka_unit_test(test_view),          cmocka_unit_test(test_view_offsets),
                                       cmocka_unit_test(test_output),        cmocka_unit_test(test_same),
                                       cmocka_unit_test(test_interleaved),   cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_shape_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
