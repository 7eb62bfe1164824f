/*
 * expect_isa.c: holds every plan that a test makes to the instruction set of BSTK_TEST_EXPECT_ISA (scalar, avx2, avx512
 * or neon): each kernel of the plan must be of that set where the registry has one of it for the op and its types. Set
 * together with BSTK_MAX_ISA it proves that a test under a cap has run what it is for. Unset: no check. Plans of a
 * named kernel are the test's own choice.
 *
 * The functions here stand before the library's, which calls them as well from its short forms (bstk_norm and so on).
 * Where the CPU has not got the set, the test is skipped by name (exit status 77).
 */
#include <bstk/bstk.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77

static const char *expected(void) {
    return getenv("BSTK_TEST_EXPECT_ISA");
}

static int cpu_has(const char *isa) {
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return strcmp(isa, "scalar") == 0;
#elif defined(__aarch64__)
    return strcmp(isa, "scalar") == 0 || strcmp(isa, "neon") == 0;
#else
    return strcmp(isa, "scalar") == 0;
#endif
}

__attribute__((constructor)) static void skip_what_cannot_run(void) {
    if (expected() == NULL || cpu_has(expected()))
        return;
    printf("[  SKIPPED ] under %s, which this CPU has not got: %s\n", expected(), program_invocation_short_name);
    fflush(stdout);
    _Exit(SKIPPED);
}

/* The row `name` of length `length`; false when there is none. */
static int find_row(const char *name, size_t length, bstk_kernel_info *out) {
    for (int32_t i = 0; i < bstk_kernel_count(); i++) {
        bstk_kernel_info row = {.struct_size = sizeof row};
        if (bstk_kernel_get(i, &row) == BSTK_OK && strlen(row.name) == length && memcmp(row.name, name, length) == 0) {
            *out = row;
            return 1;
        }
    }
    return 0;
}

static int has_rival(const bstk_kernel_info *chosen) {
    for (int32_t i = 0; i < bstk_kernel_count(); i++) {
        bstk_kernel_info row = {.struct_size = sizeof row};
        if (bstk_kernel_get(i, &row) == BSTK_OK && strcmp(row.isa, expected()) == 0 &&
            strcmp(row.op, chosen->op) == 0 && row.dtype == chosen->dtype && row.packed_dtype == chosen->packed_dtype &&
            row.block == 0)
            return 1;
    }
    return 0;
}

static void check_plan(const bstk_plan *plan) {
    for (const char *name = bstk_plan_kernel(plan); *name;) {
        const size_t length = strcspn(name, "+");
        bstk_kernel_info row;
        if (!find_row(name, length, &row)) {
            fprintf(stderr, "expect_isa: plan of %s, which is not registered\n", bstk_plan_kernel(plan));
            exit(1);
        }
        if (strcmp(row.isa, expected()) != 0 && has_rival(&row)) {
            fprintf(stderr, "expect_isa: ran %s (%s), expected a kernel of %s\n", row.name, row.isa, expected());
            exit(1);
        }
        name += length + (name[length] == '+');
    }
}

/* The library's own function of the name that stands behind ours. */
static void (*behind(const char *name))(void) {
    void (*function)(void);
    void *const symbol = dlsym(RTLD_NEXT, name);
    if (symbol == NULL) {
        fprintf(stderr, "expect_isa: the library has no %s\n", name);
        exit(1);
    }
    memcpy(&function, &symbol, sizeof function);
    return function;
}

#define PLANNER(function, desc_type)                                                                                   \
    bstk_status function(bstk_context *ctx, const desc_type *desc, bstk_plan **out) {                                  \
        bstk_status (*const real)(bstk_context *, const desc_type *, bstk_plan **) =                                   \
            (bstk_status(*)(bstk_context *, const desc_type *, bstk_plan **))behind(#function);                        \
        const bstk_status status = real(ctx, desc, out);                                                               \
        if (status == BSTK_OK && expected() != NULL && desc->kernel == NULL)                                           \
            check_plan(*out);                                                                                          \
        return status;                                                                                                 \
    }

PLANNER(bstk_attention_plan, bstk_attention_desc)
PLANNER(bstk_attention_grad_plan, bstk_attention_grad_desc)
PLANNER(bstk_convert_plan, bstk_convert_desc)
PLANNER(bstk_matmul_plan, bstk_matmul_desc)
PLANNER(bstk_norm_plan, bstk_norm_desc)
PLANNER(bstk_norm_grad_plan, bstk_norm_grad_desc)
PLANNER(bstk_softmax_plan, bstk_softmax_desc)
PLANNER(bstk_softmax_grad_plan, bstk_softmax_grad_desc)
