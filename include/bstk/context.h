/*
 * context.h: allocator, log sink, threads and instruction-set cap of everything that is made under it.
 *
 * Every call takes NULL for the process-wide default, which reads the environment once, at its first use:
 * BSTK_NUM_THREADS, BSTK_MAX_ISA, BSTK_LOG, BSTK_CACHE_DIR. What the options say wins over the environment, with one
 * exception: BSTK_MAX_ISA can only lower the cap.
 */
#ifndef BSTK_CONTEXT_H
#define BSTK_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include <bstk/export.h>
#include <bstk/status.h>

BSTK_BEGIN_DECLS

typedef struct bstk_context bstk_context; /* immutable after creation, reference counted */

typedef struct bstk_context_opts {
    size_t struct_size; /* set by BSTK_CONTEXT_OPTS_INIT; new fields only at the end */

    /* Memory of layouts and plans: both or neither. `align` is a power of two; NULL means out of memory. */
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *ptr);
    void *alloc_user;

    /* One line without a newline, for the categories of BSTK_LOG; standard error when NULL. */
    void (*log)(void *user, const char *line);
    void *log_user;

    /*
     * Runs body(arg, i) once for each i in [0, n), in any order and on any threads, one after another too, and returns
     * when all are done; 2 <= n <= num_threads. Small runs do not ask it: they stay on the calling thread. NULL: the
     * library's own threads. Results do not depend on who runs what: same bits either way.
     */
    void (*parallel_for)(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg);
    void *parallel_user;

    int32_t num_threads;     /* 0: BSTK_NUM_THREADS or OMP_NUM_THREADS, or else the CPUs of this process */
    const char *max_isa;     /* NULL, "scalar", "avx2", "avx512" or "neon"; copied */
    const char *log_enabled; /* NULL: BSTK_LOG; else a comma list of "dispatch", "plan", "all", "none" */

    /* Called by the working threads after each task of a run, `total` of them in all; for progress bars. It finds more,
     * smaller tasks than a run without it, on all threads. */
    void (*progress)(void *user, int64_t total);
    void *progress_user;
} bstk_context_opts;

/* clang-format off */
#define BSTK_CONTEXT_OPTS_INIT { sizeof(bstk_context_opts), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Makes a context.
 *
 * @param opts  NULL for all defaults
 * @param out   written on success only
 * @return BSTK_OK; BSTK_ERR_INVALID when only one of alloc and free is given, num_threads is not in 0..4096, or a name
 *         is unknown; BSTK_ERR_NOMEM
 * Threads: any number at once.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_context_create(const bstk_context_opts *opts, bstk_context **out);

/** Drops the caller's reference; NULL is fine. Layouts and plans keep their context alive.  Threads: any number. */
BSTK_API void bstk_context_release(bstk_context *ctx);

/** Threads that plans made under `ctx` (NULL: the default) will use. */
BSTK_API int32_t bstk_context_num_threads(bstk_context *ctx);

BSTK_END_DECLS

#endif
