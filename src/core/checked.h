/* checked.h: size arithmetic that says when it overflows. Every product of sizes goes through it. Leaf. */
#ifndef BSTK_CORE_CHECKED_H
#define BSTK_CORE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Both write *out and return true, or return false when the result does not fit. */
static inline bool bstk__mul(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool bstk__add(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline int64_t bstk__ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}
static inline int64_t bstk__min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t bstk__max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
