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
static const int32_t thread_counts[] = {1, 2, 7};
enum { CONTEXTS = sizeof thread_counts / sizeof *thread_counts };

typedef struct judge {
    const char *kernel;
    const check_options *options;
    check_report *report;
    bstk_context *contexts[CONTEXTS];
} judge;

/* What an output must hold. */
typedef struct expected {
    double *value, *bound;
} expected;

static bool fail(judge *g, const workload *w, const char *format, ...) {
    char problem_text[PROBLEM_TEXT], reason[PROBLEM_TEXT];
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

static bool expected_make(expected *e, int64_t count) {
    e->value = malloc((size_t)(count + 1) * sizeof *e->value);
    e->bound = calloc((size_t)(count + 1), sizeof *e->bound);
    return e->value != NULL && e->bound != NULL;
}

static void expected_free(expected *e) {
    free(e->value);
    free(e->bound);
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

static const bstk_tensor *out_of(const workload *w) {
    return &w->array[w->out].t;
}

static bool is_power_of_two(double x) {
    int exponent;
    return x > 0 && frexp(x, &exponent) == 0.5;
}

/* With integers, outputs whose every step is exact must be right to the bit: their bound becomes 0. */
static void tighten(const workload *w, expected *out, const expected *lse) {
    const int64_t count = gen_count(out_of(w));
    const int64_t width = out_of(w)->ndim > 0 ? out_of(w)->shape[out_of(w)->ndim - 1] : 1;
    for (int64_t i = 0; i < count; ++i) {
        bool exact;
        if (w->p.op == PROBLEM_SOFTMAX) /* n equal scores: 1/n */
            exact = is_power_of_two(out->value[i]);
        else if (w->p.op == PROBLEM_ATTENTION) /* n scores of 0: the sum of n integers, over n */
            exact = is_power_of_two(nearbyint(exp(lse->value[i / width])));
        else /* operands up to 4: no sum, and nothing made of it, passes 2^24, up to which f32 has every integer */
            exact = fabs(w->alpha) * 16 * (double)w->p.k + 4 * fabs(w->beta) < 0x1p24;
        if (exact)
            out->bound[i] = 0;
    }
}

static bool reference(const workload *w, workload_values values, expected *out, expected *lse) {
    const problem *p = &w->p;
    const gen_array *array = w->array;
    bool ok = true;
    if (p->op == PROBLEM_SOFTMAX || p->op == PROBLEM_ATTENTION) {
        const bool soft = p->op == PROBLEM_SOFTMAX;
        const ref_scores scores = {.layout = w->layout,
                                   .z = p->z,
                                   .h = w->heads,
                                   .m = p->m,
                                   .n = p->n,
                                   .d = p->k,
                                   .dtype = p->dtype,
                                   .x = soft ? &array[WORKLOAD_A].t : NULL,
                                   .q = soft ? NULL : &array[WORKLOAD_A].t,
                                   .k = soft ? NULL : &array[WORKLOAD_B].t,
                                   .terms = &w->terms};
        ok = soft ? ref_softmax(&scores, out->value, out->bound, lse->value, lse->bound)
                  : ref_attention(&scores, &array[WORKLOAD_V].t, out->value, out->bound, lse->value, lse->bound);
    } else if (problem_is_product(p->op)) {
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
                                     .a = &array[WORKLOAD_A].t,
                                     .b = &array[WORKLOAD_B].t,
                                     .c = &array[WORKLOAD_OUT].t,
                                     .alpha = w->alpha,
                                     .beta = w->beta};
        ok = ref_matmul(&product, out->value, out->bound);
    } else { /* copies are exact: the bounds stay 0 */
        ok = (p->op == PROBLEM_PACK ? ref_pack : ref_unpack)(w->layout, p->z, w->heads, &array[WORKLOAD_A].t,
                                                             out->value);
    }
    if (ok && values == WORKLOAD_INTEGERS)
        tighten(w, out, lse);
    return ok;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

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

static bool compare(judge *g, const workload *w, int which, const expected *e) {
    static const char *const outputs[] = {"", "c", "c", "c", "y", "o", "y", "y"};
    const bstk_tensor *t = &w->array[which].t;
    const bound_result r = bound_compare(t, e->value, e->bound);
    if (r.worst > g->report->worst)
        g->report->worst = r.worst;
    if (r.ok)
        return true;
    char index[96];
    return fail(g, w, "%s%s is %.9g, expected %.9g within %.3g (%" PRId64 " of %" PRId64 " elements are wrong)",
                which == WORKLOAD_LSE ? "lse" : outputs[w->p.op], index_text(t, r.at, index), r.got, r.want, r.bound,
                r.bad, gen_count(t));
}

/* One run from fresh outputs, with everything around them watched. */
static bool run_once(judge *g, workload *w, const char *how) {
    static const char *const names[] = {"a, x or q",        "b or k",    "v",      "rpe", "rel_logits",
                                        "key_padding_mask", "attn_mask", "output", "lse"};
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
        if (i != w->out && i != WORKLOAD_LSE && !gen_unchanged(&w->array[i], w->initial[i]))
            return fail(g, w, "%s: input %s was written", how, names[i]);
        if (!gen_gaps_unchanged(&w->array[i], w->initial[i]))
            return fail(g, w, "%s: bytes around or between the elements of %s were written", how, names[i]);
    }
    ++g->report->runs;
    return true;
}

/* Outputs of a further run against the bytes of the first. */
static bool same_bits(judge *g, workload *w, unsigned char *const first[2], const char *how) {
    return (gen_unchanged(&w->array[w->out], first[0]) && gen_unchanged(&w->array[WORKLOAD_LSE], first[1])) ||
           fail(g, w, "%s gives other bits than the first run", how);
}

static bool plan_under(judge *g, workload *w, bstk_context *ctx, bool *refused) {
    const bstk_status status = workload_plan(w, ctx, g->kernel);
    /* A row may refuse what it is not made for; the list of problems of a row must not be refused as a whole. */
    *refused = status == BSTK_ERR_UNSUPPORTED && g->kernel != NULL;
    return status == BSTK_OK || *refused ||
           fail(g, w, "plan returned %s: %s", bstk_status_name(status), bstk_last_error());
}

static bool judge_runs(judge *g, workload *w, const expected *out, const expected *lse, unsigned char *first[2]) {
    bool refused;
    if (!plan_under(g, w, NULL, &refused) || refused)
        return refused;
    snprintf(g->report->kernel, sizeof g->report->kernel, "%s", bstk_plan_kernel(w->plan));
    if (!run_once(g, w, "first run") || !compare(g, w, w->out, out) ||
        (w->array[WORKLOAD_LSE].memory != NULL && !compare(g, w, WORKLOAD_LSE, lse)))
        return false;
    first[0] = gen_snapshot(&w->array[w->out]);
    first[1] = gen_snapshot(&w->array[WORKLOAD_LSE]);
    if (first[0] == NULL || first[1] == NULL)
        return fail(g, w, "out of memory");
    if (!run_once(g, w, "second run") || !same_bits(g, w, first, "the second run"))
        return false;
    for (int i = 0; i < CONTEXTS; ++i) {
        char how[32];
        snprintf(how, sizeof how, "a run on %d threads", (int)thread_counts[i]);
        if (!plan_under(g, w, g->contexts[i], &refused))
            return false;
        if (refused)
            return fail(g, w, "the kernel refuses a plan under %d threads that it took before", (int)thread_counts[i]);
        if (!run_once(g, w, how) || !same_bits(g, w, first, how))
            return false;
    }
    return true;
}

static bool judge_workload(judge *g, workload *w, workload_values values) {
    expected out = {0}, lse = {0};
    unsigned char *first[2] = {NULL, NULL};
    bool ok = expected_make(&out, gen_count(out_of(w))) && expected_make(&lse, w->p.z * w->heads * w->p.m) &&
              reference(w, values, &out, &lse);
    ok = ok ? judge_runs(g, w, &out, &lse, first) : fail(g, w, "out of memory for the reference");
    free(first[0]);
    free(first[1]);
    expected_free(&out);
    expected_free(&lse);
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

bool check_problem(const problem *p, const char *kernel, const check_options *options, check_report *report) {
    static const check_options none = {0};
    judge g = {.kernel = kernel, .options = options != NULL ? options : &none, .report = report};
    memset(report, 0, sizeof *report);
    report->passed = true;
    workload w = {.p = *p};
    for (int i = 0; i < CONTEXTS && report->passed; ++i) {
        bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
        opts.num_threads = thread_counts[i];
        if (thread_counts[i] > 1)
            opts.parallel_for = in_turn;
        if (bstk_context_create(&opts, &g.contexts[i]) != BSTK_OK)
            fail(&g, &w, "%s", bstk_last_error());
    }
    const int32_t variants = g.options->variants > 0 ? g.options->variants : DEFAULT_VARIANTS;
    for (int32_t i = 0; i < 3 * variants && report->passed; ++i) {
        const workload_values values = (workload_values)(i % 3);
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
