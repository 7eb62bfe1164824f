/* status.h: what every fallible call returns, and the text that goes with it. */
#ifndef BSTK_STATUS_H
#define BSTK_STATUS_H

#include <bstk/export.h>

BSTK_BEGIN_DECLS

/* Values are frozen; new ones are only appended. */
typedef enum bstk_status {
    BSTK_OK = 0,
    BSTK_ERR_INVALID = 1,     /* an argument breaks a documented rule (ValueError) */
    BSTK_ERR_TYPE = 2,        /* an argument has a type that the call does not take (TypeError) */
    BSTK_ERR_UNSUPPORTED = 3, /* a valid request that no kernel of this build or machine serves */
    BSTK_ERR_MISMATCH = 4,    /* a tensor differs from the one the plan was made for */
    BSTK_ERR_NOMEM = 5,       /* the allocator returned NULL */
    BSTK_ERR_OVERFLOW = 6,    /* a size or an offset does not fit in 64 bits */
    BSTK_ERR_IO = 7,          /* the system refused to open, read or write a file */
    BSTK_ERR_FORMAT = 8,      /* a file's content is malformed */
    BSTK_ERR_DEVICE = 9,      /* a GPU call failed, or the device is not there */
    BSTK_ERR_COMM = 10        /* MPI or NCCL failed */
} bstk_status;

/**
 * Name of a status, for example "BSTK_ERR_INVALID"; "BSTK_ERR_?" for an unknown value. Never NULL.
 *
 * Threads: any number at once.  Allocates: no.
 */
BSTK_API const char *bstk_status_name(bstk_status status);

/**
 * Message of the calling thread's last failed call: one line that names the argument, the value got and what was
 * expected; "" when nothing failed yet. The text stays valid until the thread's next failing call.
 *
 * Threads: each has a message of its own.  Allocates: no.
 */
BSTK_API const char *bstk_last_error(void);

BSTK_END_DECLS

#endif
