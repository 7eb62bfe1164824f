/*
 * peer.h: other libraries that can do a problem too, for 'bstk bench --peer'. None is needed to build or to run: they
 * are opened with dlopen, or asked through a helper process, and what is not on the machine is named with the reason.
 *
 * A new peer is one file with a `peer`, and one row in peers.c. Memory of a way is the peer's own: the workload is read
 * only. Results are held against the float64 reference before any ratio is printed, so a peer need not be trusted.
 */
#ifndef BSTK_PEER_H
#define BSTK_PEER_H

#include "check/workload.h"

#include <bstk/bstk.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PEER_TEXT = 256, PEER_WAYS = 8, PEER_OUTPUTS = 3 };

/* One way in which a peer does a problem. Of several with one key the fastest one counts. */
typedef struct peer_way {
    char key[32];        /* "openblas": the JSON's ratio_openblas; "..._dense" when it works on a densified matrix */
    char how[PEER_TEXT]; /* "sgemm of each block, all columns at once" */
    void *state;
    void (*run)(void *state); /* once */
    /* NULL: runs are timed here; else seconds of one of `calls` runs as the peer's own process saw them, < 0: it died
     */
    double (*time)(void *state, int64_t calls);
    void (*collect)(void *state); /* NULL, or called after runs and before `out` is looked at */
    void (*free)(void *state);
    bstk_tensor out[PEER_OUTPUTS]; /* results, shaped as the workload's; `places` are WORKLOAD_OUT, WORKLOAD_D_A ... */
    int places[PEER_OUTPUTS], outputs;
} peer_way;

typedef struct peer {
    const char *name;
    /* True: it is there, and `text` says which version; false: `text` says why not. Called once. */
    bool (*open)(int threads, char text[PEER_TEXT]);
    /* Adds its ways to do the planned workload and returns their number; 0: `why` says what it cannot do. */
    int (*ways)(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]);
    void (*close)(void); /* NULL: nothing to do */
} peer;

extern const peer *const peer_list[];
extern const int peer_count;

/* ---- for the files of peers (peers.c) ---------------------------------------------------------------------------- */

/* Opens the first library of `names` (NULL ends) that is there; NULL: `text` says why the first is not. */
void *peer_library(const char *const *names, char text[PEER_TEXT]);
/* The address of a symbol; false and a text when it is missing. `function` is the address of a pointer to function. */
bool peer_symbol(void *library, const char *name, void *function, char text[PEER_TEXT]);

/* A zeroed array of the shape and type of the workload's output `place`, in row-major order; NULL without memory. */
void *peer_output(peer_way *way, const workload *w, int place, bstk_dtype dtype);

/* ---- peers that offer a BLAS product (peer_gemm.c) --------------------------------------------------------------- */

/* Row-major C = alpha op(A) op(B) + beta C. */
typedef void (*peer_gemm_fn)(bool ta, bool tb, int m, int n, int k, double alpha, const void *a, int lda, const void *b,
                             int ldb, double beta, void *c, int ldc);

typedef struct peer_gemm {
    const char *key, *call; /* "openblas", "gemm" */
    peer_gemm_fn f32, f64;  /* NULL: not offered */
    bool blocks, dense;     /* which ways to offer */
} peer_gemm;

int peer_gemm_ways(const peer_gemm *gemm, const workload *w, int threads, peer_way ways[PEER_WAYS],
                   char why[PEER_TEXT]);

#endif
