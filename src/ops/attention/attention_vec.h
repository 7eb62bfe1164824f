/* attention_vec.h: what the vector kernels of attention and of its gradient share. See attention_vec_tile.inc. */
#ifndef BSTK_ATTENTION_VEC_H
#define BSTK_ATTENTION_VEC_H

#include "core/checked.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `steps` products in a row: left elements of the first row, vectors of the right. */
typedef struct bstk__tile_link {
    const void *left, *right;
    int64_t steps;
} bstk__tile_link;

/* Which products are left out, so that 0 * NaN does not spread. */
enum { TILE_PLAIN, TILE_SKIP_LEFT, TILE_SKIP_RIGHT };

#endif
