/*
 * test_registry.c: the list of kernels and the choice among them: unique names, a portable last row for each op and its
 * types, forced kernels, and the reasons that dispatch logs.
 */
#include "support/cm.h"

#include "core/context_impl.h"
#include "core/cpu_features.h"
#include "plan/registry.h"
#include "support/op_case.h"

#include <stdio.h>
#include <string.h>

static bstk_kernel_info row(int32_t i) {
    bstk_kernel_info info = {.struct_size = sizeof info};
    ok(bstk_kernel_get(i, &info));
    return info;
}

static const char *type_name(bstk_dtype dtype) {
    static const char *const names[] = {"", "f64", "f32", "f16", "bf16"};
    return names[dtype];
}

static void test_names(void **state) {
    (void)state;
    static const char *const ops[] = {"sdd",          "dsd",       "dds",           "softmax",        "pack",
                                      "unpack",       "layernorm", "rmsnorm",       "layernorm_grad", "rmsnorm_grad",
                                      "softmax_grad", "attention", "attention_grad"};
    const int32_t count = bstk_kernel_count();
    assert_true(count > 0);
    for (int32_t i = 0; i < count; ++i) {
        const bstk_kernel_info info = row(i);
        bool known = false;
        for (size_t k = 0; k < sizeof ops / sizeof *ops; ++k)
            known = known || strcmp(info.op, ops[k]) == 0;
        if (!known)
            fail_msg("%s has the unknown op %s", info.name, info.op);
        for (int32_t k = 0; k < i; ++k)
            if (strcmp(row(k).name, info.name) == 0)
                fail_msg("%s is registered twice", info.name);
        /* op_type..., ending with the isa (and whatever an isa's variant adds) */
        char start[64];
        snprintf(start, sizeof start, "%s_%s_", info.op, type_name(info.dtype));
        if (strncmp(info.name, start, strlen(start)) != 0 || strstr(info.name, info.isa) == NULL)
            fail_msg("%s is not called %s...%s", info.name, start, info.isa);
        assert_true((info.packed_dtype != info.dtype) == (strstr(info.name, "_packed_") != NULL));
        assert_true(info.block == 0 || (info.block >= 8 && info.block <= 256 && info.block % 8 == 0));
        assert_int_equal(info.available, info.why_not[0] == 0);
    }
}

/* The last row of each op and types takes any block on any machine. */
static void test_last_row_takes_all(void **state) {
    (void)state;
    for (int32_t i = 0; i < bstk_kernel_count(); ++i) {
        const bstk_kernel_info info = row(i);
        bstk_kernel_info last = info;
        for (int32_t k = i + 1; k < bstk_kernel_count(); ++k) {
            const bstk_kernel_info other = row(k);
            if (strcmp(other.op, info.op) == 0 && other.dtype == info.dtype && other.packed_dtype == info.packed_dtype)
                last = other;
        }
        assert_int_equal(last.block, 0);
        assert_int_equal(last.available, 1);
        assert_string_equal(last.isa, "scalar");
    }
    /* Every type that an op takes has such a row. */
    static const char *const ops[] = {"sdd",          "dsd",       "dds",           "softmax",        "pack",
                                      "unpack",       "layernorm", "rmsnorm",       "layernorm_grad", "rmsnorm_grad",
                                      "softmax_grad", "attention", "attention_grad"};
    for (size_t op = 0; op < sizeof ops / sizeof *ops; ++op)
        for (int dtype = BSTK_F64; dtype <= BSTK_BF16; ++dtype)
            for (int wide = 0; wide < (op < 3 && dtype >= BSTK_F16 ? 2 : 1); ++wide) {
                int found = 0;
                for (int32_t i = 0; i < bstk_kernel_count(); ++i)
                    found += strcmp(row(i).op, ops[op]) == 0 && (int)row(i).dtype == dtype &&
                             row(i).packed_dtype == (wide ? BSTK_F32 : (bstk_dtype)dtype);
                assert_true(found > 0);
            }
}

static void test_get_refuses(void **state) {
    (void)state;
    char text[128];
    bstk_kernel_info info = {.struct_size = sizeof info};
    snprintf(text, sizeof text, "kernel: i is -1, expected 0 to %d", (int)bstk_kernel_count() - 1);
    refused(bstk_kernel_get(-1, &info), BSTK_ERR_INVALID, text);
    snprintf(text, sizeof text, "kernel: i is %d, expected 0 to %d", (int)bstk_kernel_count(),
             (int)bstk_kernel_count() - 1);
    refused(bstk_kernel_get(bstk_kernel_count(), &info), BSTK_ERR_INVALID, text);
    assert_null(info.name);
    snprintf(text, sizeof text, "kernel: info is NULL or its struct_size is not %zu", sizeof info);
    refused(bstk_kernel_get(0, NULL), BSTK_ERR_INVALID, text);
    info.struct_size = 8;
    refused(bstk_kernel_get(0, &info), BSTK_ERR_INVALID, text);
}

/* ---- selection over a list of our own ------------------------------------------------------------------------------
 */

static const char *never(const void *args) {
    (void)args;
    return "takes no such sizes";
}

static const char *when_args(const void *args) {
    return args ? NULL : "needs args";
}

static void no_kernel(const void *args, int64_t begin, int64_t end, void *scratch) {
    (void)args;
    (void)begin;
    (void)end;
    (void)scratch;
}

static const uint32_t missing_bit = 1u << 30;

static const bstk__kernel list[] = {
    {"op_f32_other", "other", "scalar", 0, BSTK_F32, BSTK_F32, 0, NULL, no_kernel, NULL},
    {"op_f16_b16", "op", "scalar", 0, BSTK_F16, BSTK_F16, 16, NULL, no_kernel, NULL},
    {"op_f32_b16", "op", "scalar", 0, BSTK_F32, BSTK_F32, 16, NULL, no_kernel, NULL},
    {"op_f32_wide", "op", "wide", missing_bit, BSTK_F32, BSTK_F32, 0, NULL, no_kernel, NULL},
    {"op_f32_picky", "op", "scalar", 0, BSTK_F32, BSTK_F32, 0, never, no_kernel, NULL},
    {"op_f32_args", "op", "scalar", 0, BSTK_F32, BSTK_F32, 0, when_args, no_kernel, NULL},
    {"op_f32_scalar", "op", "scalar", 0, BSTK_F32, BSTK_F32, 0, NULL, no_kernel, NULL},
};
enum { LIST = sizeof list / sizeof *list };

typedef struct sink {
    char text[4096];
} sink;

static void log_line(void *user, const char *line) {
    sink *s = user;
    assert_null(strchr(line, '\n'));
    strncat(s->text, line, sizeof s->text - strlen(s->text) - 2);
    strcat(s->text, "\n");
}

static bstk_context *logging_context(sink *s, const char *enabled) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.log = log_line;
    opts.log_user = s;
    opts.log_enabled = enabled;
    opts.num_threads = 1;
    opts.max_isa = "scalar"; /* the same rows on every machine */
    ok(bstk_context_create(&opts, &ctx));
    s->text[0] = 0;
    return ctx;
}

static void test_first_that_accepts(void **state) {
    (void)state;
    sink s;
    bstk_context *ctx = logging_context(&s, "dispatch");
    const bstk__kernel *got = NULL;
    bstk__question q = {.op = "op", .dtype = BSTK_F32, .packed_dtype = BSTK_F32, .block = 32};
    ok(bstk__select(ctx, list, LIST, &q, &got));
    assert_string_equal(got->name, "op_f32_scalar");
    assert_string_equal(
        s.text,
        "bstk dispatch: op float32/float32 b32: op_f32_other refused: is for another op\n"
        "bstk dispatch: op float32/float32 b32: op_f16_b16 refused: is for other types\n"
        "bstk dispatch: op float32/float32 b32: op_f32_b16 refused: is for another block\n"
        "bstk dispatch: op float32/float32 b32: op_f32_wide refused: needs NEON, which this CPU or the cap does "
        "not allow\n"
        "bstk dispatch: op float32/float32 b32: op_f32_picky refused: takes no such sizes\n"
        "bstk dispatch: op float32/float32 b32: op_f32_args refused: needs args\n"
        "bstk dispatch: op float32/float32 b32: op_f32_scalar accepted\n");
    q.block = 16; /* the first one wins */
    ok(bstk__select(ctx, list, LIST, &q, &got));
    assert_string_equal(got->name, "op_f32_b16");
    q.block = 32;
    q.args = &q;
    ok(bstk__select(ctx, list, LIST, &q, &got));
    assert_string_equal(got->name, "op_f32_args");
    bstk_context_release(ctx);
}

static void test_none_accepts(void **state) {
    (void)state;
    sink s;
    bstk_context *ctx = logging_context(&s, "none");
    const bstk__kernel *got = &list[0];
    bstk__question q = {.op = "op", .dtype = BSTK_F64, .packed_dtype = BSTK_F32, .block = 24};
    refused(bstk__select(ctx, list, LIST, &q, &got), BSTK_ERR_UNSUPPORTED,
            "op: no kernel takes float64 with packed float32 at block 24");
    q.dtype = BSTK_F32;
    q.forced = "op_f32_b16";
    refused(bstk__select(ctx, list, LIST, &q, &got), BSTK_ERR_UNSUPPORTED,
            "op: kernel 'op_f32_b16' is for another block");
    q.forced = "op_f32_wide";
    refused(bstk__select(ctx, list, LIST, &q, &got), BSTK_ERR_UNSUPPORTED,
            "op: kernel 'op_f32_wide' needs NEON, which this CPU or the cap does not allow");
    q.forced = "op_f32_picky";
    refused(bstk__select(ctx, list, LIST, &q, &got), BSTK_ERR_UNSUPPORTED,
            "op: kernel 'op_f32_picky' takes no such sizes");
    q.forced = "op_f32";
    refused(bstk__select(ctx, list, LIST, &q, &got), BSTK_ERR_INVALID,
            "op: kernel 'op_f32' is not registered for this op (bstk kernels lists them)");
    assert_ptr_equal(got, &list[0]);
    assert_string_equal(s.text, "");
    q.forced = "op_f32_args"; /* a later row than the first that accepts */
    q.args = &q;
    ok(bstk__select(ctx, list, LIST, &q, &got));
    assert_string_equal(got->name, "op_f32_args");
    bstk_context_release(ctx);
}

/* On a CPU with AMX the rows of vdpbf16ps are only run by name. */
static void test_slow_dots(void **state) {
    (void)state;
    const uint32_t dots = BSTK__F_AVX512 | BSTK__F_AVX512_BF16;
    const bstk__kernel rows[] = {
        {"op_bf16_dots", "op", "avx512", dots, BSTK_BF16, BSTK_BF16, 0, NULL, no_kernel, NULL},
        {"op_bf16_f32", "op", "avx512", BSTK__F_AVX512, BSTK_BF16, BSTK_BF16, 0, NULL, no_kernel, NULL}};
    sink s;
    bstk_context *ctx = logging_context(&s, "none");
    bstk__question q = {.op = "op", .dtype = BSTK_BF16, .packed_dtype = BSTK_BF16, .block = 16};
    const bstk__kernel *got = NULL;
    ctx->features = dots; /* whatever this machine has: nothing is run */
    ok(bstk__select(ctx, rows, 2, &q, &got));
    assert_string_equal(got->name, "op_bf16_dots");
    ctx->features = dots | BSTK__F_AMX_BF16;
    ok(bstk__select(ctx, rows, 2, &q, &got));
    assert_string_equal(got->name, "op_bf16_f32");
    q.forced = "op_bf16_dots";
    ok(bstk__select(ctx, rows, 2, &q, &got));
    assert_string_equal(got->name, "op_bf16_dots");
    bstk_context_release(ctx);
}

/* ---- through the public calls --------------------------------------------------------------------------------------
 */

static bstk_status plan_dsd(bstk_context *ctx, const char *kernel, bstk_plan **plan) {
    bstk_layout *layout = rule_layout(&(rule){.kind = RULE_ONES}, 1, 32, 32, 16);
    const bstk_tensor a = bstk_tensor_make(NULL, BSTK_F32, 3, shape(4, 16, 16));
    const bstk_tensor b = bstk_tensor_make(NULL, BSTK_F32, 2, shape(32, 5));
    const bstk_tensor c = bstk_tensor_make(NULL, BSTK_F32, 2, shape(32, 5));
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = BSTK_DSD;
    desc.layout = layout;
    desc.a = &a;
    desc.b = &b;
    desc.c = &c;
    desc.kernel = kernel;
    const bstk_status status = bstk_matmul_plan(ctx, &desc, plan);
    bstk_layout_release(layout);
    return status;
}

static void test_forced(void **state) {
    (void)state;
    bstk_plan *plan = NULL;
    ok(plan_dsd(NULL, "dsd_f32_scalar", &plan));
    assert_string_equal(bstk_plan_kernel(plan), "dsd_f32_scalar");
    bstk_plan_release(plan);
    plan = NULL;
    refused(plan_dsd(NULL, "sdd_f32_scalar", &plan), BSTK_ERR_UNSUPPORTED,
            "dsd: kernel 'sdd_f32_scalar' is for another op");
    refused(plan_dsd(NULL, "dsd_f64_scalar", &plan), BSTK_ERR_UNSUPPORTED,
            "dsd: kernel 'dsd_f64_scalar' is for other types");
    refused(plan_dsd(NULL, "softmax_f32_scalar", &plan), BSTK_ERR_INVALID,
            "dsd: kernel 'softmax_f32_scalar' is not registered for this op (bstk kernels lists them)");
    refused(plan_dsd(NULL, "", &plan), BSTK_ERR_INVALID,
            "dsd: kernel '' is not registered for this op (bstk kernels lists them)");
    assert_null(plan);
}

static void test_log(void **state) {
    (void)state;
    sink s;
    bstk_plan *plan = NULL;
    bstk_context *ctx = logging_context(&s, "dispatch");
    ok(plan_dsd(ctx, NULL, &plan));
    /* The rows before the chosen one, each with a reason; then the chosen one. */
    assert_non_null(
        strstr(s.text, "bstk dispatch: dsd float32/float32 b16: sdd_f32_scalar refused: is for another op\n"));
    assert_non_null(
        strstr(s.text, "bstk dispatch: dsd float32/float32 b16: dsd_f64_scalar refused: is for other types\n"));
    char last[256];
    snprintf(last, sizeof last, "b16: %s accepted\n", bstk_plan_kernel(plan));
    assert_string_equal(s.text + strlen(s.text) - strlen(last), last);
    bstk_plan_release(plan);
    bstk_context_release(ctx);

    ctx = logging_context(&s, "plan");
    ok(plan_dsd(ctx, "dsd_f32_scalar", &plan));
    assert_string_equal(s.text,
                        "bstk plan: dsd_f32_scalar: 1 tasks on 1 threads, imbalance 1.00, some 3 us, 0 bytes of "
                        "scratch\n");
    bstk_plan_release(plan);
    bstk_context_release(ctx);

    ctx = logging_context(&s, "plan,dispatch");
    ok(plan_dsd(ctx, "dsd_f32_scalar", &plan));
    assert_true(strstr(s.text, "bstk plan: ") && strstr(s.text, "bstk dispatch: "));
    bstk_plan_release(plan);
    bstk_context_release(ctx);

    ctx = logging_context(&s, "");
    ok(plan_dsd(ctx, NULL, &plan));
    assert_string_equal(s.text, "");
    bstk_plan_release(plan);
    bstk_context_release(ctx);
}

/* Under the lowest cap only rows without needs are chosen. */
static void test_cap(void **state) {
    (void)state;
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    bstk_plan *plan = NULL;
    opts.max_isa = "scalar";
    ok(bstk_context_create(&opts, &ctx));
    assert_int_equal(ctx->features, 0);
    ok(plan_dsd(ctx, NULL, &plan));
    assert_string_equal(bstk_plan_kernel(plan), "dsd_f32_scalar");
    bstk_plan_release(plan);
    bstk_context_release(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),        cmocka_unit_test(test_last_row_takes_all),
                                       cmocka_unit_test(test_get_refuses),  cmocka_unit_test(test_first_that_accepts),
                                       cmocka_unit_test(test_none_accepts), cmocka_unit_test(test_slow_dots),
                                       cmocka_unit_test(test_forced),       cmocka_unit_test(test_log),
                                       cmocka_unit_test(test_cap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
