/* vec_math_avx2.c: the checks of vec_math_checks.inc for vec_avx2.h. */
#include "support/cm.h"

#include "simd/vec_avx2.h"

#define CHECKS vec_math_checks_avx2
void CHECKS(void);
#include "unit/vec_math_checks.inc"
