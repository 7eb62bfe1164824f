/*
 * test_softmax_large.c: softmax and its gradient on values larger than 16 MiB, which vector kernels write past the
 * caches where they are aligned. The bits must be those of an output that is not aligned, in parts of blocks too.
 */
#include "support/cm.h"

#include "support/op_case.h"

#include <stdlib.h>
#include <string.h>

enum { EDGE = 64, BLOCKS = 1100, M = EDGE - 3, N = BLOCKS * EDGE - 5, COUNT = BLOCKS * EDGE * EDGE, ROOM = 64 };

static void run(bstk_dtype dtype) {
    const size_t size = bstk_dtype_size(dtype), bytes = COUNT * size;
    uint8_t ones[BLOCKS];
    memset(ones, 1, sizeof ones);
    const bstk_tensor mask = bstk_tensor_make(ones, BSTK_U8, 3, shape(1, 1, BLOCKS));
    bstk_layout *layout = NULL;
    ok(bstk_layout_from_mask(NULL, &mask, EDGE, shape(M, N), &layout));
    char *x = aligned_alloc(ROOM, bytes), *aligned = aligned_alloc(ROOM, bytes),
         *odd = aligned_alloc(ROOM, bytes + ROOM);
    assert_true(x && aligned && odd);
    for (int64_t e = 0; e < COUNT; ++e)
        gen_store(dtype, x, e, 8 * gen_unit(1, (uint64_t)e) - 4);
    memset(aligned, 0xff, bytes);
    memset(odd, 0xff, bytes + ROOM);
    const bstk_tensor in = bstk_tensor_make(x, dtype, 3, shape(BLOCKS, EDGE, EDGE));
    const bstk_tensor out[2] = {bstk_tensor_make(aligned, dtype, 3, shape(BLOCKS, EDGE, EDGE)),
                                bstk_tensor_make(odd + size, dtype, 3, shape(BLOCKS, EDGE, EDGE))};
    for (int i = 0; i < 2; ++i) {
        bstk_softmax_desc d = BSTK_SOFTMAX_DESC_INIT;
        d.layout = layout;
        d.x = &in;
        d.y = &out[i];
        d.terms.causal = 1;
        d.terms.causal_offset = N - 40;
        ok(bstk_softmax(NULL, &d));
    }
    assert_memory_equal(aligned, odd + size, bytes);
    /* The gradient for y = x, which needs no softmax to be there. */
    for (int i = 0; i < 2; ++i) {
        bstk_softmax_grad_desc d = BSTK_SOFTMAX_GRAD_DESC_INIT;
        d.layout = layout;
        d.y = d.d_y = &in;
        d.d_x = &out[i];
        ok(bstk_softmax_grad(NULL, &d));
    }
    assert_memory_equal(aligned, odd + size, bytes);
    bstk_layout_release(layout);
    free(x);
    free(aligned);
    free(odd);
}

static void test_f32(void **state) {
    (void)state;
    run(BSTK_F32);
}

static void test_f64(void **state) {
    (void)state;
    run(BSTK_F64);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f64)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
