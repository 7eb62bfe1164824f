/*
 * test_threads.c: plans shared by threads, contexts of any thread count, the hooks for work and memory, life times, and
 * exact scratch. The library's own threads are in test_pool.c.
 */
#include "support/cm.h"

#include "support/op_case.h"
#include "support/test_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNNERS = 8 };

/* ---- the ops, all on one layout with uneven rows -------------------------------------------------------------------
 */

enum { SDD, DSD, DDS, SOFTMAX, ATTENTION, PACK, UNPACK, OPS };

static const char *const op_names[] = {"sdd", "dsd", "dds", "softmax", "attention", "pack", "unpack"};

/* Inputs of every op, made once. Row 0 and column 0 are global: long lines beside short ones. */
typedef struct inputs {
    bstk_layout *layout;
    gen_array a, b, d, packed, mask; /* [Z,H,M,K], [Z,H,K,N], [Z,H,M,N], values, key padding [Z,N] */
    bstk_score_terms terms;
} inputs;

enum { Z = 2, H = 3, M = 200, N = 168, K = 40, BLOCK = 24 };

static inputs in;

static int make_inputs(void **state) {
    (void)state;
    const int64_t rows = (M + BLOCK - 1) / BLOCK, cols = (N + BLOCK - 1) / BLOCK;
    uint8_t *mask = calloc((size_t)(H * rows * cols), 1);
    for (int64_t h = 0; h < H; ++h)
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j)
                mask[(h * rows + i) * cols + j] = i == 0 || j == 0 || i == j || (h == 1 && (i + j) % 3 == 0);
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape(H, rows, cols));
    ok(bstk_layout_from_mask(NULL, &t, BLOCK, shape(M, N), &in.layout));
    free(mask);
    make_array(&in.a, BSTK_F32, 4, shape(Z, H, M, K), GEN_PADDED, GEN_UNIFORM, 1);
    make_array(&in.b, BSTK_F32, 4, shape(Z, H, N, K), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    make_array(&in.d, BSTK_F32, 4, shape(Z, H, M, N), GEN_CONTIGUOUS, GEN_UNIFORM, 3);
    make_array(&in.packed, BSTK_F32, 4, shape(Z, bstk_layout_nnz(in.layout), BLOCK, BLOCK), GEN_CONTIGUOUS, GEN_UNIFORM,
               4);
    make_array(&in.mask, BSTK_U8, 2, shape(Z, N), GEN_CONTIGUOUS, GEN_ZEROS, 5);
    for (int64_t e = 0; e < Z * N; ++e)
        gen_store(BSTK_U8, in.mask.t.data, e, e % 5 != 0);
    in.terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    in.terms.key_padding_mask = &in.mask.t;
    in.terms.causal = 1;
    in.terms.causal_offset = 30;
    return 0;
}

static int free_inputs(void **state) {
    (void)state;
    bstk_layout_release(in.layout);
    gen_array_free(&in.a);
    gen_array_free(&in.b);
    gen_array_free(&in.d);
    gen_array_free(&in.packed);
    gen_array_free(&in.mask);
    return 0;
}

static bstk_tensor output_of(int op) {
    const int64_t nnz = bstk_layout_nnz(in.layout);
    switch (op) {
    case SDD:
    case SOFTMAX:
    case PACK:
        return bstk_tensor_make(NULL, BSTK_F32, 4, shape(Z, nnz, BLOCK, BLOCK));
    case DSD:
        return bstk_tensor_make(NULL, BSTK_F32, 4, shape(Z, H, M, K));
    case DDS:
        return bstk_tensor_make(NULL, BSTK_F32, 4, shape(Z, H, K, N));
    case ATTENTION:
        return bstk_tensor_make(NULL, BSTK_F32, 4, shape(Z, H, M, K));
    default:
        return bstk_tensor_make(NULL, BSTK_F32, 4, shape(Z, H, M, N));
    }
}

static bstk_tensor lse_of(void) {
    return bstk_tensor_make(NULL, BSTK_F32, 3, shape(Z, H, M));
}

static bstk_status plan_op(bstk_context *ctx, int op, const bstk_layout *layout, bstk_plan **plan) {
    const bstk_tensor out = output_of(op), lse = lse_of();
    if (op <= DDS) {
        bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
        desc.mode = (bstk_mode)(BSTK_SDD + op);
        desc.layout = layout;
        desc.a = op == DSD ? &in.packed.t : &in.a.t;
        desc.b = op == DDS ? &in.packed.t : &in.b.t;
        desc.c = &out;
        desc.trans_a = op == DDS; /* a is [M, K]: K x M of dds */
        desc.trans_b = op == SDD;
        return bstk_matmul_plan(ctx, &desc, plan);
    }
    if (op == SOFTMAX) {
        bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
        desc.layout = layout;
        desc.x = &in.packed.t;
        desc.y = &out;
        desc.lse = &lse;
        desc.terms = in.terms;
        return bstk_softmax_plan(ctx, &desc, plan);
    }
    if (op == ATTENTION) {
        bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
        desc.layout = layout;
        desc.q = &in.a.t;
        desc.k = desc.v = &in.b.t;
        desc.o = &out;
        desc.lse = &lse;
        desc.terms = in.terms;
        return bstk_attention_plan(ctx, &desc, plan);
    }
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.direction = op == PACK ? BSTK_PACK : BSTK_UNPACK;
    desc.layout = layout;
    desc.x = op == PACK ? &in.d.t : &in.packed.t;
    desc.y = &out;
    return bstk_convert_plan(ctx, &desc, plan);
}

/* One run into `out`, and for softmax and attention `lse` behind it. */
static bstk_status run_op(const bstk_plan *plan, int op, float *out, void *scratch, size_t scratch_bytes) {
    bstk_tensor to = output_of(op), lse = lse_of();
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = scratch;
    exec.scratch_bytes = scratch_bytes;
    to.data = out;
    lse.data = out + gen_count(&to);
    if (op <= DDS)
        return bstk_matmul_run(plan, 0.5, op == DSD ? &in.packed.t : &in.a.t, op == DDS ? &in.packed.t : &in.b.t, 0,
                               &to, &exec);
    if (op == SOFTMAX)
        return bstk_softmax_run(plan, &in.packed.t, &in.terms, &to, &lse, NULL, &exec);
    if (op == ATTENTION)
        return bstk_attention_run(plan, &in.a.t, &in.b.t, &in.b.t, &in.terms, &to, &lse, &exec);
    return bstk_convert_run(plan, op == PACK ? &in.d.t : &in.packed.t, &to, &exec);
}

static size_t output_bytes(int op) {
    const bstk_tensor out = output_of(op), lse = lse_of();
    return (size_t)(gen_count(&out) + (op == SOFTMAX || op == ATTENTION ? gen_count(&lse) : 0)) * sizeof(float);
}

/* What a context gives for an op: all bytes of its outputs; free() it. */
static float *result_under(bstk_context *ctx, int op) {
    bstk_plan *plan = NULL;
    ok(plan_op(ctx, op, in.layout, &plan));
    const size_t bytes = output_bytes(op), scratch_bytes = bstk_plan_scratch_bytes(plan);
    float *out = malloc(bytes);
    void *scratch = malloc(scratch_bytes + 1);
    assert_true(out && scratch);
    memset(out, 0xff, bytes);
    memset(scratch, 0xff, scratch_bytes);
    ok(run_op(plan, op, out, scratch, scratch_bytes));
    free(scratch);
    bstk_plan_release(plan);
    return out;
}

static void ignore_progress(void *user, int64_t total) {
    (void)user;
    (void)total;
}

/* Of so many threads, however little there is to do: with `progress` a plan shares out small work as well. */
static bstk_context *context_of(int32_t threads) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = threads;
    opts.progress = ignore_progress;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

/* ---- hooks ---------------------------------------------------------------------------------------------------------
 */

typedef struct share {
    void (*body)(void *arg, int32_t i);
    void *arg;
    atomic_int *next;
    int32_t n;
} share;

static void *work(void *arg) {
    share *s = arg;
    for (int i; (i = atomic_fetch_add(s->next, 1)) < s->n;)
        s->body(s->arg, i);
    return NULL;
}

/* Any thread takes any index. */
static void pthread_for(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    pthread_t threads[3];
    atomic_int next;
    atomic_init(&next, 0);
    share s = {body, arg, &next, n};
    atomic_fetch_add((atomic_int *)user, 1);
    for (int t = 0; t < 3; ++t)
        if (pthread_create(&threads[t], NULL, work, &s) != 0)
            abort();
    work(&s);
    for (int t = 0; t < 3; ++t)
        pthread_join(threads[t], NULL);
}

/* One thread, the last index first: whatever was left to the others is done by worker n - 1. */
static void reverse_for(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    atomic_fetch_add((atomic_int *)user, 1);
    for (int32_t i = n - 1; i >= 0; --i)
        body(arg, i);
}

static bstk_context *hooked(void (*hook)(void *, int32_t, void (*)(void *, int32_t), void *), atomic_int *calls,
                            int32_t threads) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.parallel_for = hook;
    opts.parallel_user = calls;
    opts.num_threads = threads;
    opts.progress = ignore_progress;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

static void test_same_bits(void **state) {
    (void)state;
    atomic_int calls[2];
    atomic_init(&calls[0], 0);
    atomic_init(&calls[1], 0);
    bstk_context *serial = context_of(1);
    bstk_context *contexts[] = {NULL,
                                context_of(2),
                                context_of(3),
                                context_of(5),
                                context_of(16),
                                hooked(pthread_for, &calls[0], 4),
                                hooked(reverse_for, &calls[1], 5)};
    for (int op = 0; op < OPS; ++op) {
        float *want = result_under(serial, op);
        for (size_t c = 0; c < sizeof contexts / sizeof *contexts; ++c) {
            float *got = result_under(contexts[c], op);
            if (memcmp(got, want, output_bytes(op)) != 0)
                fail_msg("%s under context %zu gave other bits than on one thread", op_names[op], c);
            free(got);
        }
        free(want);
    }
    assert_true(atomic_load(&calls[0]) == OPS && atomic_load(&calls[1]) == OPS);
    bstk_context_release(serial);
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; ++c)
        bstk_context_release(contexts[c]);
}

/* What the hook is asked: n of 2 to num_threads, each i once, and only where there is enough to do. */
typedef struct counted {
    int asked;
    int32_t least, most;
} counted;

static void count_for(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    counted *c = user;
    c->least = c->asked == 0 || n < c->least ? n : c->least;
    c->most = n > c->most ? n : c->most;
    ++c->asked;
    for (int32_t i = 0; i < n; ++i)
        body(arg, i);
}

/* A dsd of 32 columns on a layout of `blocks` x `blocks` blocks of 16, all stored. */
static int64_t run_square(bstk_context *ctx, int64_t blocks) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    bstk_plan *plan = NULL;
    gen_array a, b, c;
    opts.kind = BSTK_LAYOUT_DENSE;
    opts.rows = opts.cols = blocks;
    opts.block = 16;
    ok(bstk_layout_build(ctx, &opts, &layout));
    make_array(&a, BSTK_F32, 3, shape(blocks * blocks, 16, 16), GEN_CONTIGUOUS, GEN_UNIFORM, 1);
    make_array(&b, BSTK_F32, 2, shape(blocks * 16, 32), GEN_CONTIGUOUS, GEN_UNIFORM, 2);
    make_array(&c, BSTK_F32, 2, shape(blocks * 16, 32), GEN_CONTIGUOUS, GEN_ZEROS, 3);
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    desc.mode = BSTK_DSD;
    desc.layout = layout;
    desc.a = &a.t;
    desc.b = &b.t;
    desc.c = &c.t;
    ok(bstk_matmul_plan(ctx, &desc, &plan));
    const int64_t tasks = bstk_plan_tasks(plan);
    ok(bstk_matmul(ctx, &desc, 1, 0));
    bstk_plan_release(plan);
    bstk_layout_release(layout);
    gen_array_free(&a);
    gen_array_free(&b);
    gen_array_free(&c);
    return tasks;
}

static void test_small_work_stays(void **state) {
    (void)state;
    counted c = {0};
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.parallel_for = count_for;
    opts.parallel_user = &c;
    opts.num_threads = 6;
    ok(bstk_context_create(&opts, &ctx));
    /* 16 kFLOP to 131 kFLOP: under 50 us on any machine that has a vector kernel, or none. */
    for (int64_t blocks = 1; blocks <= 2; ++blocks)
        assert_int_equal(run_square(ctx, blocks), 1);
    assert_int_equal(c.asked, 0);
    /* 268 MFLOP: milliseconds. */
    assert_true(run_square(ctx, 128) >= 6);
    assert_int_equal(c.asked, 1);
    assert_true(c.least == 6 && c.most == 6);
    /* In between the workers are as many as the work is worth. */
    for (int64_t blocks = 4; blocks <= 64; blocks += 4)
        run_square(ctx, blocks);
    assert_true(c.asked > 3 && c.least >= 2 && c.most <= 6);
    bstk_context_release(ctx);
}

/* A row and a column of all blocks, as in Longformer and BigBird, do not hold up 16 threads: see
 * bench/notes/threads.md. */
static void test_global_rows(void **state) {
    (void)state;
    static const bstk_layout_kind kinds[] = {BSTK_LAYOUT_LONGFORMER, BSTK_LAYOUT_BIGBIRD};
    bstk_context *ctx = context_of(16);
    for (int k = 0; k < 2; ++k) {
        bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
        bstk_layout *layout = NULL;
        opts.kind = kinds[k];
        opts.rows = opts.cols = 256;
        opts.block = 16;
        opts.window = 9;
        opts.random = 2;
        opts.global = 1;
        ok(bstk_layout_build(ctx, &opts, &layout));
        const int64_t m = 4096, d = 64;
        const bstk_tensor t = bstk_tensor_make(NULL, BSTK_F32, 2, shape(m, d));
        const bstk_tensor packed = bstk_tensor_make(NULL, BSTK_F32, 3, shape(bstk_layout_nnz(layout), 16, 16));
        bstk_attention_desc attention = BSTK_ATTENTION_DESC_INIT;
        attention.layout = layout;
        attention.q = attention.k = attention.v = attention.o = &t;
        bstk_matmul_desc dsd = BSTK_MATMUL_DESC_INIT;
        dsd.mode = BSTK_DSD;
        dsd.layout = layout;
        dsd.a = &packed;
        dsd.b = dsd.c = &t;
        bstk_plan *plan = NULL;
        ok(bstk_attention_plan(ctx, &attention, &plan)); /* 16 rows fill one vector of queries: they are not cut */
        assert_true(bstk_plan_imbalance(plan) > 1.1 && bstk_plan_imbalance(plan) < 1.5);
        bstk_plan_release(plan);
        const bstk_tensor heads = bstk_tensor_make(NULL, BSTK_F32, 3, shape(4, m, d));
        attention.q = attention.k = attention.v = attention.o = &heads;
        ok(bstk_attention_plan(ctx, &attention, &plan));
        assert_true(bstk_plan_imbalance(plan) < 1.01);
        bstk_plan_release(plan);
        ok(bstk_matmul_plan(ctx, &dsd, &plan));
        assert_true(bstk_plan_imbalance(plan) < 1.01);
        bstk_plan_release(plan);
        bstk_layout_release(layout);
    }
    bstk_context_release(ctx);
}

/* ---- one plan, many threads
 * ------------------------------------------------------------------------------------------ */

typedef struct runner {
    const bstk_plan *plan;
    int op;
    float *out;
    void *scratch;
    bstk_status status;
    int wrong; /* runs whose bits differ from `want` */
    const float *want;
} runner;

static void *run_plan(void *arg) {
    runner *r = arg;
    const size_t bytes = output_bytes(r->op);
    for (int round = 0; round < 3 && r->status == BSTK_OK; ++round) {
        memset(r->out, 0xff, bytes);
        r->status = run_op(r->plan, r->op, r->out, r->scratch, bstk_plan_scratch_bytes(r->plan));
        r->wrong += memcmp(r->out, r->want, bytes) != 0;
    }
    return NULL;
}

static void test_shared_plan(void **state) {
    (void)state;
    atomic_int calls;
    atomic_init(&calls, 0);
    bstk_context *serial = context_of(1), *ctx = hooked(pthread_for, &calls, 3);
    for (int op = 0; op < OPS; ++op) {
        float *want = result_under(serial, op);
        bstk_plan *plan = NULL;
        pthread_t threads[RUNNERS];
        runner runners[RUNNERS];
        ok(plan_op(ctx, op, in.layout, &plan));
        for (int t = 0; t < RUNNERS; ++t) {
            runners[t] = (runner){
                plan, op, malloc(output_bytes(op)), malloc(bstk_plan_scratch_bytes(plan) + 1), BSTK_OK, 0, want};
            assert_true(runners[t].out && runners[t].scratch);
            assert_int_equal(pthread_create(&threads[t], NULL, run_plan, &runners[t]), 0);
        }
        for (int t = 0; t < RUNNERS; ++t) {
            pthread_join(threads[t], NULL);
            if (runners[t].status != BSTK_OK || runners[t].wrong)
                fail_msg("%s: thread %d: status %d, %d wrong runs", op_names[op], t, (int)runners[t].status,
                         runners[t].wrong);
            free(runners[t].out);
            free(runners[t].scratch);
        }
        bstk_plan_release(plan);
        free(want);
    }
    bstk_context_release(ctx);
    bstk_context_release(serial);
}

/* Each thread has a message of its own. */
static void *fail_in_thread(void *arg) {
    char *text = arg;
    bstk_plan *plan = NULL;
    if (strcmp(bstk_last_error(), "") == 0 && bstk_matmul_plan(NULL, NULL, &plan) == BSTK_ERR_INVALID)
        strcpy(text, bstk_last_error());
    return NULL;
}

static void test_messages(void **state) {
    (void)state;
    char text[128] = "";
    pthread_t thread;
    bstk_plan *plan = NULL;
    refused(bstk_softmax_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "softmax: desc is NULL");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, text), 0);
    pthread_join(thread, NULL);
    assert_string_equal(text, "matmul: desc is NULL");
    assert_string_equal(bstk_last_error(), "softmax: desc is NULL");
}

/* ---- references
 * ------------------------------------------------------------------------------------------------------ */

typedef struct holder {
    bstk_layout *layout;
    bstk_plan *plan;
} holder;

static void *retain_and_release(void *arg) {
    holder *h = arg;
    for (int i = 0; i < 2000; ++i) {
        bstk_layout *layout = bstk_layout_retain(h->layout);
        bstk_plan *plan = bstk_plan_retain(h->plan);
        if (bstk_layout_nnz(layout) != bstk_layout_nnz(in.layout) || bstk_plan_kernel(plan)[0] == 0)
            abort();
        bstk_layout_release(layout);
        bstk_plan_release(plan);
    }
    bstk_layout_release(h->layout); /* the thread's own references; whichever thread is last frees */
    bstk_plan_release(h->plan);
    return NULL;
}

static void test_references(void **state) {
    (void)state;
    watch w = {0};
    bstk_context *ctx = watched_context(&w, NULL);
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = NULL;
    bstk_plan *plan = NULL;
    pthread_t threads[RUNNERS];
    opts.rows = opts.cols = bstk_layout_nnz(in.layout); /* diagonal: as many blocks as the values have */
    opts.kind = BSTK_LAYOUT_LOCAL;
    opts.window = 1;
    opts.block = BLOCK;
    ok(bstk_layout_build(ctx, &opts, &layout));
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    const bstk_tensor dense = bstk_tensor_make(NULL, BSTK_F32, 2, shape(opts.rows * BLOCK, opts.cols * BLOCK));
    const bstk_tensor packed = bstk_tensor_make(NULL, BSTK_F32, 3, shape(opts.rows, BLOCK, BLOCK));
    desc.layout = layout;
    desc.x = &dense;
    desc.y = &packed;
    ok(bstk_convert_plan(ctx, &desc, &plan));
    holder h = {layout, plan};
    for (int t = 0; t < RUNNERS; ++t) {
        bstk_layout_retain(layout);
        bstk_plan_retain(plan);
        assert_int_equal(pthread_create(&threads[t], NULL, retain_and_release, &h), 0);
    }
    bstk_layout_release(layout); /* while they are at it */
    bstk_plan_release(plan);
    bstk_context_release(ctx);
    for (int t = 0; t < RUNNERS; ++t)
        pthread_join(threads[t], NULL);
    assert_int_equal(atomic_load(&w.live), 0);
}

/* A plan outlives the caller's references to its layout and context. */
static void test_plan_outlives(void **state) {
    (void)state;
    for (int op = 0; op < OPS; ++op) {
        watch w = {0};
        bstk_context *ctx = watched_context(&w, NULL);
        const int64_t rows = bstk_layout_rows(in.layout), cols = bstk_layout_cols(in.layout);
        uint8_t *mask = malloc((size_t)(H * rows * cols));
        const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, shape(H, rows, cols));
        bstk_layout *copy = NULL;
        bstk_plan *plan = NULL;
        assert_non_null(mask);
        ok(bstk_layout_to_mask(in.layout, &t));
        ok(bstk_layout_from_mask(ctx, &t, BLOCK, shape(M, N), &copy));
        free(mask);
        ok(plan_op(ctx, op, copy, &plan));
        bstk_layout_release(copy);
        bstk_context_release(ctx);
        const size_t bytes = output_bytes(op), scratch_bytes = bstk_plan_scratch_bytes(plan);
        float *out = malloc(bytes), *want = result_under(NULL, op);
        void *scratch = malloc(scratch_bytes + 1);
        assert_true(out && scratch);
        ok(run_op(plan, op, out, scratch, scratch_bytes));
        assert_memory_equal(out, want, bytes);
        free(out);
        free(want);
        free(scratch);
        assert_true(atomic_load(&w.live) > 0);
        bstk_plan_release(plan);
        assert_int_equal(atomic_load(&w.live), 0);
    }
}

/* ---- memory
 * ---------------------------------------------------------------------------------------------------------- */

static void test_run_allocates_nothing(void **state) {
    (void)state;
    watch w = {0};
    bstk_context *ctx = watched_context(&w, NULL);
    for (int op = 0; op < OPS; ++op) {
        bstk_plan *plan = NULL;
        ok(plan_op(ctx, op, in.layout, &plan));
        float *out = malloc(output_bytes(op));
        void *scratch = malloc(bstk_plan_scratch_bytes(plan) + 1);
        assert_true(out && scratch);
        const int_fast64_t calls = atomic_load(&w.calls);
        for (int round = 0; round < 3; ++round)
            ok(run_op(plan, op, out, scratch, bstk_plan_scratch_bytes(plan)));
        assert_int_equal(atomic_load(&w.calls), calls);
        free(out);
        free(scratch);
        bstk_plan_release(plan);
    }
    bstk_context_release(ctx);
    assert_int_equal(atomic_load(&w.live), 0);
}

/* Makes something under `ctx` and drops it again. */
typedef bstk_status maker(bstk_context *ctx, int which);

/* Fails each allocation of `make` in turn until none is left to fail. */
static void fail_in_turn(const char *name, maker *make, int which) {
    watch w = {0};
    bstk_context *ctx = watched_context(&w, NULL);
    const int_fast64_t live = atomic_load(&w.live);
    for (int_fast64_t n = 1;; ++n) {
        atomic_store(&w.fail_at, n);
        const bstk_status status = make(ctx, which);
        const bool failed = atomic_load(&w.fail_at) <= 0;
        atomic_store(&w.fail_at, 0);
        if (atomic_load(&w.live) != live)
            fail_msg("%s: failing allocation %d leaks", name, (int)n);
        if (!failed) {
            if (status != BSTK_OK || n < 2)
                fail_msg("%s: %s after %d failed allocations", name, bstk_last_error(), (int)n - 1);
            break;
        }
        if (status != BSTK_ERR_NOMEM || strstr(bstk_last_error(), "out of memory") == NULL)
            fail_msg("%s: failing allocation %d gave %s: %s", name, (int)n, bstk_status_name(status),
                     bstk_last_error());
    }
    bstk_context_release(ctx);
    assert_int_equal(atomic_load(&w.live), 0);
}

static bstk_status make_plan(bstk_context *ctx, int op) {
    bstk_plan *plan = NULL;
    const bstk_status status = plan_op(ctx, op, in.layout, &plan);
    if (status != BSTK_OK && plan != NULL)
        abort(); /* written on success only */
    bstk_plan_release(plan);
    return status;
}

/* The short forms take scratch too. */
static bstk_status make_short(bstk_context *ctx, int op) {
    static float out[Z * H * M * N * 2], lse[Z * H * M];
    bstk_tensor to = output_of(op), to_lse = lse_of();
    to.data = out;
    to_lse.data = lse;
    if (op == SOFTMAX) {
        bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
        desc.layout = in.layout;
        desc.x = &in.packed.t;
        desc.y = &to;
        desc.lse = &to_lse;
        desc.terms = in.terms;
        return bstk_softmax(ctx, &desc);
    }
    if (op == ATTENTION) {
        bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
        desc.layout = in.layout;
        desc.q = &in.a.t;
        desc.k = desc.v = &in.b.t;
        desc.o = &to;
        desc.terms = in.terms;
        return bstk_attention(ctx, &desc);
    }
    bstk_convert_desc desc = BSTK_CONVERT_DESC_INIT;
    desc.layout = in.layout;
    desc.x = &in.d.t;
    desc.y = &to;
    return bstk_convert(ctx, &desc);
}

enum { FROM_MASK, FROM_DENSE_MASK, FROM_COO, FROM_CSR, BUILD }; /* BUILD + kind */

static bstk_status make_layout(bstk_context *ctx, int which) {
    static const int64_t row[] = {3, 0, 1, 3}, col[] = {1, 2, 0, 0}, ptr[] = {0, 1, 2, 2, 4};
    static const uint8_t mask[6 * 24] = {[5] = 1, [40] = 1, [143] = 1};
    bstk_layout *layout = NULL;
    bstk_status status;
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_BOOL, 2, shape(6, 24));
    if (which == FROM_MASK) {
        status = bstk_layout_from_mask(ctx, &t, 16, NULL, &layout);
    } else if (which == FROM_DENSE_MASK) {
        status = bstk_layout_from_dense_mask(ctx, &t, 8, &layout);
    } else if (which == FROM_COO || which == FROM_CSR) {
        bstk_layout_indices x = BSTK_LAYOUT_INDICES_INIT;
        x.rows = x.cols = x.count = 4;
        x.edge = 8;
        x.row = which == FROM_COO ? row : NULL;
        x.row_ptr = which == FROM_COO ? NULL : ptr;
        x.col = which == FROM_COO ? col : (const int64_t[]){2, 0, 1, 0};
        status = bstk_layout_from_indices(ctx, &x, 16, NULL, &layout);
    } else {
        bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
        opts.kind = (bstk_layout_kind)(which - BUILD);
        opts.heads = 2;
        opts.rows = opts.cols = 12;
        opts.window = 4;
        status = bstk_layout_build(ctx, &opts, &layout);
        bstk_layout_stats stats = {.struct_size = sizeof stats};
        if (status == BSTK_OK) /* allocates too */
            status = bstk_layout_get_stats(layout, &stats);
    }
    if (which < BUILD && status != BSTK_OK && layout != NULL)
        abort();
    bstk_layout_release(layout);
    return status;
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (int op = 0; op < OPS; ++op)
        fail_in_turn(op_names[op], make_plan, op);
    fail_in_turn("short softmax", make_short, SOFTMAX);
    fail_in_turn("short attention", make_short, ATTENTION);
    fail_in_turn("short pack", make_short, PACK);
    static const char *const names[] = {"from_mask", "from_dense_mask", "from COO", "from CSR"};
    for (int which = 0; which < BUILD; ++which)
        fail_in_turn(names[which], make_layout, which);
    for (int kind = BSTK_LAYOUT_DENSE; kind <= BSTK_LAYOUT_RANDOM; ++kind)
        fail_in_turn(bstk_layout_kind_name((bstk_layout_kind)kind), make_layout, BUILD + kind);
}

/* Scratch of just the size that the plan tells, at every misalignment, with nothing readable behind it. */
static void test_exact_scratch(void **state) {
    (void)state;
    for (int op = 0; op < OPS; ++op)
        for (int threads = 1; threads <= 4; threads += 3) {
            bstk_context *ctx = context_of(threads);
            bstk_plan *plan = NULL;
            float *want = result_under(ctx, op), *out = malloc(output_bytes(op));
            assert_non_null(out);
            ok(plan_op(ctx, op, in.layout, &plan));
            const size_t bytes = bstk_plan_scratch_bytes(plan);
            static const size_t before[] = {0, 1, 4, 33, 63};
            for (size_t k = 0; bytes > 0 && k < sizeof before / sizeof *before; ++k) {
                /* The end lies before the guard page or `before` bytes ahead of it; those must stay as they are. */
                unsigned char *memory = guarded_alloc(bytes + before[k]);
                memset(memory, 0xff, bytes + before[k]);
                memset(out, 0xff, output_bytes(op));
                ok(run_op(plan, op, out, memory, bytes));
                assert_memory_equal(out, want, output_bytes(op));
                for (size_t n = 0; n < before[k]; ++n)
                    assert_int_equal(memory[bytes + n], 0xff);
                guarded_free(memory, bytes + before[k]);
            }
            bstk_plan_release(plan);
            bstk_context_release(ctx);
            free(want);
            free(out);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),     cmocka_unit_test(test_small_work_stays),
        cmocka_unit_test(test_global_rows),   cmocka_unit_test(test_shared_plan),
        cmocka_unit_test(test_messages),      cmocka_unit_test(test_references),
        cmocka_unit_test(test_plan_outlives), cmocka_unit_test(test_run_allocates_nothing),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_exact_scratch)};
    return cmocka_run_group_tests(tests, make_inputs, free_inputs);
}
