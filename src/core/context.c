/* context.c: makes contexts, resolves the default one, and serves memory and log lines through their hooks. */
#include "core/context_impl.h"

#include "core/checked.h"
#include "core/cpu_features.h"
#include "core/env.h"
#include "core/error.h"
#include "core/pool.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *default_alloc(void *user, size_t bytes, size_t align) {
    (void)user;
    void *ptr = NULL;
    return posix_memalign(&ptr, align, bytes ? bytes : align) == 0 ? ptr : NULL;
}

static void default_free(void *user, void *ptr) {
    (void)user;
    free(ptr);
}

static void default_log(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* Turns "dispatch,plan" into bits; -1 when a name is unknown. */
static int log_mask_from_text(const char *text) {
    int mask = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        if (length == 8 && memcmp(text, "dispatch", 8) == 0)
            mask |= BSTK__LOG_DISPATCH;
        else if (length == 4 && memcmp(text, "plan", 4) == 0)
            mask |= BSTK__LOG_PLAN;
        else if (length == 3 && memcmp(text, "all", 3) == 0)
            mask |= BSTK__LOG_DISPATCH | BSTK__LOG_PLAN;
        else if (!(length == 4 && memcmp(text, "none", 4) == 0))
            return -1;
        text += length + (text[length] == ',');
    }
    return mask;
}

static const char *cap_name(int level) {
    static const char *const names[] = {"scalar", "avx2 or neon", "avx512"};
    return level < 0 ? "none" : names[level];
}

static int32_t default_threads(void) {
    const bstk__env *env = bstk__env_get();
    return env->num_threads ? env->num_threads : bstk__pool_cpus();
}

/* Fills everything but the reference count from checked options. */
static bstk_status context_fill(bstk_context *ctx, const bstk_context_opts *opts) {
    const bstk__env *env = bstk__env_get();
    ctx->opts = *opts;
    if ((opts->alloc == NULL) != (opts->free == NULL))
        return bstk__fail(BSTK_ERR_INVALID, "context: alloc and free must be given together, or neither");
    if (opts->alloc == NULL) {
        ctx->opts.alloc = default_alloc;
        ctx->opts.free = default_free;
    }
    if (opts->log == NULL)
        ctx->opts.log = default_log;
    if (opts->num_threads < 0 || opts->num_threads > 4096)
        return bstk__fail(BSTK_ERR_INVALID, "context: num_threads is %d, expected 0 to 4096", (int)opts->num_threads);
    ctx->num_threads = opts->num_threads ? opts->num_threads : default_threads();
    int level = env->max_isa ? bstk__isa_level(env->max_isa) : -1;
    if (opts->max_isa) {
        int asked = bstk__isa_level(opts->max_isa);
        if (asked < 0)
            return bstk__fail(BSTK_ERR_INVALID, "context: max_isa is '%s', expected scalar, avx2, avx512 or neon",
                              opts->max_isa);
        if (level < 0 || asked < level) /* the environment's cap can only be lowered */
            level = asked;
    }
    ctx->features = bstk__features_under_cap(bstk__cpu_features(), level);
    ctx->cap = cap_name(level);
    const char *log_text = opts->log_enabled ? opts->log_enabled : env->log;
    int mask = log_text ? log_mask_from_text(log_text) : 0;
    if (mask < 0 && opts->log_enabled)
        return bstk__fail(BSTK_ERR_INVALID, "context: log_enabled is '%s', expected dispatch, plan, all or none",
                          opts->log_enabled);
    if (mask < 0) {
        fprintf(stderr, "bstk: BSTK_LOG=%s is ignored: expected dispatch, plan, all or none\n", log_text);
        mask = 0;
    }
    ctx->log_mask = (unsigned)mask;
    ctx->opts.max_isa = ctx->opts.log_enabled = NULL;
    return BSTK_OK;
}

static bstk_context default_context;
static pthread_once_t default_once = PTHREAD_ONCE_INIT;

static void make_default(void) {
    const bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    atomic_init(&default_context.references, 1);
    bstk_status status = context_fill(&default_context, &opts); /* cannot fail: all options are defaults */
    (void)status;
}

bstk_context *bstk__context_resolve(bstk_context *ctx) {
    if (ctx)
        return ctx;
    pthread_once(&default_once, make_default);
    return &default_context;
}

bstk_context *bstk__context_retain(bstk_context *ctx) {
    ctx = bstk__context_resolve(ctx);
    atomic_fetch_add_explicit(&ctx->references, 1, memory_order_relaxed);
    return ctx;
}

bstk_status bstk_context_create(const bstk_context_opts *opts, bstk_context **out) {
    const bstk_context_opts defaults = BSTK_CONTEXT_OPTS_INIT;
    if (out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "context: out is NULL");
    if (opts == NULL)
        opts = &defaults;
    if (opts->struct_size != sizeof *opts)
        return bstk__fail(BSTK_ERR_INVALID, "context: opts.struct_size is %zu, expected %zu (BSTK_CONTEXT_OPTS_INIT)",
                          opts->struct_size, sizeof *opts);
    bstk_context filled;
    BSTK_TRY(context_fill(&filled, opts));
    bstk_context *ctx = filled.opts.alloc(filled.opts.alloc_user, sizeof *ctx, 64);
    if (ctx == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "context: out of memory (%zu bytes)", sizeof *ctx);
    *ctx = filled;
    atomic_init(&ctx->references, 1);
    *out = ctx;
    return BSTK_OK;
}

void bstk_context_release(bstk_context *ctx) {
    if (ctx == NULL || atomic_fetch_sub_explicit(&ctx->references, 1, memory_order_acq_rel) != 1)
        return;
    if (ctx != &default_context) /* its own reference is never dropped; this guards a caller's extra release */
        ctx->opts.free(ctx->opts.alloc_user, ctx);
}

int32_t bstk_context_num_threads(bstk_context *ctx) {
    return bstk__context_resolve(ctx)->num_threads;
}

void *bstk__alloc(bstk_context *ctx, int64_t count, size_t size) {
    int64_t bytes;
    if (count < 0 || (int64_t)size < 0 || !bstk__mul(count, (int64_t)size, &bytes) || (int64_t)(size_t)bytes != bytes)
        return NULL; /* the last one: size_t may have 32 bits */
    return ctx->opts.alloc(ctx->opts.alloc_user, bytes ? (size_t)bytes : 64, 64);
}

void *bstk__alloc_zeroed(bstk_context *ctx, int64_t count, size_t size) {
    void *ptr = bstk__alloc(ctx, count, size);
    return ptr ? memset(ptr, 0, (size_t)count * size) : NULL;
}

void bstk__free(bstk_context *ctx, void *ptr) {
    if (ptr)
        ctx->opts.free(ctx->opts.alloc_user, ptr);
}

void bstk__log(bstk_context *ctx, bstk__log_category category, const char *format, ...) {
    if (!bstk__log_on(ctx, category))
        return;
    char line[512];
    int used = snprintf(line, sizeof line, "bstk %s: ", category == BSTK__LOG_DISPATCH ? "dispatch" : "plan");
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, args);
    va_end(args);
    ctx->opts.log(ctx->opts.log_user, line);
}

void bstk__parallel_for(bstk_context *ctx, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    if (n == 1) /* small work pays no fork and join */
        body(arg, 0);
    else if (ctx->opts.parallel_for)
        ctx->opts.parallel_for(ctx->opts.parallel_user, n, body, arg);
    else
        bstk__pool_run(n, body, arg);
}
