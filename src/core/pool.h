/*
 * pool.h: the process's helper threads. They start with the first call that wants them, wait for work by spinning for
 * some 50 us and then asleep, and never hold a call up: what a helper has not begun when the caller is through is taken
 * back. Any number of threads may call at once; each gets the helpers that are free then, or none. Depends on the
 * thread library only.
 */
#ifndef BSTK_CORE_POOL_H
#define BSTK_CORE_POOL_H

#include <stdint.h>

/*
 * Runs body(arg, 0) on the calling thread and body(arg, i), i in [1, n), on helpers: each at most once, and only while
 * body(arg, 0) has not returned. Returns when all that began have returned. So body must share out its work, and
 * body(arg, 0) do what nobody else has taken.
 */
void bstk__pool_run(int32_t n, void (*body)(void *arg, int32_t i), void *arg);

/* CPUs that the calling thread may run on, at most 4096: its affinity mask under the quota of its control group. */
int32_t bstk__pool_cpus(void);

#endif
