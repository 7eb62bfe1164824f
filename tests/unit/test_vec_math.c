/* test_vec_math.c: the vector vocabulary of every instruction set that this build and this CPU have; see
 * vec_math_checks.inc. */
#include "support/cm.h"

#include "core/cpu_features.h"

#if defined(__x86_64__)
void vec_math_checks_avx2(void);
void vec_math_checks_avx512(void);

static void test_avx2(void **state) {
    (void)state;
    if (!(bstk__cpu_features() & BSTK__F_AVX2))
        skip();
    vec_math_checks_avx2();
}

static void test_avx512(void **state) {
    (void)state;
    if (!(bstk__cpu_features() & BSTK__F_AVX512))
        skip();
    vec_math_checks_avx512();
}
#elif defined(__aarch64__)
void vec_math_checks_neon(void);

static void test_neon(void **state) {
    (void)state;
    vec_math_checks_neon();
}
#endif

static void test_none(void **state) { /* where there is no vector kernel */
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
#elif defined(__aarch64__)
        cmocka_unit_test(test_neon),
#endif
        cmocka_unit_test(test_none)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
