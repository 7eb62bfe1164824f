/*
 * attention_case.h: one attention with any options, forward and backward, held against a dense float64 reference
 * written here (attention_ref.c) with bounds derived beside it. Every run: outputs full of NaN between guard bands,
 * scratch of exactly the planned size before a page that nobody may touch, inputs unchanged.
 */
#ifndef BSTK_TESTS_ATTENTION_CASE_H
#define BSTK_TESTS_ATTENTION_CASE_H

#include "check/gen.h"

#include <bstk/bstk.h>

#include <stdbool.h>
#include <stdint.h>

/* Tensors of a case by place; those without memory are not there. */
enum {
    A_Q,
    A_K,
    A_V,
    A_D_O,
    A_D_LSE,
    A_RPE,
    A_REL,
    A_KEY_PADDING,
    A_ATTN,
    A_SLOPES,
    A_SINKS,
    A_Q_DOCUMENTS,
    A_K_DOCUMENTS,
    A_CU_Q,
    A_CU_K,
    A_OUTPUTS, /* first output */
    A_O = A_OUTPUTS,
    A_LSE,
    A_D_Q,
    A_D_K,
    A_D_V,
    A_D_RPE,
    A_D_REL,
    A_D_KEY_PADDING,
    A_D_ATTN,
    A_D_SINKS,
    A_COUNT
};

typedef struct attention_case {
    bstk_dtype dtype;
    int32_t block;
    int64_t z, h, kv_heads, m, n, d, dv, k_batches, v_batches; /* 0: z 1, h 1, kv_heads h, dv d, batches z */
    gen_style in_style, out_style;
    uint64_t seed;
    double size; /* of q and k: values in [-size, size); 0: 1 */
    bstk_layout *layout;
    gen_array a[A_COUNT];
    bstk_score_terms terms; /* its tensors are those of a[] */
    bool dots;              /* of the reference: for a kernel that rounds weights to bf16 */
    char what[256];
} attention_case;

/* Fills the sizes that are 0 and makes q, k, v, d_o, d_lse, o, lse, d_q, d_k, d_v. Takes over the layout. */
void attention_make(attention_case *c, bstk_layout *layout);
void attention_free(attention_case *c);

/* Makes input `place` with its gradient (when it has one and `grad`), and enters it in the terms. */
void attention_add(attention_case *c, int place, bstk_dtype dtype, int32_t ndim, const int64_t *shape, gen_style style,
                   bool grad);

/* Runs; `kernel` as in the descriptor, `ctx` NULL for the default. */
void attention_forward(attention_case *c, bstk_context *ctx, const char *kernel);
void attention_backward(attention_case *c, bstk_context *ctx);
bstk_attention_desc attention_desc(attention_case *c);
bstk_attention_grad_desc attention_grad_desc(attention_case *c);

/* Fused, composed and gradient against the reference; the fused ones twice and on 1, 2 and 7 threads, to the bit. */
void attention_check(attention_case *c);

/* What outputs have to be: arrays in row-major order, NULL for outputs that are not there. */
typedef struct attention_result {
    double *value[A_COUNT], *bound[A_COUNT];
} attention_result;

void attention_ref(const attention_case *c, attention_result *r);
void attention_ref_free(attention_result *r);

#endif
