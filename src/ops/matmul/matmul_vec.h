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
    LINKS = 64,    /* of a segment at most */
    AHEAD = 4      /* links by which the left operand is prefetched, at most */
};

/* How a tile finds its right operand: packed in panels of the tile's vectors, in place, as two panels of one vector, or
 * as panels of half a vector, two or four;
 * and its left one: a row's steps side by side, a step's rows side by side, or neither. */
enum { BSTK__PANEL, BSTK__IN_PLACE, BSTK__PAIR, BSTK__HALVES };
enum { BSTK__BY_STEPS, BSTK__BY_ROWS, BSTK__ANY, BSTK__SKIP_ZEROS };

/* Strides in bytes. */
typedef struct bstk__link {
    const char *left, *right;
    int64_t left_row, left_step;
    int64_t first, steps; /* of the right operand: where the first step is, and how many there are */
} bstk__link;

typedef struct bstk__chain {
    int64_t count, steps;         /* links, and their steps together */
    int64_t right;                /* BSTK__PANEL ... */
    int64_t right_panel;          /* bytes from a vector to the next one, counted over whole panels */
    int64_t right_step;           /* in place: from a step to the next one */
    int64_t right_vec;            /* of a pair: from one panel to the other */
    int64_t next_vec;             /* the same of what is prefetched */
    int64_t half[4];              /* of halves: bytes from a link's right operand to each panel */
    bool by_steps, by_rows;       /* every left operand is BSTK__BY_STEPS, or BSTK__BY_ROWS */
    bstk__link at[LINKS + AHEAD]; /* some more, to be prefetched */
} bstk__chain;

static inline bool bstk__chain_full(const bstk__chain *c, int64_t steps) {
    return c->count == LINKS || (c->count > 0 && c->steps + steps > SEGMENT);
}

/* Elements of the left operand have `size` bytes. */
static inline void bstk__chain_add(bstk__chain *c, bstk__link link, int64_t size) {
    c->by_steps = link.left_step == size && (c->count == 0 || c->by_steps);
    c->by_rows = link.left_row == size && (c->count == 0 || c->by_rows);
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
