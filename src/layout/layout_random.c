/*
 * layout_random.c: random numbers of the layout builders.
 *
 * All in integers, with no state: draw n of a block row is a hash of (seed, kind, head, row, n). So one seed gives one
 * layout on every platform, whatever the order in which rows are built.
 */
#include "layout/layout_random.h"

#include <stdlib.h>

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio: spreads neighbouring counters */

/* A bijection of 64 bits in which each input bit flips each output bit about half of the time: two rounds of
 * xor-shift and multiply with the constants of the splitmix64 generator. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t draw(uint64_t key, uint64_t n) {
    return mix(key + (n + 1) * GOLDEN);
}

uint64_t bstk__random_key(uint64_t seed, int kind, int64_t head, int64_t row) {
    return draw(draw(draw(seed, (uint64_t)kind), (uint64_t)head), (uint64_t)row);
}

/* Upper 64 bits of a * b: floor(a/2^64 * b) for fractions a. C11 has no 128-bit type. */
static uint64_t mul_high(uint64_t a, uint64_t b) {
    const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

static int compare_i32(const void *x, const void *y) {
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* Robert Floyd's sampling: step k draws from [0, top], top = bound - count + k; a number that is taken already stands
 * for top itself, which no earlier step could take. The bias of mul_high is below bound/2^64. */
void bstk__random_sample(uint64_t key, int32_t bound, int32_t count, int32_t *picks, uint8_t *taken) {
    for (int32_t k = 0; k < count; k++) {
        const int32_t top = bound - count + k;
        const int32_t pick = (int32_t)mul_high(draw(key, (uint64_t)k), (uint64_t)top + 1);
        picks[k] = taken[pick] ? top : pick;
        taken[picks[k]] = 1;
    }
    for (int32_t k = 0; k < count; k++)
        taken[picks[k]] = 0;
    qsort(picks, (size_t)count, sizeof *picks, compare_i32);
}

void bstk__bernoulli_init(bstk__bernoulli *b, double density) {
    /* Scaling by 2^64 is exact, and so is the cut to an integer: the same on every platform. */
    const uint64_t hit = density >= 1.0 ? 0 : (uint64_t)(density * 0x1p64);
    b->never = density < 1.0 && hit == 0;
    b->misses[0] = density >= 1.0 ? 0 : 0 - hit;
    for (int t = 1; t < 32; t++)
        b->misses[t] = mul_high(b->misses[t - 1], b->misses[t - 1]);
}

/* Misses before the next hit: the largest g with (1 - density)^g > u for a uniform u. Its highest bit is found by
 * comparing, the others by one product each: short gaps, the many ones, are cheap. */
static int64_t gap(const bstk__bernoulli *b, uint64_t u) {
    int t = 0;
    while (t < 32 && b->misses[t] > u)
        t++;
    if (t == 0)
        return 0;
    uint64_t chance = b->misses[--t]; /* of `misses` misses in a row */
    int64_t misses = (int64_t)1 << t;
    while (--t >= 0) {
        const uint64_t next = mul_high(chance, b->misses[t]);
        if (next > u) {
            chance = next;
            misses += (int64_t)1 << t;
        }
    }
    return misses;
}

int64_t bstk__bernoulli_hits(const bstk__bernoulli *b, uint64_t key, int64_t bound, int32_t *out) {
    int64_t count = 0;
    if (b->never)
        return 0;
    for (int64_t at = gap(b, draw(key, 0)); at < bound; at += 1 + gap(b, draw(key, (uint64_t)count))) {
        if (out)
            out[count] = (int32_t)at;
        count++;
    }
    return count;
}
