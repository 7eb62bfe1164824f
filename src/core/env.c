/* env.c: reads BSTK_MAX_ISA, BSTK_NUM_THREADS (or OMP_NUM_THREADS), BSTK_LOG and BSTK_CACHE_DIR, once. */
#include "core/env.h"

#include "core/cpu_features.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static bstk__env env;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *text(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static void read_env(void) {
    env.log = text("BSTK_LOG");
    env.cache_dir = text("BSTK_CACHE_DIR");
    env.max_isa = text("BSTK_MAX_ISA");
    if (env.max_isa && bstk__isa_level(env.max_isa) < 0) {
        fprintf(stderr, "bstk: BSTK_MAX_ISA=%s is ignored: expected scalar, avx2, avx512 or neon\n", env.max_isa);
        env.max_isa = NULL;
    }
    const char *threads = text("BSTK_NUM_THREADS");
    if (threads) {
        char *end = NULL;
        long count = strtol(threads, &end, 10);
        if (*end == '\0' && count >= 1 && count <= 4096)
            env.num_threads = (int32_t)count;
        else
            fprintf(stderr, "bstk: BSTK_NUM_THREADS=%s is ignored: expected a number from 1 to 4096\n", threads);
    }
    const char *omp = env.num_threads ? NULL : text("OMP_NUM_THREADS"); /* a list there, of which the first counts */
    const long count = omp ? strtol(omp, NULL, 10) : 0;
    if (count >= 1 && count <= 4096)
        env.num_threads = (int32_t)count;
}

const bstk__env *bstk__env_get(void) {
    pthread_once(&once, read_env);
    return &env;
}
