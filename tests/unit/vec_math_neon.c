/* vec_math_neon.c: the checks of vec_math_checks.inc for vec_neon.h. */
#include "support/cm.h"

#include "simd/vec_neon.h"

#define CHECKS vec_math_checks_neon
void CHECKS(void);
#include "unit/vec_math_checks.inc"
