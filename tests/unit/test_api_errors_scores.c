/*
 * test_api_errors_scores.c: what softmax, attention and the layouts they are given refuse: the status, the text,
 * outputs and out-pointers untouched, nothing leaked. Products and the rest: test_api_errors.c.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/test_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Right inputs, to be spoilt in one place by each test: Z = 2, H = 3, M = 32, N = 48, D = 8, Dv = 5, b = 16. */
typedef struct fixture {
    watch w;
    bstk_context *ctx;
    score_op s, a; /* softmax and attention */
    bstk_softmax_desc softmax;
    bstk_attention_desc attention;
    unsigned char *before[4]; /* of both outputs and both lse */
    int_fast64_t live;
} fixture;

static void setup(fixture *f) {
    memset(f, 0, sizeof *f);
    f->ctx = watched_context(&f->w, NULL);
    score_case p = {.dtype = BSTK_F32,
                    .block = 16,
                    .z = 2,
                    .h = 3,
                    .m = 32,
                    .n = 48,
                    .d = 8,
                    .dv = 5,
                    .layout = {.kind = RULE_ONES}};
    score_make(&f->s, &p, NULL);
    p.attention = true;
    score_make(&f->a, &p, NULL);
    f->softmax = (bstk_softmax_desc)BSTK_SOFTMAX_DESC_INIT;
    f->softmax.layout = f->s.layout;
    f->softmax.x = &f->s.x.t;
    f->softmax.y = &f->s.out.t;
    f->softmax.lse = &f->s.lse.t;
    f->attention = (bstk_attention_desc)BSTK_ATTENTION_DESC_INIT;
    f->attention.layout = f->a.layout;
    f->attention.q = &f->a.q.t;
    f->attention.k = &f->a.k.t;
    f->attention.v = &f->a.v.t;
    f->attention.o = &f->a.out.t;
    f->attention.lse = &f->a.lse.t;
    f->before[0] = gen_snapshot(&f->s.out);
    f->before[1] = gen_snapshot(&f->s.lse);
    f->before[2] = gen_snapshot(&f->a.out);
    f->before[3] = gen_snapshot(&f->a.lse);
    f->live = atomic_load(&f->w.live);
    /* What follows is refused for the spoilt place alone. */
    bstk_plan *plan = NULL;
    ok(bstk_softmax_plan(f->ctx, &f->softmax, &plan));
    bstk_plan_release(plan);
    ok(bstk_attention_plan(f->ctx, &f->attention, &plan));
    bstk_plan_release(plan);
}

static void untouched(fixture *f) {
    assert_true(gen_unchanged(&f->s.out, f->before[0]) && gen_unchanged(&f->s.lse, f->before[1]));
    assert_true(gen_unchanged(&f->a.out, f->before[2]) && gen_unchanged(&f->a.lse, f->before[3]));
    assert_int_equal(atomic_load(&f->w.live), f->live);
}

static void teardown(fixture *f) {
    untouched(f);
    score_free(&f->s);
    score_free(&f->a);
    for (int i = 0; i < 4; ++i)
        free(f->before[i]);
    bstk_context_release(f->ctx);
    assert_int_equal(atomic_load(&f->w.live), 0);
}

static void expect_softmax(fixture *f, bstk_status status, const char *text) {
    bstk_plan *const mark = (bstk_plan *)f;
    bstk_plan *plan = mark;
    refused(bstk_softmax_plan(f->ctx, &f->softmax, &plan), status, text);
    assert_ptr_equal(plan, mark);
    refused(bstk_softmax(f->ctx, &f->softmax), status, text);
    untouched(f);
}

static void expect_attention(fixture *f, bstk_status status, const char *text) {
    bstk_plan *const mark = (bstk_plan *)f;
    bstk_plan *plan = mark;
    refused(bstk_attention_plan(f->ctx, &f->attention, &plan), status, text);
    assert_ptr_equal(plan, mark);
    refused(bstk_attention(f->ctx, &f->attention), status, text);
    untouched(f);
}

/* The terms of both ops, with the same text after the op's name. */
static void expect_terms(fixture *f, const bstk_score_terms *terms, bstk_status status, const char *text) {
    char full[512];
    f->softmax.terms = f->attention.terms = *terms;
    snprintf(full, sizeof full, "softmax: %s", text);
    expect_softmax(f, status, full);
    snprintf(full, sizeof full, "attention: %s", text);
    expect_attention(f, status, full);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static void test_softmax_desc(void **state) {
    (void)state;
    fixture f;
    char text[256];
    bstk_plan *plan = NULL;
    setup(&f);
    refused(bstk_softmax_plan(f.ctx, NULL, &plan), BSTK_ERR_INVALID, "softmax: desc is NULL");
    refused(bstk_softmax_plan(f.ctx, &f.softmax, NULL), BSTK_ERR_INVALID, "softmax: out is NULL");
    refused(bstk_softmax(f.ctx, NULL), BSTK_ERR_INVALID, "softmax: desc is NULL");
    f.softmax.struct_size = 8;
    snprintf(text, sizeof text, "softmax: desc.struct_size is 8, expected %zu (BSTK_SOFTMAX_DESC_INIT)",
             sizeof f.softmax);
    expect_softmax(&f, BSTK_ERR_INVALID, text);
    f.softmax.struct_size = sizeof f.softmax;
    f.softmax.layout = NULL;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: layout is NULL");
    f.softmax.layout = f.s.layout;
    f.softmax.x = NULL;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: x is NULL");
    f.softmax.x = &f.s.x.t;
    f.softmax.y = NULL;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: y is NULL");
    f.softmax.y = &f.s.out.t;
    f.softmax.kernel = "sdd_f32_scalar";
    expect_softmax(&f, BSTK_ERR_INVALID,
                   "softmax: kernel 'sdd_f32_scalar' is not registered for this op (bstk kernels lists them)");
    f.softmax.kernel = NULL;
    teardown(&f);
}

static void test_softmax_tensors(void **state) {
    (void)state;
    fixture f;
    setup(&f);
    const bstk_tensor x = f.s.x.t, y = f.s.out.t, lse = f.s.lse.t;
    f.s.x.t.dtype = BSTK_I64;
    expect_softmax(&f, BSTK_ERR_TYPE, "softmax: x is int64, expected float64, float32, float16 or bfloat16");
    f.s.x.t.dtype = BSTK_F16;
    expect_softmax(&f, BSTK_ERR_TYPE, "softmax: y is float32, expected float16 as x");
    f.s.x.t = x;
    f.s.x.t.ndim = 2;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: x has 2 axes, expected 3 to 4");
    f.s.x.t = x;
    f.s.x.t.shape[1] = 17;
    expect_softmax(&f, BSTK_ERR_INVALID,
                   "softmax: x is [2, 17, 16, 16], expected packed values [Z, 18, 16, 16] (18 stored blocks of 16); "
                   "pack makes them from a dense matrix");
    f.s.x.t = x;
    f.s.out.t.shape[3] = 8;
    expect_softmax(&f, BSTK_ERR_INVALID,
                   "softmax: y is [2, 18, 16, 8], expected packed values [Z, 18, 16, 16] (18 stored blocks of 16); "
                   "pack makes them from a dense matrix");
    f.s.out.t = y;
    f.s.out.t.shape[0] = 1;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: y has batch size 1, expected 2");
    f.s.out.t = y;
    f.s.out.t.stride[1] = 0;
    expect_softmax(&f, BSTK_ERR_INVALID,
                   "softmax: output y has stride 0 on axis 1 of size 18: its elements share memory");
    f.s.out.t = y;
    f.s.lse.t.dtype = BSTK_F64;
    expect_softmax(&f, BSTK_ERR_TYPE, "softmax: lse is float64, expected float32 beside x of float32");
    f.s.lse.t = lse;
    f.s.lse.t.shape[1] = 1;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: lse has heads 1, expected 3");
    f.s.lse.t = lse;
    f.s.lse.t.shape[2] = 48;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: lse has rows 48, expected 32");
    f.s.lse.t = lse;
    f.s.lse.t.stride[2] = 0;
    expect_softmax(&f, BSTK_ERR_INVALID,
                   "softmax: output lse has stride 0 on axis 2 of size 32: its elements share memory");
    f.s.lse.t = lse;
    f.s.lse.t.ndim = 4;
    expect_softmax(&f, BSTK_ERR_INVALID, "softmax: lse has 4 axes, expected 1 to 3");
    f.s.lse.t = lse;
    teardown(&f);
}

static void test_attention_desc(void **state) {
    (void)state;
    fixture f;
    char text[256];
    bstk_plan *plan = NULL;
    setup(&f);
    refused(bstk_attention_plan(f.ctx, NULL, &plan), BSTK_ERR_INVALID, "attention: desc is NULL");
    refused(bstk_attention_plan(f.ctx, &f.attention, NULL), BSTK_ERR_INVALID, "attention: out is NULL");
    f.attention.struct_size = 8;
    snprintf(text, sizeof text, "attention: desc.struct_size is 8, expected %zu (BSTK_ATTENTION_DESC_INIT)",
             sizeof f.attention);
    expect_attention(&f, BSTK_ERR_INVALID, text);
    f.attention.struct_size = sizeof f.attention;
    f.attention.layout = NULL;
    expect_attention(&f, BSTK_ERR_INVALID, "attention: layout is NULL");
    f.attention.layout = f.a.layout;
    const bstk_tensor **const places[] = {&f.attention.q, &f.attention.k, &f.attention.v, &f.attention.o};
    for (int i = 0; i < 4; ++i) {
        const bstk_tensor *right = *places[i];
        *places[i] = NULL;
        snprintf(text, sizeof text, "attention: %c is NULL", "qkvo"[i]);
        expect_attention(&f, BSTK_ERR_INVALID, text);
        *places[i] = right;
    }
    teardown(&f);
}

typedef struct spoil {
    int operand, axis; /* of q, k, v, o, lse */
    int64_t size;
    const char *text;
} spoil;

static void test_attention_sizes(void **state) {
    (void)state;
    static const spoil spoils[] = {
        {0, 1, 2, "attention: q has 2 heads, but the layout has 3; expected the same, or a layout of 1 head"},
        {0, 2, 48, "attention: q has 48 rows, but the layout needs 32 (2 blocks of 16)"},
        {0, 3, 9, "attention: k has head size 8, expected 9"},
        {0, 3, 0, "attention: q has head size 0, expected 1 to 256"},
        {0, 3, 257, "attention: q has head size 257, expected 1 to 256"},
        {1, 0, 3, "attention: k has batch size 3, expected 2"},
        {1, 1, 2, "attention: k has 2 heads and v has 3, expected the same"},
        {1, 2, 47,
         "attention: k has 47 rows, but the layout needs 48 (3 blocks of 16); for a ragged edge make the layout with "
         "its shape M,N (--shape)"},
        {1, 3, 7, "attention: k has head size 7, expected 8"},
        {2, 0, 4, "attention: v has batch size 4, expected 2"},
        {2, 2, 32, "attention: v has 32 rows, but the layout needs 48 (3 blocks of 16)"},
        {2, 3, 0, "attention: v has head size 0, expected 1 to 256"},
        {2, 3, 300, "attention: v has head size 300, expected 1 to 256"},
        {2, 3, 6, "attention: o has head size 5, expected 6"},
        {3, 0, 1, "attention: o has batch size 1, expected 2"},
        {3, 1, 1, "attention: o has heads 1, expected 3"},
        {3, 2, 16, "attention: o has rows 16, expected 32"},
        {3, 3, 8, "attention: o has head size 8, expected 5"},
        {4, 0, 1, "attention: lse has batch size 1, expected 2"},
        {4, 1, 1, "attention: lse has heads 1, expected 3"},
        {4, 2, 48, "attention: lse has rows 48, expected 32"},
    };
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; ++i) {
        fixture f;
        setup(&f);
        gen_array *const arrays[] = {&f.a.q, &f.a.k, &f.a.v, &f.a.out, &f.a.lse};
        bstk_tensor *t = &arrays[spoils[i].operand]->t;
        const bstk_tensor right = *t;
        t->shape[spoils[i].axis] = spoils[i].size;
        expect_attention(&f, BSTK_ERR_INVALID, spoils[i].text);
        *t = right;
        teardown(&f);
    }
}

static void test_attention_tensors(void **state) {
    (void)state;
    static const char *const names[] = {"q", "k", "v", "o"};
    fixture f;
    char text[256];
    setup(&f);
    gen_array *const arrays[] = {&f.a.q, &f.a.k, &f.a.v, &f.a.out};
    for (int i = 0; i < 4; ++i) {
        bstk_tensor *t = &arrays[i]->t;
        const bstk_tensor right = *t;
        t->dtype = BSTK_U8;
        snprintf(text, sizeof text, "attention: %s is uint8, expected float64, float32, float16 or bfloat16", names[i]);
        expect_attention(&f, BSTK_ERR_TYPE, text);
        t->dtype = BSTK_F16;
        if (i == 0) /* q says what is expected of the others */
            snprintf(text, sizeof text, "attention: k is float32, expected float16 as q");
        else
            snprintf(text, sizeof text, "attention: %s is float16, expected float32 as q", names[i]);
        expect_attention(&f, BSTK_ERR_TYPE, text);
        *t = right;
        t->ndim = 1;
        snprintf(text, sizeof text, "attention: %s has 1 axes, expected 2 to 4", names[i]);
        expect_attention(&f, BSTK_ERR_INVALID, text);
        *t = right;
        t->device.kind = BSTK_CUDA;
        snprintf(text, sizeof text, "attention: %s is on device kind 2, expected the CPU (1)", names[i]);
        expect_attention(&f, BSTK_ERR_UNSUPPORTED, text);
        *t = right;
        t->stride[2] = INT64_MAX / 2;
        snprintf(text, sizeof text, "attention: %s has offsets beyond 64 bits (axis 2: size %lld, stride %lld)",
                 names[i], (long long)t->shape[2], (long long)t->stride[2]);
        expect_attention(&f, BSTK_ERR_OVERFLOW, text);
        *t = right;
    }
    f.a.out.t.stride[1] = 0;
    expect_attention(&f, BSTK_ERR_INVALID,
                     "attention: output o has stride 0 on axis 1 of size 3: its elements share memory");
    f.a.out.t.stride[1] = 32 * 5;
    f.a.lse.t.dtype = BSTK_F64;
    expect_attention(&f, BSTK_ERR_TYPE, "attention: lse is float64, expected float32 beside q of float32");
    f.a.lse.t.dtype = BSTK_F32;
    f.a.lse.t.stride[1] = 0;
    expect_attention(&f, BSTK_ERR_INVALID,
                     "attention: output lse has stride 0 on axis 1 of size 3: its elements share memory");
    f.a.lse.t.stride[1] = 32;
    const bstk_tensor k = f.a.k.t, v = f.a.v.t;
    f.a.k.t.shape[1] = f.a.v.t.shape[1] = 2;
    expect_attention(&f, BSTK_ERR_INVALID, "attention: k has 2 heads, expected a divisor of q's 3");
    f.a.k.t = k;
    f.a.v.t = v;
    teardown(&f);
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

static void test_terms_struct(void **state) {
    (void)state;
    fixture f;
    char text[128];
    setup(&f);
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    terms.struct_size = 4;
    snprintf(text, sizeof text, "terms.struct_size is 4, expected %zu (BSTK_SCORE_TERMS_INIT)", sizeof terms);
    expect_terms(&f, &terms, BSTK_ERR_INVALID, text);
    teardown(&f);
}

typedef struct bad_term {
    int which; /* 0 rpe, 1 rel_logits, 2 key_padding_mask, 3 attn_mask */
    bstk_dtype dtype;
    int32_t ndim;
    int64_t sizes[4];
    bstk_mask_mode mode;
    bstk_status status;
    const char *text;
} bad_term;

#define FULL "accepted shapes: [M, N], [H, M, N], [Z, H, M, N], where Z, H and M may be 1"
#define REL  "accepted shapes: [M, E], [H, M, E], [Z, H, M, E], where Z, H and M may be 1"
#define ATTN "accepted shapes: [M, N], [Z, M, N], [Z, H, M, N], where Z, H and M may be 1"
#define KEY  "accepted shapes: [N], [Z, N], [1, N]"

/* BC-053, BC-055, BC-056: each wrong type and shape names the term and lists what is accepted. */
static void test_terms(void **state) {
    (void)state;
    static const bad_term bad[] = {
        {0,
         BSTK_I32,
         2,
         {32, 48},
         BSTK_MASK_AUTO,
         BSTK_ERR_TYPE,
         "rpe is int32, expected float64, float32, float16 or bfloat16"},
        {0, BSTK_F32, 1, {48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rpe has 1 axes, expected 2 to 4"},
        {0, BSTK_F32, 2, {32, 32}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rpe has columns 32, expected 48; " FULL},
        {0, BSTK_F32, 2, {32, 1}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rpe has columns 1, expected 48; " FULL},
        {0, BSTK_F32, 2, {48, 48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rpe has rows 48, expected 32; " FULL},
        {0, BSTK_F32, 3, {2, 32, 48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rpe has heads 2, expected 3; " FULL},
        {0, BSTK_F32, 4, {3, 3, 32, 48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rpe has batch size 3, expected 2; " FULL},
        {1,
         BSTK_U8,
         2,
         {32, 7},
         BSTK_MASK_AUTO,
         BSTK_ERR_TYPE,
         "rel_logits is uint8, expected float64, float32, float16 or bfloat16"},
        {1, BSTK_F32, 2, {31, 7}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rel_logits has rows 31, expected 32; " REL},
        {1, BSTK_F32, 3, {2, 32, 7}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "rel_logits has heads 2, expected 3; " REL},
        /* BC-055: with M = 32 and N = 48 a mask over queries is seen */
        {2,
         BSTK_BOOL,
         2,
         {2, 32},
         BSTK_MASK_AUTO,
         BSTK_ERR_INVALID,
         "key_padding_mask has columns 32, expected 48; " KEY},
        {2,
         BSTK_BOOL,
         2,
         {3, 48},
         BSTK_MASK_AUTO,
         BSTK_ERR_INVALID,
         "key_padding_mask has batch size 3, expected 2; " KEY},
        {2, BSTK_BOOL, 3, {2, 1, 48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "key_padding_mask has 3 axes, expected 1 to 2"},
        {2,
         BSTK_I64,
         2,
         {2, 48},
         BSTK_MASK_AUTO,
         BSTK_ERR_TYPE,
         "key_padding_mask is int64, which only mode mul takes; expected bool, uint8 or a floating type"},
        {2,
         BSTK_I8,
         2,
         {2, 48},
         BSTK_MASK_ADD,
         BSTK_ERR_TYPE,
         "key_padding_mask is int8, which only mode mul takes; expected bool, uint8 or a floating type"},
        {2,
         BSTK_F32,
         2,
         {2, 48},
         (bstk_mask_mode)3,
         BSTK_ERR_INVALID,
         "mode of key_padding_mask is 3, expected auto, add or mul"},
        {3, BSTK_F32, 1, {48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "attn_mask has 1 axes, expected 2 to 4"},
        {3, BSTK_F32, 2, {48, 32}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "attn_mask has rows 48, expected 32; " ATTN},
        {3, BSTK_F32, 2, {32, 47}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "attn_mask has columns 47, expected 48; " ATTN},
        /* BC-056: three axes are batches, not heads */
        {3,
         BSTK_F32,
         3,
         {3, 32, 48},
         BSTK_MASK_AUTO,
         BSTK_ERR_INVALID,
         "attn_mask has batch size 3, expected 2; " ATTN},
        {3, BSTK_F32, 4, {2, 2, 32, 48}, BSTK_MASK_AUTO, BSTK_ERR_INVALID, "attn_mask has heads 2, expected 3; " ATTN},
        {3,
         BSTK_I64,
         2,
         {32, 48},
         BSTK_MASK_AUTO,
         BSTK_ERR_TYPE,
         "attn_mask is int64, which only mode mul takes; expected bool, uint8 or a floating type"},
        {3,
         BSTK_F32,
         2,
         {32, 48},
         (bstk_mask_mode)-1,
         BSTK_ERR_INVALID,
         "mode of attn_mask is -1, expected auto, add or mul"},
    };
    fixture f;
    setup(&f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        const bstk_tensor t = bstk_tensor_make(NULL, bad[i].dtype, bad[i].ndim, bad[i].sizes);
        bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
        const bstk_tensor **const places[] = {&terms.rpe, &terms.rel_logits, &terms.key_padding_mask, &terms.attn_mask};
        *places[bad[i].which] = &t;
        *(bad[i].which == 2 ? &terms.key_padding_mode : &terms.attn_mode) = bad[i].mode;
        expect_terms(&f, &terms, bad[i].status, bad[i].text);
    }
    teardown(&f);
}

/* BC-052: a term on another device than the scores. */
static void test_bc_052(void **state) {
    (void)state;
    static const char *const names[] = {"rpe", "rel_logits", "key_padding_mask", "attn_mask"};
    fixture f;
    setup(&f);
    for (int i = 0; i < 4; ++i) {
        bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 2, i == 2 ? shape(2, 48) : shape(32, 48));
        char text[128];
        bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
        const bstk_tensor **const places[] = {&terms.rpe, &terms.rel_logits, &terms.key_padding_mask, &terms.attn_mask};
        t.device.kind = BSTK_CUDA;
        *places[i] = &t;
        snprintf(text, sizeof text, "%s is on device kind 2, expected the CPU (1)", names[i]);
        expect_terms(&f, &terms, BSTK_ERR_UNSUPPORTED, text);
    }
    teardown(&f);
}

/* ---- run --------------------------------------------------------------------------------------------------------- */

static void test_softmax_run(void **state) {
    (void)state;
    fixture f;
    bstk_plan *plan = NULL;
    setup(&f);
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    float mask_data[32 * 48] = {0};
    const bstk_tensor mask = bstk_tensor_make(mask_data, BSTK_F32, 2, shape(32, 48));
    const bstk_tensor *x = &f.s.x.t, *y = &f.s.out.t, *lse = &f.s.lse.t;
    terms.attn_mask = &mask;
    f.softmax.terms = terms;
    ok(bstk_softmax_plan(f.ctx, &f.softmax, &plan));
    const size_t bytes = bstk_plan_scratch_bytes(plan);
    assert_true(bytes > 0);
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = malloc(bytes);
    exec.scratch_bytes = bytes;
    char text[256];
    refused(bstk_softmax_run(NULL, x, &terms, y, lse, NULL, &exec), BSTK_ERR_INVALID, "softmax: plan is NULL");
    refused(bstk_softmax_run(plan, NULL, &terms, y, lse, NULL, &exec), BSTK_ERR_INVALID, "softmax: x is NULL");
    refused(bstk_softmax_run(plan, x, NULL, y, lse, NULL, &exec), BSTK_ERR_INVALID, "softmax: terms is NULL");
    refused(bstk_softmax_run(plan, x, &terms, NULL, lse, NULL, &exec), BSTK_ERR_INVALID, "softmax: y is NULL");
    refused(bstk_softmax_run(plan, x, &terms, y, NULL, NULL, &exec), BSTK_ERR_INVALID, "softmax: lse is NULL");
    bstk_score_terms other = terms;
    other.causal = 1;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_MISMATCH,
            "softmax: causal 1, causal_offset 0, bottom_right 0, window -1 to -1 are not those of the plan");
    other = terms;
    other.attn_mask = NULL;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_MISMATCH,
            "softmax: attn_mask is NULL, but the plan was made with it");
    other = terms;
    other.rpe = &mask;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_MISMATCH,
            "softmax: rpe is given, but the plan was made without it");
    bstk_tensor shifted = mask;
    shifted.stride[0] = 49;
    other = terms;
    other.attn_mask = &shifted;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_MISMATCH,
            "softmax: attn_mask is float32 [32, 48], but the plan was made for float32 [32, 48] (or other strides)");
    shifted = mask;
    shifted.data = NULL;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_INVALID,
            "softmax: attn_mask.data is NULL");
    shifted = mask; /* inside of y */
    shifted.data = (float *)y->data + 7;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_INVALID, "softmax: y overlaps attn_mask");
    shifted.data = (float *)lse->data - 32 * 48 + 1;
    refused(bstk_softmax_run(plan, x, &other, y, lse, NULL, &exec), BSTK_ERR_INVALID,
            "softmax: lse overlaps attn_mask");
    bstk_tensor near = *x; /* one element off: neither in place nor apart */
    near.data = (float *)y->data + 1;
    refused(bstk_softmax_run(plan, &near, &terms, y, lse, NULL, &exec), BSTK_ERR_INVALID,
            "softmax: y overlaps x; expected x itself (in place) or other memory");
    near = *lse;
    near.data = (float *)y->data + 100;
    refused(bstk_softmax_run(plan, x, &terms, y, &near, NULL, &exec), BSTK_ERR_INVALID, "softmax: lse overlaps y");
    near.data = (float *)x->data + 100;
    refused(bstk_softmax_run(plan, x, &terms, y, &near, NULL, &exec), BSTK_ERR_INVALID, "softmax: lse overlaps x");
    snprintf(text, sizeof text, "softmax: scratch has 0 bytes, expected %zu (bstk_plan_scratch_bytes)", bytes);
    refused(bstk_softmax_run(plan, x, &terms, y, lse, NULL, NULL), BSTK_ERR_INVALID, text);
    exec.scratch_bytes = bytes - 1;
    snprintf(text, sizeof text, "softmax: scratch has %zu bytes, expected %zu (bstk_plan_scratch_bytes)", bytes - 1,
             bytes);
    refused(bstk_softmax_run(plan, x, &terms, y, lse, NULL, &exec), BSTK_ERR_INVALID, text);
    assert_true(gen_unchanged(&f.s.out, f.before[0]) && gen_unchanged(&f.s.lse, f.before[1]));
    /* In place is allowed, and gives the same bits as out of place. */
    exec.scratch_bytes = bytes;
    bstk_tensor lse_copy = *lse;
    float *lse_data = malloc(2 * 3 * 32 * sizeof *lse_data), *out = malloc(2 * 18 * 256 * sizeof *out);
    float *in_place = malloc(2 * 18 * 256 * sizeof *in_place);
    assert_true(lse_data && out && in_place && exec.scratch);
    lse_copy.data = lse_data;
    bstk_tensor to = *y, both = *x;
    to.data = out;
    both.data = in_place;
    memcpy(in_place, x->data, 2 * 18 * 256 * sizeof *in_place);
    ok(bstk_softmax_run(plan, x, &terms, &to, &lse_copy, NULL, &exec));
    ok(bstk_softmax_run(plan, &both, &terms, &both, &lse_copy, NULL, &exec));
    assert_memory_equal(out, in_place, 2 * 18 * 256 * sizeof *out);
    free(lse_data);
    free(out);
    free(in_place);
    free(exec.scratch);
    bstk_plan_release(plan);
    f.softmax.lse = NULL; /* and a plan without lse */
    ok(bstk_softmax_plan(f.ctx, &f.softmax, &plan));
    refused(bstk_softmax_run(plan, x, &terms, y, lse, NULL, NULL), BSTK_ERR_MISMATCH,
            "softmax: lse is given, but the plan was made without it");
    bstk_plan_release(plan);
    teardown(&f);
}

static void test_attention_run(void **state) {
    (void)state;
    fixture f;
    bstk_plan *plan = NULL;
    setup(&f);
    uint8_t keep[48] = {0};
    const bstk_tensor key = bstk_tensor_make(keep, BSTK_U8, 1, shape(48));
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    terms.key_padding_mask = &key;
    f.attention.terms = terms;
    ok(bstk_attention_plan(f.ctx, &f.attention, &plan));
    const bstk_tensor *q = &f.a.q.t, *k = &f.a.k.t, *v = &f.a.v.t, *o = &f.a.out.t, *lse = &f.a.lse.t;
    const size_t bytes = bstk_plan_scratch_bytes(plan);
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = malloc(bytes);
    exec.scratch_bytes = bytes;
    assert_non_null(exec.scratch);
    char text[256];
    refused(bstk_attention_run(NULL, q, k, v, &terms, o, lse, &exec), BSTK_ERR_INVALID, "attention: plan is NULL");
    refused(bstk_attention_run(plan, NULL, k, v, &terms, o, lse, &exec), BSTK_ERR_INVALID, "attention: q is NULL");
    refused(bstk_attention_run(plan, q, NULL, v, &terms, o, lse, &exec), BSTK_ERR_INVALID, "attention: k is NULL");
    refused(bstk_attention_run(plan, q, k, NULL, &terms, o, lse, &exec), BSTK_ERR_INVALID, "attention: v is NULL");
    refused(bstk_attention_run(plan, q, k, v, NULL, o, lse, &exec), BSTK_ERR_INVALID, "attention: terms is NULL");
    refused(bstk_attention_run(plan, q, k, v, &terms, NULL, lse, &exec), BSTK_ERR_INVALID, "attention: o is NULL");
    refused(bstk_attention_run(plan, q, k, v, &terms, o, NULL, &exec), BSTK_ERR_INVALID, "attention: lse is NULL");
    refused(
        bstk_attention_run(plan, q, q, v, &terms, o, lse, &exec), BSTK_ERR_MISMATCH,
        "attention: k is float32 [2, 3, 32, 8], but the plan was made for float32 [2, 3, 48, 8] (or other strides)");
    bstk_score_terms other = terms;
    other.struct_size = 1;
    snprintf(text, sizeof text, "attention: terms.struct_size is 1, expected %zu (BSTK_SCORE_TERMS_INIT)",
             sizeof other);
    refused(bstk_attention_run(plan, q, k, v, &other, o, lse, &exec), BSTK_ERR_INVALID, text);
    other = terms;
    other.key_padding_mask = NULL;
    refused(bstk_attention_run(plan, q, k, v, &other, o, lse, &exec), BSTK_ERR_MISMATCH,
            "attention: key_padding_mask is NULL, but the plan was made with it");
    bstk_tensor wrong = key; /* the axes of what was never planned are not read */
    wrong.ndim = 100;
    other.key_padding_mask = &wrong;
    refused(bstk_attention_run(plan, q, k, v, &other, o, lse, &exec), BSTK_ERR_MISMATCH,
            "attention: key_padding_mask has 100 axes, but the plan was made for 1");
    other = terms;
    other.causal_offset = 5;
    refused(bstk_attention_run(plan, q, k, v, &other, o, lse, &exec), BSTK_ERR_MISMATCH,
            "attention: causal 0, causal_offset 5, bottom_right 0, window -1 to -1 are not those of the plan");
    bstk_tensor over = *v;
    over.data = o->data;
    refused(bstk_attention_run(plan, q, k, &over, &terms, o, lse, &exec), BSTK_ERR_INVALID, "attention: o overlaps v");
    over = *lse;
    over.data = (float *)o->data + 10;
    refused(bstk_attention_run(plan, q, k, v, &terms, o, &over, &exec), BSTK_ERR_INVALID, "attention: lse overlaps o");
    over.data = q->data;
    refused(bstk_attention_run(plan, q, k, v, &terms, o, &over, &exec), BSTK_ERR_INVALID, "attention: lse overlaps q");
    bstk_tensor inside = key;
    inside.data = o->data;
    other = terms;
    other.key_padding_mask = &inside;
    refused(bstk_attention_run(plan, q, k, v, &other, o, lse, &exec), BSTK_ERR_INVALID,
            "attention: o overlaps key_padding_mask");
    exec.scratch_bytes = bytes - 1;
    snprintf(text, sizeof text, "attention: scratch has %zu bytes, expected %zu (bstk_plan_scratch_bytes)", bytes - 1,
             bytes);
    refused(bstk_attention_run(plan, q, k, v, &terms, o, lse, &exec), BSTK_ERR_INVALID, text);
    void *scratch = exec.scratch;
    exec.scratch = NULL;
    exec.scratch_bytes = bytes;
    snprintf(text, sizeof text, "attention: scratch has 0 bytes, expected %zu (bstk_plan_scratch_bytes)", bytes);
    refused(bstk_attention_run(plan, q, k, v, &terms, o, lse, &exec), BSTK_ERR_INVALID, text);
    free(scratch);
    bstk_plan_release(plan);
    f.attention.lse = NULL;
    ok(bstk_attention_plan(f.ctx, &f.attention, &plan));
    refused(bstk_attention_run(plan, q, k, v, &terms, o, lse, &exec), BSTK_ERR_MISMATCH,
            "attention: lse is given, but the plan was made without it");
    bstk_plan_release(plan);
    teardown(&f);
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static void refuse_block(int64_t heads, int64_t rows, int64_t cols, int32_t block, int64_t ndim) {
    uint8_t mask[4096];
    char text[128];
    memset(mask, 1, sizeof mask);
    const bstk_tensor t = ndim == 2 ? bstk_tensor_make(mask, BSTK_BOOL, 2, shape(rows, cols))
                                    : bstk_tensor_make(mask, BSTK_BOOL, 3, shape(heads, rows, cols));
    bstk_layout *const mark = (bstk_layout *)mask;
    bstk_layout *layout = mark;
    snprintf(text, sizeof text, "layout: block is %d, expected a multiple of 8 from 8 to 256", (int)block);
    refused(bstk_layout_from_mask(NULL, &t, block, NULL, &layout), BSTK_ERR_INVALID, text);
    assert_ptr_equal(layout, mark);
}

/* BC-003, BC-004, BC-028: blocks that are too small, odd or too large. 8 and 256 are the ends of what is allowed. */
static void test_bc_003_004_028(void **state) {
    (void)state;
    static const int32_t blocks[] = {-16, 0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 17, 250, 257, 264, 512, 1 << 30};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i)
        refuse_block(2, 4, 4, blocks[i], 3);
    refuse_block(1, 2, 2, 2, 2);
}

/* BC-031: the layout's heads and those of the tensors are both in the text. */
static void test_bc_031(void **state) {
    (void)state;
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    bstk_plan *plan = NULL;
    opts.kind = BSTK_LAYOUT_FIXED;
    opts.heads = 40;
    opts.rows = opts.cols = 16;
    opts.block = 16;
    opts.window = 8;
    opts.global = 1;
    opts.patterns = 8;
    opts.causal = 1;
    ok(bstk_layout_build(NULL, &opts, &layout));
    const bstk_tensor t = bstk_tensor_make(NULL, BSTK_F16, 4, shape(2, 20, 256, 64));
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = layout;
    desc.q = desc.k = desc.v = desc.o = &t;
    refused(bstk_attention_plan(NULL, &desc, &plan), BSTK_ERR_INVALID,
            "attention: q has 20 heads, but the layout has 40; expected the same, or a layout of 1 head");
    assert_null(plan);
    bstk_layout_release(layout);
}

/* BC-081: a layout has heads, and none for each batch item. */
static void test_bc_081(void **state) {
    (void)state;
    uint8_t mask[3 * 2 * 4 * 4] = {0};
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 4, shape(3, 2, 4, 4));
    bstk_layout *layout = NULL;
    const char *text = "layout: mask has 4 axes, expected 2 or 3: a layout has heads, but is shared by the whole batch";
    refused(bstk_layout_from_mask(NULL, &t, 16, NULL, &layout), BSTK_ERR_INVALID, text);
    refused(bstk_layout_from_dense_mask(NULL, &t, 16, &layout), BSTK_ERR_INVALID, text);
    assert_null(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_softmax_desc),
                                       cmocka_unit_test(test_softmax_tensors),
                                       cmocka_unit_test(test_attention_desc),
                                       cmocka_unit_test(test_attention_sizes),
                                       cmocka_unit_test(test_attention_tensors),
                                       cmocka_unit_test(test_terms_struct),
                                       cmocka_unit_test(test_terms),
                                       cmocka_unit_test(test_bc_052),
                                       cmocka_unit_test(test_softmax_run),
                                       cmocka_unit_test(test_attention_run),
                                       cmocka_unit_test(test_bc_003_004_028),
                                       cmocka_unit_test(test_bc_031),
                                       cmocka_unit_test(test_bc_081)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
