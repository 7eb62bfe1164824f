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
    bool flushes; /* the kernel takes subnormal operands, and gives subnormal f32 sums, as 0 */
} ref_product;

/*
 * An output of a run: its description, and where its values and bounds go. t NULL: not wanted.
 */
typedef struct ref_output {
    const bstk_tensor *t;
    double *value, *bound;
} ref_output;

bool ref_matmul(const ref_product *p, double *value, double *bound);

/*
 * Gradients of A and B; c is the incoming one, beta is not looked at. `exact`, here and below: operands are the small
 * integers of the exact pass, and elements whose every step f32 has exactly get the bound 0.
 */
bool ref_matmul_grad(const ref_product *p, bool exact, const ref_output *d_a, const ref_output *d_b);

/* The scores of softmax (from packed x) and of attention (from q and k). */
typedef struct ref_scores {
    const bstk_layout *layout;
    int64_t z, h, m, n, d; /* d: head size of q and k; unused with x */
    bstk_dtype dtype;      /* of x, or of q, k and v */
    const bstk_tensor *x;  /* softmax; of its gradient the description of y, and the values when there is a softcap */
    const bstk_tensor *q, *k; /* attention */
    const bstk_score_terms *terms;
    bool dots; /* attention: the kernel multiplies pairs of bf16, flushes, and rounds weights (and dx) to bf16 */
} ref_scores;

/* y packed like x; lse and its bound [z, h, m], or both NULL. */
bool ref_softmax(const ref_scores *p, double *y, double *y_bound, double *lse, double *lse_bound);

/* o [z, h, m, dv], v [z|1, hkv, n, dv]. */
bool ref_attention(const ref_scores *p, const bstk_tensor *v, double *o, double *o_bound, double *lse,
                   double *lse_bound);

/*
 * Gradients, as functions of what the forward wrote: an error of that is none of the gradient.
 */
enum { REF_D_X, REF_D_K, REF_D_V, REF_D_RPE, REF_D_REL, REF_D_KEY_PADDING, REF_D_ATTN, REF_D_SINKS, REF_GRADIENTS };

typedef struct ref_scores_grad {
    ref_scores scores;
    const bstk_tensor *v;                /* attention */
    const bstk_tensor *out, *lse;        /* what the forward wrote: y or o; lse may be NULL where not needed */
    const bstk_tensor *d_out, *d_lse;    /* incoming; d_lse may be NULL */
    ref_output gradients[REF_GRADIENTS]; /* REF_D_X: of x, or of q */
    bool exact;                          /* softmax only */
} ref_scores_grad;

bool ref_softmax_grad(const ref_scores_grad *p);
bool ref_attention_grad(const ref_scores_grad *p);

/* Norms; the gradient as a function of mean and rstd. */
typedef struct ref_norm {
    bstk_norm_kind kind;
    const bstk_layout *layout;
    int64_t z, h;
    const bstk_tensor *x, *weight, *bias; /* weight and bias may be NULL */
    double eps;
    const bstk_tensor *mean, *rstd, *d_y; /* gradient */
    bool exact;
} ref_norm;

bool ref_norm_forward(const ref_norm *p, const ref_output *y, const ref_output *mean, const ref_output *rstd);
bool ref_norm_grad(const ref_norm *p, const ref_output *d_x, const ref_output *d_weight, const ref_output *d_bias);

/* Copies; exact. z and h are those of the dense matrix. */
bool ref_pack(const bstk_layout *layout, int64_t z, int64_t h, const bstk_tensor *x, double *y);
bool ref_unpack(const bstk_layout *layout, int64_t z, int64_t h, const bstk_tensor *x, double *y);

#endif
