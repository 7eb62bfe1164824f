/*
 * philox.h: the counter-based generator Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as
 * 1, 2, 3; 2011). Four 32-bit words from a 128-bit counter and a 64-bit key, without state. Leaf.
 */
#ifndef BSTK_CORE_PHILOX_H
#define BSTK_CORE_PHILOX_H

#include <stdint.h>

static inline void bstk__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t low = (uint64_t)0xd2511f53u * c0, high = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(high >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(low >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)high;
        c3 = (uint32_t)low;
        k0 += 0x9e3779b9u; /* the golden ratio and sqrt(3) - 1: Weyl sequences of the key */
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
