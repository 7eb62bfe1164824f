/* peer_openblas.c: OpenBLAS, cblas_sgemm and cblas_dgemm. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

static void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                     const float *b, int ldb, float beta, float *c, int ldc);
static void (*dgemm)(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                     const double *b, int ldb, double beta, double *c, int ldc);

static void gemm_f32(bool ta, bool tb, int m, int n, int k, double alpha, const void *a, int lda, const void *b,
                     int ldb, double beta, void *c, int ldc) {
    sgemm(ROW_MAJOR, ta ? TRANSPOSED : PLAIN, tb ? TRANSPOSED : PLAIN, m, n, k, (float)alpha, a, lda, b, ldb,
          (float)beta, c, ldc);
}

static void gemm_f64(bool ta, bool tb, int m, int n, int k, double alpha, const void *a, int lda, const void *b,
                     int ldb, double beta, void *c, int ldc) {
    dgemm(ROW_MAJOR, ta ? TRANSPOSED : PLAIN, tb ? TRANSPOSED : PLAIN, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static bool open_openblas(int threads, char text[PEER_TEXT]) {
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    /* What a user may have set for other programs would make it slower than it is. */
    static const char *const settings[] = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS",
                                           "GOTO_NUM_THREADS", "OPENBLAS_BLOCK_FACTOR"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        unsetenv(settings[i]);
    void (*set_threads)(int);
    char *(*core)(void);
    char *(*config)(void);
    void *library = peer_library(names, text);
    if (!library || !peer_symbol(library, "cblas_sgemm", &sgemm, text) ||
        !peer_symbol(library, "cblas_dgemm", &dgemm, text) ||
        !peer_symbol(library, "openblas_set_num_threads", &set_threads, text) ||
        !peer_symbol(library, "openblas_get_corename", &core, text) ||
        !peer_symbol(library, "openblas_get_config", &config, text))
        return false;
    int (*parallel)(void);
    char none[PEER_TEXT];
    if (threads > 1 && peer_symbol(library, "openblas_get_parallel", &parallel, none) && parallel() == 0) {
        snprintf(text, PEER_TEXT, "this build of OpenBLAS has one thread only");
        return false;
    }
    set_threads(threads);
    snprintf(text, PEER_TEXT, "%s, core %s", config(), core());
    return true;
}

static int openblas_ways(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    static const peer_gemm gemm = {"openblas", "gemm", gemm_f32, gemm_f64, true, true};
    return peer_gemm_ways(&gemm, w, threads, ways, why);
}

const peer peer_openblas = {"openblas", open_openblas, openblas_ways, NULL};
