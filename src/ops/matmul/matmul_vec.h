/* matmul_vec.h: what the vector product kernels of all types share: the chain of links that a tile runs along, and the
 * layout of a worker's scratch. See matmul_vec.inc. */
#ifndef BSTK_MATMUL_VEC_H
#define BSTK_MATMUL_VEC_H

#include "core/checked.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SEGMENT = 512, /* steps that are summed before they join the others: a block of 256 must fit */
    LINKS = 64     /* of a segment at most */
};

/* Strides in bytes. */
typedef struct bstk__link {
    const char *left, *right;
    int64_t left_row, left_step;
    int64_t steps;
} bstk__link;

typedef struct bstk__chain {
    int64_t count, steps;          /* links, and their steps together */
    int64_t right_step, right_vec; /* bytes from a step's vector to the next step's, and to the next vector */
    bstk__link at[LINKS + 1];      /* one more, to be prefetched */
} bstk__chain;

static inline bool bstk__chain_full(const bstk__chain *c, int64_t steps) {
    return c->count == LINKS || (c->count > 0 && c->steps + steps > SEGMENT);
}

static inline void bstk__chain_add(bstk__chain *c, bstk__link link) {
    c->at[c->count++] = link;
    c->steps += link.steps;
}

/* A product that says whether it stayed within `limit`; false also on overflow. */
static inline bool bstk__fits(int64_t a, int64_t b, int64_t limit, int64_t *out) {
    return bstk__mul(a, b, out) && *out <= limit;
}

/* `bytes` into the scratch. */
static inline void *bstk__at(void *scratch, int64_t bytes) {
    return (char *)scratch + bytes;
}

/* Takes `bytes`, rounded up to whole cache lines, from the space that begins at *used; returns where they begin. */
static inline int64_t bstk__take(int64_t *used, int64_t bytes) {
    const int64_t at = *used;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

#endif
