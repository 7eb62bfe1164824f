/* error.h: how a failing call leaves its message. Leaf. */
#ifndef BSTK_CORE_ERROR_H
#define BSTK_CORE_ERROR_H

#include <bstk/status.h>

/* Writes the calling thread's message and returns `status`, so that a check is one line: return bstk__fail(...). */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), cold))
#endif
bstk_status
bstk__fail(bstk_status status, const char *format, ...);

/* Hands a failure up; the message is already written. */
#define BSTK_TRY(call)                                                                                                 \
    do {                                                                                                               \
        bstk_status bstk_try_status = (call);                                                                          \
        if (bstk_try_status != BSTK_OK)                                                                                \
            return bstk_try_status;                                                                                    \
    } while (0)

#endif
