/* env.h: the four environment knobs. env.c is the only file that calls getenv. */
#ifndef BSTK_CORE_ENV_H
#define BSTK_CORE_ENV_H

#include <stdint.h>

typedef struct bstk__env {
    const char *max_isa;   /* BSTK_MAX_ISA, NULL when unset */
    const char *log;       /* BSTK_LOG, NULL when unset */
    const char *cache_dir; /* BSTK_CACHE_DIR, NULL when unset */
    int32_t num_threads;   /* BSTK_NUM_THREADS, or else OMP_NUM_THREADS; 0 without a number from 1 to 4096 */
} bstk__env;

/* Read once, at the first call; a value that cannot be used is named on standard error and ignored. */
const bstk__env *bstk__env_get(void);

#endif
