/* status.c: names of the status codes and the per-thread message. */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>

/* Long enough for every message of the library with a path in it; a longer one is cut. */
static _Thread_local char message[1024];

const char *bstk_status_name(bstk_status status) {
    switch (status) {
    case BSTK_OK:
        return "BSTK_OK";
    case BSTK_ERR_INVALID:
        return "BSTK_ERR_INVALID";
    case BSTK_ERR_TYPE:
        return "BSTK_ERR_TYPE";
    case BSTK_ERR_UNSUPPORTED:
        return "BSTK_ERR_UNSUPPORTED";
    case BSTK_ERR_MISMATCH:
        return "BSTK_ERR_MISMATCH";
    case BSTK_ERR_NOMEM:
        return "BSTK_ERR_NOMEM";
    case BSTK_ERR_OVERFLOW:
        return "BSTK_ERR_OVERFLOW";
    case BSTK_ERR_IO:
        return "BSTK_ERR_IO";
    case BSTK_ERR_FORMAT:
        return "BSTK_ERR_FORMAT";
    case BSTK_ERR_DEVICE:
        return "BSTK_ERR_DEVICE";
    case BSTK_ERR_COMM:
        return "BSTK_ERR_COMM";
    }
    return "BSTK_ERR_?";
}

const char *bstk_last_error(void) {
    return message;
}

bstk_status bstk__fail(bstk_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return status;
}
