/*
 * test_attention_errors.c: what attention's gradient and the choice of kernel refuse, by text, with outputs untouched;
 * failures of memory at every allocation; plans that outlive and are shared.
 */
#include "support/attention_case.h"
#include "support/cm.h"
#include "support/op_case.h"
#include "support/test_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Terms point into the case: it stays where it is made. */
static void make(attention_case *c) {
    const rule ones = {.kind = RULE_ONES};
    *c = (attention_case){.dtype = BSTK_F32,
                          .block = 16,
                          .z = 2,
                          .h = 4,
                          .kv_heads = 2,
                          .m = 32,
                          .n = 48,
                          .d = 8,
                          .dv = 5,
                          .what = "errors"};
    attention_make(c, rule_layout(&ones, 4, 32, 48, 16));
    attention_add(c, A_RPE, BSTK_F32, 3, shape(4, 32, 48), GEN_CONTIGUOUS, true);
    attention_add(c, A_REL, BSTK_F32, 3, shape(4, 32, 20), GEN_CONTIGUOUS, true);
    attention_add(c, A_KEY_PADDING, BSTK_F32, 2, shape(2, 48), GEN_CONTIGUOUS, true);
    attention_add(c, A_ATTN, BSTK_F32, 2, shape(32, 48), GEN_CONTIGUOUS, true);
    attention_add(c, A_SINKS, BSTK_F32, 1, shape(4), GEN_CONTIGUOUS, true);
    attention_forward(c, NULL, NULL);
}

static void refuse(const bstk_attention_grad_desc *d, bstk_status status, const char *text) {
    bstk_plan *const untouched = (bstk_plan *)(uintptr_t)8, *plan = untouched;
    refused(bstk_attention_grad_plan(NULL, d, &plan), status, text);
    assert_ptr_equal(plan, untouched);
    refused(bstk_attention_grad(NULL, d), status, text);
}

static void test_descriptors(void **state) {
    (void)state;
    char text[256];
    attention_case c;
    make(&c);
    bstk_attention_grad_desc d = attention_grad_desc(&c), all = d;
    bstk_plan *plan = NULL;
    refused(bstk_attention_grad_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "attention_grad: desc is NULL");
    refused(bstk_attention_grad_plan(NULL, &d, NULL), BSTK_ERR_INVALID, "attention_grad: out is NULL");
    d.struct_size = 3;
    snprintf(text, sizeof text, "attention_grad: desc.struct_size is 3, expected %zu (BSTK_ATTENTION_GRAD_DESC_INIT)",
             sizeof d);
    refuse(&d, BSTK_ERR_INVALID, text);
    d = all;
    d.layout = NULL;
    refuse(&d, BSTK_ERR_INVALID, "attention_grad: layout is NULL");
    d = all;
    const bstk_tensor **const inputs[] = {&d.q, &d.k, &d.v, &d.o, &d.lse, &d.d_o};
    static const char *const names[] = {"q", "k", "v", "o", "lse", "d_o"};
    for (int i = 0; i < 6; ++i) {
        *inputs[i] = NULL;
        snprintf(text, sizeof text, "attention_grad: %s is NULL", names[i]);
        refuse(&d, BSTK_ERR_INVALID, text);
        d = all;
    }
    d.d_q = d.d_k = d.d_v = d.d_rpe = d.d_rel_logits = d.d_key_padding_mask = d.d_attn_mask = d.d_sinks = NULL;
    refuse(&d, BSTK_ERR_INVALID, "attention_grad: no gradient is wanted, expected d_q, d_k, d_v or one of a term");
    d = all;
    d.kernel = "composed";
    refuse(&d, BSTK_ERR_INVALID,
           "attention_grad: kernel 'composed' is not registered for this op (bstk kernels lists them)");
    d.kernel = "attention_grad_f16_scalar";
    refuse(&d, BSTK_ERR_UNSUPPORTED, "attention_grad: kernel 'attention_grad_f16_scalar' is for other types");
    d.kernel = "attention_f32_scalar";
    refuse(&d, BSTK_ERR_UNSUPPORTED, "attention_grad: kernel 'attention_f32_scalar' is for another op");
    attention_free(&c);
}

static void test_terms(void **state) {
    (void)state;
    char text[256];
    attention_case c;
    make(&c);
    bstk_attention_grad_desc d = attention_grad_desc(&c), all = d;
    const bstk_tensor **const terms[] = {&d.terms.rpe, &d.terms.rel_logits, &d.terms.key_padding_mask,
                                         &d.terms.attn_mask, &d.terms.sinks};
    static const char *const names[] = {"rpe", "rel_logits", "key_padding_mask", "attn_mask", "sinks"};
    for (int i = 0; i < 5; ++i) {
        *terms[i] = NULL;
        snprintf(text, sizeof text, "attention_grad: terms.%s is NULL, but d_%s needs it", names[i], names[i]);
        refuse(&d, BSTK_ERR_INVALID, text);
        d = all;
    }
    d.terms.attn_mode = BSTK_MASK_MUL;
    refuse(&d, BSTK_ERR_INVALID,
           "attention_grad: d_attn_mask is given, but attn_mask keeps and drops; expected one that is added");
    d = all;
    uint8_t keys[48] = {0};
    const bstk_tensor key = bstk_tensor_make(keys, BSTK_BOOL, 1, shape(48));
    d.terms.key_padding_mask = &key;
    refuse(&d, BSTK_ERR_INVALID,
           "attention_grad: d_key_padding_mask is given, but key_padding_mask keeps and drops; expected one that is "
           "added");
    d = all;
    d.terms.dropout = 2;
    refuse(&d, BSTK_ERR_INVALID, "attention_grad: dropout is 2, expected 0 to 1");
    d = all;
    bstk_tensor t = *d.d_rel_logits;
    t.shape[2] = 19;
    d.d_rel_logits = &t;
    refuse(&d, BSTK_ERR_INVALID, "attention_grad: d_rel_logits has columns 19, expected 20");
    d = all;
    t = *d.d_sinks;
    t.shape[0] = 3;
    d.d_sinks = &t;
    refuse(&d, BSTK_ERR_INVALID, "attention_grad: d_sinks has heads 3, expected 4; accepted shapes: [H]");
    attention_free(&c);
}

static void test_tensors(void **state) {
    (void)state;
    attention_case c;
    make(&c);
    bstk_attention_grad_desc d = attention_grad_desc(&c), all = d;
    static const struct {
        int place, axis; /* axis -1: the type; -2: a stride of 0 on axis 1 */
        int64_t value;
        const char *text;
    } spoils[] = {
        {A_Q, 2, 33, "attention_grad: q has 33 rows, but the layout needs 32 (2 blocks of 16)"},
        {A_K, 3, 7, "attention_grad: k has head size 7, expected 8"},
        {A_K, 1, 3, "attention_grad: k has 3 heads and v has 2, expected the same"},
        {A_V, 0, 3, "attention_grad: v has batch size 3, expected 2"},
        {A_V, 3, 257, "attention_grad: v has head size 257, expected 1 to 256"},
        {A_O, 3, 6, "attention_grad: o has head size 6, expected 5"},
        {A_LSE, 2, 31, "attention_grad: lse has rows 31, expected 32"},
        {A_LSE, -1, BSTK_F64, "attention_grad: lse is float64, expected float32 beside q of float32"},
        {A_D_O, 1, 2, "attention_grad: d_o has heads 2, expected 4"},
        {A_D_O, -1, BSTK_F16, "attention_grad: d_o is float16, expected float32 as q"},
        {A_D_LSE, 1, 5, "attention_grad: d_lse has heads 5, expected 4"},
        {A_D_Q, 2, 31, "attention_grad: d_q has rows 31, expected 32"},
        {A_D_K, 1, 4, "attention_grad: d_k has heads 4, expected 2"},
        {A_D_K, -1, BSTK_F64, "attention_grad: d_k is float64, expected float32 as q"},
        {A_D_V, 0, 1, "attention_grad: d_v has batch size 1, expected 2"},
        {A_D_V, -2, 0, "attention_grad: output d_v has stride 0 on axis 1 of size 2: its elements share memory"},
    };
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; ++i) {
        const bstk_tensor **const places[A_COUNT] = {
            [A_Q] = &d.q,     [A_K] = &d.k,         [A_V] = &d.v,     [A_O] = &d.o,     [A_LSE] = &d.lse,
            [A_D_O] = &d.d_o, [A_D_LSE] = &d.d_lse, [A_D_Q] = &d.d_q, [A_D_K] = &d.d_k, [A_D_V] = &d.d_v};
        bstk_tensor t = **places[spoils[i].place];
        if (spoils[i].axis >= 0)
            t.shape[spoils[i].axis] = spoils[i].value;
        else if (spoils[i].axis == -1)
            t.dtype = (bstk_dtype)spoils[i].value;
        else
            t.stride[1] = 0;
        *places[spoils[i].place] = &t;
        refuse(&d, spoils[i].axis == -1 ? BSTK_ERR_TYPE : BSTK_ERR_INVALID, spoils[i].text);
        d = all;
    }
    attention_free(&c);
}

static void test_run(void **state) {
    (void)state;
    char text[256];
    attention_case c;
    make(&c);
    bstk_attention_grad_desc d = attention_grad_desc(&c), all = d;
    bstk_plan *plan = NULL, *forward = NULL;
    bstk_attention_desc f = attention_desc(&c);
    ok(bstk_attention_grad_plan(NULL, &d, &plan));
    ok(bstk_attention_plan(NULL, &f, &forward));
    assert_int_equal(strncmp(bstk_plan_kernel(plan), "attention_grad_f32_", 19), 0);
    assert_int_equal(strncmp(bstk_plan_kernel(forward), "attention_f32_", 14), 0);
    assert_true(bstk_plan_flops(plan) > bstk_plan_flops(forward) && bstk_plan_bytes(plan) > bstk_plan_bytes(forward));
    const size_t bytes = bstk_plan_scratch_bytes(plan);
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = malloc(bytes);
    exec.scratch_bytes = bytes;
    unsigned char *copies[A_COUNT];
    for (int k = A_D_Q; k < A_COUNT; ++k)
        copies[k] = gen_snapshot(&c.a[k]);
    refused(bstk_attention_grad_run(NULL, &d, &exec), BSTK_ERR_INVALID, "attention_grad: plan is NULL");
    refused(bstk_attention_grad_run(forward, &d, &exec), BSTK_ERR_INVALID, "attention_grad: plan is for another op");
    refused(bstk_attention_grad_run(plan, NULL, &exec), BSTK_ERR_INVALID, "attention_grad: desc is NULL");
    refused(bstk_attention_run(plan, f.q, f.k, f.v, &f.terms, f.o, f.lse, &exec), BSTK_ERR_INVALID,
            "attention: plan is for another op");
    d.d_lse = NULL;
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "attention_grad: d_lse is NULL");
    d = all;
    d.q = d.k;
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_MISMATCH,
            "attention_grad: q is float32 [2, 2, 48, 8], but the plan was made for float32 [2, 4, 32, 8] (or other "
            "strides)");
    d = all;
    d.terms.softcap = 3;
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_MISMATCH,
            "attention_grad: softcap is 3 and dropout 0, but the plan was made without a softcap");
    d = all;
    bstk_tensor t = *d.d_q;
    t.data = d.q->data;
    d.d_q = &t;
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "attention_grad: d_q overlaps q");
    t = *d.d_k;
    t.data = all.d_q->data;
    d = all;
    d.d_k = &t;
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "attention_grad: d_k overlaps d_q");
    t = *all.d_rpe;
    t.data = all.terms.rpe->data;
    d = all;
    d.d_rpe = &t;
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, "attention_grad: d_rpe overlaps rpe");
    d = all;
    exec.scratch_bytes = bytes - 1;
    snprintf(text, sizeof text, "attention_grad: scratch has %zu bytes, expected %zu (bstk_plan_scratch_bytes)",
             bytes - 1, bytes);
    refused(bstk_attention_grad_run(plan, &d, &exec), BSTK_ERR_INVALID, text);
    for (int k = A_D_Q; k < A_COUNT; ++k) {
        assert_true(gen_unchanged(&c.a[k], copies[k]));
        free(copies[k]);
    }
    bstk_plan_release(plan);
    d.d_v = NULL;
    ok(bstk_attention_grad_plan(NULL, &d, &plan));
    refused(bstk_attention_grad_run(plan, &all, &exec), BSTK_ERR_MISMATCH,
            "attention_grad: d_v is given, but the plan was made without it");
    bstk_plan_release(plan);
    bstk_plan_release(forward);
    free(exec.scratch);
    attention_free(&c);
}

static void test_forward_kernels(void **state) {
    (void)state;
    attention_case c;
    make(&c);
    bstk_attention_desc d = attention_desc(&c);
    bstk_plan *plan = NULL;
    d.kernel = "composed";
    ok(bstk_attention_plan(NULL, &d, &plan));
    const char *name = bstk_plan_kernel(plan); /* each with the best instruction set */
    assert_true(strncmp(name, "sdd_f32_", 8) == 0 && strstr(name, "+softmax_f32_") && strstr(name, "+dsd_f32_"));
    bstk_plan_release(plan);
    d.kernel = "attention_f32_scalar";
    ok(bstk_attention_plan(NULL, &d, &plan));
    bstk_plan_release(plan);
    d.kernel = "attention_f64_scalar";
    refused(bstk_attention_plan(NULL, &d, &plan), BSTK_ERR_UNSUPPORTED,
            "attention: kernel 'attention_f64_scalar' is for other types");
    d.kernel = "flash";
    refused(bstk_attention_plan(NULL, &d, &plan), BSTK_ERR_INVALID,
            "attention: kernel 'flash' is not registered for this op (bstk kernels lists them)");
    attention_free(&c);
}

/* Sizes that do not fit are refused before anything of them is made; data is never read by a plan. */
static void test_overflow(void **state) {
    (void)state;
    const rule ones = {.kind = RULE_ONES};
    const int64_t huge = INT64_C(1) << 40;
    bstk_layout *layout = rule_layout(&ones, 1, 16, 16, 16);
    bstk_tensor q = bstk_tensor_make(NULL, BSTK_F32, 4, shape(huge, huge, 16, 8)), lse = q, k = q;
    for (int axis = 0; axis < 4; ++axis)
        q.stride[axis] = lse.stride[axis] = 0;
    k = bstk_tensor_make(NULL, BSTK_F32, 2, shape(16, 8));
    lse.ndim = 3;
    bstk_attention_grad_desc d = BSTK_ATTENTION_GRAD_DESC_INIT;
    d.layout = layout;
    d.q = d.o = d.d_o = &q;
    d.k = d.v = &k;
    d.lse = &lse;
    d.d_k = &k;
    bstk_plan *plan;
    refused(bstk_attention_grad_plan(NULL, &d, &plan), BSTK_ERR_OVERFLOW,
            "attention_grad: 1099511627776 batches x 1099511627776 heads x 16 rows do not fit 64 bits");
    bstk_layout_release(layout);
}

/* The n-th allocation fails, for each n: NOMEM, nothing leaked, nothing written. */
static void test_memory(void **state) {
    (void)state;
    attention_case c;
    make(&c);
    for (int way = 0; way < 3; ++way)
        for (int64_t n = 1;; ++n) {
            watch w = {.calls = 0};
            bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
            opts.num_threads = 2;
            bstk_context *ctx = watched_context(&w, &opts);
            const int64_t live = atomic_load(&w.live);
            unsigned char *copies[A_COUNT];
            for (int k = A_OUTPUTS; k < A_COUNT; ++k)
                copies[k] = gen_snapshot(&c.a[k]);
            atomic_store(&w.fail_at, n);
            bstk_attention_desc f = attention_desc(&c);
            const bstk_attention_grad_desc d = attention_grad_desc(&c);
            f.kernel = way == 1 ? "composed" : NULL;
            const bstk_status status = way == 2 ? bstk_attention_grad(ctx, &d) : bstk_attention(ctx, &f);
            const bool reached = atomic_load(&w.fail_at) <= 0;
            assert_int_equal(atomic_load(&w.live), live);
            for (int k = A_OUTPUTS; k < A_COUNT; ++k) {
                assert_true(!reached || gen_unchanged(&c.a[k], copies[k]));
                free(copies[k]);
            }
            bstk_context_release(ctx);
            assert_int_equal(status, reached ? BSTK_ERR_NOMEM : BSTK_OK);
            if (!reached) {
                assert_true(n > 3);
                break;
            }
        }
    attention_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors), cmocka_unit_test(test_terms),           cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_run),         cmocka_unit_test(test_forward_kernels), cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
