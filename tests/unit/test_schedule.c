/*
 * test_schedule.c: the cut of work into tasks against a brute-force sum of unit costs: bounds rise and cover every unit
 * once, no task is larger than the mean and what is not cut, lines shorter than a task stay whole, one global row is
 * split, and what does not fit 64 bits is refused.
 */
#include "support/cm.h"

#include "check/gen.h"
#include "core/context_impl.h"
#include "plan/schedule.h"
#include "support/test_memory.h"

#include <stdio.h>

static bstk_context *context(void) {
    return bstk__context_resolve(NULL);
}

static int64_t blocks_of(const bstk__work *w, int64_t line) {
    return w->line_ptr ? w->line_ptr[line + 1] - w->line_ptr[line] : 1;
}

/* Costs in 1/parts of a block: unit u is one of `parts` equal parts of line u / parts % lines. */
static int64_t unit_cost(const bstk__work *w, int64_t unit) {
    return blocks_of(w, unit / w->parts % w->lines) + w->line_cost;
}

static void check(const bstk__work *w, int64_t tasks, int64_t threads) {
    const int64_t units = w->lines * w->parts * w->repeats;
    bstk__schedule s;
    ok(bstk__schedule_make(context(), w, tasks, threads, &s));
    assert_int_equal(s.tasks, units < tasks ? units : tasks);
    if (units == 0) {
        assert_null(s.bounds);
        assert_true(s.imbalance == 1);
        return;
    }
    int64_t total = 0, largest = 0, dearest = 0;
    for (int64_t u = 0; u < units; ++u)
        total += unit_cost(w, u);
    const int64_t keep = w->whole && threads < s.tasks ? threads : s.tasks;
    const int64_t grain = w->grain > 1 ? w->grain : 1;
    for (int64_t u = 0; u < units; ++u) { /* a line that stays whole and a unit of it, or a grain of a long one */
        const int64_t line = unit_cost(w, u) * w->parts, unit = unit_cost(w, u);
        const int64_t most = line <= total / keep ? line + unit : (grain < w->parts ? grain : w->parts) * unit + unit;
        dearest = most > dearest ? most : dearest;
    }
    assert_int_equal(s.bounds[0], 0);
    assert_int_equal(s.bounds[s.tasks], units);
    for (int64_t t = 0; t < s.tasks; ++t) {
        int64_t cost = 0;
        assert_true(s.bounds[t] <= s.bounds[t + 1]);
        assert_true(s.bounds[t] % w->parts == 0 ||
                    (s.bounds[t] % w->parts % grain == 0 && unit_cost(w, s.bounds[t]) * w->parts > total / keep));
        for (int64_t u = s.bounds[t]; u < s.bounds[t + 1]; ++u)
            cost += unit_cost(w, u);
        largest = cost > largest ? cost : largest;
    }
    /* A cut lies at the first unit that reaches its share, or at the nearer end of the line or grain around it. */
    const double mean = (double)total / (double)s.tasks;
    assert_true((double)largest <= mean + (double)dearest + 1);
    const double imbalance = total ? (double)largest / mean : 1;
    assert_true(s.imbalance >= imbalance * (1 - 1e-12) && s.imbalance <= imbalance * (1 + 1e-12));
    bstk__schedule_free(context(), &s);
    assert_null(s.bounds);
    assert_int_equal(s.tasks, 0);
}

static uint64_t draws;

static int64_t draw(int64_t bound) {
    return (int64_t)(gen_hash(99, draws++) % (uint64_t)bound);
}

static void test_random_work(void **state) {
    (void)state;
    for (int round = 0; round < 3000; ++round) {
        int64_t ptr[65] = {draw(2) * 7}; /* prefix sums of a head need not start at 0 */
        bstk__work w = {.lines = draw(65),
                        .repeats = draw(5),
                        .parts = 1 + draw(8),
                        .line_cost = draw(3),
                        .grain = draw(5),
                        .whole = draw(2)};
        const int64_t longest = 1 + draw(40);
        for (int64_t line = 0; line < w.lines; ++line)
            ptr[line + 1] = ptr[line] + (draw(3) ? draw(longest) : 0); /* a third of the lines is empty */
        w.line_ptr = draw(4) ? ptr : NULL;
        const int64_t threads = 1 + draw(8);
        check(&w, threads + draw(100), threads);
    }
}

static void test_global_row_is_split(void **state) {
    (void)state;
    /* Row 0 holds 1000 of 1063 blocks: cut by lines, one task of 64 would have 60 times the mean. */
    int64_t ptr[65] = {0};
    for (int line = 0; line < 64; ++line)
        ptr[line + 1] = ptr[line] + (line == 0 ? 1000 : 1);
    const bstk__work whole = {.line_ptr = ptr, .lines = 64, .repeats = 1, .parts = 1};
    const bstk__work parts = {.line_ptr = ptr, .lines = 64, .repeats = 1, .parts = 32};
    bstk__schedule s;
    ok(bstk__schedule_make(context(), &whole, 16, 4, &s));
    assert_true(s.imbalance > 10);
    bstk__schedule_free(context(), &s);
    ok(bstk__schedule_make(context(), &parts, 16, 4, &s));
    assert_true(s.imbalance < 1.5); /* the mean is 66 blocks, a unit 31 */
    int tasks_in_row = 0;
    for (int64_t t = 0; t < s.tasks; ++t)
        tasks_in_row += s.bounds[t] < 32;
    assert_true(tasks_in_row >= 15);
    bstk__schedule_free(context(), &s);
}

static void test_nothing_to_do(void **state) {
    (void)state;
    const int64_t empty[4] = {5, 5, 5, 5};
    check(&(bstk__work){.line_ptr = empty, .lines = 3, .repeats = 0, .parts = 2}, 8, 2);
    check(&(bstk__work){.line_ptr = empty, .lines = 0, .repeats = 3, .parts = 2}, 8, 2);
    /* No blocks and no cost for lines, but units: all of them are in some task. */
    check(&(bstk__work){.line_ptr = empty, .lines = 3, .repeats = 2, .parts = 2}, 4, 2);
    check(&(bstk__work){.line_ptr = empty, .lines = 3, .repeats = 2, .parts = 2, .line_cost = 1}, 4, 2);
}

static void test_overflow(void **state) {
    (void)state;
    const int64_t big = INT64_C(1) << 40, ptr[2] = {0, INT64_MAX / 2};
    const bstk__work works[] = {
        {.line_ptr = NULL, .lines = big, .repeats = big, .parts = 1},
        {.line_ptr = NULL, .lines = big, .repeats = 1, .parts = big},
        {.line_ptr = NULL, .lines = big, .repeats = 1, .parts = 1, .line_cost = big},
        {.line_ptr = ptr, .lines = 1, .repeats = 3, .parts = 1},
        {.line_ptr = ptr, .lines = 1, .repeats = 1, .parts = 32},
        {.line_ptr = ptr, .lines = 1, .repeats = 1, .parts = 1}, /* the shares t * cost / tasks */
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; ++i) {
        bstk__schedule s;
        char text[128];
        snprintf(text, sizeof text, "schedule: the work of %lld lines x %lld repeats does not fit 64 bits",
                 (long long)works[i].lines, (long long)works[i].repeats);
        refused(bstk__schedule_make(context(), &works[i], 64, 8, &s), BSTK_ERR_OVERFLOW, text);
        assert_null(s.bounds);
    }
    bstk__schedule s; /* as large as it gets */
    ok(bstk__schedule_make(context(), &works[5], 2, 1, &s));
    assert_int_equal(s.tasks, 1);
    bstk__schedule_free(context(), &s);
}

static void test_out_of_memory(void **state) {
    (void)state;
    watch w = {0};
    bstk_context *ctx = watched_context(&w, NULL);
    bstk__schedule s;
    atomic_store(&w.fail_at, 1);
    refused(bstk__schedule_make(ctx, &(bstk__work){.lines = 10, .repeats = 1, .parts = 1}, 4, 2, &s), BSTK_ERR_NOMEM,
            "schedule: out of memory (4 tasks)");
    assert_null(s.bounds);
    bstk_context_release(ctx);
    assert_int_equal(atomic_load(&w.live), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_work), cmocka_unit_test(test_global_row_is_split),
                                       cmocka_unit_test(test_nothing_to_do), cmocka_unit_test(test_overflow),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
