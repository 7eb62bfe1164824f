/*
 * registry.h: one row of a kernel list, and the choice among rows.
 *
 * Each op has one list, src/ops/<op>/<op>.def, of lines
 *     BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)
 * best first; the last row of each (op, types) is portable and takes everything. The list is the only place where a
 * kernel is registered: prototypes, dispatch, bstk kernels, bstk check and the tests are made from it.
 */
#ifndef BSTK_REGISTRY_H
#define BSTK_REGISTRY_H

#include "core/context_impl.h"

#include <bstk/plan.h>

#include <stdint.h>

/* A kernel works on the units [begin, end) of the schedule. It sees pointers and sizes only: no layout, no log. The
 * scratch is its worker's. Where the row says how large it is, the first 64 bytes are 0 when a run begins, and all stay
 * as they are from task to task, so that what one task has packed can serve the next. */
typedef void bstk__kernel_fn(const void *args, int64_t begin, int64_t end, void *scratch);

typedef struct bstk__kernel {
    const char *name;
    const char *op;
    const char *isa;
    uint32_t needs; /* BSTK__F_... bits */
    bstk_dtype dtype, packed_dtype;
    int32_t block;                            /* 0: any */
    const char *(*accepts)(const void *args); /* NULL when it takes all; returns NULL or the reason of a refusal */
    bstk__kernel_fn *fn;
    size_t (*scratch_bytes)(const void *args); /* bytes for each worker; NULL: those that the op's plan says, or none */
} bstk__kernel;

/* What the rows of a list are asked. */
typedef struct bstk__question {
    const char *op;
    bstk_dtype dtype, packed_dtype;
    int32_t block;
    const void *args;   /* the op's kernel arguments, without data pointers */
    const char *forced; /* name of the only row to consider, or NULL */
} bstk__question;

/* First row that accepts; the log says why each one before it was refused. */
bstk_status bstk__select(bstk_context *ctx, const bstk__kernel *rows, int32_t count, const bstk__question *question,
                         const bstk__kernel **out);

#endif
