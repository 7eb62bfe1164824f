/* attention_case.c: makes, runs and checks one attention. See attention_case.h. */
#include "support/attention_case.h"

#include "support/cm.h"
#include "support/op_case.h"
#include "support/test_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[A_COUNT] = {"q",
                                           "k",
                                           "v",
                                           "d_o",
                                           "d_lse",
                                           "rpe",
                                           "rel_logits",
                                           "key_padding_mask",
                                           "attn_mask",
                                           "alibi_slopes",
                                           "sinks",
                                           "q_documents",
                                           "k_documents",
                                           "cu_seqlens_q",
                                           "cu_seqlens_k",
                                           "o",
                                           "lse",
                                           "d_q",
                                           "d_k",
                                           "d_v",
                                           "d_rpe",
                                           "d_rel_logits",
                                           "d_key_padding_mask",
                                           "d_attn_mask",
                                           "d_sinks"};

void attention_make(attention_case *c, bstk_layout *layout) {
    const gen_style in = c->in_style, out = c->out_style;
    c->z = c->z ? c->z : 1;
    c->h = c->h ? c->h : 1;
    c->kv_heads = c->kv_heads ? c->kv_heads : c->h;
    c->dv = c->dv ? c->dv : c->d;
    c->k_batches = c->k_batches ? c->k_batches : c->z;
    c->v_batches = c->v_batches ? c->v_batches : c->z;
    c->layout = layout;
    c->terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    const int64_t *const q = shape(c->z, c->h, c->m, c->d), *const k = shape(c->k_batches, c->kv_heads, c->n, c->d);
    const int64_t *const v = shape(c->v_batches, c->kv_heads, c->n, c->dv), *const o = shape(c->z, c->h, c->m, c->dv);
    const int64_t *const lse = shape(c->z, c->h, c->m);
    const bstk_dtype sums = c->dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    make_array(&c->a[A_Q], c->dtype, 4, q, in, GEN_UNIFORM, c->seed + 1);
    make_array(&c->a[A_K], c->dtype, 4, k, in, GEN_UNIFORM, c->seed + 2);
    make_array(&c->a[A_V], c->dtype, 4, v, in, GEN_UNIFORM, c->seed + 3);
    make_array(&c->a[A_D_O], c->dtype, 4, o, in, GEN_UNIFORM, c->seed + 4);
    make_array(&c->a[A_D_LSE], sums, 3, lse, in, GEN_UNIFORM, c->seed + 5);
    make_array(&c->a[A_O], c->dtype, 4, o, out, GEN_NANS, 0);
    make_array(&c->a[A_LSE], sums, 3, lse, out, GEN_NANS, 0);
    make_array(&c->a[A_D_Q], c->dtype, 4, q, out, GEN_NANS, 0);
    make_array(&c->a[A_D_K], c->dtype, 4, k, out, GEN_NANS, 0);
    make_array(&c->a[A_D_V], c->dtype, 4, v, out, GEN_NANS, 0);
    for (int place = A_Q; c->size > 0 && place <= A_K; ++place)
        for (int64_t e = 0; e < gen_count(&c->a[place].t); ++e) {
            const bstk_tensor *t = &c->a[place].t;
            const int64_t at = gen_offset(t, e);
            gen_store(t->dtype, t->data, at, c->size * gen_load(t->dtype, t->data, at));
        }
}

void attention_free(attention_case *c) {
    for (int k = 0; k < A_COUNT; ++k)
        gen_array_free(&c->a[k]);
    bstk_layout_release(c->layout);
    c->layout = NULL;
}

void attention_add(attention_case *c, int place, bstk_dtype dtype, int32_t ndim, const int64_t *sizes, gen_style style,
                   bool grad) {
    static const int gradients[] = {A_D_RPE, A_D_REL, A_D_KEY_PADDING, A_D_ATTN, -1, A_D_SINKS};
    const bstk_tensor **const terms[] = {&c->terms.rpe,         &c->terms.rel_logits,   &c->terms.key_padding_mask,
                                         &c->terms.attn_mask,   &c->terms.alibi_slopes, &c->terms.sinks,
                                         &c->terms.q_documents, &c->terms.k_documents,  &c->terms.cu_seqlens_q,
                                         &c->terms.cu_seqlens_k};
    const bool real = gen_is_float(dtype);
    make_array(&c->a[place], dtype, ndim, sizes, style, real ? GEN_UNIFORM : GEN_ZEROS, c->seed + 20 + (uint64_t)place);
    if (!real) /* 3 of 4 kept; documents rise by the way */
        for (int64_t e = 0; e < gen_count(&c->a[place].t); ++e)
            gen_store(dtype, c->a[place].t.data, gen_offset(&c->a[place].t, e),
                      place >= A_Q_DOCUMENTS ? (double)(e % sizes[ndim - 1] / 11)
                                             : gen_unit(c->seed + (uint64_t)place, (uint64_t)e) < 0.75);
    if (grad && real && place <= A_SINKS && gradients[place - A_RPE] >= 0)
        make_array(&c->a[gradients[place - A_RPE]], c->dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32, ndim, sizes,
                   c->out_style, GEN_NANS, 0);
    *terms[place - A_RPE] = &c->a[place].t;
}

static const bstk_tensor *tensor(attention_case *c, int place) {
    return c->a[place].memory ? &c->a[place].t : NULL;
}

bstk_attention_desc attention_desc(attention_case *c) {
    bstk_attention_desc d = BSTK_ATTENTION_DESC_INIT;
    d.layout = c->layout;
    d.q = tensor(c, A_Q);
    d.k = tensor(c, A_K);
    d.v = tensor(c, A_V);
    d.o = tensor(c, A_O);
    d.lse = tensor(c, A_LSE);
    d.terms = c->terms;
    return d;
}

bstk_attention_grad_desc attention_grad_desc(attention_case *c) {
    bstk_attention_grad_desc d = BSTK_ATTENTION_GRAD_DESC_INIT;
    d.layout = c->layout;
    d.q = tensor(c, A_Q);
    d.k = tensor(c, A_K);
    d.v = tensor(c, A_V);
    d.o = tensor(c, A_O);
    d.lse = tensor(c, A_LSE);
    d.d_o = tensor(c, A_D_O);
    d.d_lse = tensor(c, A_D_LSE);
    d.terms = c->terms;
    d.d_q = tensor(c, A_D_Q);
    d.d_k = tensor(c, A_D_K);
    d.d_v = tensor(c, A_D_V);
    d.d_rpe = tensor(c, A_D_RPE);
    d.d_rel_logits = tensor(c, A_D_REL);
    d.d_key_padding_mask = tensor(c, A_D_KEY_PADDING);
    d.d_attn_mask = tensor(c, A_D_ATTN);
    d.d_sinks = tensor(c, A_D_SINKS);
    return d;
}

/* Outputs [first, last) to NaN; a copy of every array. */
static void before(attention_case *c, int first, int last, unsigned char *copies[A_COUNT]) {
    for (int k = 0; k < A_COUNT; ++k) {
        if (c->a[k].memory && k >= first && k < last)
            gen_fill(&c->a[k].t, GEN_NANS, 0);
        copies[k] = c->a[k].memory ? gen_snapshot(&c->a[k]) : NULL;
    }
}

static void after(attention_case *c, int first, int last, unsigned char *copies[A_COUNT]) {
    for (int k = 0; k < A_COUNT; ++k) {
        if (copies[k] == NULL)
            continue;
        if (!(k >= first && k < last ? gen_gaps_unchanged(&c->a[k], copies[k]) : gen_unchanged(&c->a[k], copies[k])))
            fail_msg("%s: memory of %s changed", c->what, names[k]);
        free(copies[k]);
    }
}

static bstk_exec scratch_of(const bstk_plan *plan) {
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.scratch_bytes = bstk_plan_scratch_bytes(plan);
    exec.scratch = guarded_alloc(exec.scratch_bytes);
    memset(exec.scratch, 0xff, exec.scratch_bytes); /* NaN */
    return exec;
}

void attention_forward(attention_case *c, bstk_context *ctx, const char *kernel) {
    bstk_attention_desc d = attention_desc(c);
    unsigned char *copies[A_COUNT];
    bstk_plan *plan = NULL;
    d.kernel = kernel;
    ok(bstk_attention_plan(ctx, &d, &plan));
    bstk_exec exec = scratch_of(plan);
    before(c, A_O, A_LSE + 1, copies);
    ok(bstk_attention_run(plan, d.q, d.k, d.v, &d.terms, d.o, d.lse, &exec));
    after(c, A_O, A_LSE + 1, copies);
    guarded_free(exec.scratch, exec.scratch_bytes);
    bstk_plan_release(plan);
}

void attention_backward(attention_case *c, bstk_context *ctx) {
    const bstk_attention_grad_desc d = attention_grad_desc(c);
    unsigned char *copies[A_COUNT];
    bstk_plan *plan = NULL;
    ok(bstk_attention_grad_plan(ctx, &d, &plan));
    bstk_exec exec = scratch_of(plan);
    before(c, A_D_Q, A_COUNT, copies);
    ok(bstk_attention_grad_run(plan, &d, &exec));
    after(c, A_D_Q, A_COUNT, copies);
    guarded_free(exec.scratch, exec.scratch_bytes);
    bstk_plan_release(plan);
}

static bstk_context *threads(int32_t count) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    opts.num_threads = count;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

static void compare(attention_case *c, const attention_result *r, int first, int last, const char *way) {
    for (int k = first; k < last; ++k) {
        char what[400];
        snprintf(what, sizeof what, "%s: %s of %s", c->what, names[k], way);
        if (c->a[k].memory)
            assert_within(what, &c->a[k].t, r->value[k], r->bound[k]);
    }
}

/* Whether the kernel that dispatch takes is one of those that docs/numerics.md gives a bound of their own. */
static bool multiplies_pairs(attention_case *c) {
    const bstk_attention_desc d = attention_desc(c);
    bstk_plan *plan = NULL;
    ok(bstk_attention_plan(NULL, &d, &plan));
    const bool pairs = strstr(bstk_plan_kernel(plan), "avx512_bf16") != NULL;
    bstk_plan_release(plan);
    return pairs;
}

void attention_check(attention_case *c) {
    static const int32_t counts[] = {1, 2, 7, 7};
    attention_result r;
    unsigned char *first[A_COUNT] = {NULL};
    attention_ref(c, &r);
    attention_forward(c, NULL, "composed");
    compare(c, &r, A_O, A_LSE + 1, "composed");
    if (multiplies_pairs(c)) {
        attention_ref_free(&r);
        c->dots = true;
        attention_ref(c, &r);
    }
    for (int t = 0; t < 4; ++t) {
        bstk_context *ctx = threads(counts[t]);
        attention_forward(c, ctx, NULL);
        attention_backward(c, ctx);
        bstk_context_release(ctx);
        for (int k = A_OUTPUTS; k < A_COUNT; ++k) {
            if (t == 0 && c->a[k].memory)
                first[k] = gen_snapshot(&c->a[k]);
            else if (first[k] && !gen_unchanged(&c->a[k], first[k]))
                fail_msg("%s: %s on %d threads has other bits than on one", c->what, names[k], (int)counts[t]);
        }
    }
    compare(c, &r, A_O, A_LSE + 1, "fused");
    compare(c, &r, A_D_Q, A_COUNT, "gradient");
    for (int k = 0; k < A_COUNT; ++k)
        free(first[k]);
    attention_ref_free(&r);
}
