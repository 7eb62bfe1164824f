/* cm.h: cmocka with what it needs before it. */
#ifndef BSTK_TESTS_CM_H
#define BSTK_TESTS_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <bstk/bstk.h>

/* A call that must succeed; the library's message tells why it did not. */
#define ok(call)                                                                                                       \
    do {                                                                                                               \
        const bstk_status ok_status = (call);                                                                          \
        if (ok_status != BSTK_OK)                                                                                      \
            fail_msg("%s: %s: %s", #call, bstk_status_name(ok_status), bstk_last_error());                             \
    } while (0)

/* A call that must be refused with just this status and text. */
#define refused(call, status, text)                                                                                    \
    do {                                                                                                               \
        const bstk_status got_status = (call);                                                                         \
        if (got_status != (status))                                                                                    \
            fail_msg("%s: got %s, expected %s", #call, bstk_status_name(got_status), bstk_status_name(status));        \
        assert_string_equal(bstk_last_error(), text);                                                                  \
    } while (0)

#define shape(...) ((const int64_t[]){__VA_ARGS__})

#endif
