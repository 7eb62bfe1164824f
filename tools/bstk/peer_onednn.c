/* peer_onednn.c: oneDNN, dnnl_sgemm for each block. Its primitives take no block-sparse operand. */
#include "peer.h"

#include <stdio.h>

typedef struct dnnl_version {
    int major, minor, patch;
} dnnl_version;

static int (*sgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

static void gemm_f32(bool ta, bool tb, int m, int n, int k, double alpha, const void *a, int lda, const void *b,
                     int ldb, double beta, void *c, int ldc) {
    sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, (float)alpha, a, lda, b, ldb, (float)beta, c, ldc);
}

static bool open_onednn(int threads, char text[PEER_TEXT]) {
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    const dnnl_version *(*version)(void);
    void (*set_threads)(int);
    void *library = peer_library(names, text);
    if (!library || !peer_symbol(library, "dnnl_sgemm", &sgemm, text) ||
        !peer_symbol(library, "dnnl_version", &version, text))
        return false;
    char none[PEER_TEXT];
    if (peer_symbol(library, "omp_set_num_threads", &set_threads, none)) /* of the OpenMP that it is linked to */
        set_threads(threads);
    const dnnl_version *v = version();
    snprintf(text, PEER_TEXT, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return true;
}

static int onednn_ways(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    static const peer_gemm gemm = {"onednn", "dnnl_sgemm", gemm_f32, NULL, true, false};
    return peer_gemm_ways(&gemm, w, threads, ways, why);
}

const peer peer_onednn = {"onednn", open_onednn, onednn_ways, NULL};
