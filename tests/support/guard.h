/*
 * guard.h: memory whose end, or start, lies at a page that may not be touched: a read or write one byte too far ends
 * the test with a signal.
 */
#ifndef BSTK_TESTS_GUARD_H
#define BSTK_TESTS_GUARD_H

#include <stddef.h>

typedef enum guard_side { GUARD_END, GUARD_START } guard_side;

typedef struct guard {
    void *data;    /* `bytes` bytes; the ones next to the forbidden page are the last, or the first, of them */
    void *mapping; /* with a forbidden page on both sides */
    size_t mapping_bytes;
} guard;

/* Fails the running test when the system gives no memory. The bytes between data and the far page hold 0xff. */
guard guard_make(size_t bytes, guard_side side);
void guard_free(guard *g);

#endif
