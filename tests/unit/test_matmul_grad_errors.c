/* test_matmul_grad_errors.c: what the gradients of products refuse, word for word, and runs without memory. */
#include "support/cm.h"
#include "support/op_case.h"
#include "support/test_memory.h"

#include <stdlib.h>
#include <string.h>

/* A product of 2 batch items and 2 heads on a full layout of 2 x 3 blocks of 8, and room for its gradients. */
typedef struct fixture {
    product p;
    gen_array d_a, d_b;
} fixture;

static void make(fixture *x, bstk_mode mode) {
    const product_case p = {.mode = mode,
                            .dtype = BSTK_F32,
                            .block = 8,
                            .z = 2,
                            .h = 2,
                            .m = mode == BSTK_DDS ? 5 : 16,
                            .n = mode == BSTK_DSD ? 5 : 24,
                            .k = mode == BSTK_SDD   ? 5
                                 : mode == BSTK_DSD ? 24
                                                    : 16};
    product_make(&x->p, &p);
    gen_fill(&x->p.c.t, GEN_UNIFORM, 1);
    make_array(&x->d_a, BSTK_F32, 4, x->p.a.t.shape, GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&x->d_b, BSTK_F32, 4, x->p.b.t.shape, GEN_CONTIGUOUS, GEN_NANS, 0);
}

static void drop(fixture *x) {
    product_free(&x->p);
    gen_array_free(&x->d_a);
    gen_array_free(&x->d_b);
}

static bstk_matmul_grad_desc desc_of(const fixture *x) {
    bstk_matmul_grad_desc desc = BSTK_MATMUL_GRAD_DESC_INIT;
    desc.forward.mode = x->p.p.mode;
    desc.forward.layout = x->p.layout;
    desc.forward.a = &x->p.a.t;
    desc.forward.b = &x->p.b.t;
    desc.d_c = &x->p.c.t;
    desc.d_a = &x->d_a.t;
    desc.d_b = &x->d_b.t;
    return desc;
}

static void plan_errors(void **state) {
    (void)state;
    fixture x;
    bstk_plan *plan = NULL;
    make(&x, BSTK_SDD);
    const bstk_matmul_grad_desc good = desc_of(&x);
    bstk_matmul_grad_desc d = good;
    bstk_tensor t;
#define plan_refused(status, text) refused(bstk_matmul_grad_plan(NULL, &d, &plan), status, text)
    refused(bstk_matmul_grad_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "matmul_grad: desc is NULL");
    refused(bstk_matmul_grad_plan(NULL, &d, NULL), BSTK_ERR_INVALID, "matmul_grad: out is NULL");
    d.struct_size = 3;
    refused(bstk_matmul_grad_plan(NULL, &d, &plan), BSTK_ERR_INVALID,
            "matmul_grad: desc.struct_size is 3, expected 96 (BSTK_MATMUL_GRAD_DESC_INIT)");
    d = good;
    d.forward.struct_size = 4;
    plan_refused(BSTK_ERR_INVALID, "matmul_grad: desc.forward.struct_size is 4, expected 64 (BSTK_MATMUL_DESC_INIT)");
    d = good;
    d.forward.mode = (bstk_mode)9;
    plan_refused(BSTK_ERR_INVALID, "matmul_grad: mode is 9, expected BSTK_SDD, BSTK_DSD or BSTK_DDS");
    d = good;
    d.forward.layout = NULL;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: layout is NULL");
    d = good;
    d.forward.a = NULL;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: a is NULL");
    d = good;
    d.d_c = NULL;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: d_c is NULL");
    d = good;
    d.d_a = d.d_b = NULL;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: d_a and d_b are NULL, expected at least one");
    d = good;
    t = *good.d_c;
    t.shape[0] = 1;
    d.d_c = &t;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: d_c has batch size 1, expected 2");
    t = *good.d_c;
    t.dtype = BSTK_F64;
    plan_refused(BSTK_ERR_TYPE, "sdd_grad: a is float32, b is float32 and d_c is float64, expected one type for all "
                                "(packed values may be float32 beside float16 or bfloat16)");
    t = *good.d_c;
    t.shape[2] = 16;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: d_c is [2, 12, 16, 8], expected packed values [Z, 12, 8, 8] (12 stored "
                                   "blocks of 8); pack makes them from a dense matrix");
    d = good;
    t = *good.d_a;
    t.dtype = BSTK_F64;
    d.d_a = &t;
    plan_refused(BSTK_ERR_TYPE, "sdd_grad: d_a is float64, expected float32 as a");
    t = *good.d_a;
    t.shape[1] = 1;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: d_a is [2, 1, 16, 5], expected [2, 2, 16, 5] as a");
    t = *good.d_a;
    t.stride[2] = 0;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: output d_a has stride 0 on axis 2 of size 16: its elements share memory");
    d = good;
    t = *good.d_b;
    t.ndim = 3;
    d.d_b = &t;
    plan_refused(BSTK_ERR_INVALID, "sdd_grad: d_b is [2, 2, 5], expected [2, 2, 5, 24] as b");
    assert_null(plan);
    drop(&x);

    /* The forward's own outputs may not be sums. */
    make(&x, BSTK_DSD);
    bstk_matmul_desc forward = desc_of(&x).forward;
    t = x.p.c.t;
    t.shape[0] = 1;
    forward.c = &t;
    refused(bstk_matmul_plan(NULL, &forward, &plan), BSTK_ERR_INVALID, "dsd: c has batch size 1, expected 2");
    t = x.p.c.t;
    t.shape[1] = 1;
    refused(bstk_matmul_plan(NULL, &forward, &plan), BSTK_ERR_INVALID, "dsd: c has heads 1, expected 2");
    drop(&x);
}

static void run_errors(void **state) {
    (void)state;
    fixture x;
    bstk_plan *plan = NULL, *only_a = NULL, *other = NULL;
    make(&x, BSTK_DDS);
    const bstk_matmul_grad_desc good = desc_of(&x);
    bstk_matmul_grad_desc d = good;
    bstk_tensor t;
    ok(bstk_matmul_grad_plan(NULL, &good, &plan));
    const char *name = bstk_plan_kernel(plan); /* each with the best instruction set */
    assert_true(strncmp(name, "dds_f32_", 8) == 0 && strstr(name, "+sdd_f32_") != NULL);
    assert_true(bstk_plan_flops(plan) == 2 * 2.0 * 2 * 2 * 16 * 24 * 5);
    d.d_b = NULL;
    ok(bstk_matmul_grad_plan(NULL, &d, &only_a));
    bstk_matmul_desc forward = good.forward;
    forward.c = good.d_c;
    ok(bstk_matmul_plan(NULL, &forward, &other));
    unsigned char *before[2] = {gen_snapshot(&x.d_a), gen_snapshot(&x.d_b)};
#define run_refused(plan, status, text) refused(bstk_matmul_grad_run(plan, &d, 1, NULL), status, text)
    run_refused(NULL, BSTK_ERR_INVALID, "matmul_grad: plan is NULL");
    run_refused(other, BSTK_ERR_INVALID, "matmul_grad: plan is for another op");
    refused(bstk_matmul_grad_run(plan, NULL, 1, NULL), BSTK_ERR_INVALID, "matmul_grad: desc is NULL");
    run_refused(plan, BSTK_ERR_INVALID, "dds_grad: d_b is NULL");
    d = good;
    run_refused(only_a, BSTK_ERR_MISMATCH, "dds_grad: d_b is given, but the plan was made without it");
    d.struct_size = 0;
    run_refused(plan, BSTK_ERR_INVALID, "matmul_grad: desc.struct_size is 0, expected 96 (BSTK_MATMUL_GRAD_DESC_INIT)");
    d = good;
    t = *good.forward.b;
    t.data = NULL;
    d.forward.b = &t;
    run_refused(plan, BSTK_ERR_INVALID, "dds_grad: b.data is NULL");
    d = good;
    t = *good.d_c;
    t.stride[3] = 2;
    d.d_c = &t;
    run_refused(plan, BSTK_ERR_MISMATCH,
                "dds_grad: d_c is float32 [2, 2, 5, 24], but the plan was made for float32 "
                "[2, 2, 5, 24] (or other strides)");
    d = good;
    t = *good.d_a;
    d.d_a = &t;
    t.data = good.d_c->data;
    run_refused(plan, BSTK_ERR_INVALID, "dds_grad: d_a overlaps d_c");
    t.data = good.forward.b->data;
    run_refused(plan, BSTK_ERR_INVALID, "dds_grad: d_a overlaps b");
    t.data = good.forward.a->data; /* the second product still reads it */
    run_refused(plan, BSTK_ERR_INVALID, "dds_grad: d_a overlaps a");
    t.data = good.d_b->data;
    run_refused(plan, BSTK_ERR_INVALID, "dds_grad: d_a overlaps d_b");
    const bstk_exec bad = {.struct_size = 1};
    d = good;
    refused(bstk_matmul_grad_run(plan, &d, 1, &bad), BSTK_ERR_INVALID,
            "dds_grad: exec.struct_size is 1, expected 32 (BSTK_EXEC_INIT)");
    for (int i = 0; i < 2; i++) {
        assert_true(gen_unchanged(i ? &x.d_b : &x.d_a, before[i]));
        free(before[i]);
    }
    /* d_a in place of a, which nothing reads when d_b is not wanted. */
    d.d_b = NULL;
    t = *good.d_a;
    t.data = good.forward.a->data;
    d.d_a = &t;
    bstk_exec scratch = BSTK_EXEC_INIT;
    scratch.scratch_bytes = bstk_plan_scratch_bytes(only_a);
    scratch.scratch = malloc(scratch.scratch_bytes + 1);
    ok(bstk_matmul_grad_run(only_a, &d, 1, &scratch));
    free(scratch.scratch);
    bstk_plan_release(plan);
    bstk_plan_release(only_a);
    bstk_plan_release(other);
    drop(&x);
}

/* Every allocation fails once: BSTK_ERR_NOMEM, nothing leaked, no output touched. */
static void out_of_memory(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++) {
        fixture x;
        watch w = {0};
        make(&x, (bstk_mode)mode);
        bstk_tensor *shared = mode == BSTK_DSD ? &x.p.b.t : &x.p.a.t, *sum = mode == BSTK_DSD ? &x.d_b.t : &x.d_a.t;
        shared->shape[1] = sum->shape[1] = 1; /* one head for all */
        bstk_context *ctx = watched_context(&w, NULL);
        const int_fast64_t live = atomic_load(&w.live);
        const bstk_matmul_grad_desc desc = desc_of(&x);
        unsigned char *before[2] = {gen_snapshot(&x.d_a), gen_snapshot(&x.d_b)};
        int_fast64_t n = 1;
        for (bool failed = true; failed; n++) {
            atomic_store(&w.fail_at, n);
            const bstk_status status = bstk_matmul_grad(ctx, &desc, 1);
            failed = atomic_load(&w.fail_at) <= 0;
            atomic_store(&w.fail_at, 0);
            assert_int_equal(atomic_load(&w.live), live);
            assert_int_equal(status, failed ? BSTK_ERR_NOMEM : BSTK_OK);
            if (failed) {
                assert_non_null(strstr(bstk_last_error(), "out of memory"));
                assert_true(gen_unchanged(&x.d_a, before[0]) && gen_unchanged(&x.d_b, before[1]));
            }
        }
        assert_true(n > 6); /* three plans, two schedules and the costs of the sums */
        free(before[0]);
        free(before[1]);
        bstk_context_release(ctx);
        drop(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_errors),
        cmocka_unit_test(run_errors),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
