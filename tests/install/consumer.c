/* consumer.c: what a C user writes first, built against the installed tree: one product, checked by hand. */
#include <bstk/bstk.h>

#include <stdio.h>
#include <string.h>

enum { B = 16, M = 32, K = 32, N = 8 };

int main(void) {
    /* A is 32 x 32 with blocks (0,1) and (1,0) stored, all ones: each row of C sums 16 rows of X. */
    unsigned char mask[4] = {0, 1, 1, 0};
    static float blocks[2 * B * B], x[K * N], c[M * N];
    for (int i = 0; i < 2 * B * B; i++)
        blocks[i] = 1;
    for (int i = 0; i < K * N; i++)
        x[i] = i / N < 16 ? 1 : 2;
    const bstk_tensor mask_t = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){2, 2});
    const bstk_tensor a_t = bstk_tensor_make(blocks, BSTK_F32, 3, (int64_t[]){2, B, B});
    const bstk_tensor x_t = bstk_tensor_make(x, BSTK_F32, 2, (int64_t[]){K, N});
    const bstk_tensor c_t = bstk_tensor_make(c, BSTK_F32, 2, (int64_t[]){M, N});
    bstk_layout *layout;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    if (bstk_layout_from_mask(NULL, &mask_t, B, NULL, &layout) != BSTK_OK)
        goto fail;
    desc.mode = BSTK_DSD;
    desc.layout = layout;
    desc.a = &a_t;
    desc.b = &x_t;
    desc.c = &c_t;
    if (bstk_matmul(NULL, &desc, 1, 0) != BSTK_OK)
        goto fail;
    bstk_layout_release(layout);
    if (c[0] != 32 || c[M * N - 1] != 16 || strcmp(bstk_version(), BSTK_VERSION) != 0) {
        fprintf(stderr, "wrong result: %g %g, version %s\n", (double)c[0], (double)c[M * N - 1], bstk_version());
        return 1;
    }
    printf("C consumer of bstk %s is fine\n", bstk_version());
    return 0;
fail:
    fprintf(stderr, "%s\n", bstk_last_error());
    return 1;
}
