/*
 * problem.h: problem strings, the one way in which check, bench and failing tests name a piece of work.
 *
 *     OP:DTYPE:bB[:zZ][:hH]:mM:nN[:kK|:dD]:PATTERN[:ta][:tb][:tc][:causal][:bwd][:cpu|:cuda]
 *     dsd:f32:b64:m2048:n2048:k2048:bernoulli(0.5,0)
 *
 * OP       sdd dsd dds softmax layernorm rmsnorm attention pack unpack; with bwd the gradient of the op
 * DTYPE    f64 f32 f16 bf16; "f16+f32" and "bf16+f32": products whose packed operand is f32 beside half dense ones
 * sizes    C = M x N with inner K (products); scores M x N with head size D (attention); M x N otherwise
 * PATTERN  ones diag tril bernoulli(p,seed) local(w) bigbird(w,g,r,seed) longformer(w,g) file(path), counts in blocks
 *
 * The layout is that of the sparse operand as stored (contract: dsd A, dds B, sdd C, with their transpositions), so
 * its grid is ceil(size / b) and M, N and K need not be multiples of b. `causal` also makes local, bigbird and
 * longformer store no block above the diagonal; the other patterns keep such blocks, whose places are then dropped.
 */
#ifndef BSTK_CHECK_PROBLEM_H
#define BSTK_CHECK_PROBLEM_H

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROBLEM_TEXT 512 /* bytes of any text here: problem strings and one-line errors */

typedef enum problem_op {
    PROBLEM_SDD = 1,
    PROBLEM_DSD,
    PROBLEM_DDS,
    PROBLEM_SOFTMAX,
    PROBLEM_LAYERNORM,
    PROBLEM_RMSNORM,
    PROBLEM_ATTENTION,
    PROBLEM_PACK,
    PROBLEM_UNPACK
} problem_op;

typedef enum problem_pattern {
    PROBLEM_ONES = 1,
    PROBLEM_DIAG,
    PROBLEM_TRIL,
    PROBLEM_BERNOULLI,
    PROBLEM_LOCAL,
    PROBLEM_BIGBIRD,
    PROBLEM_LONGFORMER,
    PROBLEM_FILE
} problem_pattern;

typedef struct problem {
    problem_op op;
    bstk_dtype dtype;        /* of the dense operands, or of the values */
    bstk_dtype packed_dtype; /* of the packed operand */
    int32_t block;
    int64_t z, h;    /* batch and heads, 1 when left out */
    int64_t m, n, k; /* k: inner size of products, head size of attention, else 0 */
    problem_pattern pattern;
    double density;                 /* bernoulli */
    int64_t window, global, random; /* local, bigbird, longformer */
    uint64_t seed;                  /* bernoulli, bigbird */
    char path[256];                 /* file: .npy (mask of blocks), .smtx, .mtx (elements), or a saved layout */
    bool trans_a, trans_b, trans_c, causal, backward, cuda;
} problem;

/* Reads a problem string. False: one line in `error` that names the part, the text got and what was expected. */
bool problem_parse(const char *text, problem *out, char error[PROBLEM_TEXT]);

/* The canonical string: parsing it gives the same problem, and printing that the same string. Returns `text`. */
const char *problem_print(const problem *p, char text[PROBLEM_TEXT]);

const char *problem_op_name(problem_op op);

/* True for sdd, dsd and dds; their bstk_mode is (bstk_mode)op. */
bool problem_is_product(problem_op op);

/* True for softmax and attention: what bstk_score_terms is for. */
bool problem_has_scores(problem_op op);

bool problem_is_norm(problem_op op);

/* Element shape of the layout: that of the sparse matrix as stored. */
void problem_layout_shape(const problem *p, int64_t shape[2]);

/* Builds the layout with p->h heads (another number: set p->h in a copy). False: one line in `error`. */
bool problem_layout(bstk_context *ctx, const problem *p, bstk_layout **out, char error[PROBLEM_TEXT]);

#endif
