/*
 * attention.h: o = softmax(scale * q . k^T + terms) . v over the stored blocks of a layout.
 *
 * Composed of sdd, softmax and dsd: the scores of the stored blocks are held in scratch, in f32 (f64 for f64), so they
 * neither overflow nor lose digits when q, k and v are f16 or bf16.
 */
#ifndef BSTK_ATTENTION_H
#define BSTK_ATTENTION_H

#include <bstk/context.h>
#include <bstk/layout.h>
#include <bstk/plan.h>
#include <bstk/softmax.h>

BSTK_BEGIN_DECLS

typedef struct bstk_attention_desc {
    size_t struct_size;        /* set by BSTK_ATTENTION_DESC_INIT */
    const bstk_layout *layout; /* [H|1, ceil(M/b), ceil(N/b)] */
    const bstk_tensor *q;      /* [Z, H, M, D], D from 1 to 256, f64, f32, f16 or bf16 */
    const bstk_tensor *k;      /* [Z|1, Hkv, N, D], Hkv divides H: head h reads h / (H/Hkv) */
    const bstk_tensor *v;      /* [Z|1, Hkv, N, Dv], Dv from 1 to 256 */
    const bstk_tensor *o;      /* [Z, H, M, Dv] */
    const bstk_tensor *lse;    /* NULL, or [Z, H, M] f32 (f64 for f64) */
    bstk_score_terms terms;    /* scale: 1/sqrt(D) by default */
} bstk_attention_desc;

/* clang-format off */
#define BSTK_ATTENTION_DESC_INIT { sizeof(bstk_attention_desc), 0, 0, 0, 0, 0, 0, BSTK_SCORE_TERMS_INIT }
/* clang-format on */

/** Plans an attention. Errors, threads, allocation: as bstk_matmul_plan. */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_plan(bstk_context *ctx, const bstk_attention_desc *desc,
                                                        bstk_plan **out);

/**
 * Runs a planned attention. A key or value that a query's mask drops never reaches that query's output, not even a NaN.
 *
 * @return as bstk_matmul_run
 * Threads: any number on one plan, with a scratch and outputs each.  Allocates: no.
 */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention_run(const bstk_plan *plan, const bstk_tensor *q,
                                                       const bstk_tensor *k, const bstk_tensor *v,
                                                       const bstk_score_terms *terms, const bstk_tensor *o,
                                                       const bstk_tensor *lse, const bstk_exec *exec);

/** Plans, runs and drops the plan, on the data of the descriptor's tensors. */
BSTK_API BSTK_NODISCARD bstk_status bstk_attention(bstk_context *ctx, const bstk_attention_desc *desc);

BSTK_END_DECLS

#endif
