/* attention_vec.h: what the vector kernels of attention and of its gradient share. See attention_vec_tile.inc and
 * attention_vec.inc. */
#ifndef BSTK_ATTENTION_VEC_H
#define BSTK_ATTENTION_VEC_H

#include "core/checked.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tile -------------------------------------------------------------------------------------------------------- */

/* `steps` products in a row: left elements of the first row, vectors of the right. */
typedef struct bstk__tile_link {
    const void *left, *right;
    int64_t steps;
} bstk__tile_link;

/* Which products are left out, so that 0 * NaN does not spread. */
enum { TILE_PLAIN, TILE_SKIP_LEFT, TILE_SKIP_RIGHT };

/* ---- forward ----------------------------------------------------------------------------------------------------- */

enum {
    STEP_KEYS = 128,             /* keys between two looks at the maximum */
    STEP_PIECES = STEP_KEYS / 8, /* stored blocks among them, or parts of one */
    LINE_ROWS = 256              /* queries of a block row */
};

/* Keys [j0, j0 + count) of stored block `block`. */
typedef struct bstk__piece {
    int64_t block, j0, count;
    bool dropped;             /* by the key padding, for every query */
    bool one_document;        /* all keys are of the same */
    const uint8_t *padding;   /* what the key padding keeps of them; NULL: all */
    const int64_t *documents; /* of the keys; NULL: there are none */
    const void *k, *v;        /* its first key and value, where products read them */
} bstk__piece;

/* What is to be done to the scores of a piece and a group of queries. */
enum {
    PIECE_NONE,  /* all are dropped */
    PIECE_WHOLE, /* nothing beyond the scale */
    PIECE_CUT,   /* the intervals of the queries */
    PIECE_TERMS
};

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

/* A product that says whether it stayed within `limit`; false also on overflow. */
static inline bool bstk__fits(int64_t a, int64_t b, int64_t limit, int64_t *out) {
    return bstk__mul(a, b, out) && *out <= limit;
}

#endif
