/* workload_impl.h: what the files that make workloads share: draws, and arrays of each kind. */
#ifndef BSTK_CHECK_WORKLOAD_IMPL_H
#define BSTK_CHECK_WORKLOAD_IMPL_H

#include "workload.h"

/* Element masks and score terms take memory for every score, stored or not: only up to this many. */
bool workload_few_scores(const problem *p);

/* ---- choices ----------------------------------------------------------------------------------------------------- */

typedef struct choices {
    uint64_t seed, counter;
    bool plain; /* variant 0: always the first choice */
    workload_values values;
} choices;

int64_t choices_pick(choices *c, int64_t count); /* a number from 0 to count - 1 */
uint64_t choices_seed(choices *c);               /* of data */
bstk_dtype choices_float(choices *c);
gen_style choices_style(choices *c, bool input, int ndim);
gen_values choices_fill(const choices *c);

/* Adds to the words of the variant. */
void workload_say(workload *w, const char *format, ...);

/* ---- arrays; false without memory -------------------------------------------------------------------------------- */

/* [z, h, rows, cols]; leading axes of size 1 may be left out. Inputs are filled, outputs are NaN. */
bool workload_dense(workload *w, choices *c, int which, bstk_dtype dtype, int64_t z, int64_t h, int64_t rows,
                    int64_t cols);

/* Packed [z, blocks, b, b]; of inputs, what must not be looked at is NaN. */
bool workload_packed(workload *w, choices *c, int which, bstk_dtype dtype, int64_t z, int64_t blocks);

/* Any shape: an output, full of NaN, or an input that is filled. */
bool workload_array(workload *w, choices *c, int which, bstk_dtype dtype, int ndim, const int64_t *shape);

/* An output like array `like`, of another type maybe. */
bool workload_like(workload *w, choices *c, int which, int like, bstk_dtype dtype);

/* [Z, H, M] in f32 (f64 beside f64). */
bool workload_rows(workload *w, choices *c, int which);

/* NaN past the ragged edges of packed values; `masked`: and where element masks drop. */
void workload_spoil(const bstk_layout *layout, const bstk_tensor *t, bool masked);

/* Blocks of packed values for each head, when one head's layout serves all. */
int64_t workload_blocks(const workload *w);

/* True when neither layout nor packed values tell the number of heads. */
bool workload_headless(const workload *w);

bstk_dtype workload_sums(const workload *w); /* f32, f64 beside f64 */

/* No element serves two places. */
bool workload_is_plain(const bstk_tensor *t);

const bstk_tensor *workload_tensor(const workload *w, int which); /* NULL: no such array */

/* One thread, for what the library computes here: waiting threads would cost more than the work; NULL without memory.
 */
bstk_context *workload_context(void);

/* ---- ops --------------------------------------------------------------------------------------------------------- */

bool workload_make_softmax(workload *w, choices *c);
bool workload_make_attention(workload *w, choices *c);
bool workload_make_norm(workload *w, choices *c);

#endif
