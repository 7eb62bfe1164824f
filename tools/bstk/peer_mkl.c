/* peer_mkl.c: MKL: its BSR matrices (inspector-executor) for dsd, cblas products for the dense way. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of MKL's enums, 32-bit integers (LP64, what libmkl_rt starts with). */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
enum { INDEX_BASE_ZERO = 0, OPERATION_PLAIN = 10, MATRIX_GENERAL = 20, FILL_LOWER = 40, DIAGONAL_AS_IS = 50 };
enum { LAYER_SEQUENTIAL = 1, LAYER_GNU = 3, MANY_CALLS = 1000 };

typedef struct matrix_descr {
    int type, mode, diag;
} matrix_descr;

static void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                     const float *b, int ldb, float beta, float *c, int ldc);
static void (*dgemm)(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                     const double *b, int ldb, double beta, double *c, int ldc);
static int (*create_f32)(void **matrix, int base, int layout, int rows, int cols, int block, int *begin, int *end,
                         int *col, float *values);
static int (*create_f64)(void **matrix, int base, int layout, int rows, int cols, int block, int *begin, int *end,
                         int *col, double *values);
static int (*mm_f32)(int operation, float alpha, void *matrix, matrix_descr descr, int layout, const float *b, int cols,
                     int ldb, float beta, float *c, int ldc);
static int (*mm_f64)(int operation, double alpha, void *matrix, matrix_descr descr, int layout, const double *b,
                     int cols, int ldb, double beta, double *c, int ldc);
static int (*hint)(void *matrix, int operation, matrix_descr descr, int layout, int cols, int calls);
static int (*optimize)(void *matrix);
static int (*destroy)(void *matrix);

static void gemm_f32(bool ta, bool tb, int m, int n, int k, double alpha, const void *a, int lda, const void *b,
                     int ldb, double beta, void *c, int ldc) {
    sgemm(ROW_MAJOR, ta ? TRANSPOSED : PLAIN, tb ? TRANSPOSED : PLAIN, m, n, k, (float)alpha, a, lda, b, ldb,
          (float)beta, c, ldc);
}

static void gemm_f64(bool ta, bool tb, int m, int n, int k, double alpha, const void *a, int lda, const void *b,
                     int ldb, double beta, void *c, int ldc) {
    dgemm(ROW_MAJOR, ta ? TRANSPOSED : PLAIN, tb ? TRANSPOSED : PLAIN, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static bool open_mkl(int threads, char text[PEER_TEXT]) {
    static const char *const names[] = {"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so", NULL};
    int (*set_layer)(int); /* the names in capitals take values, those in small letters are Fortran's */
    void (*set_threads)(int), (*version)(char *, int);
    void *library = peer_library(names, text);
    if (!library || !peer_symbol(library, "MKL_Set_Threading_Layer", &set_layer, text) ||
        !peer_symbol(library, "MKL_Set_Num_Threads", &set_threads, text) ||
        !peer_symbol(library, "MKL_Get_Version_String", &version, text) ||
        !peer_symbol(library, "cblas_sgemm", &sgemm, text) || !peer_symbol(library, "cblas_dgemm", &dgemm, text) ||
        !peer_symbol(library, "mkl_sparse_s_create_bsr", &create_f32, text) ||
        !peer_symbol(library, "mkl_sparse_d_create_bsr", &create_f64, text) ||
        !peer_symbol(library, "mkl_sparse_s_mm", &mm_f32, text) ||
        !peer_symbol(library, "mkl_sparse_d_mm", &mm_f64, text) ||
        !peer_symbol(library, "mkl_sparse_set_mm_hint", &hint, text) ||
        !peer_symbol(library, "mkl_sparse_optimize", &optimize, text) ||
        !peer_symbol(library, "mkl_sparse_destroy", &destroy, text))
        return false;
    set_layer(threads == 1 ? LAYER_SEQUENTIAL : LAYER_GNU);
    set_threads(threads);
    char all[PEER_TEXT] = "";
    version(all, sizeof all - 1);
    for (size_t end = strlen(all); end > 0 && all[end - 1] == ' ';)
        all[--end] = '\0';
    snprintf(text, PEER_TEXT, "%s", all);
    return true;
}

/* ---- BSR --------------------------------------------------------------------------------------------------------- */

typedef struct bsr_state {
    const workload *w;
    void **matrices;    /* [Z * H] */
    int *row_ptr, *col; /* of the whole layout, each head's rows from 0 on */
    void *out;
} bsr_state;

static const matrix_descr general = {MATRIX_GENERAL, FILL_LOWER, DIAGONAL_AS_IS};

static void free_bsr(void *state) {
    bsr_state *s = state;
    for (int64_t i = 0; s->matrices && i < s->w->p.z * s->w->p.h; i++)
        if (s->matrices[i])
            destroy(s->matrices[i]);
    free(s->matrices);
    free(s->row_ptr);
    free(s->col);
    free(s->out);
    free(s);
}

static void run_bsr(void *state) {
    const bsr_state *s = state;
    const problem *p = &s->w->p;
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int n = (int)p->n;
        if (p->dtype == BSTK_F32)
            mm_f32(OPERATION_PLAIN, 1, s->matrices[zh], general, ROW_MAJOR,
                   (const float *)s->w->array[WORKLOAD_B].t.data + zh * p->k * p->n, n, n, 0,
                   (float *)s->out + zh * p->m * p->n, n);
        else
            mm_f64(OPERATION_PLAIN, 1, s->matrices[zh], general, ROW_MAJOR,
                   (const double *)s->w->array[WORKLOAD_B].t.data + zh * p->k * p->n, n, n, 0,
                   (double *)s->out + zh * p->m * p->n, n);
    }
}

static bool make_matrix(bsr_state *s, int64_t zh) {
    const problem *p = &s->w->p;
    const int64_t rows = bstk_layout_rows(s->w->layout), cols = bstk_layout_cols(s->w->layout), b = p->block;
    const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout) + zh % p->h * rows;
    int *begin = s->row_ptr + zh % p->h * (rows + 1), *col = s->col + row_ptr[0];
    for (int64_t r = 0; r <= rows; r++)
        begin[r] = (int)(row_ptr[r] - row_ptr[0]);
    for (int64_t n = row_ptr[0]; n < row_ptr[rows]; n++)
        s->col[n] = bstk_layout_col_idx(s->w->layout)[n];
    const int64_t first = (zh / p->h * bstk_layout_nnz(s->w->layout) + row_ptr[0]) * b * b;
    void *values = s->w->array[WORKLOAD_A].t.data, **matrix = &s->matrices[zh];
    const int status = p->dtype == BSTK_F32 ? create_f32(matrix, INDEX_BASE_ZERO, ROW_MAJOR, (int)rows, (int)cols,
                                                         (int)b, begin, begin + 1, col, (float *)values + first)
                                            : create_f64(matrix, INDEX_BASE_ZERO, ROW_MAJOR, (int)rows, (int)cols,
                                                         (int)b, begin, begin + 1, col, (double *)values + first);
    /* Its choices are not timed; that it makes none (a status of its own) is no failure. */
    return status == 0 &&
           (hint(*matrix, OPERATION_PLAIN, general, ROW_MAJOR, (int)p->n, MANY_CALLS), optimize(*matrix), true);
}

static bool bsr_way(const workload *w, peer_way *way) {
    bsr_state *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    const problem *p = &w->p;
    s->w = w;
    memset(way, 0, sizeof *way);
    s->matrices = calloc((size_t)(p->z * p->h), sizeof *s->matrices);
    s->row_ptr = calloc((size_t)(p->h * (bstk_layout_rows(w->layout) + 1)), sizeof *s->row_ptr);
    s->col = calloc((size_t)bstk_layout_nnz(w->layout) + 1, sizeof *s->col);
    s->out = peer_output(way, w, w->out, p->dtype);
    way->state = s;
    way->run = run_bsr;
    way->free = free_bsr;
    snprintf(way->key, sizeof way->key, "mkl");
    snprintf(way->how, sizeof way->how, "mkl_sparse_mm of a BSR matrix");
    bool ok = s->matrices && s->row_ptr && s->col && s->out;
    for (int64_t i = 0; ok && i < p->z * p->h; i++)
        ok = make_matrix(s, i);
    if (!ok)
        free_bsr(s);
    return ok;
}

static int mkl_ways(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    static const peer_gemm gemm = {"mkl", "gemm", gemm_f32, gemm_f64, false, true};
    const problem *p = &w->p;
    int count = peer_gemm_ways(&gemm, w, threads, ways, why);
    if (count > 0 && p->op == PROBLEM_DSD && !p->trans_b && p->m % p->block == 0 && p->k % p->block == 0)
        count += bsr_way(w, &ways[count]);
    return count;
}

const peer peer_mkl = {"mkl", open_mkl, mkl_ways, NULL};
