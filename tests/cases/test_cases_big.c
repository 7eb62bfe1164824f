/*
 * test_cases_big.c: cases beyond 2^31 elements, where 32-bit offsets break; the number is the case's.
 *
 * The reported sizes take up to 35 GB and minutes. Here the offsets are as large, the work is not: strides carry each
 * axis of each operand past 2^31 and 2^32 in address space of which only the touched pages exist; and for packed values
 * that are contiguous, inputs are untouched zero pages, while all of an output but its end lies on the same few pages.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/test_memory.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* the contiguous ones walk 2^31 elements: minutes there */
#else
enum { SANITIZED = 0 };
#endif

/* ---- strides ----------------------------------------------------------------------------------------------------- */

enum { OPERANDS = 5 };

/* Operands in the order a, b, c or x, y, lse or q, k, v, o, lse; as many as `count`. The outputs are the last ones. */
typedef struct far_op {
    int count, outputs;
    const bstk_tensor *near[OPERANDS];
    bstk_status (*run)(const void *user, const bstk_tensor *operands);
    const void *user;
} far_op;

/* One axis of one operand stretched so that its last index lies `reach` elements away, forwards or backwards. */
static void stretched(const far_op *op, int which, int axis, int64_t reach, bool backwards) {
    bstk_tensor t[OPERANDS];
    for (int i = 0; i < op->count; ++i)
        t[i] = *op->near[i];
    const bstk_tensor *near = op->near[which];
    const size_t item = bstk_dtype_size(near->dtype);
    const int64_t stride = (reach + near->shape[axis] - 2) / (near->shape[axis] - 1);
    const int64_t last = stride * (near->shape[axis] - 1), count = gen_count(near);
    const size_t bytes = ((size_t)last + 2 * (size_t)count + 64) * item;
    char *memory = sparse_alloc(bytes);
    /* Other axes keep their strides, so that slices never meet as long as the stretch is longer than the tensor. */
    t[which].stride[axis] = backwards ? -stride : stride;
    t[which].data = memory + (backwards ? (size_t)last * item : 0);
    const bool output = which >= op->count - op->outputs;
    for (int64_t e = 0; e < count; ++e)
        gen_store(near->dtype, t[which].data, gen_offset(&t[which], e),
                  output ? (double)NAN : gen_load(near->dtype, near->data, gen_offset(near, e)));
    gen_array fresh[2];
    for (int o = 0; o < op->outputs; ++o) { /* the other outputs are new each time */
        const int i = op->count - op->outputs + o;
        make_array(&fresh[o], op->near[i]->dtype, op->near[i]->ndim, op->near[i]->shape, GEN_CONTIGUOUS, GEN_NANS, 0);
        if (i != which)
            t[i].data = fresh[o].t.data;
    }
    ok(op->run(op->user, t));
    for (int i = op->count - op->outputs; i < op->count; ++i)
        assert_same_bits("far against near", &t[i], op->near[i]);
    for (int o = 0; o < op->outputs; ++o)
        gen_array_free(&fresh[o]);
    sparse_free(memory, bytes);
}

static void all_axes_far(const far_op *op) {
    const int64_t bit31 = INT64_C(1) << 31;
    static const int64_t beside[] = {-1, 0, 1};
    for (int which = 0; which < op->count; ++which)
        for (int axis = 0; axis < op->near[which]->ndim; ++axis) {
            if (op->near[which]->shape[axis] < 2)
                continue;
            for (int k = 0; k < 3 && axis == 0; ++k)
                stretched(op, which, axis, bit31 + beside[k], false);
            stretched(op, which, axis, bit31 + 4097, false);
            stretched(op, which, axis, bit31 + 4097, true);
            stretched(op, which, axis, 2 * bit31 + 5, false);
        }
}

static bstk_status run_attention(const void *user, const bstk_tensor *t) {
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = user;
    desc.q = &t[0];
    desc.k = &t[1];
    desc.v = &t[2];
    desc.o = &t[3];
    desc.lse = &t[4];
    return bstk_attention(NULL, &desc);
}

/* Batch, heads, rows and head size of all operands, just below, at and above 2^31 and above 2^32. */
static void test_bc_100(void **state) {
    (void)state;
    score_op x;
    const score_case p = {.attention = true,
                          .dtype = BSTK_F16,
                          .block = 16,
                          .z = 2,
                          .h = 2,
                          .m = 48,
                          .n = 32,
                          .d = 5,
                          .dv = 3,
                          .layout = {.kind = RULE_BANDED, .reach = 1}};
    score_make(&x, &p, NULL);
    score_check(&x);
    const far_op op = {5, 2, {&x.q.t, &x.k.t, &x.v.t, &x.out.t, &x.lse.t}, run_attention, x.layout};
    all_axes_far(&op);
    score_free(&x);
}

static bstk_status run_product(const void *user, const bstk_tensor *t) {
    const product *x = user;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = x->p.mode;
    desc.trans_b = x->p.tb;
    desc.layout = x->layout;
    desc.a = &t[0];
    desc.b = &t[1];
    desc.c = &t[2];
    return bstk_matmul(NULL, &desc, 1, 0);
}

static bstk_status run_softmax(const void *user, const bstk_tensor *t) {
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = user;
    desc.x = &t[0];
    desc.y = &t[1];
    desc.lse = &t[2];
    return bstk_softmax(NULL, &desc);
}

/* sdd, softmax and dsd (and dds) with packed values, and dense ones, far apart. */
static void test_bc_101_strides(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; ++mode)
        for (int tb = 0; tb < 2; ++tb) {
            product x;
            product_make(&x, &(product_case){.mode = (bstk_mode)mode,
                                             .dtype = BSTK_F16,
                                             .block = 16,
                                             .z = 2,
                                             .h = 2,
                                             .m = 32,
                                             .n = 48,
                                             .k = 32,
                                             .tb = tb,
                                             .layout = {.kind = RULE_BANDED, .reach = 1}});
            product_check(&x);
            const far_op op = {3, 1, {&x.a.t, &x.b.t, &x.c.t}, run_product, &x};
            all_axes_far(&op);
            product_free(&x);
        }
    score_op s;
    const score_case p = {.dtype = BSTK_F16, .block = 16, .z = 2, .h = 2, .m = 48, .n = 32};
    score_make(&s, &p, NULL);
    score_check(&s);
    const far_op op = {3, 2, {&s.x.t, &s.out.t, &s.lse.t}, run_softmax, s.layout};
    all_axes_far(&op);
    score_free(&s);
}

/* Pack and unpack. */
static bstk_status run_convert(const void *user, const bstk_tensor *t) {
    const bstk_convert_desc *given = user;
    bstk_convert_desc desc = *given;
    desc.x = &t[0];
    desc.y = &t[1];
    return bstk_convert(NULL, &desc);
}

static void test_bc_101_copies(void **state) {
    (void)state;
    for (int direction = BSTK_PACK; direction <= BSTK_UNPACK; ++direction) {
        bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
        bstk_layout *layout = rule_layout(&(rule){.kind = RULE_TRIL}, 2, 40, 48, 16);
        gen_array dense, packed;
        make_array(&dense, BSTK_F16, 4, shape(2, 2, 40, 48), GEN_CONTIGUOUS, GEN_UNIFORM, 1);
        make_array(&packed, BSTK_F16, 4, shape(2, bstk_layout_nnz(layout), 16, 16), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
        desc.direction = (bstk_convert_direction)direction;
        desc.layout = layout;
        desc.x = direction == BSTK_PACK ? &dense.t : &packed.t;
        desc.y = direction == BSTK_PACK ? &packed.t : &dense.t;
        ok(bstk_convert(NULL, &desc));
        const far_op op = {2, 1, {desc.x, desc.y}, run_convert, &desc};
        all_axes_far(&op);
        gen_array_free(&dense);
        gen_array_free(&packed);
        bstk_layout_release(layout);
    }
}

/* ---- contiguous packed values ------------------------------------------------------------------------------------ */

/* 182 x 182 blocks of 256: 2.17e9 elements, the last ones past 2^31. */
enum { GRID = 182, EDGE = 256, SIZE = GRID * EDGE };

static bstk_layout *dense_layout(int64_t rows) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    opts.rows = rows;
    opts.cols = GRID;
    opts.block = EDGE;
    ok(bstk_layout_build(NULL, &opts, &layout));
    return layout;
}

/* The last two block rows against the same rows by themselves. */
static void test_bc_101_contiguous(void **state) {
    (void)state;
    if (SANITIZED)
        skip();
    enum { ROWS = 2 };
    const size_t all = (size_t)GRID * GRID * EDGE * EDGE * 2, end = (size_t)ROWS * GRID * EDGE * EDGE * 2;
    bstk_layout *layout = dense_layout(GRID), *part = dense_layout(ROWS);
    assert_true(bstk_layout_nnz(layout) * EDGE * EDGE > INT64_C(1) << 31);
    gen_array a, b;
    make_array(&a, BSTK_F16, 2, shape(SIZE, 1), GEN_CONTIGUOUS, GEN_UNIFORM, 1);
    make_array(&b, BSTK_F16, 2, shape(1, SIZE), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    bstk_tensor a_end =
        bstk_tensor_make((uint16_t *)a.t.data + (GRID - ROWS) * EDGE, BSTK_F16, 2, shape(ROWS * EDGE, 1));

    /* sdd with an inner size of 1 */
    char *scores = scrap_alloc(all, end), *want = malloc(end);
    assert_non_null(want);
    const bstk_tensor c = bstk_tensor_make(scores, BSTK_F16, 3, shape(GRID * GRID, EDGE, EDGE));
    const bstk_tensor c_end = bstk_tensor_make(want, BSTK_F16, 3, shape(ROWS * GRID, EDGE, EDGE));
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.layout = layout;
    desc.a = &a.t;
    desc.b = &b.t;
    desc.c = &c;
    ok(bstk_matmul(NULL, &desc, 1, 0));
    desc.layout = part;
    desc.a = &a_end;
    desc.c = &c_end;
    ok(bstk_matmul(NULL, &desc, 1, 0));
    assert_memory_equal(scores + all - end, want, end);

    /* dsd of one column: zeros but for the last rows, which are the scores just made */
    char *zeros = sparse_alloc(all);
    memcpy(zeros + all - end, want, end);
    gen_array v, o, o_end;
    make_array(&v, BSTK_F16, 2, shape(SIZE, 1), GEN_CONTIGUOUS, GEN_UNIFORM, 3);
    make_array(&o, BSTK_F16, 2, shape(SIZE, 1), GEN_CONTIGUOUS, GEN_NANS, 0);
    make_array(&o_end, BSTK_F16, 2, shape(ROWS * EDGE, 1), GEN_CONTIGUOUS, GEN_NANS, 0);
    const bstk_tensor values = bstk_tensor_make(zeros, BSTK_F16, 3, shape(GRID * GRID, EDGE, EDGE));
    desc.mode = BSTK_DSD;
    desc.layout = layout;
    desc.a = &values;
    desc.b = &v.t;
    desc.c = &o.t;
    ok(bstk_matmul(NULL, &desc, 1, 0));
    desc.layout = part;
    desc.a = &c_end;
    desc.c = &o_end.t;
    ok(bstk_matmul(NULL, &desc, 1, 0));
    const int64_t start = (int64_t)(GRID - ROWS) * EDGE;
    for (int64_t i = 0; i < SIZE; ++i)
        assert_true(i < start ? gen_load(BSTK_F16, o.t.data, i) == 0
                              : ((uint16_t *)o.t.data)[i] == ((uint16_t *)o_end.t.data)[i - start]);
    sparse_free(scores, all);
    sparse_free(zeros, all);
    free(want);
    gen_array_free(&a);
    gen_array_free(&b);
    gen_array_free(&v);
    gen_array_free(&o);
    gen_array_free(&o_end);
    bstk_layout_release(layout);
    bstk_layout_release(part);
}

/*
 * 65536 tokens and 9 blocks a row, with the distance from block to block that 64 heads would have (2.4e9 elements to
 * the last one), and a mask of 65536 x 65536, whose rows start up to 2^32 elements away. Against a plain run of the
 * same.
 */
static void test_bc_103(void **state) {
    (void)state;
    enum { BLOCKS = 1024, B = 64, HEADS = 64 };
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    opts.kind = BSTK_LAYOUT_LOCAL;
    opts.rows = opts.cols = BLOCKS;
    opts.window = 9;
    opts.block = B;
    ok(bstk_layout_build(NULL, &opts, &layout));
    const int64_t nnz = bstk_layout_nnz(layout), tokens = BLOCKS * B, step = (int64_t)HEADS * B * B;
    assert_true(nnz * step > INT64_C(1) << 31);
    const size_t near = (size_t)nnz * B * B * 2, far = near * HEADS, square = (size_t)tokens * (size_t)tokens;
    char *in = sparse_alloc(far), *out = sparse_alloc(far), *mask = sparse_alloc(square);
    uint16_t *x_near = malloc(near), *y_near = malloc(near);
    assert_true(x_near && y_near);
    for (int64_t e = 0; e < nnz * B * B; ++e) { /* halves of both signs from 2^-2 to 2^2 */
        const uint64_t draw = gen_hash(1, (uint64_t)e);
        x_near[e] = (uint16_t)(0x3400 + draw % 0x1000 + (draw >> 20) % 2 * 0x8000);
    }
    for (int64_t n = 0; n < nnz; ++n)
        memcpy(in + n * step * 2, x_near + n * B * B, B * B * 2);
    /* Every second query of the last 8192 keeps its keys but one; the others keep none, which is cheap. */
    for (int64_t i = tokens - 8192; i < tokens; i += 2) {
        const int64_t first = i < 8192 ? 0 : i / B * B - 4 * B, last = i / B * B + 5 * B;
        for (int64_t j = first; j < (last < tokens ? last : tokens); ++j)
            mask[i * tokens + j] = j % 1000 != 7;
    }
    bstk_tensor x = bstk_tensor_make(in, BSTK_F16, 3, shape(nnz, B, B));
    bstk_tensor y = bstk_tensor_make(out, BSTK_F16, 3, shape(nnz, B, B));
    x.stride[0] = y.stride[0] = step;
    const bstk_tensor keep = bstk_tensor_make(mask, BSTK_U8, 2, shape(tokens, tokens));
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    desc.layout = layout;
    desc.x = &x;
    desc.y = &y;
    desc.terms.attn_mask = &keep;
    ok(bstk_softmax(NULL, &desc));
    const bstk_tensor x1 = bstk_tensor_make(x_near, BSTK_F16, 3, shape(nnz, B, B));
    const bstk_tensor y1 = bstk_tensor_make(y_near, BSTK_F16, 3, shape(nnz, B, B));
    desc.x = &x1;
    desc.y = &y1;
    desc.terms.attn_mask = NULL;
    /* A mask that keeps all: without any, kernels fold the scale into the exponential, which rounds otherwise. */
    uint8_t *all = malloc((size_t)tokens);
    assert_non_null(all);
    memset(all, 1, (size_t)tokens);
    const bstk_tensor padding = bstk_tensor_make(all, BSTK_U8, 1, shape(tokens));
    desc.terms.key_padding_mask = &padding;
    ok(bstk_softmax(NULL, &desc));
    free(all);
    /* Rows that keep nothing are 0, the others sum to 1; without a masked key they are those of the second run. */
    for (int64_t line = BLOCKS - 140; line < BLOCKS; ++line)
        for (int64_t p = 0; p < B; ++p) {
            const int64_t i = line * B + p;
            bool plain = true;
            double sum = 0;
            for (int64_t n = bstk_layout_row_ptr(layout)[line]; n < bstk_layout_row_ptr(layout)[line + 1]; ++n)
                for (int64_t q = 0; q < B; ++q) {
                    sum += gen_load(BSTK_F16, out, n * step + p * B + q);
                    plain = plain && (bstk_layout_col_idx(layout)[n] * B + q) % 1000 != 7;
                }
            const bool kept = i >= tokens - 8192 && i % 2 == 0;
            assert_true(kept ? sum > 0.99 && sum < 1.01 : sum == 0);
            for (int64_t n = bstk_layout_row_ptr(layout)[line]; n < bstk_layout_row_ptr(layout)[line + 1]; ++n)
                if (kept && plain)
                    assert_memory_equal(out + (n * step + p * B) * 2, y_near + (n * B + p) * B, B * 2);
        }
    sparse_free(in, far);
    sparse_free(out, far);
    sparse_free(mask, square);
    free(x_near);
    free(y_near);
    bstk_layout_release(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bc_100), cmocka_unit_test(test_bc_101_strides),
                                       cmocka_unit_test(test_bc_101_copies), cmocka_unit_test(test_bc_101_contiguous),
                                       cmocka_unit_test(test_bc_103)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
