/* check.c: one problem against the reference, in all its variants and with all three kinds of values. */
#include "check.h"

#include "bound.h"
#include "ref.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_VARIANTS 6

/* Thread counts whose results must be the same bits; 7 does not divide any usual number of tasks. */
enum { CONTEXTS = 3 }; /* of one thread, and two of several */

typedef struct judge {
    const char *kernel;
    const check_options *options;
    check_report *report;
    bstk_context *contexts[CONTEXTS];
    int32_t threads[CONTEXTS];
} judge;

/* What the outputs must hold; NULL where there is none. */
typedef struct expected {
    double *value[WORKLOAD_ARRAYS], *bound[WORKLOAD_ARRAYS];
} expected;

static bool fail(judge *g, const workload *w, const char *format, ...) {
    char problem_text[PROBLEM_TEXT], reason[PROBLEM_TEXT - 128];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    problem_print(&w->p, problem_text);
    g->report->passed = false;
    snprintf(g->report->message, sizeof g->report->message, "%s: %s%s%s%s%s", problem_text, g->report->kernel,
             g->report->kernel[0] != '\0' ? ": " : "", w->what, w->what[0] != '\0' ? ": " : "", reason);
    return false;
}

static bool is_written(const workload *w, int which) {
    return w->array[which].memory != NULL && workload_is_output(w, which);
}

static bool expected_make(const workload *w, expected *e) {
    bool ok = true;
    memset(e, 0, sizeof *e);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (!is_written(w, i))
            continue;
        const size_t count = (size_t)gen_count(&w->array[i].t) + 1;
        e->value[i] = malloc(count * sizeof(double));
        e->bound[i] = calloc(count, sizeof(double));
        ok = ok && e->value[i] != NULL && e->bound[i] != NULL;
    }
    return ok;
}

static void expected_free(expected *e) {
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        free(e->value[i]);
        free(e->bound[i]);
    }
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

static ref_output output(const workload *w, const expected *e, int which) {
    return (ref_output){is_written(w, which) ? &w->array[which].t : NULL, e->value[which], e->bound[which]};
}

static bool is_power_of_two(double x) {
    int exponent;
    return x > 0 && frexp(x, &exponent) == 0.5;
}

/* With integers, outputs whose every step is exact must be right to the bit: their bound becomes 0. */
static void tighten(const workload *w, const expected *e, const double *lse) {
    for (int which = 0; which < WORKLOAD_ARRAYS; ++which) {
        const bstk_tensor *t = &w->array[which].t;
        const int64_t count = e->value[which] != NULL && which != WORKLOAD_LSE ? gen_count(t) : 0;
        const int64_t width = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
        for (int64_t i = 0; i < count; ++i) {
            bool exact;
            if (w->p.op == PROBLEM_SOFTMAX) /* n equal scores: 1/n, twice that when half of them are dropped */
                exact = is_power_of_two(e->value[which][i]);
            else if (w->p.op == PROBLEM_ATTENTION) /* n scores of 0: the sum of n integers, over n */
                exact = is_power_of_two(nearbyint(exp(lse[i / width])));
            else /* operands up to 4: no sum, and nothing made of it, passes 2^24, up to which f32 has every integer */
                exact = fabs(w->alpha) * 16 * (double)w->p.k + 4 * fabs(w->beta) < 0x1p24;
            if (exact)
                e->bound[which][i] = 0;
        }
    }
}

static const bstk_tensor *given(const workload *w, int which) {
    return w->array[which].memory != NULL ? &w->array[which].t : NULL;
}

static bool reference_of_scores(const workload *w, bool exact, const expected *e) {
    const bool soft = w->p.op == PROBLEM_SOFTMAX;
    ref_scores_grad grad = {.scores = {.layout = w->layout,
                                       .z = w->p.z,
                                       .h = w->heads,
                                       .m = w->p.m,
                                       .n = w->p.n,
                                       .d = w->p.k,
                                       .dtype = w->p.dtype,
                                       .x = soft ? given(w, WORKLOAD_A) : NULL,
                                       .q = soft ? NULL : given(w, WORKLOAD_A),
                                       .k = given(w, WORKLOAD_B),
                                       .terms = &w->terms,
                                       .dots = strstr(bstk_plan_kernel(w->plan), "avx512_bf16") != NULL},
                            .v = given(w, WORKLOAD_V),
                            .out = given(w, WORKLOAD_SAVED),
                            .lse = given(w, WORKLOAD_SAVED_ROWS),
                            .d_out = given(w, WORKLOAD_D_OUT),
                            .d_lse = given(w, WORKLOAD_D_LSE),
                            .exact = exact};
    if (w->p.backward) {
        static const int places[REF_GRADIENTS] = {WORKLOAD_D_A,    WORKLOAD_D_B,    WORKLOAD_D_V,
                                                  WORKLOAD_D_RPE,  WORKLOAD_D_REL,  WORKLOAD_D_KEY_PADDING,
                                                  WORKLOAD_D_ATTN, WORKLOAD_D_SINKS};
        for (int i = 0; i < REF_GRADIENTS; ++i)
            grad.gradients[i] = output(w, e, i == REF_D_X && w->out == WORKLOAD_D_OUT ? w->out : places[i]);
        return soft ? ref_softmax_grad(&grad) : ref_attention_grad(&grad);
    }
    const ref_output out = output(w, e, w->out), saved = output(w, e, WORKLOAD_MEAN);
    const int64_t rows = w->p.z * w->heads * w->p.m;
    double *lse = malloc((size_t)(2 * rows + 1) * sizeof *lse); /* also where it is no output: the exact pass asks */
    bool ok = lse != NULL && (soft ? ref_softmax(&grad.scores, out.value, out.bound, lse, lse + rows)
                                   : ref_attention(&grad.scores, grad.v, out.value, out.bound, lse, lse + rows));
    if (ok && saved.t != NULL) { /* y before the dropout */
        bstk_score_terms terms = w->terms;
        terms.dropout = 0;
        grad.scores.terms = &terms;
        ok = ref_softmax(&grad.scores, saved.value, saved.bound, NULL, NULL);
    }
    if (ok && e->value[WORKLOAD_LSE] != NULL) {
        memcpy(e->value[WORKLOAD_LSE], lse, (size_t)rows * sizeof *lse);
        memcpy(e->bound[WORKLOAD_LSE], lse + rows, (size_t)rows * sizeof *lse);
    }
    if (ok && exact)
        tighten(w, e, lse);
    free(lse);
    return ok;
}

static bool reference_of_norm(const workload *w, bool exact, const expected *e) {
    const ref_norm norm = {.kind = workload_norm(&w->p),
                           .layout = w->layout,
                           .z = w->p.z,
                           .h = w->heads,
                           .x = given(w, WORKLOAD_A),
                           .weight = given(w, WORKLOAD_B),
                           .bias = given(w, WORKLOAD_V),
                           .eps = w->eps,
                           .mean = given(w, WORKLOAD_SAVED),
                           .rstd = given(w, WORKLOAD_SAVED_ROWS),
                           .d_y = given(w, WORKLOAD_D_OUT),
                           .exact = exact};
    const ref_output out = output(w, e, w->out), rstd = output(w, e, WORKLOAD_LSE), mean = output(w, e, WORKLOAD_MEAN);
    const ref_output d_weight = output(w, e, WORKLOAD_D_B), d_bias = output(w, e, WORKLOAD_D_V);
    return w->p.backward ? ref_norm_grad(&norm, &out, &d_weight, &d_bias) : ref_norm_forward(&norm, &out, &mean, &rstd);
}

static bool reference_of_product(const workload *w, bool exact, const expected *e) {
    const problem *p = &w->p;
    const ref_product product = {.mode = (bstk_mode)p->op,
                                 .trans_a = p->trans_a,
                                 .trans_b = p->trans_b,
                                 .trans_c = p->trans_c,
                                 .layout = w->layout,
                                 .z = p->z,
                                 .h = w->heads,
                                 .m = p->m,
                                 .n = p->n,
                                 .k = p->k,
                                 .a = given(w, WORKLOAD_A),
                                 .b = given(w, WORKLOAD_B),
                                 .c = given(w, p->backward ? WORKLOAD_D_OUT : WORKLOAD_OUT),
                                 .alpha = w->alpha,
                                 .beta = w->beta,
                                 .flushes = strstr(bstk_plan_kernel(w->plan), "avx512_bf16") != NULL};
    if (p->backward) {
        const ref_output d_a = output(w, e, WORKLOAD_D_A), d_b = output(w, e, WORKLOAD_D_B);
        return ref_matmul_grad(&product, exact, &d_a, &d_b);
    }
    const bool ok = ref_matmul(&product, e->value[w->out], e->bound[w->out]);
    if (ok && exact)
        tighten(w, e, NULL);
    return ok;
}

static bool reference(const workload *w, workload_values values, const expected *e) {
    const bool exact = values == WORKLOAD_INTEGERS;
    if (problem_has_scores(w->p.op))
        return reference_of_scores(w, exact, e);
    if (problem_is_norm(w->p.op))
        return reference_of_norm(w, exact, e);
    if (problem_is_product(w->p.op))
        return reference_of_product(w, exact, e);
    /* copies are exact: the bounds stay 0 */
    return (w->p.op == PROBLEM_PACK ? ref_pack : ref_unpack)(w->layout, w->p.z, w->heads, given(w, WORKLOAD_A),
                                                             e->value[w->out]);
}

/* "[1, 0, 3]" of element `linear`. */
static const char *index_text(const bstk_tensor *t, int64_t linear, char text[96]) {
    int64_t index[BSTK_MAX_NDIM] = {0};
    for (int i = t->ndim - 1; i >= 0; --i) {
        index[i] = linear % t->shape[i];
        linear /= t->shape[i];
    }
    size_t used = 0;
    for (int i = 0; i < t->ndim; ++i)
        used += (size_t)snprintf(text + used, 96 - used, "%s%" PRId64, i == 0 ? "[" : ", ", index[i]);
    snprintf(text + used, 96 - used, "]");
    return text;
}

/* ---- the reference alone ----------------------------------------------------------------------------------------- */

struct check_reference {
    workload part; /* what of the workload is looked at: views, nothing is owned */
    expected e;
    int64_t step;
};

/* Axes, counted from the last one, of C and of the dense operand that each stand for a column of dsd or a row of dds.
 */
static void free_axes(const problem *p, int *operand, int *c_axis, int *operand_axis) {
    const bool dsd = p->op == PROBLEM_DSD;
    *operand = dsd ? WORKLOAD_B : WORKLOAD_A;
    *operand_axis = (dsd ? p->trans_b : !p->trans_a) ? 2 : 1;
    *c_axis = (dsd ? p->trans_c : !p->trans_c) ? 2 : 1;
}

static void thin(bstk_tensor *t, int from_last, int64_t step) {
    const int axis = t->ndim - from_last;
    t->shape[axis] = (t->shape[axis] - 1) / step + 1;
    t->stride[axis] *= step;
}

check_reference *check_reference_make(const workload *w, double most) {
    check_reference *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->part = *w;
    r->step = 1;
    problem *p = &r->part.p;
    int64_t *size = p->op == PROBLEM_DSD ? &p->n : &p->m;
    const double flops = bstk_plan_flops(w->plan);
    if ((p->op == PROBLEM_DSD || p->op == PROBLEM_DDS) && !p->backward && flops > most && *size > 1) {
        int operand, c_axis, operand_axis;
        free_axes(p, &operand, &c_axis, &operand_axis);
        r->step = (int64_t)(flops / most) | 1;
        r->step = r->step < *size ? r->step : (*size - 1) | 1;
        *size = (*size - 1) / r->step + 1;
        thin(&r->part.array[operand].t, operand_axis, r->step);
        thin(&r->part.array[w->out].t, c_axis, r->step);
    }
    if (expected_make(&r->part, &r->e) && reference(&r->part, WORKLOAD_UNIFORM, &r->e))
        return r;
    check_reference_free(r);
    return NULL;
}

void check_reference_free(check_reference *r) {
    if (r != NULL)
        expected_free(&r->e);
    free(r);
}

int64_t check_reference_step(const check_reference *r) {
    return r->step;
}

bool check_reference_holds(const check_reference *r, int place, const bstk_tensor *got, double slack,
                           char error[PROBLEM_TEXT]) {
    bstk_tensor t = *got;
    int operand, c_axis, operand_axis;
    free_axes(&r->part.p, &operand, &c_axis, &operand_axis);
    if (r->step > 1)
        thin(&t, c_axis, r->step);
    const size_t count = (size_t)gen_count(&t);
    double *bound = malloc((count + 1) * sizeof *bound);
    if (bound == NULL) {
        snprintf(error, PROBLEM_TEXT, "out of memory");
        return false;
    }
    for (size_t i = 0; i < count; ++i)
        bound[i] = slack * r->e.bound[place][i];
    const bound_result result = bound_compare(&t, r->e.value[place], bound);
    free(bound);
    char index[96];
    if (!result.ok)
        snprintf(error, PROBLEM_TEXT, "%s%s is %.9g, expected %.9g within %.3g (%" PRId64 " of %zu elements are wrong)",
                 workload_name(&r->part, place), index_text(&t, result.at, index), result.got, result.want,
                 result.bound, result.bad, count);
    return result.ok;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static bool compare(judge *g, const workload *w, const expected *e) {
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (e->value[i] == NULL)
            continue;
        const bstk_tensor *t = &w->array[i].t;
        const bound_result r = bound_compare(t, e->value[i], e->bound[i]);
        char index[96];
        if (r.worst > g->report->worst)
            g->report->worst = r.worst;
        /* In place the array has an input's name: "d_y" where d_x is meant. */
        const char *name = i != w->out           ? workload_name(w, i)
                           : i == WORKLOAD_A     ? workload_name(w, WORKLOAD_OUT)
                           : i == WORKLOAD_D_OUT ? workload_name(w, WORKLOAD_D_A)
                                                 : workload_name(w, i);
        if (!r.ok)
            return fail(g, w, "%s%s is %.9g, expected %.9g within %.3g (%" PRId64 " of %" PRId64 " elements are wrong)",
                        name, index_text(t, r.at, index), r.got, r.want, r.bound, r.bad, gen_count(t));
    }
    return true;
}

/* One run from fresh outputs, with everything around them watched. */
static bool run_once(judge *g, workload *w, const char *how) {
    workload_reset(w);
    unsigned char *scratch = gen_snapshot(&w->scratch);
    if (scratch == NULL)
        return fail(g, w, "out of memory");
    const bstk_status status = workload_run(w);
    if (g->options->tamper != NULL)
        g->options->tamper(g->options->tamper_user, w);
    const bool scratch_kept = gen_gaps_unchanged(&w->scratch, scratch);
    free(scratch);
    if (status != BSTK_OK)
        return fail(g, w, "%s: run returned %s: %s", how, bstk_status_name(status), bstk_last_error());
    if (!scratch_kept)
        return fail(g, w, "%s: bytes outside the scratch were written", how);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (w->array[i].memory == NULL)
            continue;
        if (!workload_is_output(w, i) && !gen_unchanged(&w->array[i], w->initial[i]))
            return fail(g, w, "%s: input %s was written", how, workload_name(w, i));
        if (workload_is_output(w, i) && !gen_gaps_unchanged(&w->array[i], w->initial[i]))
            return fail(g, w, "%s: bytes around or between the elements of %s were written", how, workload_name(w, i));
    }
    ++g->report->runs;
    return true;
}

/* The same bytes as in a snapshot; of two NaN the signs may differ, which IEEE 754 leaves to the machine. */
static bool is_same(const gen_array *array, unsigned char *snapshot) {
    if (gen_unchanged(array, snapshot))
        return true;
    bstk_tensor before = array->t;
    before.data = snapshot + ((unsigned char *)array->t.data - array->memory);
    const size_t item = bstk_dtype_size(before.dtype);
    for (int64_t e = 0, count = gen_count(&before); e < count; ++e) {
        const int64_t at = gen_offset(&before, e);
        const ptrdiff_t byte = (ptrdiff_t)at * (ptrdiff_t)item;
        if (memcmp((char *)array->t.data + byte, (char *)before.data + byte, item) != 0 &&
            !(isnan(gen_load(before.dtype, array->t.data, at)) && isnan(gen_load(before.dtype, before.data, at))))
            return false;
    }
    return true; /* what lies around the elements is watched elsewhere */
}

/* Outputs of a further run against the bytes of the first. */
static bool same_bits(judge *g, workload *w, unsigned char *const first[WORKLOAD_ARRAYS], const char *how) {
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (first[i] != NULL && !is_same(&w->array[i], first[i]))
            return fail(g, w, "%s gives other bits in %s than the first run", how, workload_name(w, i));
    }
    return true;
}

static bool plan_under(judge *g, workload *w, bstk_context *ctx, bool *refused) {
    const bstk_status status = workload_plan(w, ctx, g->kernel);
    /* A row may refuse what it is not made for; the list of problems of a row must not be refused as a whole. */
    *refused = status == BSTK_ERR_UNSUPPORTED && g->kernel != NULL;
    return status == BSTK_OK || *refused ||
           fail(g, w, "plan returned %s: %s", bstk_status_name(status), bstk_last_error());
}

/* The plan under one thread, which there is, twice, then plans under more. */
static bool judge_runs(judge *g, workload *w, const expected *e, unsigned char *first[WORKLOAD_ARRAYS]) {
    bool refused;
    if (!run_once(g, w, "first run") || !compare(g, w, e))
        return false;
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        if (is_written(w, i) && (first[i] = gen_snapshot(&w->array[i])) == NULL)
            return fail(g, w, "out of memory");
    }
    if (!run_once(g, w, "second run") || !same_bits(g, w, first, "the second run"))
        return false;
    for (int i = 1; i < CONTEXTS; ++i) {
        char how[32];
        snprintf(how, sizeof how, "a run on %d threads", (int)g->threads[i]);
        if (!plan_under(g, w, g->contexts[i], &refused))
            return false;
        if (refused)
            return fail(g, w, "the kernel refuses a plan under %d threads that it took before", (int)g->threads[i]);
        if (!run_once(g, w, how) || !same_bits(g, w, first, how))
            return false;
    }
    return true;
}

static bool judge_workload(judge *g, workload *w, workload_values values) {
    expected e;
    unsigned char *first[WORKLOAD_ARRAYS] = {NULL};
    bool refused;
    if (!plan_under(g, w, g->contexts[0], &refused) || refused)
        return refused;
    snprintf(g->report->kernel, sizeof g->report->kernel, "%s", bstk_plan_kernel(w->plan));
    bool ok = expected_make(w, &e) && reference(w, values, &e);
    ok = ok ? judge_runs(g, w, &e, first) : fail(g, w, "out of memory for the reference");
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i)
        free(first[i]);
    expected_free(&e);
    return ok;
}

/*
 * The workers one after another, the last first: as if each but one started late. Real threads, where they are more
 * than the cores that happen to be free, mostly wait for each other; tests/unit/test_threads.c runs those.
 */
static void in_turn(void *user, int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    (void)user;
    for (int32_t i = n - 1; i >= 0; --i)
        body(arg, i);
}

static void ignore_progress(void *user, int64_t total) {
    (void)user;
    (void)total;
}

bool check_problem(const problem *p, const char *kernel, const check_options *options, check_report *report) {
    static const check_options none = {0};
    judge g = {.kernel = kernel, .options = options != NULL ? options : &none, .report = report};
    memset(report, 0, sizeof *report);
    report->passed = true;
    workload w = {.p = *p};
    /* References are dense and in double: 2^28 elements are 2 GiB of each. */
    const double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    const double elements = (double)p->z * (double)p->h * (m * n + m * k + n * k);
    if (elements > 268435456.0)
        fail(&g, &w, "%.3g elements of dense references, expected at most 2^28", elements);
    for (int i = 0; i < CONTEXTS && report->passed; ++i) {
        bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
        static const int32_t usual[] = {1, 2, 7};
        g.threads[i] = i > 0 && g.options->threads[i - 1] > 0 ? g.options->threads[i - 1] : usual[i];
        opts.num_threads = g.threads[i];
        opts.progress = i > 0 ? ignore_progress : NULL; /* cuts even small problems into many tasks */
        if (i > 0 && !g.options->own_threads)
            opts.parallel_for = g.options->parallel_for != NULL ? g.options->parallel_for : in_turn;
        if (bstk_context_create(&opts, &g.contexts[i]) != BSTK_OK)
            fail(&g, &w, "%s", bstk_last_error());
    }
    const int32_t variants = g.options->variants > 0 ? g.options->variants : DEFAULT_VARIANTS;
    for (int32_t i = 0; i < 3 * variants && report->passed; ++i) {
        const workload_values values = (workload_values)(i % 3);
        if (values == WORKLOAD_INTEGERS && p->op == PROBLEM_ATTENTION && p->backward)
            continue; /* exp(s - lse) is never exact */
        char error[PROBLEM_TEXT];
        if (workload_make(p, values, g.options->seed, i / 3, &w, error)) {
            judge_workload(&g, &w, values);
            workload_free(&w);
        } else {
            w.p = *p;
            fail(&g, &w, "%s", error);
        }
    }
    for (int i = 0; i < CONTEXTS; ++i)
        bstk_context_release(g.contexts[i]);
    return report->passed;
}
