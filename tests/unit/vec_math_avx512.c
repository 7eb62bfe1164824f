/* vec_math_avx512.c: the checks of vec_math_checks.inc for vec_avx512.h. */
#include "support/cm.h"

#include "simd/vec_avx512.h"

#define CHECKS vec_math_checks_avx512
void CHECKS(void);
#include "unit/vec_math_checks.inc"
