/*
 * bound.h: how far a right result may be from the float64 reference, element by element, and the comparison itself.
 * Derivations are in docs/numerics.md. Notation: u is a unit roundoff, gamma(n) = n*u / (1 - n*u) what n roundings can
 * do to a value.
 */
#ifndef BSTK_CHECK_BOUND_H
#define BSTK_CHECK_BOUND_H

#include <bstk/tensor.h>

#include <stdbool.h>
#include <stdint.h>

double bound_store_unit(bstk_dtype dtype);      /* u of one rounding to the type: f64 2^-53, f32 2^-24, ... */
double bound_sum_unit(bstk_dtype dtype);        /* u of the sums: f32's for all but f64 */
double bound_smallest(bstk_dtype dtype);        /* smallest subnormal number */
double bound_smallest_normal(bstk_dtype dtype); /* of the sums' type: results below it may be flushed to 0 */
double bound_overflow(bstk_dtype dtype);        /* magnitudes from here on round to infinity */
bstk_dtype bound_sum_dtype(bstk_dtype dtype);   /* f64 for f64, else f32 */
double bound_gamma(double n, double u);         /* infinite when n*u >= 1 */

/* Element of a product with K terms, in the type of the output. size = |alpha| * sum |a||b| + |beta c|. */
double bound_product(bstk_dtype dtype, int64_t k, double value, double size);

/* A value with error `error` before it is rounded to `dtype`. */
double bound_stored(bstk_dtype dtype, double value, double error);

/*
 * A row of a softmax: scores s[i] with errors up to delta[i], where kept[i] is set; at least one finite score, no NaN
 * and no +inf among the kept. Writes the error of each y before the store, and that of lse.
 */
void bound_softmax_row(bstk_dtype dtype, int64_t count, const uint8_t *kept, const double *s, const double *delta,
                       double *error, double *lse_error);

/* What bound_compare found. */
typedef struct bound_result {
    bool ok;
    double worst; /* largest |got - want| / bound, over elements with a finite bound */
    int64_t bad;  /* elements that failed */
    int64_t at;   /* the worst failed one, in row-major order; the worst one when none failed */
    double got, want, bound;
} bound_result;

/*
 * Holds every element of `got` against want[] and bound[] (row-major). NaN matches NaN only, an infinity itself only; a
 * finite value that the bound takes past the largest number of the type may be infinite; bound 0 asks for want rounded
 * to the type, to the bit but for the sign of zero; an infinite bound with a finite want accepts anything.
 */
bound_result bound_compare(const bstk_tensor *got, const double *want, const double *bound);

#endif
