/*
 * fake_openblas.c: what bstk bench needs of OpenBLAS, in plain loops: so that ratios can be tested without it. With
 * FAKE_OPENBLAS_WRONG in the environment one element of every product is off by 1.
 */
#include <stdlib.h>

enum { TRANSPOSED = 112 };

void openblas_set_num_threads(int threads);
char *openblas_get_corename(void);
char *openblas_get_config(void);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc);
void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                 const double *b, int ldb, double beta, double *c, int ldc);

void openblas_set_num_threads(int threads) {
    (void)threads;
}

char *openblas_get_corename(void) {
    static char name[] = "loops";
    return name;
}

char *openblas_get_config(void) {
    static char text[] = "a fake";
    return text;
}

#define GEMM(function, type)                                                                                           \
    void function(int order, int ta, int tb, int m, int n, int k, type alpha, const type *a, int lda, const type *b,   \
                  int ldb, type beta, type *c, int ldc) {                                                              \
        (void)order;                                                                                                   \
        for (int i = 0; i < m; i++)                                                                                    \
            for (int j = 0; j < n; j++) {                                                                              \
                type sum = 0;                                                                                          \
                for (int l = 0; l < k; l++)                                                                            \
                    sum += a[ta == TRANSPOSED ? l * lda + i : i * lda + l] *                                           \
                           b[tb == TRANSPOSED ? j * ldb + l : l * ldb + j];                                            \
                c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]);                                \
            }                                                                                                          \
        if (getenv("FAKE_OPENBLAS_WRONG") && m > 0 && n > 0)                                                           \
            c[(m - 1) * ldc + n - 1] += 1;                                                                             \
    }

GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)
