/*
 * test_pool.c: the library's own threads: who runs what, calls at once and within each other, more threads than CPUs, a
 * fork, signals, the CPUs of an affinity mask, and a library that is closed while its threads sleep.
 */
#include "support/cm.h"

#include "core/pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALLERS = 8 };

/* Work that is shared out as a plan's is: each takes the next item until none is left. */
typedef struct job {
    atomic_int next, done, begun[64];
    int items, spin;
    pthread_t caller;
    atomic_int wrong; /* worker 0 elsewhere than on the caller, or an index twice */
} job;

static void job_init(job *j, int items, int spin) {
    atomic_init(&j->next, 0);
    atomic_init(&j->done, 0);
    atomic_init(&j->wrong, 0);
    for (int i = 0; i < 64; ++i)
        atomic_init(&j->begun[i], 0);
    j->items = items;
    j->spin = spin;
    j->caller = pthread_self();
}

static void work(void *arg, int32_t worker) {
    job *j = arg;
    if (atomic_fetch_add(&j->begun[worker], 1) != 0 || (worker == 0) != (pthread_equal(pthread_self(), j->caller) != 0))
        atomic_fetch_add(&j->wrong, 1);
    while (atomic_fetch_add(&j->next, 1) < j->items) {
        for (volatile int i = 0; i < j->spin; ++i) {
        }
        atomic_fetch_add(&j->done, 1);
    }
}

/* All items are done when the call returns, and the job, here on the stack, is not touched afterwards. */
static int run(int32_t workers, int items, int spin) {
    job j;
    job_init(&j, items, spin);
    bstk__pool_run(workers, work, &j);
    const int wrong = atomic_load(&j.done) != items || atomic_load(&j.begun[0]) != 1 || atomic_load(&j.wrong) != 0;
    memset(&j, 0xee, sizeof j);
    return wrong;
}

static void test_runs(void **state) {
    (void)state;
    static const int32_t workers[] = {2, 3, 5, 16, 64};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; ++i)
        for (int round = 0; round < 300; ++round)
            assert_int_equal(run(workers[i], round % 40, round % 7 * 100), 0);
}

static void sleep_us(int us) {
    const struct timespec t = {.tv_nsec = us * 1000L};
    nanosleep(&t, NULL);
}

/* After a pause helpers sleep, or are just about to. */
static void test_sleeping(void **state) {
    (void)state;
    for (int round = 0; round < 200; ++round) {
        sleep_us(round % 10 * 25);
        assert_int_equal(run(2 + round % 3, 20, 2000), 0);
    }
}

static void wait_for_other(void *arg, int32_t worker) {
    atomic_int *arrived = arg;
    (void)worker;
    atomic_fetch_add(arrived, 1);
    for (int i = 0; i < 5000 && atomic_load(arrived) < 2; ++i) /* 5 s at most */
        sleep_us(1000);
}

static void test_helpers_help(void **state) {
    (void)state;
    atomic_int arrived;
    atomic_init(&arrived, 0);
    bstk__pool_run(2, wait_for_other, &arrived);
    assert_int_equal(atomic_load(&arrived), 2);
}

static void *call_often(void *arg) {
    int wrong = 0;
    for (int round = 0; round < 300; ++round)
        wrong += run(2 + round % 5, round % 20, 300);
    *(int *)arg = wrong;
    return NULL;
}

static void test_callers_at_once(void **state) {
    (void)state;
    pthread_t threads[CALLERS];
    int wrong[CALLERS];
    for (int i = 0; i < CALLERS; ++i)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &wrong[i]), 0);
    for (int i = 0; i < CALLERS; ++i) {
        pthread_join(threads[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
}

static void nest(void *arg, int32_t worker) {
    (void)worker;
    for (int i = 0; i < 20; ++i)
        atomic_fetch_add((atomic_int *)arg, run(3, 10, 100));
}

static void test_call_within_a_call(void **state) {
    (void)state;
    atomic_int wrong;
    atomic_init(&wrong, 0);
    for (int round = 0; round < 20; ++round)
        bstk__pool_run(4, nest, &wrong);
    assert_int_equal(atomic_load(&wrong), 0);
}

/* Exit status of a child that runs `body`. */
static int in_child(int (*body)(void)) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20); /* a child that hangs ends by the signal */
        _exit(body());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int child_work(void) {
    int wrong = 0;
    for (int round = 0; round < 100; ++round)
        wrong += run(4, 20, 300);
    return wrong != 0;
}

static int child_help(void) {
    atomic_int arrived;
    atomic_init(&arrived, 0);
    bstk__pool_run(2, wait_for_other, &arrived);
    return atomic_load(&arrived) != 2;
}

static void test_fork(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* TSan does not follow threads that a forked child makes */
#endif
    pthread_t other;
    int wrong = 0;
    assert_int_equal(run(5, 20, 300), 0);
    assert_int_equal(in_child(child_work), 0);
    assert_int_equal(in_child(child_help), 0); /* it has helpers of its own */
    assert_int_equal(run(5, 20, 300), 0);
    /* While another thread is at it. */
    assert_int_equal(pthread_create(&other, NULL, call_often, &wrong), 0);
    for (int round = 0; round < 10; ++round)
        assert_int_equal(in_child(child_work), 0);
    pthread_join(other, NULL);
    assert_int_equal(wrong, 0);
}

static void look_at_mask(void *arg, int32_t worker) {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    int *blocked = arg;
    blocked[worker] = sigismember(&set, SIGINT) + sigismember(&set, SIGALRM) + sigismember(&set, SIGUSR1) * 10 +
                      sigismember(&set, SIGSEGV) * 100;
    for (int i = 0; worker == 0 && i < 200; ++i) /* 200 ms for the helper to come */
        sleep_us(1000);
}

static void test_signals(void **state) {
    (void)state;
    int blocked[2] = {-1, -1};
    bstk__pool_run(2, look_at_mask, blocked);
    assert_int_equal(blocked[0], 0); /* the caller's mask is as it was */
    assert_true(blocked[1] == 12 || blocked[1] == -1);
}

static void *count_cpus(void *arg) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)sched_getcpu(), &set);
    if (sched_setaffinity(0, sizeof set, &set) == 0)
        *(int32_t *)arg = bstk__pool_cpus();
    return NULL;
}

static void test_affinity(void **state) {
    (void)state;
    pthread_t thread;
    int32_t cpus = 1;
    assert_true(bstk__pool_cpus() >= 1 && bstk__pool_cpus() <= sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(pthread_create(&thread, NULL, count_cpus, &cpus), 0);
    pthread_join(thread, NULL);
    assert_int_equal(cpus, 1);
}

/* Sums of a product on a library of its own copy, on 3 threads. */
static void use_library(void *lib) {
    bstk_status (*create)(const bstk_context_opts *, bstk_context **);
    void (*release)(bstk_context *);
    bstk_status (*build)(bstk_context *, const bstk_layout_opts *, bstk_layout **);
    void (*release_layout)(bstk_layout *);
    bstk_status (*matmul)(bstk_context *, const bstk_matmul_desc *, double, double);
    *(void **)&create = dlsym(lib, "bstk_context_create");
    *(void **)&release = dlsym(lib, "bstk_context_release");
    *(void **)&build = dlsym(lib, "bstk_layout_build");
    *(void **)&release_layout = dlsym(lib, "bstk_layout_release");
    *(void **)&matmul = dlsym(lib, "bstk_matmul");
    enum { BLOCKS = 16, EDGE = 64, ROWS = BLOCKS * EDGE, COLS = 32 };
    float *values = calloc((size_t)(ROWS * ROWS + 2 * ROWS * COLS), sizeof *values), *b = values + ROWS * ROWS;
    assert_true(values && create && release && build && release_layout && matmul);
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_layout_opts layout_opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_matmul_desc desc = BSTK_MATMUL_DESC_INIT;
    bstk_context *ctx = NULL;
    bstk_layout *layout = NULL;
    opts.num_threads = 3;
    layout_opts.rows = layout_opts.cols = BLOCKS;
    layout_opts.block = EDGE;
    for (int i = 0; i < ROWS * ROWS + ROWS * COLS; ++i)
        values[i] = 1;
    const bstk_tensor at = bstk_tensor_make(values, BSTK_F32, 3, shape(BLOCKS * BLOCKS, EDGE, EDGE));
    const bstk_tensor bt = bstk_tensor_make(b, BSTK_F32, 2, shape(ROWS, COLS));
    const bstk_tensor ct = bstk_tensor_make(b + ROWS * COLS, BSTK_F32, 2, shape(ROWS, COLS));
    desc.mode = BSTK_DSD;
    desc.a = &at;
    desc.b = &bt;
    desc.c = &ct;
    ok(create(&opts, &ctx));
    ok(build(ctx, &layout_opts, &layout));
    desc.layout = layout;
    for (int round = 0; round < 5; ++round)
        ok(matmul(ctx, &desc, 1, 0));
    for (int i = 0; i < ROWS * COLS; ++i)
        assert_true(b[ROWS * COLS + i] == (float)ROWS);
    release_layout(layout);
    release(ctx);
    free(values);
}

/* Whatever a plugin host does: its threads must not run into unmapped code. */
static void test_dlclose(void **state) {
    (void)state;
    for (int round = 0; round < 3; ++round) {
        void *lib = dlopen(BSTK_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        if (lib == NULL)
            fail_msg("%s", dlerror());
        use_library(lib);
        assert_int_equal(dlclose(lib), 0);
        sleep_us(round * 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs),
                                       cmocka_unit_test(test_sleeping),
                                       cmocka_unit_test(test_helpers_help),
                                       cmocka_unit_test(test_callers_at_once),
                                       cmocka_unit_test(test_call_within_a_call),
                                       cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_signals),
                                       cmocka_unit_test(test_affinity),
                                       cmocka_unit_test(test_dlclose)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
