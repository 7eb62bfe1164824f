/*
 * test_api_errors.c: what products, pack and unpack, plans and contexts refuse: the status, the text, outputs and
 * out-pointers untouched, nothing leaked. Softmax and attention: test_api_errors_scores.c.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/test_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A right product, to be spoilt in one place by each test. Layout: 2 heads, diagonal, blocks of 16. */
typedef struct fixture {
    watch w;
    bstk_context *ctx;
    bstk_layout *layout;
    gen_array a, b, c;
    bstk_matmul_desc desc;
    unsigned char *before;
    int_fast64_t live;
} fixture;

/* `grid` of element sizes of the layout; dense and packed operands for Z = 2, H = 2, a free size of 5. */
static void setup(fixture *f, bstk_mode mode) {
    memset(f, 0, sizeof *f);
    f->ctx = watched_context(&f->w, NULL);
    const int64_t rows = 64, cols = 48;
    f->layout = rule_layout(&(rule){.kind = RULE_DIAG}, 2, rows, cols, 16);
    const int64_t *packed = shape(2, 6, 16, 16);
    const int64_t *a = mode == BSTK_SDD ? shape(2, 2, 64, 5) : mode == BSTK_DSD ? packed : shape(2, 2, 5, 64);
    const int64_t *b = mode == BSTK_SDD ? shape(2, 2, 5, 48) : mode == BSTK_DSD ? shape(2, 2, 48, 5) : packed;
    const int64_t *c = mode == BSTK_SDD ? packed : mode == BSTK_DSD ? shape(2, 2, 64, 5) : shape(2, 2, 5, 48);
    make_array(&f->a, BSTK_F32, 4, a, GEN_CONTIGUOUS, GEN_UNIFORM, 1);
    make_array(&f->b, BSTK_F32, 4, b, GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    make_array(&f->c, BSTK_F32, 4, c, GEN_CONTIGUOUS, GEN_NANS, 0);
    f->desc = (bstk_matmul_desc)BSTK_MATMUL_DESC_INIT;
    f->desc.mode = mode;
    f->desc.layout = f->layout;
    f->desc.a = &f->a.t;
    f->desc.b = &f->b.t;
    f->desc.c = &f->c.t;
    f->before = gen_snapshot(&f->c);
    f->live = atomic_load(&f->w.live);
    ok(bstk_matmul(f->ctx, &f->desc, 1, 0)); /* so that what follows is refused for the spoilt place alone */
    assert_int_equal(atomic_load(&f->w.live), f->live);
    gen_fill(&f->c.t, GEN_NANS, 0);
}

static void teardown(fixture *f) {
    bstk_layout_release(f->layout);
    gen_array_free(&f->a);
    gen_array_free(&f->b);
    gen_array_free(&f->c);
    free(f->before);
    bstk_context_release(f->ctx);
    assert_int_equal(atomic_load(&f->w.live), 0);
}

/* The plan and the short form refuse alike; c, the out-pointer and the memory in use stay as they are. */
static void expect(fixture *f, bstk_status status, const char *text) {
    bstk_plan *const mark = (bstk_plan *)&f->w;
    bstk_plan *plan = mark;
    refused(bstk_matmul_plan(f->ctx, &f->desc, &plan), status, text);
    assert_ptr_equal(plan, mark);
    refused(bstk_matmul(f->ctx, &f->desc, 1, 0), status, text);
    assert_true(gen_unchanged(&f->c, f->before));
    assert_int_equal(atomic_load(&f->w.live), f->live);
}

/* ---- products: descriptor ---------------------------------------------------------------------------------------- */

static void test_matmul_desc(void **state) {
    (void)state;
    fixture f;
    setup(&f, BSTK_DSD);
    bstk_plan *plan = NULL;
    refused(bstk_matmul_plan(f.ctx, NULL, &plan), BSTK_ERR_INVALID, "matmul: desc is NULL");
    refused(bstk_matmul_plan(f.ctx, &f.desc, NULL), BSTK_ERR_INVALID, "matmul: out is NULL");
    refused(bstk_matmul(f.ctx, NULL, 1, 0), BSTK_ERR_INVALID, "matmul: desc is NULL");
    char text[128];
    f.desc.struct_size--;
    snprintf(text, sizeof text, "matmul: desc.struct_size is %zu, expected %zu (BSTK_MATMUL_DESC_INIT)",
             sizeof f.desc - 1, sizeof f.desc);
    expect(&f, BSTK_ERR_INVALID, text);
    f.desc.struct_size++;
    f.desc.mode = (bstk_mode)0;
    expect(&f, BSTK_ERR_INVALID, "matmul: mode is 0, expected BSTK_SDD, BSTK_DSD or BSTK_DDS");
    f.desc.mode = (bstk_mode)4;
    expect(&f, BSTK_ERR_INVALID, "matmul: mode is 4, expected BSTK_SDD, BSTK_DSD or BSTK_DDS");
    f.desc.mode = BSTK_DSD;
    f.desc.layout = NULL;
    expect(&f, BSTK_ERR_INVALID, "dsd: layout is NULL");
    f.desc.layout = f.layout;
    f.desc.a = NULL;
    expect(&f, BSTK_ERR_INVALID, "dsd: a is NULL");
    f.desc.a = &f.a.t;
    f.desc.b = NULL;
    expect(&f, BSTK_ERR_INVALID, "dsd: b is NULL");
    f.desc.b = &f.b.t;
    f.desc.c = NULL;
    expect(&f, BSTK_ERR_INVALID, "dsd: c is NULL");
    f.desc.c = &f.c.t;
    f.desc.kernel = "nonsense";
    expect(&f, BSTK_ERR_INVALID, "dsd: kernel 'nonsense' is not registered for this op (bstk kernels lists them)");
    teardown(&f);
}

/* Every operand in turn with a spoilt description. */
static void test_matmul_tensors(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    for (int which = 0; which < 3; ++which) {
        fixture f;
        char text[256];
        setup(&f, BSTK_DDS);
        gen_array *const arrays[] = {&f.a, &f.b, &f.c};
        bstk_tensor *t = &arrays[which]->t;
        const bstk_tensor right = *t;
        const char *name = names[which];
        t->dtype = (bstk_dtype)0;
        snprintf(text, sizeof text, "dds: %s has the unknown type 0", name);
        expect(&f, BSTK_ERR_TYPE, text);
        t->dtype = BSTK_I32;
        snprintf(text, sizeof text, "dds: %s is int32, expected float64, float32, float16 or bfloat16", name);
        expect(&f, BSTK_ERR_TYPE, text);
        *t = right;
        t->device.kind = BSTK_CUDA;
        snprintf(text, sizeof text, "dds: %s is on device kind 2, expected the CPU (1)", name);
        expect(&f, BSTK_ERR_UNSUPPORTED, text);
        *t = right;
        t->ndim = which == 1 ? 2 : 1;
        snprintf(text, sizeof text, "dds: %s has %d axes, expected %d to 4", name, (int)t->ndim, which == 1 ? 3 : 2);
        expect(&f, BSTK_ERR_INVALID, text);
        t->ndim = 5;
        snprintf(text, sizeof text, "dds: %s has 5 axes, expected %d to 4", name, which == 1 ? 3 : 2);
        expect(&f, BSTK_ERR_INVALID, text);
        *t = right;
        t->shape[0] = -2;
        snprintf(text, sizeof text, "dds: %s has size -2 on axis 0, expected 0 or more", name);
        expect(&f, BSTK_ERR_INVALID, text);
        *t = right;
        t->stride[1] = INT64_MAX / 3;
        snprintf(text, sizeof text, "dds: %s has offsets beyond 64 bits (axis 1: size %lld, stride %lld)", name,
                 (long long)t->shape[1], (long long)t->stride[1]);
        expect(&f, BSTK_ERR_OVERFLOW, text);
        *t = right;
        t->data = NULL;
        snprintf(text, sizeof text, "dds: %s.data is NULL", name);
        refused(bstk_matmul(f.ctx, &f.desc, 1, 0), BSTK_ERR_INVALID, text);
        *t = right;
        teardown(&f);
    }
}

static void test_matmul_types(void **state) {
    (void)state;
    fixture f;
    setup(&f, BSTK_DSD);
    f.b.t.dtype = BSTK_F16;
    expect(&f, BSTK_ERR_TYPE,
           "dsd: a is float32, b is float16 and c is float32, expected one type for all (packed values may be float32 "
           "beside float16 or bfloat16)");
    f.b.t.dtype = BSTK_F64;
    f.c.t.dtype = BSTK_F64; /* a wider packed operand goes with halves only */
    expect(&f, BSTK_ERR_TYPE,
           "dsd: a is float32, b is float64 and c is float64, expected one type for all (packed values may be float32 "
           "beside float16 or bfloat16)");
    f.b.t.dtype = f.c.t.dtype = BSTK_BF16;
    f.a.t.dtype = BSTK_F16;
    expect(&f, BSTK_ERR_TYPE,
           "dsd: a is float16, b is bfloat16 and c is bfloat16, expected one type for all (packed values may be "
           "float32 beside float16 or bfloat16)");
    teardown(&f);
}

/* An output whose elements share memory; a broadcast input is fine. */
static void test_matmul_stride_0_output(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode) {
        fixture f;
        char text[128];
        setup(&f, (bstk_mode)mode);
        f.c.t.stride[0] = 0;
        snprintf(text, sizeof text, "%s: output c has stride 0 on axis 0 of size 2: its elements share memory",
                 mode == BSTK_SDD   ? "sdd"
                 : mode == BSTK_DSD ? "dsd"
                                    : "dds");
        expect(&f, BSTK_ERR_INVALID, text);
        f.c.t.stride[0] = f.c.t.stride[1] * f.c.t.shape[1];
        f.a.t.stride[0] = f.b.t.stride[0] = 0;
        ok(bstk_matmul(f.ctx, &f.desc, 1, 0));
        teardown(&f);
    }
}

/* ---- products: sizes --------------------------------------------------------------------------------------------- */

typedef struct spoil {
    bstk_mode mode;
    int operand, axis; /* of a, b, c */
    int64_t size;
    const char *text;
} spoil;

/* BC-007: each dimension wrong alone; the text blames that one. */
static void test_matmul_sizes(void **state) {
    (void)state;
    static const spoil spoils[] = {
        {BSTK_SDD, 0, 0, 3, "sdd: b has batch size 2, but the other operands have 3 (expected that or 1)"},
        {BSTK_SDD, 1, 0, 3, "sdd: b has batch size 3, but the other operands have 2 (expected that or 1)"},
        {BSTK_SDD, 2, 0, 3, "sdd: c has batch size 3, expected 2"},
        {BSTK_SDD, 0, 1, 3, "sdd: a has 3 heads, but the layout has 2; expected 1 or 2"},
        {BSTK_SDD, 1, 1, 3, "sdd: b has 3 heads, but the layout has 2; expected 1, a divisor or 2"},
        {BSTK_SDD, 0, 2, 72, "sdd: a has 72 rows, but the layout needs 64 (4 blocks of 16)"},
        {BSTK_SDD, 0, 2, 63,
         "sdd: a has 63 rows, but the layout needs 64 (4 blocks of 16); for a ragged edge make the layout with its "
         "shape M,N (--shape)"},
        {BSTK_SDD, 0, 3, 6, "sdd: a has 6 columns and b has 5 rows, expected the same inner size"},
        {BSTK_SDD, 1, 2, 4, "sdd: a has 5 columns and b has 4 rows, expected the same inner size"},
        {BSTK_SDD, 1, 3, 72, "sdd: b has 72 columns, but the layout needs 48 (3 blocks of 16)"},
        {BSTK_SDD, 2, 1, 7,
         "sdd: c is [2, 7, 16, 16], expected packed values [Z, 6, 16, 16] (6 stored blocks of 16); pack makes them "
         "from "
         "a dense matrix"},
        {BSTK_SDD, 2, 2, 8,
         "sdd: c is [2, 6, 8, 16], expected packed values [Z, 6, 16, 16] (6 stored blocks of 16); pack makes them from "
         "a "
         "dense matrix"},
        {BSTK_DSD, 0, 3, 8,
         "dsd: a is [2, 6, 16, 8], expected packed values [Z, 6, 16, 16] (6 stored blocks of 16); pack makes them from "
         "a "
         "dense matrix"},
        {BSTK_DSD, 1, 1, 4, "dsd: b has 4 heads, but the layout has 2; expected 1, a divisor or 2"},
        {BSTK_DSD, 1, 1, 0, "dsd: b has 0 heads, but the layout has 2; expected 1, a divisor or 2"},
        {BSTK_DSD, 1, 2, 64, "dsd: b has 64 rows, but the layout needs 48 (3 blocks of 16)"},
        {BSTK_DSD, 1, 3, 6, "dsd: c has columns 5, expected 6"},
        {BSTK_DSD, 2, 1, 1, "dsd: c has heads 1, expected 2"},
        {BSTK_DSD, 2, 2, 48, "dsd: c has rows 48, expected 64"},
        {BSTK_DSD, 2, 3, 4, "dsd: c has columns 4, expected 5"},
        {BSTK_DDS, 0, 1, 4, "dds: a has 4 heads, but the layout has 2; expected 1 or 2"},
        {BSTK_DDS, 0, 3, 48, "dds: a has 48 columns, but the layout needs 64 (4 blocks of 16)"},
        {BSTK_DDS, 0, 2, 6, "dds: c has rows 5, expected 6"},
        {BSTK_DDS, 1, 1, 5,
         "dds: b is [2, 5, 16, 16], expected packed values [Z, 6, 16, 16] (6 stored blocks of 16); pack makes them "
         "from "
         "a dense matrix"},
        {BSTK_DDS, 2, 2, 6, "dds: c has rows 6, expected 5"},
        {BSTK_DDS, 2, 3, 64, "dds: c has columns 64, expected 48"},
        {BSTK_DDS, 2, 0, 1, "dds: c has batch size 1, expected 2"},
    };
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; ++i) {
        fixture f;
        setup(&f, spoils[i].mode);
        gen_array *const arrays[] = {&f.a, &f.b, &f.c};
        bstk_tensor *t = &arrays[spoils[i].operand]->t;
        const bstk_tensor right = *t;
        t->shape[spoils[i].axis] = spoils[i].size;
        expect(&f, BSTK_ERR_INVALID, spoils[i].text);
        *t = right;
        teardown(&f);
    }
}

/* With transpositions the text still names the axis of the operand as it was given. */
static void test_matmul_transposed_sizes(void **state) {
    (void)state;
    fixture f;
    setup(&f, BSTK_SDD);
    f.desc.trans_a = 1; /* a [64, 5] is now K x M */
    expect(&f, BSTK_ERR_INVALID, "sdd: a has 5 columns, but the layout needs 64 (4 blocks of 16)");
    f.desc.trans_a = 0;
    f.desc.trans_b = 1; /* b [5, 48] is now N x K */
    expect(&f, BSTK_ERR_INVALID, "sdd: b has 5 rows, but the layout needs 48 (3 blocks of 16)");
    f.desc.trans_b = 0;
    f.desc.trans_c = 1; /* the layout is that of C^T */
    expect(&f, BSTK_ERR_INVALID, "sdd: a has 64 rows, but the layout needs 48 (3 blocks of 16)");
    teardown(&f);
    setup(&f, BSTK_DSD);
    f.desc.trans_a = 1;
    expect(&f, BSTK_ERR_INVALID, "dsd: b has 48 rows, but the layout needs 64 (4 blocks of 16)");
    f.desc.trans_a = 0;
    f.desc.trans_b = 1;
    expect(&f, BSTK_ERR_INVALID, "dsd: b has 5 columns, but the layout needs 48 (3 blocks of 16)");
    f.desc.trans_b = 0;
    f.desc.trans_c = 1;
    expect(&f, BSTK_ERR_INVALID, "dsd: c has columns 5, expected 64");
    teardown(&f);
    setup(&f, BSTK_DDS);
    f.desc.trans_b = 1;
    expect(&f, BSTK_ERR_INVALID, "dds: a has 64 columns, but the layout needs 48 (3 blocks of 16)");
    f.desc.trans_b = 0;
    f.desc.trans_c = 1;
    expect(&f, BSTK_ERR_INVALID, "dds: c has columns 48, expected 5");
    teardown(&f);
}

/* A shared layout: packed values of all heads, or of one. */
static void test_matmul_shared_layout(void **state) {
    (void)state;
    bstk_layout *layout = rule_layout(&(rule){.kind = RULE_ONES}, 1, 32, 32, 16);
    const bstk_tensor dense = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 4, 32, 32));
    bstk_tensor packed = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 6, 16, 16));
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    bstk_plan *plan = NULL;
    desc.layout = layout;
    desc.a = desc.b = &dense;
    desc.c = &packed;
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID,
            "sdd: c is [1, 6, 16, 16], expected packed values [Z, 4, 16, 16], or that many blocks for each head (4 "
            "stored blocks of 16); pack makes them from a dense matrix");
    packed.shape[1] = 8;
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID, "sdd: c has stored blocks 8, expected 16");
    desc.mode = BSTK_DDS;
    desc.b = &packed;
    desc.c = &dense;
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID,
            "dds: a has 4 heads, but the other operand has 2; expected 1 or 2");
    assert_null(plan);
    bstk_layout_release(layout);
}

/* BC-027: a dense tensor where packed values belong. */
static void test_bc_027(void **state) {
    (void)state;
    bstk_layout *layout = rule_layout(&(rule){.kind = RULE_ONES}, 1, 128, 64, 32);
    const bstk_tensor a = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 1, 64, 128));
    const bstk_tensor b = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 1, 128, 64));
    const bstk_tensor c = bstk_tensor_make(NULL, BSTK_F32, 4, shape(1, 1, 64, 64));
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    bstk_plan *plan = NULL;
    desc.mode = BSTK_DDS;
    desc.layout = layout;
    desc.a = &a;
    desc.b = &b;
    desc.c = &c;
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID,
            "dds: b is [1, 1, 128, 64], expected packed values [Z, 8, 32, 32], or that many blocks for each head (8 "
            "stored blocks of 32); pack makes them from a dense matrix");
    const bstk_tensor flat = bstk_tensor_make(NULL, BSTK_F32, 2, shape(128, 64));
    desc.b = &flat;
    refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_INVALID, "dds: b has 2 axes, expected 3 to 4");
    assert_null(plan);
    bstk_layout_release(layout);
}

/* BC-110: integers are no operands. */
static void test_bc_110(void **state) {
    (void)state;
    bstk_layout *layout = rule_layout(&(rule){.kind = RULE_ONES}, 1, 32, 4096, 16);
    for (int dtype = BSTK_BOOL; dtype <= BSTK_I64; ++dtype) {
        const bstk_tensor a = bstk_tensor_make(NULL, (bstk_dtype)dtype, 4, shape(1, 512, 16, 16));
        const bstk_tensor b = bstk_tensor_make(NULL, (bstk_dtype)dtype, 4, shape(1, 1, 4096, 32));
        const bstk_tensor c = bstk_tensor_make(NULL, (bstk_dtype)dtype, 4, shape(1, 1, 32, 32));
        char text[128];
        bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
        bstk_plan *plan = NULL;
        desc.mode = BSTK_DSD;
        desc.layout = layout;
        desc.a = &a;
        desc.b = &b;
        desc.c = &c;
        snprintf(text, sizeof text, "dsd: a is %s, expected float64, float32, float16 or bfloat16",
                 bstk_dtype_name((bstk_dtype)dtype));
        refused(bstk_matmul_plan(NULL, &desc, &plan), BSTK_ERR_TYPE, text);
        assert_null(plan);
    }
    bstk_layout_release(layout);
}

/* ---- products: run ----------------------------------------------------------------------------------------------- */

static void test_matmul_run(void **state) {
    (void)state;
    fixture f;
    setup(&f, BSTK_DSD);
    bstk_plan *plan = NULL;
    ok(bstk_matmul_plan(f.ctx, &f.desc, &plan));
    const bstk_tensor *a = &f.a.t, *b = &f.b.t, *c = &f.c.t;
    bstk_tensor other = *a;
    refused(bstk_matmul_run(NULL, 1, a, b, 0, c, NULL), BSTK_ERR_INVALID, "matmul: plan is NULL");
    refused(bstk_matmul_run(plan, 1, NULL, b, 0, c, NULL), BSTK_ERR_INVALID, "dsd: a is NULL");
    refused(bstk_matmul_run(plan, 1, a, NULL, 0, c, NULL), BSTK_ERR_INVALID, "dsd: b is NULL");
    refused(bstk_matmul_run(plan, 1, a, b, 0, NULL, NULL), BSTK_ERR_INVALID, "dsd: c is NULL");
    refused(bstk_matmul_run(plan, 1, b, b, 0, c, NULL), BSTK_ERR_MISMATCH,
            "dsd: a is float32 [2, 2, 48, 5], but the plan was made for float32 [2, 6, 16, 16] (or other strides)");
    other.data = NULL;
    refused(bstk_matmul_run(plan, 1, &other, b, 0, c, NULL), BSTK_ERR_INVALID, "dsd: a.data is NULL");
    other = *c;
    other.stride[3] = 2;
    refused(bstk_matmul_run(plan, 1, a, b, 0, &other, NULL), BSTK_ERR_MISMATCH,
            "dsd: c is float32 [2, 2, 64, 5], but the plan was made for float32 [2, 2, 64, 5] (or other strides)");
    other = *a;
    other.ndim = 3;
    assert_int_equal(bstk_matmul_run(plan, 1, &other, b, 0, c, NULL), BSTK_ERR_MISMATCH);
    other = *b; /* b inside of c, and c at the end of a */
    other.data = (float *)c->data + 3;
    refused(bstk_matmul_run(plan, 1, a, &other, 0, c, NULL), BSTK_ERR_INVALID, "dsd: c overlaps b");
    other = *a;
    other.data = (float *)c->data - (2 * 6 * 256 - 1);
    refused(bstk_matmul_run(plan, 1, &other, b, 0, c, NULL), BSTK_ERR_INVALID, "dsd: c overlaps a");
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.struct_size = 1;
    char text[128];
    snprintf(text, sizeof text, "dsd: exec.struct_size is 1, expected %zu (BSTK_EXEC_INIT)", sizeof exec);
    refused(bstk_matmul_run(plan, 1, a, b, 0, c, &exec), BSTK_ERR_INVALID, text);
    refused(bstk_softmax_run(plan, a, NULL, c, NULL, NULL, NULL), BSTK_ERR_INVALID, "softmax: plan is for another op");
    refused(bstk_convert_run(plan, a, c, NULL), BSTK_ERR_INVALID, "convert: plan is for another op");
    refused(bstk_attention_run(plan, a, b, b, NULL, c, NULL, NULL), BSTK_ERR_INVALID,
            "attention: plan is for another op");
    assert_true(gen_unchanged(&f.c, f.before));
    exec = (bstk_exec)BSTK_EXEC_INIT;
    exec.scratch_bytes = bstk_plan_scratch_bytes(plan);
    exec.scratch = malloc(exec.scratch_bytes + 1);
    if (exec.scratch_bytes > 0) {
        exec.scratch_bytes--;
        snprintf(text, sizeof text, "dsd: scratch has %zu bytes, expected %zu (bstk_plan_scratch_bytes)",
                 exec.scratch_bytes, exec.scratch_bytes + 1);
        refused(bstk_matmul_run(plan, 1, a, b, 0, c, &exec), BSTK_ERR_INVALID, text);
        exec.scratch_bytes++;
    }
    ok(bstk_matmul_run(plan, 1, a, b, 0, c, &exec)); /* and it still works */
    free(exec.scratch);
    bstk_plan_release(plan);
    assert_int_equal(atomic_load(&f.w.live), f.live);
    teardown(&f);
}

/* ---- pack and unpack --------------------------------------------------------------------------------------------- */

typedef struct convert_fixture {
    bstk_layout *layout;
    bstk_tensor dense, packed;
    bstk_convert_desc desc;
} convert_fixture;

static float convert_memory[2][8192];

static void convert_setup(convert_fixture *f, bstk_convert_direction direction) {
    f->layout = rule_layout(&(rule){.kind = RULE_DIAG}, 2, 60, 48, 16); /* ragged rows, 6 blocks */
    f->dense = bstk_tensor_make(convert_memory[0], BSTK_F32, 3, shape(2, 60, 48));
    f->packed = bstk_tensor_make(convert_memory[1], BSTK_F32, 3, shape(6, 16, 16));
    f->desc = (bstk_convert_desc)BSTK_CONVERT_DESC_INIT;
    f->desc.direction = direction;
    f->desc.layout = f->layout;
    f->desc.x = direction == BSTK_PACK ? &f->dense : &f->packed;
    f->desc.y = direction == BSTK_PACK ? &f->packed : &f->dense;
    memset(convert_memory, 0x55, sizeof convert_memory);
}

static void convert_expect(convert_fixture *f, bstk_status status, const char *text) {
    bstk_plan *const mark = (bstk_plan *)f;
    bstk_plan *plan = mark;
    refused(bstk_convert_plan(NULL, &f->desc, &plan), status, text);
    assert_ptr_equal(plan, mark);
    refused(bstk_convert(NULL, &f->desc), status, text);
    for (size_t i = 0; i < 2 * 8192; ++i)
        assert_memory_equal(&convert_memory[i / 8192][i % 8192], "\x55\x55\x55\x55", 4);
}

static void test_convert_desc(void **state) {
    (void)state;
    convert_fixture f;
    convert_setup(&f, BSTK_PACK);
    char text[256];
    bstk_plan *plan = NULL;
    refused(bstk_convert_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "convert: desc is NULL");
    refused(bstk_convert_plan(NULL, &f.desc, NULL), BSTK_ERR_INVALID, "convert: out is NULL");
    f.desc.struct_size = 0;
    snprintf(text, sizeof text, "convert: desc.struct_size is 0, expected %zu (BSTK_CONVERT_DESC_INIT)", sizeof f.desc);
    convert_expect(&f, BSTK_ERR_INVALID, text);
    f.desc.struct_size = sizeof f.desc;
    f.desc.direction = (bstk_convert_direction)3;
    convert_expect(&f, BSTK_ERR_INVALID, "convert: direction is 3, expected BSTK_PACK or BSTK_UNPACK");
    f.desc.direction = BSTK_PACK;
    f.desc.layout = NULL;
    convert_expect(&f, BSTK_ERR_INVALID, "pack: layout is NULL");
    f.desc.layout = f.layout;
    f.desc.x = NULL;
    convert_expect(&f, BSTK_ERR_INVALID, "pack: x is NULL");
    f.desc.x = &f.dense;
    f.desc.y = NULL;
    convert_expect(&f, BSTK_ERR_INVALID, "pack: y is NULL");
    f.desc.y = &f.packed;
    f.desc.kernel = "unpack_f32_scalar";
    convert_expect(&f, BSTK_ERR_UNSUPPORTED, "pack: kernel 'unpack_f32_scalar' is for another op");
    bstk_layout_release(f.layout);
}

static void test_convert_tensors(void **state) {
    (void)state;
    convert_fixture f;
    convert_setup(&f, BSTK_PACK);
    f.dense.dtype = BSTK_U16;
    convert_expect(&f, BSTK_ERR_TYPE, "pack: x is uint16, expected float64, float32, float16 or bfloat16");
    f.dense.dtype = BSTK_F16;
    convert_expect(&f, BSTK_ERR_TYPE, "pack: y is float32, expected float16 as x");
    f.dense = bstk_tensor_make(convert_memory[0], BSTK_F32, 3, shape(2, 64, 48));
    convert_expect(&f, BSTK_ERR_INVALID,
                   "pack: x has 64 rows, but the layout needs 60 (4 blocks of 16); for a ragged edge make the layout "
                   "with its shape M,N (--shape)");
    f.dense = bstk_tensor_make(convert_memory[0], BSTK_F32, 3, shape(2, 60, 16));
    convert_expect(&f, BSTK_ERR_INVALID, "pack: x has 16 columns, but the layout needs 48 (3 blocks of 16)");
    f.dense = bstk_tensor_make(convert_memory[0], BSTK_F32, 3, shape(3, 60, 48));
    convert_expect(&f, BSTK_ERR_INVALID, "pack: x has heads 3, expected 2");
    f.dense = bstk_tensor_make(convert_memory[0], BSTK_F32, 4, shape(2, 2, 60, 48));
    convert_expect(&f, BSTK_ERR_INVALID, "pack: y has batch size 1, expected 2");
    f.dense = bstk_tensor_make(convert_memory[0], BSTK_F32, 3, shape(2, 60, 48));
    f.packed.shape[0] = 5;
    convert_expect(&f, BSTK_ERR_INVALID,
                   "pack: y is [5, 16, 16], expected packed values [Z, 6, 16, 16] (6 stored blocks of 16); pack makes "
                   "them from a dense matrix");
    f.packed.shape[0] = 6;
    f.packed.stride[1] = 0;
    convert_expect(&f, BSTK_ERR_INVALID, "pack: output y has stride 0 on axis 1 of size 16: its elements share memory");
    bstk_layout_release(f.layout);

    convert_setup(&f, BSTK_UNPACK);
    f.dense.dtype = BSTK_F64;
    convert_expect(&f, BSTK_ERR_TYPE, "unpack: y is float64, expected float32 as x");
    f.dense.dtype = BSTK_F32;
    f.dense.stride[2] = 0;
    convert_expect(&f, BSTK_ERR_INVALID,
                   "unpack: output y has stride 0 on axis 2 of size 48: its elements share memory");
    bstk_layout_release(f.layout);
}

static void test_convert_run(void **state) {
    (void)state;
    convert_fixture f;
    bstk_plan *plan = NULL;
    convert_setup(&f, BSTK_UNPACK);
    ok(bstk_convert_plan(NULL, &f.desc, &plan));
    bstk_tensor over = f.packed;
    over.data = convert_memory[0] + 5000;
    refused(bstk_convert_run(NULL, &f.packed, &f.dense, NULL), BSTK_ERR_INVALID, "convert: plan is NULL");
    refused(bstk_convert_run(plan, &over, &f.dense, NULL), BSTK_ERR_INVALID, "unpack: y overlaps x");
    refused(bstk_convert_run(plan, NULL, &f.dense, NULL), BSTK_ERR_INVALID, "unpack: x is NULL");
    refused(bstk_convert_run(plan, &f.packed, &f.packed, NULL), BSTK_ERR_MISMATCH,
            "unpack: y is float32 [6, 16, 16], but the plan was made for float32 [2, 60, 48] (or other strides)");
    bstk_plan_release(plan);
    bstk_layout_release(f.layout);
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static void test_context(void **state) {
    (void)state;
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *const mark = (bstk_context *)&opts;
    bstk_context *ctx = mark;
    char text[128];
    refused(bstk_context_create(&opts, NULL), BSTK_ERR_INVALID, "context: out is NULL");
    opts.struct_size = 3;
    snprintf(text, sizeof text, "context: opts.struct_size is 3, expected %zu (BSTK_CONTEXT_OPTS_INIT)", sizeof opts);
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID, text);
    opts.struct_size = sizeof opts;
    opts.num_threads = -1;
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID, "context: num_threads is -1, expected 0 to 4096");
    opts.num_threads = 4097;
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID, "context: num_threads is 4097, expected 0 to 4096");
    opts.num_threads = 0;
    opts.max_isa = "sse2";
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID,
            "context: max_isa is 'sse2', expected scalar, avx2, avx512 or neon");
    opts.max_isa = NULL;
    opts.log_enabled = "dispatch,everything";
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID,
            "context: log_enabled is 'dispatch,everything', expected dispatch, plan, all or none");
    opts.log_enabled = NULL;
    watch w = {0};
    bstk_context *watched = watched_context(&w, NULL);
    bstk_context_release(watched);
    assert_int_equal(atomic_load(&w.live), 0);
    assert_ptr_equal(ctx, mark);
    bstk_context_release(NULL);
    opts.num_threads = 4096;
    ok(bstk_context_create(&opts, &ctx));
    assert_int_equal(bstk_context_num_threads(ctx), 4096);
    bstk_context_release(ctx);
    assert_true(bstk_context_num_threads(NULL) >= 1);
}

static void *some_alloc(void *user, size_t bytes, size_t align) {
    (void)user;
    (void)bytes;
    (void)align;
    return NULL;
}

static void some_free(void *user, void *ptr) {
    (void)user;
    (void)ptr;
}

static void test_context_memory(void **state) {
    (void)state;
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.alloc = some_alloc;
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID,
            "context: alloc and free must be given together, or neither");
    opts.alloc = NULL;
    opts.free = some_free;
    refused(bstk_context_create(&opts, &ctx), BSTK_ERR_INVALID,
            "context: alloc and free must be given together, or neither");
    opts.alloc = some_alloc; /* has no memory */
    assert_int_equal(bstk_context_create(&opts, &ctx), BSTK_ERR_NOMEM);
    assert_true(strncmp(bstk_last_error(), "context: out of memory (", 24) == 0);
    assert_null(ctx);
}

/* NULL is fine for everything that is released. */
static void test_null_releases(void **state) {
    (void)state;
    bstk_plan_release(NULL);
    bstk_layout_release(NULL);
    bstk_context_release(NULL);
    assert_null(bstk_plan_retain(NULL));
    assert_null(bstk_layout_retain(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matmul_desc),
                                       cmocka_unit_test(test_matmul_tensors),
                                       cmocka_unit_test(test_matmul_types),
                                       cmocka_unit_test(test_matmul_stride_0_output),
                                       cmocka_unit_test(test_matmul_sizes),
                                       cmocka_unit_test(test_matmul_transposed_sizes),
                                       cmocka_unit_test(test_matmul_shared_layout),
                                       cmocka_unit_test(test_bc_027),
                                       cmocka_unit_test(test_bc_110),
                                       cmocka_unit_test(test_matmul_run),
                                       cmocka_unit_test(test_convert_desc),
                                       cmocka_unit_test(test_convert_tensors),
                                       cmocka_unit_test(test_convert_run),
                                       cmocka_unit_test(test_context),
                                       cmocka_unit_test(test_context_memory),
                                       cmocka_unit_test(test_null_releases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
