/* rows.c: embedding, squared ReLU, residual sum and cross-entropy of rows, in float and in double. */
#include <math.h>
#include <string.h>

#include "charlm.h"

#define R          float
#define NAME(base) base##_f32
#define EXP        expf
#define LOG        logf
#include "rows.inc"

#define R          double
#define NAME(base) base##_f64
#define EXP        exp
#define LOG        log
#include "rows.inc"
