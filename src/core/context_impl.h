/* context_impl.h: inside of a context: memory, log, threads, cap. Depends on core only. */
#ifndef BSTK_CORE_CONTEXT_IMPL_H
#define BSTK_CORE_CONTEXT_IMPL_H

#include <bstk/context.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bstk__log_category { BSTK__LOG_DISPATCH = 1, BSTK__LOG_PLAN = 2 } bstk__log_category;

struct bstk_context {
    bstk_context_opts opts; /* opts.max_isa and opts.log_enabled are not kept: see below */
    atomic_int references;
    uint32_t features;   /* what kernels may use: the CPU's under the cap */
    const char *cap;     /* name of the cap, "none" without one; a string constant */
    unsigned log_mask;   /* bstk__log_category bits */
    int32_t num_threads; /* workers of a run */
};

/* The context itself, or the process default for NULL. Never NULL: the default needs no allocation. */
bstk_context *bstk__context_resolve(bstk_context *ctx);

/* Resolves and adds a reference: for objects that outlive the call. */
bstk_context *bstk__context_retain(bstk_context *ctx);

/* Memory through the context's hooks, 64-byte aligned; NULL on failure or when count * size overflows. 0 bytes give a
 * valid pointer too. bstk__free(ctx, NULL) is fine. */
void *bstk__alloc(bstk_context *ctx, int64_t count, size_t size);
void *bstk__alloc_zeroed(bstk_context *ctx, int64_t count, size_t size);
void bstk__free(bstk_context *ctx, void *ptr);

/* One line to the sink when the category is on; ask first where building the text costs. */
static inline bool bstk__log_on(const bstk_context *ctx, bstk__log_category category) {
    return (ctx->log_mask & (unsigned)category) != 0;
}
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void bstk__log(bstk_context *ctx, bstk__log_category category, const char *format, ...);

/*
 * Shares out one piece of work among n bodies: body(arg, i) for each i in [0, n) by the user's hook, or without one for
 * 0 here and for some of the others on helpers (pool.h). No i runs twice, so i can own scratch; the first body that
 * returns has found no work left.
 */
void bstk__parallel_for(bstk_context *ctx, int32_t n, void (*body)(void *arg, int32_t i), void *arg);

#endif
