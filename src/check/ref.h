/*
 * ref.h: what every op has to give, in float64, straight from the formulas of the contract. Plain loops on doubles;
 * operands are read through their types and strides. Beside each value stands how far a result may be from it
 * (bound.h).
 *
 * All arrays returned are in row-major order of the output's shape, gen_count(output) long, given by the caller.
 * Functions return false when memory is out.
 */
#ifndef BSTK_CHECK_REF_H
#define BSTK_CHECK_REF_H

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

/* C = alpha * op(A) . op(B) + beta * C, one operand packed. */
typedef struct ref_product {
    bstk_mode mode;
    bool trans_a, trans_b, trans_c;
    const bstk_layout *layout;
    int64_t z, h;             /* of C; operands may have fewer, the layout h heads or 1 */
    int64_t m, n, k;          /* C is M x N, or N x M with trans_c */
    const bstk_tensor *a, *b; /* not read when alpha is 0 */
    const bstk_tensor *c;     /* its shape and type; its values, from before the run, when beta is not 0 */
    double alpha, beta;
} ref_product;

bool ref_matmul(const ref_product *p, double *value, double *bound);

/* The scores of softmax (from packed x) and of attention (from q and k). */
typedef struct ref_scores {
    const bstk_layout *layout;
    int64_t z, h, m, n, d;    /* d: head size of q and k; unused with x */
    bstk_dtype dtype;         /* of x, or of q, k and v */
    const bstk_tensor *x;     /* softmax */
    const bstk_tensor *q, *k; /* attention */
    const bstk_score_terms *terms;
} ref_scores;

/* y packed like x; lse and its bound [z, h, m]. */
bool ref_softmax(const ref_scores *p, double *y, double *y_bound, double *lse, double *lse_bound);

/* o [z, h, m, dv], v [z|1, hkv, n, dv]. */
bool ref_attention(const ref_scores *p, const bstk_tensor *v, double *o, double *o_bound, double *lse,
                   double *lse_bound);

/* Copies; exact. z and h are those of the dense matrix. */
bool ref_pack(const bstk_layout *layout, int64_t z, int64_t h, const bstk_tensor *x, double *y);
bool ref_unpack(const bstk_layout *layout, int64_t z, int64_t h, const bstk_tensor *x, double *y);

#endif
