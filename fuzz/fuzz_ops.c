/*
 * fuzz_ops.c: bytes choose an op with its layout, shapes, strides, terms and scales, also such as do not fit
 * (fuzz_ops_make.c). What the library takes is held against the float64 reference of src/check within its bounds; what
 * it refuses must leave a fresh message of one line and every byte as it was. Problems whose every part fits must be
 * taken. Either way nothing but the elements of outputs may change.
 */
#include "fuzz_ops.h"

#include "check/bound.h"
#include "check/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char stale[PROBLEM_TEXT]; /* the message that was there before */

_Noreturn void fuzz_die(const fuzz *f, const char *which, const char *what) {
    char text[PROBLEM_TEXT];
    fprintf(stderr, "fuzz_ops: %s (H %d, layout %d heads%s): %s: %s\nlast message: %s\n", problem_print(&f->w.p, text),
            (int)f->w.heads, f->w.layout != NULL ? (int)bstk_layout_heads(f->w.layout) : 0, f->odd ? ", odd" : "",
            which, what, bstk_last_error());
    const bstk_score_terms *s = &f->w.terms;
    fprintf(stderr,
            "alpha %g, beta %g, scale %g, softcap %g, dropout %g, window %d to %d, offset %d, bottom right %d\n",
            f->w.alpha, f->w.beta, s->scale, s->softcap, s->dropout, (int)s->window_left, (int)s->window_right,
            (int)s->causal_offset, (int)s->bottom_right);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        const bstk_tensor *t = &f->w.array[i].t;
        if (f->w.array[i].memory != NULL) {
            fprintf(stderr, "  %s %s:", workload_name(&f->w, i), bstk_dtype_name(t->dtype));
            for (int axis = 0; axis < t->ndim && axis < BSTK_MAX_NDIM; ++axis)
                fprintf(stderr, " %lld by %lld", (long long)t->shape[axis], (long long)t->stride[axis]);
            fprintf(stderr, "\n");
        }
    }
    abort();
}

void fuzz_refused(const fuzz *f, const char *which, bstk_status status) {
    const char *message = bstk_last_error();
    if (status < BSTK_ERR_INVALID || status > BSTK_ERR_OVERFLOW || status == BSTK_ERR_NOMEM)
        fuzz_die(f, which, bstk_status_name(status));
    if (message[0] == '\0' || strchr(message, '\n') != NULL || strcmp(message, stale) == 0)
        fuzz_die(f, which, "refused without a message of one line");
    if (!f->odd)
        fuzz_die(f, which, "refused, though everything fits");
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

typedef struct expected {
    double *value[WORKLOAD_ARRAYS], *bound[WORKLOAD_ARRAYS];
} expected;

static ref_output output(const workload *w, const expected *e, int which) {
    return (ref_output){e->value[which] != NULL ? &w->array[which].t : NULL, e->value[which], e->bound[which]};
}

static bool reference_of_scores(const workload *w, const expected *e) {
    static const int places[REF_GRADIENTS] = {WORKLOAD_D_A,    WORKLOAD_D_B,    WORKLOAD_D_V,
                                              WORKLOAD_D_RPE,  WORKLOAD_D_REL,  WORKLOAD_D_KEY_PADDING,
                                              WORKLOAD_D_ATTN, WORKLOAD_D_SINKS};
    const bool soft = w->p.op == PROBLEM_SOFTMAX;
    const bstk_tensor *a = workload_tensor(w, WORKLOAD_A), *saved = workload_tensor(w, WORKLOAD_SAVED);
    ref_scores_grad g = {.scores = {.layout = w->layout,
                                    .z = w->p.z,
                                    .h = w->heads,
                                    .m = w->p.m,
                                    .n = w->p.n,
                                    .d = w->p.k,
                                    .dtype = w->p.dtype,
                                    .x = !soft       ? NULL
                                         : a != NULL ? a
                                                     : saved,
                                    .q = soft ? NULL : a,
                                    .k = workload_tensor(w, WORKLOAD_B),
                                    .terms = &w->terms,
                                    .dots = strstr(bstk_plan_kernel(w->plan), "avx512_bf16") != NULL},
                         .v = workload_tensor(w, WORKLOAD_V),
                         .out = saved,
                         .lse = workload_tensor(w, WORKLOAD_SAVED_ROWS),
                         .d_out = workload_tensor(w, WORKLOAD_D_OUT),
                         .d_lse = workload_tensor(w, WORKLOAD_D_LSE)};
    for (int i = 0; i < REF_GRADIENTS; ++i)
        g.gradients[i] = output(w, e, i == REF_D_X && w->out == WORKLOAD_D_OUT ? w->out : places[i]);
    if (w->p.backward)
        return soft ? ref_softmax_grad(&g) : ref_attention_grad(&g);
    double *value = e->value[w->out], *bound = e->bound[w->out], *lse = e->value[WORKLOAD_LSE];
    if (!soft)
        return ref_attention(&g.scores, g.v, value, bound, lse, e->bound[WORKLOAD_LSE]);
    bstk_score_terms terms = w->terms;
    terms.dropout = 0; /* saved: y before it */
    bool ok = ref_softmax(&g.scores, value, bound, lse, e->bound[WORKLOAD_LSE]);
    g.scores.terms = &terms;
    if (e->value[WORKLOAD_MEAN] != NULL)
        ok = ok && ref_softmax(&g.scores, e->value[WORKLOAD_MEAN], e->bound[WORKLOAD_MEAN], NULL, NULL);
    return ok;
}

static bool reference(const workload *w, const expected *e) {
    const problem *p = &w->p;
    const bstk_tensor *a = workload_tensor(w, WORKLOAD_A), *b = workload_tensor(w, WORKLOAD_B);
    const bstk_tensor *d_out = workload_tensor(w, WORKLOAD_D_OUT);
    const ref_output out = output(w, e, w->out), d_a = output(w, e, WORKLOAD_D_A), d_b = output(w, e, WORKLOAD_D_B);
    const ref_output d_v = output(w, e, WORKLOAD_D_V), rstd = output(w, e, WORKLOAD_LSE);
    const ref_output mean = output(w, e, WORKLOAD_MEAN);
    const ref_product product = {(bstk_mode)p->op,
                                 p->trans_a,
                                 p->trans_b,
                                 p->trans_c,
                                 w->layout,
                                 p->z,
                                 w->heads,
                                 p->m,
                                 p->n,
                                 p->k,
                                 a,
                                 b,
                                 p->backward ? d_out : out.t,
                                 w->alpha,
                                 w->beta,
                                 strstr(bstk_plan_kernel(w->plan), "avx512_bf16") != NULL};
    const ref_norm norm = {.kind = workload_norm(p),
                           .layout = w->layout,
                           .z = p->z,
                           .h = w->heads,
                           .x = a,
                           .weight = b,
                           .bias = workload_tensor(w, WORKLOAD_V),
                           .eps = w->eps,
                           .mean = workload_tensor(w, WORKLOAD_SAVED),
                           .rstd = workload_tensor(w, WORKLOAD_SAVED_ROWS),
                           .d_y = d_out};
    if (problem_has_scores(p->op))
        return reference_of_scores(w, e);
    if (problem_is_norm(p->op))
        return p->backward ? ref_norm_grad(&norm, &out, &d_b, &d_v) : ref_norm_forward(&norm, &out, &mean, &rstd);
    if (problem_is_product(p->op))
        return p->backward ? ref_matmul_grad(&product, false, &d_a, &d_b) : ref_matmul(&product, out.value, out.bound);
    return (p->op == PROBLEM_PACK ? ref_pack : ref_unpack)(w->layout, p->z, w->heads, a, out.value);
}

static int64_t axis_of(const workload *w, int which, int from_end) {
    const bstk_tensor *t = &w->array[which].t;
    return from_end <= t->ndim ? t->shape[t->ndim - from_end] : 1;
}

/* Type and sizes of what was taken: several edits may fit together. False: nothing tells the number of heads. */
static bool measure(workload *w) {
    problem *p = &w->p;
    const int a = WORKLOAD_A, b = WORKLOAD_B, c = p->backward ? WORKLOAD_D_OUT : p->op == PROBLEM_PACK ? a : w->out;
    const int64_t nnz = bstk_layout_nnz(w->layout), heads = bstk_layout_heads(w->layout);
    p->z = axis_of(w, c, 4);
    p->dtype = w->array[c].t.dtype;
    if (p->op == PROBLEM_SDD || p->op == PROBLEM_ATTENTION)
        p->k = axis_of(w, a, p->trans_a ? 2 : 1);
    if (p->op == PROBLEM_DSD)
        p->n = axis_of(w, b, p->trans_b ? 2 : 1);
    if (p->op == PROBLEM_DDS)
        p->m = axis_of(w, a, p->trans_a ? 1 : 2);
    if (p->op == PROBLEM_SDD || p->op == PROBLEM_SOFTMAX || problem_is_norm(p->op)) {
        w->heads = heads > 1 ? heads : nnz > 0 ? axis_of(w, c, 3) / nnz : w->heads;
        return heads > 1 || nnz > 0;
    }
    w->heads = axis_of(w, c, 3);
    return true;
}

/* ---- one problem ------------------------------------------------------------------------------------------------- */

/* Outputs as they are, against the reference on what was there before. */
static void compare(fuzz *f) {
    workload *w = &f->w;
    expected e = {{NULL}, {NULL}};
    unsigned char *got[WORKLOAD_ARRAYS] = {NULL};
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (w->array[i].memory == NULL || !workload_is_output(w, i))
            continue;
        const size_t count = (size_t)gen_count(&w->array[i].t) + 1;
        e.value[i] = calloc(count, sizeof(double));
        e.bound[i] = calloc(count, sizeof(double));
        got[i] = gen_snapshot(&w->array[i]);
        if (e.value[i] == NULL || e.bound[i] == NULL || got[i] == NULL)
            abort();
    }
    workload_reset(w);
    if (!reference(w, &e))
        fuzz_die(f, "reference", "out of memory");
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (got[i] == NULL)
            continue;
        memcpy(w->array[i].memory, got[i], w->array[i].bytes);
        const bound_result r = bound_compare(&w->array[i].t, e.value[i], e.bound[i]);
        char text[PROBLEM_TEXT];
        snprintf(text, sizeof text, "element %lld is %.9g, expected %.9g within %.3g; %lld are wrong", (long long)r.at,
                 r.got, r.want, r.bound, (long long)r.bad);
        if (!r.ok)
            fuzz_die(f, workload_name(w, i), text);
        free(e.value[i]);
        free(e.bound[i]);
        free(got[i]);
    }
}

/* A description that is not the planned one, or less scratch. True: the run must refuse it; gradients do not look at
 * every input. */
static bool spoil_run(fuzz *f, int64_t kind) {
    workload *w = &f->w;
    const int which = (int)fuzz_next(f, WORKLOAD_ARRAYS), axis = (int)fuzz_next(f, 4);
    bstk_tensor *t = &w->array[which].t;
    if (kind == 0) {
        if (w->scratch.t.shape[0] == 0)
            return false;
        --w->scratch.t.shape[0];
        return f->odd = true;
    }
    if (w->array[which].memory == NULL || axis >= t->ndim || gen_count(&f->fine[which]) == 0 || t->shape[axis] < 2)
        return false;
    if (kind == 1)
        t->stride[axis] += 1;
    else if (kind == 2)
        t->shape[axis] -= 1;
    else
        t->dtype = t->dtype == BSTK_F32 ? BSTK_F16 : BSTK_F32;
    f->odd = true;
    return !w->p.backward || which == WORKLOAD_D_OUT || workload_is_output(w, which);
}

static void judge(fuzz *f, bstk_context *ctx) {
    static const char *const kernels[] = {"scalar", "none", ""};
    workload *w = &f->w;
    const int64_t choice = fuzz_next(f, 32), run = fuzz_next(f, 16);
    const bool named = choice >= 29, composed = w->p.op == PROBLEM_ATTENTION && !w->p.backward && choice % 4 == 1;
    f->odd = f->odd || named || composed;
    bstk_status status = workload_plan(w, ctx, named ? kernels[choice - 29] : composed ? "composed" : NULL);
    if (status == BSTK_OK) {
        const bool must = run >= 12 && spoil_run(f, run - 12);
        status = workload_run(w);
        if (must && status == BSTK_OK)
            fuzz_die(f, "run", "took what was not planned");
    }
    if (status != BSTK_OK)
        fuzz_refused(f, "op", status);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (w->array[i].memory == NULL)
            continue;
        w->array[i].t = f->fine[i];
        const bool free_to = status == BSTK_OK && workload_is_output(w, i);
        if (!(free_to ? gen_gaps_unchanged : gen_unchanged)(&w->array[i], w->initial[i]))
            fuzz_die(f, workload_name(w, i), free_to ? "bytes around the elements were written" : "was written");
    }
    if (status == BSTK_OK && !f->unknown && (measure(w) || !f->odd))
        compare(f);
}

/* Workers one after another, the last first. */
static void in_turn(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    (void)user;
    for (int32_t i = n - 1; i >= 0; --i)
        body(arg, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bstk_context *contexts[3];
    static const int32_t threads[] = {1, 2, 7};
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    opts.parallel_for = in_turn;
    for (int i = 0; i < 3 && contexts[i] == NULL; ++i) {
        opts.num_threads = threads[i];
        if (bstk_context_create(&opts, &contexts[i]) != BSTK_OK)
            abort();
    }
    bstk_context *none = NULL;
    opts.num_threads = -1;
    if (bstk_context_create(&opts, &none) == BSTK_OK)
        abort();
    snprintf(stale, sizeof stale, "%s", bstk_last_error());
    fuzz f = {.at = data, .end = data + size};
    bstk_context *ctx = contexts[fuzz_next(&f, 3)];
    const bool made = fuzz_make(&f, ctx);
    if (made)
        judge(&f, ctx);
    workload_free(&f.w);
    return made ? 0 : -1;
}
