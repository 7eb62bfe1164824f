/*
 * test_rows.c: every kernel of the registry that this machine can run, and what is composed of them, through the
 * judge's list of problems. Three variants each, other ones than `bstk check` draws by default.
 */
#include "check/check.h"
#include "support/cm.h"

#include <string.h>

static bool print_failure(void *user, const char *kernel, const problem *p, const check_report *report) {
    (void)kernel;
    (void)p;
    int64_t *problems = user;
    ++*problems;
    if (!report->passed)
        print_error("%s\n", report->message);
    return true;
}

static void every_row(void **state) {
    (void)state;
    const check_options options = {.seed = 1, .variants = 3};
    int64_t problems = 0;
    assert_int_equal(check_all_rows(&options, print_failure, &problems), 0);
    assert_int_equal(problems, check_all_count(&options));
    assert_true(problems > 1500);
}

static bool stop_at_third(void *user, const char *kernel, const problem *p, const check_report *report) {
    (void)kernel;
    (void)p;
    (void)report;
    return ++*(int *)user < 3;
}

static void stops_when_told(void **state) {
    (void)state;
    const check_options options = {.variants = 1};
    int calls = 0;
    assert_int_equal(check_all_rows(&options, stop_at_third, &calls), 0);
    assert_int_equal(calls, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row), cmocka_unit_test(stops_when_told)};
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
