/*
 * peer_gemm.c: what can be done with a dense product alone: one for each stored block, as one would write it first, or
 * one for the whole matrix with zeros where no block is stored. Attention on dense scores is: product, -inf where
 * nothing is stored, the softmax of this library (a loop over expf would only show how slow that is), product.
 */
#include "peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL = 512 }; /* columns of a narrower arrangement of the blocks' products */

typedef struct gemm_state {
    peer_gemm_fn gemm;
    const workload *w;
    size_t item;
    int64_t panel;     /* columns at once */
    void *out;         /* of the way */
    char *dense;       /* [Z, H, ...]: the sparse operand of dsd and dds, the result of sdd; one head's scores */
    bstk_context *ctx; /* attention: of the softmax */
    bstk_layout *row;
    bstk_plan *plan;
    bstk_tensor scores;
    void *scratch;
} gemm_state;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void free_state(void *state) {
    gemm_state *s = state;
    bstk_plan_release(s->plan);
    bstk_layout_release(s->row);
    bstk_context_release(s->ctx);
    free(s->scratch);
    free(s->dense);
    free(s->out);
    free(s);
}

/* Sizes of operand `which` of a (batch, head), and where that one lies. */
static const char *part(const gemm_state *s, int which, int64_t zh, int64_t elements) {
    return (const char *)s->w->array[which].t.data + (size_t)(zh * elements) * s->item;
}

static void multiply(const gemm_state *s, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const char *a, int64_t lda,
                     const char *b, int64_t ldb, double beta, char *c, int64_t ldc) {
    s->gemm(ta, tb, (int)m, (int)n, (int)k, 1.0, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

static void clear(const gemm_state *s, char *c, int64_t rows, int64_t cols, int64_t ldc) {
    for (int64_t i = 0; i < rows; i++)
        memset(c + (size_t)(i * ldc) * s->item, 0, (size_t)cols * s->item);
}

static const char *block_at(const gemm_state *s, int which, int64_t z, int64_t n) {
    const int64_t b = s->w->p.block;
    return part(s, which, z * bstk_layout_nnz(s->w->layout) + n, b * b);
}

/* ---- a product for each block ------------------------------------------------------------------------------------ */

static void dsd_head(const gemm_state *s, int64_t z, int64_t h, int64_t j) {
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), width = smaller(s->panel, p->n - j);
    const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout) + h * rows;
    const int32_t *col = bstk_layout_col_idx(s->w->layout);
    const char *right = part(s, WORKLOAD_B, z * p->h + h, p->k * p->n);
    char *out = (char *)s->out + (size_t)((z * p->h + h) * p->m * p->n + j) * s->item;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t height = smaller(b, p->m - r * b);
        char *c = out + (size_t)(r * b * p->n) * s->item;
        if (row_ptr[r] == row_ptr[r + 1])
            clear(s, c, height, width, p->n);
        for (int64_t n = row_ptr[r]; n < row_ptr[r + 1]; n++) {
            const int64_t k = col[n] * b;
            const char *from = right + (size_t)(p->trans_b ? j * p->k + k : k * p->n + j) * s->item;
            multiply(s, false, p->trans_b, height, width, smaller(b, p->k - k), block_at(s, WORKLOAD_A, z, n), b, from,
                     p->trans_b ? p->k : p->n, n > row_ptr[r], c, p->n);
        }
    }
}

static void dsd_blocks(void *state) {
    const gemm_state *s = state;
    const problem *p = &s->w->p;
    for (int64_t zh = 0; zh < p->z * p->h; zh++)
        for (int64_t j = 0; j < p->n; j += s->panel)
            dsd_head(s, zh / p->h, zh % p->h, j);
}

static void dds_blocks(void *state) {
    const gemm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, cols = bstk_layout_cols(s->w->layout);
    const int32_t *row = bstk_layout_col_row_idx(s->w->layout);
    const int64_t *perm = bstk_layout_col_perm(s->w->layout);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int64_t *col_ptr = bstk_layout_col_ptr(s->w->layout) + zh % p->h * cols;
        const char *left = part(s, WORKLOAD_A, zh, p->m * p->k);
        for (int64_t i = 0; i < p->m; i += s->panel)
            for (int64_t c = 0; c < cols; c++) {
                const int64_t width = smaller(b, p->n - c * b), height = smaller(s->panel, p->m - i);
                char *out = (char *)s->out + (size_t)(zh * p->m * p->n + i * p->n + c * b) * s->item;
                if (col_ptr[c] == col_ptr[c + 1])
                    clear(s, out, height, width, p->n);
                for (int64_t n = col_ptr[c]; n < col_ptr[c + 1]; n++) {
                    const int64_t k = row[n] * b;
                    const char *from = left + (size_t)(p->trans_a ? k * p->m + i : i * p->k + k) * s->item;
                    multiply(s, p->trans_a, false, height, width, smaller(b, p->k - k), from, p->trans_a ? p->m : p->k,
                             block_at(s, WORKLOAD_B, zh / p->h, perm[n]), b, n > col_ptr[c], out, p->n);
                }
            }
    }
}

static void sdd_blocks(void *state) {
    const gemm_state *s = state;
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), nnz = bstk_layout_nnz(s->w->layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout);
    const int32_t *row = bstk_layout_row_idx(s->w->layout), *col = bstk_layout_col_idx(s->w->layout);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const int64_t h = zh % p->h;
        const char *left = part(s, WORKLOAD_A, zh, p->m * p->k), *right = part(s, WORKLOAD_B, zh, p->k * p->n);
        for (int64_t n = row_ptr[h * rows]; n < row_ptr[(h + 1) * rows]; n++) {
            const int64_t i = row[n] * b, j = col[n] * b;
            char *out = (char *)s->out + (size_t)((zh / p->h * nnz + n) * b * b) * s->item;
            multiply(s, p->trans_a, p->trans_b, smaller(b, p->m - i), smaller(b, p->n - j), p->k,
                     left + (size_t)(p->trans_a ? i : i * p->k) * s->item, p->trans_a ? p->m : p->k,
                     right + (size_t)(p->trans_b ? j * p->k : j) * s->item, p->trans_b ? p->k : p->n, 0, out, b);
        }
    }
}

/* ---- one product of the whole ------------------------------------------------------------------------------------ */

/* Copies between packed values and the dense matrix of [Z, H, rows, cols], as 'bstk pack' and 'bstk unpack' do. */
static void copy_blocks(const gemm_state *s, char *packed, bool to_dense) {
    const int64_t b = s->w->p.block, nnz = bstk_layout_nnz(s->w->layout), rows = bstk_layout_rows(s->w->layout);
    const int64_t m = bstk_layout_m(s->w->layout), n = bstk_layout_n(s->w->layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout);
    const int32_t *row = bstk_layout_row_idx(s->w->layout), *col = bstk_layout_col_idx(s->w->layout);
    for (int64_t zh = 0; zh < s->w->p.z * s->w->p.h; zh++)
        for (int64_t at = row_ptr[zh % s->w->p.h * rows]; at < row_ptr[(zh % s->w->p.h + 1) * rows]; at++)
            for (int64_t i = 0; i < smaller(b, m - row[at] * b); i++) {
                char *block = packed + (size_t)(((zh / s->w->p.h * nnz + at) * b + i) * b) * s->item;
                char *dense = s->dense + (size_t)((zh * m + row[at] * b + i) * n + col[at] * b) * s->item;
                const size_t bytes = (size_t)smaller(b, n - col[at] * b) * s->item;
                memcpy(to_dense ? dense : block, to_dense ? block : dense, bytes);
            }
}

static void product_dense(void *state) {
    const gemm_state *s = state;
    const problem *p = &s->w->p;
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        const char *a = part(s, WORKLOAD_A, zh, p->m * p->k), *b = part(s, WORKLOAD_B, zh, p->k * p->n);
        char *c = (char *)s->out + (size_t)(zh * p->m * p->n) * s->item;
        if (p->op == PROBLEM_DSD)
            a = s->dense + (size_t)(zh * p->m * p->k) * s->item;
        else if (p->op == PROBLEM_DDS)
            b = s->dense + (size_t)(zh * p->k * p->n) * s->item;
        else
            c = s->dense + (size_t)(zh * p->m * p->n) * s->item;
        multiply(s, p->trans_a, p->trans_b, p->m, p->n, p->k, a, p->trans_a ? p->m : p->k, b, p->trans_b ? p->k : p->n,
                 0, c, p->n);
    }
}

static void collect_blocks(void *state) {
    const gemm_state *s = state;
    copy_blocks(s, s->out, false);
}

/* ---- attention on dense scores ----------------------------------------------------------------------------------- */

/* -inf where nothing is stored or the diagonal cuts off: fewer bytes than adding a mask would read. */
static void mask_scores(const gemm_state *s, int64_t h) {
    const problem *p = &s->w->p;
    const int64_t b = p->block, rows = bstk_layout_rows(s->w->layout), cols = bstk_layout_cols(s->w->layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(s->w->layout) + h * rows;
    const int32_t *col = bstk_layout_col_idx(s->w->layout);
    for (int64_t r = 0; r < rows; r++) {
        int64_t next = row_ptr[r];
        for (int64_t c = 0; c < cols; c++) {
            const bool stored = next < row_ptr[r + 1] && col[next] == c;
            next += stored;
            if (stored && !p->causal)
                continue;
            for (int64_t i = r * b; i < (r + 1) * b; i++)
                for (int64_t j = c * b; j < (c + 1) * b; j++)
                    if (!stored || j > i)
                        ((float *)s->dense)[i * p->n + j] = -INFINITY;
        }
    }
}

static void attention_dense(void *state) {
    const gemm_state *s = state;
    const problem *p = &s->w->p;
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch = s->scratch;
    exec.scratch_bytes = bstk_plan_scratch_bytes(s->plan);
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    terms.scale = 1 / sqrt((double)p->k);
    for (int64_t zh = 0; zh < p->z * p->h; zh++) {
        multiply(s, false, true, p->m, p->n, p->k, part(s, WORKLOAD_A, zh, p->m * p->k), p->k,
                 part(s, WORKLOAD_B, zh, p->n * p->k), p->k, 0, s->dense, p->n);
        mask_scores(s, zh % p->h);
        if (bstk_softmax_run(s->plan, &s->scores, &terms, &s->scores, NULL, NULL, &exec) != BSTK_OK)
            memset(s->dense, 0, (size_t)(p->m * p->n) * s->item); /* the check then says so */
        multiply(s, false, false, p->m, p->k, p->n, s->dense, p->n, part(s, WORKLOAD_V, zh, p->n * p->k), p->k, 0,
                 (char *)s->out + (size_t)(zh * p->m * p->k) * s->item, p->k);
    }
}

/* The whole matrix of scores is Z = M/b batches of one row of blocks: its packed values are then a view of it. */
static bool plan_softmax(gemm_state *s, int threads) {
    const problem *p = &s->w->p;
    const int64_t b = p->block;
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    opts.num_threads = threads;
    bstk_layout_opts build = BSTK_LAYOUT_OPTS_INIT;
    build.kind = BSTK_LAYOUT_DENSE;
    build.block = p->block;
    build.rows = 1;
    build.cols = p->n / b;
    s->scores = (bstk_tensor){.data = s->dense,
                              .dtype = BSTK_F32,
                              .device = {BSTK_CPU, 0},
                              .ndim = 4,
                              .shape = {p->m / b, p->n / b, b, b},
                              .stride = {b * p->n, b, p->n, 1}};
    bstk_softmax_desc desc = BSTK_SOFTMAX_DESC_INIT;
    if (bstk_context_create(&opts, &s->ctx) != BSTK_OK || bstk_layout_build(s->ctx, &build, &s->row) != BSTK_OK)
        return false;
    desc.layout = s->row;
    desc.x = desc.y = &s->scores;
    if (bstk_softmax_plan(s->ctx, &desc, &s->plan) != BSTK_OK)
        return false;
    const size_t bytes = bstk_plan_scratch_bytes(s->plan);
    s->scratch = malloc(bytes + 1);
    return s->scratch != NULL;
}

/* ---- ways -------------------------------------------------------------------------------------------------------- */

static gemm_state *add_way(const peer_gemm *g, const workload *w, peer_way *way, const char *suffix, const char *how,
                           void (*run)(void *)) {
    gemm_state *s = calloc(1, sizeof *s);
    memset(way, 0, sizeof *way);
    if (!s)
        return NULL;
    s->w = w;
    s->gemm = w->p.dtype == BSTK_F64 ? g->f64 : g->f32;
    s->item = bstk_dtype_size(w->p.dtype);
    s->panel = w->p.op == PROBLEM_DDS ? w->p.m : w->p.n;
    s->panel = s->panel > 0 ? s->panel : 1;
    s->out = peer_output(way, w, w->out, w->p.dtype);
    way->state = s;
    way->run = run;
    way->free = free_state;
    snprintf(way->key, sizeof way->key, "%s%s", g->key, suffix);
    snprintf(way->how, sizeof way->how, "%s %s", g->call, how);
    if (!s->out) {
        free_state(s);
        return NULL;
    }
    return s;
}

static int attention_ways(const peer_gemm *g, const workload *w, int threads, peer_way *ways, char why[PEER_TEXT]) {
    const problem *p = &w->p;
    if (!g->dense || p->backward || p->dtype != BSTK_F32) {
        snprintf(why, PEER_TEXT, "attention is written with its %s for f32, forward, on dense scores only", g->call);
        return 0;
    }
    for (int64_t r = 0; r < bstk_layout_heads(w->layout) * bstk_layout_rows(w->layout); r++)
        if (bstk_layout_row_ptr(w->layout)[r] == bstk_layout_row_ptr(w->layout)[r + 1] || p->m % p->block ||
            p->n % p->block) {
            snprintf(why, PEER_TEXT, "a row without blocks, or a size that is no multiple of the block");
            return 0;
        }
    gemm_state *s = add_way(g, w, ways, "_dense", "of all scores, -inf where none is stored, bstk's softmax, product",
                            attention_dense);
    if (s)
        s->dense = aligned_alloc(64, (size_t)(p->m * p->n) * s->item);
    if (s && s->dense && plan_softmax(s, threads))
        return 1;
    if (s)
        free_state(s);
    snprintf(why, PEER_TEXT, "out of memory");
    return 0;
}

int peer_gemm_ways(const peer_gemm *g, const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    const problem *p = &w->p;
    int count = 0;
    if (p->op == PROBLEM_ATTENTION && bstk_layout_partial_count(w->layout) == 0)
        return attention_ways(g, w, threads, ways, why);
    if (!problem_is_product(p->op) || p->backward) {
        snprintf(why, PEER_TEXT, "it has no %s%s", problem_op_name(p->op), p->backward ? " gradient" : "");
        return 0;
    }
    if (p->dtype != p->packed_dtype || !(p->dtype == BSTK_F32 ? g->f32 : p->dtype == BSTK_F64 ? g->f64 : NULL)) {
        snprintf(why, PEER_TEXT, "its %s is not for %s", g->call, bstk_dtype_name(p->dtype));
        return 0;
    }
    if (p->trans_c || (p->op == PROBLEM_DSD && p->trans_a) || (p->op == PROBLEM_DDS && p->trans_b)) {
        snprintf(why, PEER_TEXT, "results and sparse operands are not transposed for it");
        return 0;
    }
    const bool dsd = p->op == PROBLEM_DSD, sdd = p->op == PROBLEM_SDD;
    const int64_t free_size = dsd ? p->n : p->m;
    for (int i = 0; g->blocks && i < (sdd || free_size <= PANEL ? 1 : 2); i++) {
        static const char *const how[] = {"of each block, the whole free side at once", "of each block, 512 at once"};
        gemm_state *s = add_way(g, w, &ways[count], "", sdd ? "of each block" : how[i],
                                dsd   ? dsd_blocks
                                : sdd ? sdd_blocks
                                      : dds_blocks);
        if (!s)
            break;
        s->panel = i ? PANEL : s->panel;
        count++;
    }
    gemm_state *s = g->dense ? add_way(g, w, &ways[count], "_dense", "of the dense matrix", product_dense) : NULL;
    if (s) {
        const int64_t size = p->z * p->h * bstk_layout_m(w->layout) * bstk_layout_n(w->layout);
        s->dense = calloc((size_t)size + 1, s->item);
        if (!s->dense) {
            free_state(s);
            return count;
        }
        if (sdd)
            ways[count].collect = collect_blocks;
        else
            copy_blocks(s, w->array[dsd ? WORKLOAD_A : WORKLOAD_B].t.data, true);
        count++;
    }
    if (count == 0)
        snprintf(why, PEER_TEXT, "out of memory");
    return count;
}
