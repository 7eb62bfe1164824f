/*
 * test_rows_threads.c: every op, forward and backward, with its tasks on real threads, held against the reference and
 * against one thread's bits: on the library's own threads, and through a hook that starts a thread for each worker.
 */
#include "check/check.h"
#include "support/cm.h"

#include <pthread.h>
#include <stdio.h>

typedef struct worker {
    pthread_t thread;
    void (*body)(void *arg, int32_t i);
    void *arg;
    int32_t i;
} worker;

static void *run_worker(void *user) {
    worker *w = user;
    w->body(w->arg, w->i);
    return NULL;
}

/* One thread for each worker, all at once. */
static void on_threads(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    (void)user;
    enum { MOST = 16 };
    worker workers[MOST];
    assert_true(n <= MOST);
    for (int32_t i = 0; i < n; ++i) {
        workers[i] = (worker){.body = body, .arg = arg, .i = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
    }
    for (int32_t i = 0; i < n; ++i)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

static void every_op(const check_options *options) {
    static const char *const ops[] = {"sdd", "dsd", "dds", "softmax", "layernorm", "rmsnorm", "attention"};
    static const char *const types[] = {"f64", "f32", "bf16"};
    for (size_t op = 0; op < sizeof ops / sizeof *ops; ++op)
        for (size_t type = 0; type < sizeof types / sizeof *types; ++type)
            for (int backward = 0; backward < 2; ++backward) {
                char text[PROBLEM_TEXT], error[PROBLEM_TEXT];
                problem p;
                check_report report;
                snprintf(text, sizeof text, "%s:%s:b16:z2:h2:m70:n55%s:bernoulli(0.5,4)%s", ops[op], types[type],
                         op < 3    ? ":k20"
                         : op == 6 ? ":d20"
                                   : "",
                         backward ? ":bwd" : "");
                if (!problem_parse(text, &p, error))
                    fail_msg("%s: %s", text, error);
                if (!check_problem(&p, NULL, options, &report))
                    fail_msg("%s", report.message);
                assert_true(report.runs > 0);
            }
}

static void own_threads(void **state) {
    (void)state;
    every_op(&(check_options){.seed = 3, .variants = 2, .own_threads = true, .threads = {2, 3}});
    every_op(&(check_options){.seed = 4, .variants = 1, .own_threads = true, .threads = {5, 16}});
}

static void hook(void **state) {
    (void)state;
    every_op(&(check_options){.seed = 5, .variants = 2, .parallel_for = on_threads, .threads = {2, 7}});
    every_op(&(check_options){.seed = 6, .variants = 1, .parallel_for = on_threads, .threads = {5, 16}});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_threads), cmocka_unit_test(hook)};
    return cmocka_run_group_tests_name("rows on threads", tests, NULL, NULL);
}
