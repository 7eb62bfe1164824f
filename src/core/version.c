/* version.c: version and build facts, for bug reports. */
#include <bstk/version.h>

#include "core/context_impl.h"
#include "core/cpu_features.h"
#include "core/env.h"

#include <stdio.h>

const char *bstk_version(void) {
    return BSTK_VERSION;
}

static const char *or_unset(const char *value) {
    return value ? value : "(unset)";
}

size_t bstk_build_info(char *text, size_t bytes) {
    const bstk__env *env = bstk__env_get();
    const bstk_context *ctx = bstk__context_resolve(NULL);
    char found[128], used[128], threads[16] = "(unset)";
    bstk__features_text(bstk__cpu_features(), found, sizeof found);
    bstk__features_text(ctx->features, used, sizeof used);
    if (env->num_threads)
        snprintf(threads, sizeof threads, "%d", (int)env->num_threads);
    int length = snprintf(text, bytes,
                          "version: %s\n"
                          "compiler: %s\n"
                          "threads: %d\n"
                          "cpu features: %s\n"
                          "isa cap: %s\n"
                          "features used: %s\n"
                          "cuda: off (this build has CPU kernels only)\n"
                          "BSTK_MAX_ISA: %s\n"
                          "BSTK_NUM_THREADS: %s\n"
                          "BSTK_LOG: %s\n"
                          "BSTK_CACHE_DIR: %s\n",
                          BSTK_VERSION, __VERSION__, (int)ctx->num_threads, found, ctx->cap, used,
                          or_unset(env->max_isa), threads, or_unset(env->log), or_unset(env->cache_dir));
    return length < 0 ? 0 : (size_t)length;
}
