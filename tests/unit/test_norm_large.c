/*
 * test_norm_large.c: norms and their gradient d_x on values larger than 16 MiB, which vector kernels write past the
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
    const bstk_norm_kind kinds[2] = {BSTK_LAYERNORM, BSTK_RMSNORM};
    void *rows = calloc(2 * M, 8); /* mean and rstd: any numbers will do for the gradient */
    assert_non_null(rows);
    for (int64_t e = 0; e < 2 * M; ++e)
        gen_store(dtype, rows, e, 0.5 + gen_unit(2, (uint64_t)e));
    const bstk_tensor mean = bstk_tensor_make(rows, dtype, 3, shape(1, 1, M));
    const bstk_tensor rstd = bstk_tensor_make((char *)rows + M * size, dtype, 3, shape(1, 1, M));
    for (int k = 0; k < 2; ++k) {
        for (int i = 0; i < 2; ++i) {
            bstk_norm_desc d = BSTK_NORM_DESC_INIT;
            d.kind = kinds[k];
            d.layout = layout;
            d.x = &in;
            d.y = &out[i];
            ok(bstk_norm(NULL, &d));
        }
        assert_memory_equal(aligned, odd + size, bytes);
        for (int i = 0; i < 2; ++i) {
            bstk_norm_grad_desc d = BSTK_NORM_GRAD_DESC_INIT;
            d.kind = kinds[k];
            d.layout = layout;
            d.x = d.d_y = &in;
            d.mean = k == 0 ? &mean : NULL;
            d.rstd = &rstd;
            d.d_x = &out[i];
            ok(bstk_norm_grad(NULL, &d));
        }
        assert_memory_equal(aligned, odd + size, bytes);
    }
    free(rows);
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
