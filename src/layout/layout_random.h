/* layout_random.h: random numbers of the builders: a pure function of (seed, kind, head, row, draw). Internal. */
#ifndef BSTK_LAYOUT_RANDOM_H
#define BSTK_LAYOUT_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* Starting point of the draws of one block row. */
uint64_t bstk__random_key(uint64_t seed, int kind, int64_t head, int64_t row);

/*
 * `count` distinct numbers of [0, bound) into picks[], rising; every set is equally likely. 0 <= count <= bound.
 * taken[bound] is all 0 before and after. Ends after `count` draws.
 */
void bstk__random_sample(uint64_t key, int32_t bound, int32_t count, int32_t *picks, uint8_t *taken);

/* Independent draws with probability `density` each, by the gaps between hits: time grows with the hits. */
typedef struct bstk__bernoulli {
    bool never;          /* density is 0, or too small for 64 bits */
    uint64_t misses[32]; /* (1 - density)^(2^t) * 2^64 */
} bstk__bernoulli;

void bstk__bernoulli_init(bstk__bernoulli *b, double density);

/* Hits among [0, bound), rising, into out[] unless NULL; returns how many. A smaller bound only cuts the list. */
int64_t bstk__bernoulli_hits(const bstk__bernoulli *b, uint64_t key, int64_t bound, int32_t *out);

#endif
