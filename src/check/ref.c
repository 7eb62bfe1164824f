/*
 * ref.c: products, their gradients and copies in float64. Each head of each batch is laid out as plain matrices op(A)
 * [M,K], op(B) [K,N] and C [M,N] of doubles beside a grid of the stored blocks; then the textbook loop runs over the
 * products whose block is stored. Softmax and attention are in ref_scores.c, norms in ref_norm.c.
 */
#include "ref.h"

#include "bound.h"
#include "gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One head of an operand as a dense row-major matrix; `stored` [ceil(rows/b), ceil(cols/b)] is NULL for dense ones. */
typedef struct matrix {
    int64_t rows, cols;
    double *value;
    unsigned char *stored;
    int64_t block, block_cols;
} matrix;

static void matrix_free(matrix *x) {
    free(x->value);
    free(x->stored);
}

static bool matrix_make(matrix *x, int64_t rows, int64_t cols) {
    *x = (matrix){.rows = rows, .cols = cols};
    if ((double)rows * (double)cols > 0x1p40) /* 8 TiB: no machine of ours, and the product may not fit 64 bits */
        return false;
    x->value = calloc((size_t)(rows * cols + 1), sizeof(double));
    return x->value != NULL;
}

static bool is_stored(const matrix *x, int64_t row, int64_t col) {
    return x->stored == NULL || x->stored[row / x->block * x->block_cols + col / x->block] != 0;
}

/* Axis of a tensor counted from its end (1 is the last); axes that are left out have size 1. */
static int64_t size_of(const bstk_tensor *t, int from_end) {
    return from_end <= t->ndim ? t->shape[t->ndim - from_end] : 1;
}

static int64_t stride_of(const bstk_tensor *t, int from_end) {
    return from_end <= t->ndim ? t->stride[t->ndim - from_end] : 0;
}

/* Element [z, h, r, c] of a dense operand that may have 1 batch and fewer heads: each then serves h / (H/heads). */
static int64_t dense_at(const bstk_tensor *t, int64_t z, int64_t h, int64_t heads, int64_t r, int64_t c) {
    const int64_t batch = size_of(t, 4) == 1 ? 0 : z, head = h / (heads / size_of(t, 3));
    return batch * stride_of(t, 4) + head * stride_of(t, 3) + r * stride_of(t, 2) + c * stride_of(t, 1);
}

static bool load_dense(matrix *x, const bstk_tensor *t, int64_t z, int64_t h, int64_t heads, int64_t rows, int64_t cols,
                       bool transposed) {
    if (!matrix_make(x, rows, cols))
        return false;
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j)
            x->value[i * cols + j] = gen_load(
                t->dtype, t->data, transposed ? dense_at(t, z, h, heads, j, i) : dense_at(t, z, h, heads, i, j));
    }
    return true;
}

/* Blocks of head h of a layout, [first, end); a layout of one head serves all. */
static void head_blocks(const bstk_layout *layout, int64_t h, int64_t *first, int64_t *end) {
    const int64_t head = bstk_layout_heads(layout) == 1 ? 0 : h, rows = bstk_layout_rows(layout);
    *first = bstk_layout_row_ptr(layout)[head * rows];
    *end = bstk_layout_row_ptr(layout)[(head + 1) * rows];
}

/* Where block n of the layout lies on axis nnz of packed values that have `blocks` blocks, for head h. */
static int64_t packed_block(const bstk_layout *layout, int64_t h, int64_t n, int64_t blocks) {
    const int64_t nnz = bstk_layout_nnz(layout);
    return blocks == nnz ? n : h * nnz + n; /* more blocks than nnz: a shared layout, values of each head */
}

/* The stored blocks of head h, in the orientation of the operand: op(A), op(B) or C. */
static bool load_stored(matrix *x, const bstk_layout *layout, int64_t h, bool transposed) {
    int64_t first, end;
    head_blocks(layout, h, &first, &end);
    x->block = bstk_layout_block(layout);
    x->block_cols = transposed ? bstk_layout_rows(layout) : bstk_layout_cols(layout);
    x->stored = calloc((size_t)(bstk_layout_rows(layout) * bstk_layout_cols(layout) + 1), 1);
    for (int64_t n = first; x->stored != NULL && n < end; ++n) {
        const int64_t r = bstk_layout_row_idx(layout)[n], c = bstk_layout_col_idx(layout)[n];
        x->stored[transposed ? c * x->block_cols + r : r * x->block_cols + c] = 1;
    }
    return x->stored != NULL;
}

/* Element e, row-major, of stored block n: its place [i, j] in the matrix as stored. False past a ragged edge. */
static bool element_at(const bstk_layout *layout, int64_t n, int64_t e, int64_t *i, int64_t *j) {
    const int64_t b = bstk_layout_block(layout);
    *i = bstk_layout_row_idx(layout)[n] * b + e / b;
    *j = bstk_layout_col_idx(layout)[n] * b + e % b;
    return *i < bstk_layout_m(layout) && *j < bstk_layout_n(layout);
}

/* Offset of element e of block `number` of packed values, in elements. */
static int64_t packed_at(const bstk_tensor *t, int64_t z, int64_t number, int64_t e) {
    const int64_t b = size_of(t, 1), batch = size_of(t, 4) == 1 ? 0 : z;
    return batch * stride_of(t, 4) + number * stride_of(t, 3) + e / b * stride_of(t, 2) + e % b * stride_of(t, 1);
}

static bool load_packed(matrix *x, const bstk_tensor *t, const bstk_layout *layout, int64_t z, int64_t h, int64_t rows,
                        int64_t cols, bool transposed) {
    if (!matrix_make(x, rows, cols) || !load_stored(x, layout, h, transposed))
        return false;
    int64_t first, end, i, j;
    head_blocks(layout, h, &first, &end);
    for (int64_t n = first; n < end; ++n) {
        const int64_t number = packed_block(layout, h, n, size_of(t, 3));
        for (int64_t e = 0; e < x->block * x->block; ++e) {
            if (element_at(layout, n, e, &i, &j))
                x->value[transposed ? j * cols + i : i * cols + j] =
                    gen_load(t->dtype, t->data, packed_at(t, z, number, e));
        }
    }
    return true;
}

/* Operands as a kernel that flushes takes them. */
static void flush(const ref_product *p, matrix *x) {
    for (int64_t e = 0; p->flushes && e < x->rows * x->cols; ++e) {
        if (fabs(x->value[e]) < 0x1p-126)
            x->value[e] = 0;
    }
}

/* What flushed sums of `terms` products, times alpha, may lack. */
static double flushed(const ref_product *p, int64_t terms) {
    return p->flushes ? 2 * fabs(p->alpha) * (double)terms * 0x1p-126 : 0;
}

/* sum[i,j] and size[i,j]: the sum of a[i,k] b[k,j] over the stored products, and that of their magnitudes. */
static void multiply(const matrix *a, const matrix *b, const matrix *c, int64_t block, double *sum, double *size) {
    for (int64_t i = 0; i < a->rows; ++i) {
        for (int64_t k = 0; k < a->cols; ++k) {
            const double x = a->value[i * a->cols + k];
            for (int64_t j0 = 0; j0 < b->cols && is_stored(a, i, k); j0 += block) {
                if (!is_stored(b, k, j0) || !is_stored(c, i, j0))
                    continue;
                const int64_t j1 = j0 + block < b->cols ? j0 + block : b->cols;
                for (int64_t j = j0; j < j1; ++j) {
                    const double term = x * b->value[k * b->cols + j];
                    sum[i * b->cols + j] += term;
                    size[i * b->cols + j] += fabs(term);
                }
            }
        }
    }
}

/* Element `place` of the results from its sum; c_at is where C holds it. */
static void finish(const ref_product *p, int64_t place, int64_t c_at, double sum, double size, double *value,
                   double *bound) {
    const double before = p->beta != 0 ? p->beta * gen_load(p->c->dtype, p->c->data, c_at) : 0;
    const double product = p->alpha != 0 ? p->alpha * sum : 0;
    value[place] = product + before;
    bound[place] =
        bound_product(p->c->dtype, p->k, value[place], (p->alpha != 0 ? fabs(p->alpha) * size : 0) + fabs(before)) +
        (size > 0 ? flushed(p, p->k) : 0);
}

static void store_head(const ref_product *p, int64_t z, int64_t h, const double *sum, const double *size, double *value,
                       double *bound) {
    const bstk_tensor *c = p->c;
    if (p->mode != BSTK_SDD) {
        const int64_t rows = size_of(c, 2), cols = size_of(c, 1);
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t s = 0; s < cols; ++s) {
                const int64_t from = p->trans_c ? s * p->n + r : r * p->n + s;
                finish(p, ((z * p->h + h) * rows + r) * cols + s, dense_at(c, z, h, p->h, r, s), sum[from], size[from],
                       value, bound);
            }
        }
        return;
    }
    const int64_t b = bstk_layout_block(p->layout), blocks = size_of(c, 3);
    int64_t first, end, i, j;
    head_blocks(p->layout, h, &first, &end);
    for (int64_t n = first; n < end; ++n) {
        const int64_t number = packed_block(p->layout, h, n, blocks);
        for (int64_t e = 0; e < b * b; ++e) {
            const int64_t place = (z * blocks + number) * b * b + e;
            value[place] = bound[place] = 0; /* past a ragged edge: 0, exactly */
            if (element_at(p->layout, n, e, &i, &j)) {
                const int64_t from = p->trans_c ? j * p->n + i : i * p->n + j;
                finish(p, place, packed_at(c, z, number, e), sum[from], size[from], value, bound);
            }
        }
    }
}

bool ref_matmul(const ref_product *p, double *value, double *bound) {
    bool ok = true;
    for (int64_t zh = 0; ok && zh < p->z * p->h; ++zh) {
        const int64_t z = zh / p->h, h = zh % p->h;
        matrix a = {0}, b = {0}, c = {0}, size = {0};
        ok = matrix_make(&c, p->m, p->n) && matrix_make(&size, p->m, p->n) &&
             (p->mode != BSTK_SDD || load_stored(&c, p->layout, h, p->trans_c));
        if (ok && p->alpha != 0) {
            ok = p->mode == BSTK_DSD ? load_packed(&a, p->a, p->layout, z, h, p->m, p->k, p->trans_a)
                                     : load_dense(&a, p->a, z, h, p->h, p->m, p->k, p->trans_a);
            ok = ok && (p->mode == BSTK_DDS ? load_packed(&b, p->b, p->layout, z, h, p->k, p->n, p->trans_b)
                                            : load_dense(&b, p->b, z, h, p->h, p->k, p->n, p->trans_b));
            flush(p, &a);
            flush(p, &b);
            if (ok)
                multiply(&a, &b, &c, bstk_layout_block(p->layout), c.value, size.value);
        }
        if (ok)
            store_head(p, z, h, c.value, size.value, value, bound);
        matrix_free(&a);
        matrix_free(&b);
        matrix_free(&c);
        matrix_free(&size);
    }
    return ok;
}

/* ---- gradients of products --------------------------------------------------------------------------------------- */

/* Sums that become the gradient of an operand, element by element of its tensor. */
typedef struct gradient {
    const ref_output *out;
    bool packed, transposed;
    double *sum, *size;
} gradient;

static bool gradient_make(gradient *g, const ref_output *out, bool packed, bool transposed) {
    *g = (gradient){.out = out, .packed = packed, .transposed = transposed};
    if (out->t == NULL)
        return true;
    const size_t count = (size_t)gen_count(out->t) + 1;
    g->sum = calloc(count, sizeof *g->sum);
    g->size = calloc(count, sizeof *g->size);
    return g->sum != NULL && g->size != NULL;
}

/* Adds the matrix of one head, rows x cols, to the elements that served it. */
static void gradient_add(const ref_product *p, gradient *g, int64_t z, int64_t h, int64_t cols, const double *sum,
                         const double *size) {
    const bstk_tensor *t = g->out->t;
    const int64_t r = size_of(t, 2), c = size_of(t, 1), batch = size_of(t, 4) == 1 ? 0 : z;
    if (!g->packed) {
        const int64_t head = h / (p->h / size_of(t, 3));
        for (int64_t e = 0; e < r * c; ++e) {
            const int64_t from = g->transposed ? e % c * cols + e / c : e;
            g->sum[(batch * size_of(t, 3) + head) * r * c + e] += sum[from];
            g->size[(batch * size_of(t, 3) + head) * r * c + e] += size[from];
        }
        return;
    }
    int64_t first, end, i, j;
    head_blocks(p->layout, h, &first, &end);
    for (int64_t n = first; n < end; ++n) {
        const int64_t at = (batch * size_of(t, 3) + packed_block(p->layout, h, n, size_of(t, 3))) * r * c;
        for (int64_t e = 0; e < r * c; ++e) {
            if (!element_at(p->layout, n, e, &i, &j))
                continue;
            g->sum[at + e] += sum[g->transposed ? j * cols + i : i * cols + j];
            g->size[at + e] += size[g->transposed ? j * cols + i : i * cols + j];
        }
    }
}

/* `inner`: terms that each batch and head gives to an element. */
static void gradient_finish(const ref_product *p, gradient *g, int64_t inner, bool exact) {
    const bstk_tensor *t = g->out->t;
    const int64_t count = t != NULL && g->sum != NULL && g->size != NULL ? gen_count(t) : 0,
                  nnz = bstk_layout_nnz(p->layout);
    for (int64_t e = 0; e < count; ++e) {
        const int64_t own = !g->packed                                                  ? size_of(t, 3)
                            : size_of(t, 3) == nnz && bstk_layout_heads(p->layout) == 1 ? 1
                                                                                        : p->h;
        const int64_t terms = inner * (p->h / own) * (p->z / size_of(t, 4));
        g->out->value[e] = p->alpha * g->sum[e];
        g->out->bound[e] = bound_product(t->dtype, terms, g->out->value[e], fabs(p->alpha) * g->size[e]) +
                           (g->size[e] > 0 ? flushed(p, terms) : 0);
        if (exact && fabs(p->alpha) * 16 * (double)terms < 0x1p24)
            g->out->bound[e] = 0;
    }
    free(g->sum);
    free(g->size);
}

bool ref_matmul_grad(const ref_product *p, bool exact, const ref_output *d_a, const ref_output *d_b) {
    gradient of_a, of_b;
    bool ok = gradient_make(&of_a, d_a, p->mode == BSTK_DSD, p->trans_a);
    ok = gradient_make(&of_b, d_b, p->mode == BSTK_DDS, p->trans_b) && ok;
    for (int64_t zh = 0; ok && p->alpha != 0 && zh < p->z * p->h; ++zh) {
        const int64_t z = zh / p->h, h = zh % p->h;
        matrix a = {0}, b = {0}, g = {0}, sums[4] = {{0}}; /* of d_a and its size, of d_b and its size */
        ok = p->mode == BSTK_DSD ? load_packed(&a, p->a, p->layout, z, h, p->m, p->k, p->trans_a)
                                 : load_dense(&a, p->a, z, h, p->h, p->m, p->k, p->trans_a);
        ok = ok && (p->mode == BSTK_DDS ? load_packed(&b, p->b, p->layout, z, h, p->k, p->n, p->trans_b)
                                        : load_dense(&b, p->b, z, h, p->h, p->k, p->n, p->trans_b));
        ok = ok && (p->mode == BSTK_SDD ? load_packed(&g, p->c, p->layout, z, h, p->m, p->n, p->trans_c)
                                        : load_dense(&g, p->c, z, h, p->h, p->m, p->n, p->trans_c));
        flush(p, &a);
        flush(p, &b);
        flush(p, &g);
        ok = ok && matrix_make(&sums[0], p->m, p->k) && matrix_make(&sums[1], p->m, p->k) &&
             matrix_make(&sums[2], p->k, p->n) && matrix_make(&sums[3], p->k, p->n);
        for (int64_t i = 0; ok && i < p->m; ++i) {
            for (int64_t k = 0; k < p->k; ++k) {
                const int64_t ik = i * p->k + k;
                for (int64_t j = 0; j < p->n && is_stored(&a, i, k); ++j) {
                    const int64_t kj = k * p->n + j, ij = i * p->n + j;
                    if (!is_stored(&b, k, j) || !is_stored(&g, i, j))
                        continue;
                    sums[0].value[ik] += g.value[ij] * b.value[kj];
                    sums[1].value[ik] += fabs(g.value[ij] * b.value[kj]);
                    sums[2].value[kj] += a.value[ik] * g.value[ij];
                    sums[3].value[kj] += fabs(a.value[ik] * g.value[ij]);
                }
            }
        }
        if (ok && d_a->t != NULL)
            gradient_add(p, &of_a, z, h, p->k, sums[0].value, sums[1].value);
        if (ok && d_b->t != NULL)
            gradient_add(p, &of_b, z, h, p->n, sums[2].value, sums[3].value);
        matrix_free(&a);
        matrix_free(&b);
        matrix_free(&g);
        for (int s = 0; s < 4; ++s)
            matrix_free(&sums[s]);
    }
    gradient_finish(p, &of_a, p->n, exact);
    gradient_finish(p, &of_b, p->m, exact);
    return ok;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

bool ref_pack(const bstk_layout *layout, int64_t z, int64_t h, const bstk_tensor *x, double *y) {
    const int64_t b = bstk_layout_block(layout), heads = bstk_layout_heads(layout);
    const int64_t blocks = bstk_layout_nnz(layout) * (heads == 1 ? h : 1);
    int64_t first, end, i, j;
    for (int64_t zh = 0; zh < z * h; ++zh) {
        head_blocks(layout, zh % h, &first, &end);
        for (int64_t n = first; n < end; ++n) {
            const int64_t number = packed_block(layout, zh % h, n, blocks);
            for (int64_t e = 0; e < b * b; ++e)
                y[(zh / h * blocks + number) * b * b + e] =
                    element_at(layout, n, e, &i, &j) ? gen_load(x->dtype, x->data, dense_at(x, zh / h, zh % h, h, i, j))
                                                     : 0;
        }
    }
    return true;
}

bool ref_unpack(const bstk_layout *layout, int64_t z, int64_t h, const bstk_tensor *x, double *y) {
    const int64_t rows = bstk_layout_m(layout), cols = bstk_layout_n(layout);
    for (int64_t zh = 0; zh < z * h; ++zh) {
        matrix dense = {0};
        if (!load_packed(&dense, x, layout, zh / h, zh % h, rows, cols, false)) {
            matrix_free(&dense);
            return false;
        }
        memcpy(y + zh * rows * cols, dense.value, (size_t)(rows * cols) * sizeof *y);
        matrix_free(&dense);
    }
    return true;
}
