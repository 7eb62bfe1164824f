/*
 * peer_libxsmm.c: libxsmm from its version 2 on: kernels made at run time for one small product, and for a chain of
 * them (batch-reduce). It is column-major: its first operand is our right one, its rows are our columns.
 *
 * Prototypes and structs are declared here as far as they are used, so that no header of it is needed.
 */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct xsmm_shape {
    int m, n, k, lda, ldb, ldc, a_type, b_type, out_type, sum_type;
} xsmm_shape;

typedef struct xsmm_reduce {
    int type, stride_a, stride_b;
    unsigned char unroll;
} xsmm_reduce;

typedef struct xsmm_sparse {
    int width, block_k, block_n;
} xsmm_sparse;

typedef struct xsmm_arg {
    void *first, *second, *third, *fourth, *others[2];
} xsmm_arg;

typedef struct xsmm_param {
    void *op_first, *op_second, *count, *op_fourth; /* count: of the chain, unsigned long long */
    xsmm_arg a, b, c;
} xsmm_param;

typedef void (*xsmm_kernel)(const xsmm_param *param);

enum { TYPE_F64, TYPE_F32, TYPE_BF16 };
enum { FLAG_BETA_0 = 4, FLAG_VNNI_A = 256, REDUCE_ADDRESS = 1, PANEL = 64, ROWS = 64 };

static void (*start)(void);
static const char *(*target)(void);
static xsmm_kernel (*make_gemm)(xsmm_shape shape, unsigned flags, unsigned prefetch);
static xsmm_kernel (*make_sparse)(xsmm_shape shape, unsigned flags, unsigned prefetch, xsmm_sparse config);
static void (*release)(const void *kernel);
static xsmm_kernel (*make_reduce)(xsmm_shape shape, unsigned flags, unsigned prefetch, xsmm_reduce config);

static bool open_libxsmm(int threads, char text[PEER_TEXT]) {
    static const char *const names[] = {"libxsmm.so.2", "libxsmm.so", NULL};
    void *library = peer_library(names, text);
    if (!library || !peer_symbol(library, "libxsmm_init", &start, text) ||
        !peer_symbol(library, "libxsmm_get_target_arch", &target, text) ||
        !peer_symbol(library, "libxsmm_dispatch_gemm", &make_gemm, text) ||
        !peer_symbol(library, "libxsmm_dispatch_brgemm", &make_reduce, text) ||
        !peer_symbol(library, "libxsmm_create_packed_spgemm_bcsc", &make_sparse, text) ||
        !peer_symbol(library, "libxsmm_release_kernel", &release, text))
        return false;
    if (threads > 1) {
        snprintf(text, PEER_TEXT, "it has no threads of its own");
        return false;
    }
    start();
    snprintf(text, PEER_TEXT, "libxsmm 2, target %s", target());
    return true;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

enum { KERNELS = 4 }; /* whole or last panel of columns, times whole or last block of rows */

typedef struct xsmm_state {
    const workload *w;
    size_t item;
    bool packs;                                  /* the dense right operand is packed, in the time */
    int64_t width;                               /* columns at once */
    xsmm_kernel kernel[KERNELS], first[KERNELS]; /* first: of a chain of single products, beta 0 */
    const void **left, **right;                  /* a chain's addresses */
    void *packed, *out;
    /* bcsc: a kernel of its own, freed with the state; indices as it wants them; a panel of the result */
    xsmm_kernel sparse[2];
    unsigned *row_ptr, *col;
    void *panel;
} xsmm_state;

static void free_state(void *state) {
    xsmm_state *s = state;
    for (int i = 0; i < 2; i++)
        if (s->sparse[i]) {
            const void *code;
            memcpy(&code, &s->sparse[i], sizeof code);
            release(code);
        }
    free(s->row_ptr);
    free(s->col);
    free(s->panel);
    free(s->left);
    free(s->right);
    free(s->packed);
    free(s->out);
    free(s);
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void call(xsmm_kernel kernel, const void *left, const void *right, void *c, unsigned long long count) {
    xsmm_param param;
    memset(&param, 0, sizeof param);
    param.count = &count;
    memcpy(&param.a.first, &right, sizeof right);
    memcpy(&param.b.first, &left, sizeof left);
    param.c.first = c;
    kernel(&param);
}

static const char *block_at(const xsmm_state *s, int which, int64_t n) {
    const int64_t b = s->w->p.block;
    return (const char *)s->w->array[which].t.data + (size_t)(n * b * b) * s->item;
}

static void clear(const xsmm_state *s, char *c, int64_t rows, int64_t cols, int64_t ldc) {
    for (int64_t i = 0; i < rows; i++)
        memset(c + (size_t)(i * ldc) * s->item, 0, (size_t)cols * s->item);
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Rows of `width` columns of B from column j on; bf16 in pairs of rows, the order that its kernels want. */
static void pack_rows(const xsmm_state *s, const char *from, int64_t ld, int64_t rows, int64_t width) {
    if (s->item != 2) {
        for (int64_t k = 0; k < rows; k++)
            memcpy((char *)s->packed + (size_t)(k * width) * s->item, from + (size_t)(k * ld) * s->item,
                   (size_t)width * s->item);
        return;
    }
    for (int64_t k = 0; k < rows; k += 2) {
        const uint16_t *even = (const uint16_t *)from + k * ld, *odd = even + ld;
        uint16_t *to = (uint16_t *)s->packed + k * width;
        for (int64_t j = 0; j < width; j++) {
            to[2 * j] = even[j];
            to[2 * j + 1] = odd[j];
        }
    }
}

/* B^T of sdd, [N, K] as keys are, as blocks of [K, b] (bf16: [K / 2, b, 2]), or B [K, N] the same way. */
static void pack_blocks(const xsmm_state *s, const char *from) {
    const problem *p = &s->w->p;
    const int64_t b = p->block, k = p->k, pair = s->item == 2 ? 2 : 1;
    for (int64_t c = 0; c < p->n / b; c++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < b; j++) {
                const int64_t to = c * b * k + (i / pair * b + j) * pair + i % pair;
                const int64_t at = p->trans_b ? (c * b + j) * k + i : i * p->n + c * b + j;
                if (s->item == 2)
                    ((uint16_t *)s->packed)[to] = ((const uint16_t *)from)[at];
                else if (s->item == 4)
                    ((float *)s->packed)[to] = ((const float *)from)[at];
                else
                    ((double *)s->packed)[to] = ((const double *)from)[at];
            }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void dsd_reduce(void *state) {
    const xsmm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), nnz = bstk_layout_nnz(s->w->layout);
    const int32_t *col = bstk_layout_col_idx(s->w->layout);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout) + zh % p->h * rows;
        const char *right = (const char *)s->w->array[WORKLOAD_B].t.data + (size_t)(zh * p->k * p->n) * s->item;
        char *out = (char *)s->out + (size_t)(zh * p->m * p->n) * s->item;
        for (int64_t j = 0; j < p->n; j += s->width) {
            const int64_t width = smaller(s->width, p->n - j);
            const char *from = right + (size_t)j * s->item;
            int64_t ld = p->n;
            if (s->packs) {
                pack_rows(s, from, p->n, p->k, width);
                from = s->packed;
                ld = width;
            }
            for (int64_t r = 0; r < rows; r++) {
                char *c = out + (size_t)(r * b * p->n + j) * s->item;
                int64_t count = 0;
                for (int64_t n = row_ptr[r]; n < row_ptr[r + 1]; n++, count++) {
                    s->left[count] = block_at(s, WORKLOAD_A, zh / p->h * nnz + n);
                    s->right[count] = from + (size_t)(col[n] * b * ld) * s->item;
                }
                if (count == 0)
                    clear(s, c, b, width, p->n);
                else
                    call(s->kernel[width < s->width], s->left, s->right, c, (unsigned long long)count);
            }
        }
    }
}

static void dsd_single(void *state) {
    const xsmm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), nnz = bstk_layout_nnz(s->w->layout);
    const int32_t *col = bstk_layout_col_idx(s->w->layout);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout) + zh % p->h * rows;
        const char *right = (const char *)s->w->array[WORKLOAD_B].t.data + (size_t)(zh * p->k * p->n) * s->item;
        char *out = (char *)s->out + (size_t)(zh * p->m * p->n) * s->item;
        for (int64_t r = 0; r < rows; r++) {
            char *c = out + (size_t)(r * b * p->n) * s->item;
            if (row_ptr[r] == row_ptr[r + 1])
                clear(s, c, b, p->n, p->n);
            for (int64_t n = row_ptr[r]; n < row_ptr[r + 1]; n++)
                call((n == row_ptr[r] ? s->first : s->kernel)[0], block_at(s, WORKLOAD_A, zh / p->h * nnz + n),
                     right + (size_t)(col[n] * b * p->n) * s->item, c, 1);
        }
    }
}

/*
 * Its block-sparse product: the sparse operand stands on the right there, by block columns of blocks [n][k]; that is
 * our left one by block rows as it is stored. Dense operand and result are panels [k][64] and [m][64].
 */
static void dsd_bcsc(void *state) {
    const xsmm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), nnz = bstk_layout_nnz(s->w->layout);
    unsigned long long columns = (unsigned long long)rows;
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int64_t head = zh % p->h, first = bstk_layout_row_ptr(s->w->layout)[head * rows];
        const char *right = (const char *)s->w->array[WORKLOAD_B].t.data + (size_t)(zh * p->k * p->n) * s->item;
        const char *values = block_at(s, WORKLOAD_A, zh / p->h * nnz + first);
        char *out = (char *)s->out + (size_t)(zh * p->m * p->n) * s->item;
        for (int64_t j = 0; j < p->n; j += s->width) {
            const int64_t width = smaller(s->width, p->n - j);
            pack_rows(s, right + (size_t)j * s->item, p->n, p->k, width);
            xsmm_param param;
            memset(&param, 0, sizeof param);
            param.a.first = s->packed;
            memcpy(&param.b.first, &values, sizeof values);
            param.b.second = s->row_ptr + head * (rows + 1);
            param.b.third = s->col + first;
            param.b.fourth = &columns;
            param.c.first = s->panel;
            s->sparse[width < s->width](&param);
            for (int64_t i = 0; i < rows * b; i++)
                memcpy(out + (size_t)(i * p->n + j) * s->item, (char *)s->panel + (size_t)(i * width) * s->item,
                       (size_t)width * s->item);
        }
    }
}

static void dds_reduce(void *state) {
    const xsmm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, cols = bstk_layout_cols(s->w->layout), nnz = bstk_layout_nnz(s->w->layout);
    const int32_t *row = bstk_layout_col_row_idx(s->w->layout);
    const int64_t *perm = bstk_layout_col_perm(s->w->layout);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int64_t *col_ptr = bstk_layout_col_ptr(s->w->layout) + zh % p->h * cols;
        const char *left = (const char *)s->w->array[WORKLOAD_A].t.data + (size_t)(zh * p->m * p->k) * s->item;
        for (int64_t i = 0; i < p->m; i += ROWS)
            for (int64_t c = 0; c < cols; c++) {
                const int64_t height = smaller(ROWS, p->m - i);
                char *out = (char *)s->out + (size_t)(zh * p->m * p->n + i * p->n + c * b) * s->item;
                int64_t count = 0;
                for (int64_t n = col_ptr[c]; n < col_ptr[c + 1]; n++, count++) {
                    s->left[count] = left + (size_t)(i * p->k + row[n] * b) * s->item;
                    s->right[count] = block_at(s, WORKLOAD_B, zh / p->h * nnz + perm[n]);
                }
                if (count == 0)
                    clear(s, out, height, b, p->n);
                else
                    call(s->kernel[height < ROWS], s->left, s->right, out, (unsigned long long)count);
            }
    }
}

static void sdd_single(void *state) {
    const xsmm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), nnz = bstk_layout_nnz(s->w->layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout);
    const int32_t *row = bstk_layout_row_idx(s->w->layout), *col = bstk_layout_col_idx(s->w->layout);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const char *left = (const char *)s->w->array[WORKLOAD_A].t.data + (size_t)(zh * p->m * p->k) * s->item;
        pack_blocks(s, (const char *)s->w->array[WORKLOAD_B].t.data + (size_t)(zh * p->k * p->n) * s->item);
        for (int64_t n = row_ptr[zh % p->h * rows]; n < row_ptr[(zh % p->h + 1) * rows]; n++)
            call(s->kernel[0], left + (size_t)(row[n] * b * p->k) * s->item,
                 (const char *)s->packed + (size_t)(col[n] * b * p->k) * s->item,
                 (char *)s->out + (size_t)((zh / p->h * nnz + n) * b * b) * s->item, 1);
    }
}

/* ---- ways -------------------------------------------------------------------------------------------------------- */

static xsmm_shape shape(const workload *w, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
    const int type = w->p.dtype == BSTK_F64 ? TYPE_F64 : w->p.dtype == BSTK_F32 ? TYPE_F32 : TYPE_BF16;
    return (xsmm_shape){(int)m,   (int)n, (int)k, (int)lda, (int)ldb,
                        (int)ldc, type,   type,   type,     type == TYPE_F64 ? TYPE_F64 : TYPE_F32};
}

static xsmm_state *add_way(const workload *w, peer_way *way, const char *how, void (*run)(void *)) {
    xsmm_state *s = calloc(1, sizeof *s);
    memset(way, 0, sizeof *way);
    if (!s)
        return NULL;
    const int64_t rows = bstk_layout_rows(w->layout), cols = bstk_layout_cols(w->layout);
    s->w = w;
    s->item = bstk_dtype_size(w->p.dtype);
    s->out = peer_output(way, w, w->out, w->p.dtype);
    s->left = calloc((size_t)(rows + cols + 1), sizeof *s->left);
    s->right = calloc((size_t)(rows + cols + 1), sizeof *s->right);
    s->packed = aligned_alloc(64, (size_t)((w->p.k * (w->p.op == PROBLEM_SDD ? w->p.n : PANEL) + 64) / 64 * 64) * 8);
    way->state = s;
    way->run = run;
    way->free = free_state;
    snprintf(way->key, sizeof way->key, "libxsmm");
    snprintf(way->how, sizeof way->how, "%s", how);
    if (s->out && s->left && s->right && s->packed)
        return s;
    free_state(s);
    return NULL;
}

/* Keeps a way whose kernels are all there. */
static int keep(xsmm_state *s, bool all, int count) {
    if (s && all)
        return count + 1;
    if (s)
        free_state(s);
    return count;
}

static int keep_bcsc(const workload *w, peer_way *ways, int count) {
    const problem *p = &w->p;
    const int64_t rows = bstk_layout_rows(w->layout), nnz = bstk_layout_nnz(w->layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(w->layout);
    xsmm_state *s =
        p->dtype == BSTK_F32 ? add_way(w, &ways[count], "bcsc, packing and unpacking timed", dsd_bcsc) : NULL;
    if (!s)
        return count;
    s->width = PANEL;
    s->row_ptr = calloc((size_t)(p->h * (rows + 1)), sizeof *s->row_ptr);
    s->col = calloc((size_t)nnz + 1, sizeof *s->col);
    s->panel = aligned_alloc(64, (size_t)(p->m * PANEL) * s->item);
    bool all = s->row_ptr && s->col && s->panel;
    for (int64_t h = 0; all && h < p->h; h++)
        for (int64_t r = 0; r <= rows; r++)
            s->row_ptr[h * (rows + 1) + r] = (unsigned)(row_ptr[h * rows + r] - row_ptr[h * rows]);
    for (int64_t n = 0; all && n < nnz; n++)
        s->col[n] = (unsigned)bstk_layout_col_idx(w->layout)[n];
    for (int i = 0; all && i < 2; i++) {
        const int64_t width = i ? p->n % PANEL : PANEL;
        const xsmm_sparse config = {(int)width, (int)p->block, (int)p->block};
        if (width > 0)
            all = (s->sparse[i] = make_sparse(shape(w, 1, 0, p->k, p->k, 0, p->m), FLAG_BETA_0, 0, config)) != NULL;
    }
    return keep(s, all, count);
}

static int dsd_ways(const workload *w, peer_way *ways) {
    const problem *p = &w->p;
    const int64_t b = p->block;
    const bool bf16 = p->dtype == BSTK_BF16;
    const xsmm_reduce addresses = {REDUCE_ADDRESS, 0, 0, 0};
    int count = 0;
    for (int packs = bf16; packs < 2; packs++) {
        xsmm_state *s =
            add_way(w, &ways[count],
                    packs ? "brgemm of each row of blocks, packing timed" : "brgemm of each row of blocks", dsd_reduce);
        bool all = s != NULL;
        for (int i = 0; all && i < 2; i++) { /* whole panels, and the last one */
            const int64_t width = i ? p->n % PANEL : PANEL;
            s->packs = packs;
            s->width = PANEL;
            if (width > 0)
                all = (s->kernel[i] = make_reduce(shape(w, width, b, b, packs ? width : p->n, b, p->n),
                                                  FLAG_BETA_0 | (bf16 ? FLAG_VNNI_A : 0), 0, addresses)) != NULL;
        }
        count = keep(s, all, count);
    }
    if (bf16)
        return count;
    count = keep_bcsc(w, ways, count);
    xsmm_state *s = add_way(w, &ways[count], "gemm of each block, all columns at once", dsd_single);
    const xsmm_shape one = shape(w, p->n, b, b, p->n, b, p->n);
    bool all = s && (s->first[0] = make_gemm(one, FLAG_BETA_0, 0)) && (s->kernel[0] = make_gemm(one, 0, 0));
    return keep(s, all, count);
}

static bool takes(const problem *p) {
    const bool sdd = p->op == PROBLEM_SDD, bf16 = p->dtype == BSTK_BF16;
    return problem_is_product(p->op) && !p->backward && p->dtype == p->packed_dtype && p->dtype != BSTK_F16 &&
           !(bf16 && p->op == PROBLEM_DDS) && !p->trans_a && !p->trans_c && (sdd || !p->trans_b) && p->m > 0 &&
           p->n > 0 && p->k > 0 && (p->op == PROBLEM_DDS || p->m % p->block == 0) &&
           (p->op == PROBLEM_DSD || p->n % p->block == 0) && (sdd ? p->k % 2 == 0 : p->k % p->block == 0);
}

static int libxsmm_ways(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    (void)threads;
    const problem *p = &w->p;
    const bool bf16 = p->dtype == BSTK_BF16;
    if (!problem_is_product(p->op)) {
        snprintf(why, PEER_TEXT, "it has no %s%s", problem_op_name(p->op), p->backward ? " gradient" : "");
        return 0;
    }
    if (!takes(p)) {
        snprintf(why, PEER_TEXT, "written for plain products of whole blocks in f64, f32 and, but for dds, bf16");
        return 0;
    }
    snprintf(why, PEER_TEXT, "it makes no kernel for this");
    if (p->op == PROBLEM_DSD)
        return dsd_ways(w, ways);
    if (p->op == PROBLEM_SDD) {
        xsmm_state *s = add_way(w, ways, "gemm of each block, packing timed", sdd_single);
        bool all = s && (s->kernel[0] = make_gemm(shape(w, p->block, p->block, p->k, p->block, p->k, p->block),
                                                  FLAG_BETA_0 | (bf16 ? FLAG_VNNI_A : 0), 0));
        return keep(s, all, 0);
    }
    xsmm_state *s = add_way(w, ways, "brgemm of each column of blocks, 64 rows at once", dds_reduce);
    const xsmm_reduce addresses = {REDUCE_ADDRESS, 0, 0, 0};
    bool all = s != NULL;
    for (int i = 0; all && i < 2; i++) {
        const int64_t height = i ? p->m % ROWS : ROWS;
        if (height > 0)
            all = (s->kernel[i] = make_reduce(shape(w, p->block, height, p->block, p->block, p->k, p->n), FLAG_BETA_0,
                                              0, addresses)) != NULL;
    }
    return keep(s, all, 0);
}

const peer peer_libxsmm = {"libxsmm", open_libxsmm, libxsmm_ways, NULL};
