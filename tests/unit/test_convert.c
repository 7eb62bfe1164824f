/*
 * test_convert.c: pack and unpack of rows that lie side by side, to the bit: NaN payloads, the zeros of ragged edges
 * and of blocks that are not stored, and nothing written between rows.
 */
#include "support/cm.h"

#include "support/op_case.h"

#include <bstk/convert.h>

#include <stdlib.h>
#include <string.h>

enum { ROOM = 3, FILL = 0x5a }; /* elements between rows of the dense side and of the packed one; what outputs hold */

static unsigned char *bytes_of(size_t count, uint64_t seed) {
    unsigned char *bytes = malloc(count);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; ++i)
        bytes[i] = seed ? (unsigned char)gen_hash(seed, i) : FILL;
    return bytes;
}

static void convert(bstk_convert_direction direction, const bstk_layout *layout, const bstk_tensor *x,
                    const bstk_tensor *y) {
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.direction = direction;
    desc.layout = layout;
    desc.x = x;
    desc.y = y;
    ok(bstk_convert(NULL, &desc));
}

static void one(bstk_dtype dtype, int32_t block, int64_t m, int64_t n) {
    const size_t size = bstk_dtype_size(dtype);
    const int64_t heads = 2, rows = (m + block - 1) / block, cols = (n + block - 1) / block;
    const rule r = {.kind = RULE_BERNOULLI, .p = 0.5, .seed = (uint64_t)(block + m)};
    bstk_layout *layout = rule_layout(&r, heads, m, n, block);
    const int64_t nnz = bstk_layout_nnz(layout), dense_row = n + ROOM, packed_row = block + ROOM;
    const size_t dense_bytes = (size_t)(heads * m * dense_row) * size;
    const size_t packed_bytes = (size_t)(nnz * block * packed_row + 1) * size;
    unsigned char *dense = bytes_of(dense_bytes, 1), *packed = bytes_of(packed_bytes, 0);
    unsigned char *want_packed = bytes_of(packed_bytes, 0);
    unsigned char *back = bytes_of(dense_bytes, 0), *want_back = bytes_of(dense_bytes, 0);
    bstk_tensor dense_tensor = bstk_tensor_make(dense, dtype, 3, shape(heads, m, n));
    bstk_tensor back_tensor = bstk_tensor_make(back, dtype, 3, shape(heads, m, n));
    bstk_tensor packed_tensor = bstk_tensor_make(packed, dtype, 3, shape(nnz, block, block));
    dense_tensor.stride[0] = back_tensor.stride[0] = m * dense_row;
    dense_tensor.stride[1] = back_tensor.stride[1] = dense_row;
    packed_tensor.stride[0] = block * packed_row;
    packed_tensor.stride[1] = packed_row;

    uint8_t *mask = rule_mask(&r, heads, rows, cols);
    for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < m; ++i)
            memset(want_back + (size_t)((h * m + i) * dense_row) * size, 0, (size_t)n * size);
    for (int64_t b = 0, number = 0; b < heads * rows * cols; ++b) {
        if (!mask[b])
            continue;
        const int64_t h = b / cols / rows, i0 = b / cols % rows * block, j0 = b % cols * block;
        for (int64_t e = 0; e < (int64_t)block * block; ++e) {
            const int64_t i = i0 + e / block, j = j0 + e % block;
            unsigned char *to = want_packed + (size_t)((number * block + e / block) * packed_row + e % block) * size;
            memset(to, 0, size);
            if (i < m && j < n) {
                const size_t at = (size_t)((h * m + i) * dense_row + j) * size;
                memcpy(to, dense + at, size);
                memcpy(want_back + at, dense + at, size);
            }
        }
        ++number;
    }
    convert(BSTK_PACK, layout, &dense_tensor, &packed_tensor);
    assert_memory_equal(packed, want_packed, packed_bytes);
    convert(BSTK_UNPACK, layout, &packed_tensor, &back_tensor);
    assert_memory_equal(back, want_back, dense_bytes);
    free(dense);
    free(packed);
    free(want_packed);
    free(back);
    free(want_back);
    free(mask);
    bstk_layout_release(layout);
}

static void test_bits(void **state) {
    (void)state;
    static const bstk_dtype dtypes[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};
    static const int32_t blocks[] = {8, 16, 24, 32, 64, 128, 256};
    for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; ++t)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; ++b) {
            one(dtypes[t], blocks[b], 3 * blocks[b], 3 * blocks[b]);
            one(dtypes[t], blocks[b], 2 * blocks[b] + 5, 3 * blocks[b] + 1);
            one(dtypes[t], blocks[b], 1, 2 * blocks[b] - 1);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
