/* fuzz_ops.h: the two halves of the target of ops: fuzz_ops_make.c draws problems from bytes, fuzz_ops.c judges them.
 */
#ifndef BSTK_FUZZ_OPS_H
#define BSTK_FUZZ_OPS_H

#include "check/workload_impl.h"

typedef struct fuzz {
    const uint8_t *at, *end;
    workload w;
    bstk_tensor fine[WORKLOAD_ARRAYS]; /* descriptions that fit the memory of the arrays */
    uint8_t flags;
    bool odd;     /* something may not fit, so that the library may refuse */
    bool unknown; /* no result to compare with */
} fuzz;

/* A number from 0 to count - 1 by the next byte. */
int64_t fuzz_next(fuzz *f, int64_t count);

/* Layout, operands and terms. False: too large, or the layout was refused. */
bool fuzz_make(fuzz *f, bstk_context *ctx);

/* Ends the program with a description of the problem. */
_Noreturn void fuzz_die(const fuzz *f, const char *which, const char *what);

/* Ends it unless the refusal may be and has a fresh message of one line. */
void fuzz_refused(const fuzz *f, const char *which, bstk_status status);

#endif
