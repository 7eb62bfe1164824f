/*
 * ref_row.h: one row of scores in the reference, shared by softmax, attention and their gradients. Formulas are those
 * of bstk/softmax.h.
 */
#ifndef BSTK_CHECK_REF_ROW_H
#define BSTK_CHECK_REF_ROW_H

#include "ref.h"

/* The places of the row's stored blocks, left to right; behind them, at `count`, the sink. */
typedef struct ref_row {
    int64_t z, h, i;
    int64_t count;               /* (stored blocks of the block row) * b */
    int64_t *col;                /* column j, also past the matrix */
    int64_t *packed;             /* number of the place in packed values, row-major */
    uint8_t *kept;               /* by everything that drops; of the sink: there is one */
    uint8_t *survives;           /* the dropout */
    double *s, *delta;           /* score, and how far a computed one may be from it */
    double *slope, *slope_error; /* derivative of the softcap */
    double *p, *error;           /* softmax before dropout, and its error before any store */
    double lse, lse_error;
    int64_t kept_count;
} ref_row;

bool ref_row_make(ref_row *r, const bstk_layout *layout);
void ref_row_free(ref_row *r);

/* Places, and `survives`, of row i of head h of batch z; no scores yet. */
void ref_row_places(const ref_scores *p, int64_t z, int64_t h, int64_t i, ref_row *r);

/* An operand of a head as a kernel that multiplies pairs takes it: subnormal numbers are 0. Nothing for the others. */
void ref_flush(const ref_scores *p, double *values, int64_t count);

/* Scores of the places: from x, all packed values; or with x NULL from row q [D] and all keys k [N, D]. */
void ref_row_scores(const ref_scores *p, const double *x, const double *q, const double *k, ref_row *r);

/* p and lse of the scores. */
void ref_row_softmax(const ref_scores *p, ref_row *r);

/* t[z, h, i, j] with the axes that t has, aligned at the end; an axis of size 1 serves every index. */
double ref_at(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j);

/* Number of that element in row-major order. */
int64_t ref_place(const bstk_tensor *t, int64_t z, int64_t h, int64_t i, int64_t j);

/* Head h of `heads`, batch z, of a dense operand [Z|1, H|Hkv, rows, cols]; free() it. */
double *ref_head(const bstk_tensor *t, int64_t z, int64_t h, int64_t heads);
int64_t ref_head_of(const bstk_tensor *t, int64_t h, int64_t heads); /* the one that serves head h */

/* i - j of a place as the rel_logits count it: within the sequence. */
int64_t ref_distance(const ref_scores *p, int64_t i, int64_t j);

/* What the dropout multiplies the survivors with. */
double ref_dropout_factor(const bstk_score_terms *t);

double ref_scale(const ref_scores *p);

#endif
