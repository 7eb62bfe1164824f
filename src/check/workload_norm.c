/* workload_norm.c: operands of the norms and their gradients. */
#include "workload_impl.h"

#include <math.h>

/* weight, bias or a gradient of them: [N], [1, N] or [H, N]. */
static bool add_columns(workload *w, choices *c, int which, bstk_dtype dtype, int64_t kind) {
    const int64_t shape[2] = {kind == 2 ? w->heads : 1, w->p.n};
    return workload_array(w, c, which, dtype, kind == 0 ? 1 : 2, kind == 0 ? shape + 1 : shape);
}

/* Every element of `t` from a few numbers. */
static void fill_from(const bstk_tensor *t, const double *numbers, int64_t count, uint64_t seed) {
    for (int64_t e = 0, all = gen_count(t); e < all; ++e)
        gen_store(t->dtype, t->data, gen_offset(t, e), numbers[gen_hash(seed, (uint64_t)e) % (uint64_t)count]);
}

/* mean and rstd of the library's forward. */
static bool forward(workload *w) {
    gen_array y = {.memory = NULL};
    const bstk_tensor *x = &w->array[WORKLOAD_A].t;
    bstk_norm_desc desc = BSTK_NORM_DESC_INIT;
    if (!gen_array_make(&y, x->dtype, x->ndim, x->shape, GEN_CONTIGUOUS, 0))
        return false;
    desc.kind = workload_norm(&w->p);
    desc.layout = w->layout;
    desc.x = x;
    desc.y = &y.t;
    desc.mean = workload_tensor(w, WORKLOAD_SAVED);
    desc.rstd = workload_tensor(w, WORKLOAD_SAVED_ROWS);
    desc.eps = w->eps;
    bstk_context *ctx = workload_context();
    const bool ok = ctx != NULL && bstk_norm(ctx, &desc) == BSTK_OK;
    bstk_context_release(ctx);
    gen_array_free(&y);
    return ok;
}

/* Numbers of the exact pass: every xhat, average and sum is a dyadic number of few digits. */
static void make_exact(workload *w, choices *c) {
    static const double columns[] = {2, -1, 1}, deviations[] = {-2, -1, 0, 1, 2}, means[] = {-1, 0, 1};
    static const double rstds[] = {0.5, 1, 2};
    const bstk_tensor *x = &w->array[WORKLOAD_A].t;
    const bool centred = w->p.op == PROBLEM_LAYERNORM;
    for (int which = WORKLOAD_B; which <= WORKLOAD_V; ++which) {
        if (w->array[which].memory != NULL)
            fill_from(&w->array[which].t, columns, 3, choices_seed(c));
    }
    w->eps = 0;
    if (w->p.backward) {
        fill_from(x, deviations, 5, choices_seed(c));
        if (centred)
            fill_from(&w->array[WORKLOAD_SAVED].t, means, 3, choices_seed(c));
        fill_from(&w->array[WORKLOAD_SAVED_ROWS].t, rstds, 3, choices_seed(c));
    } else { /* rows of 2 and 6: mean 4, deviation 2; or of -4 and 4 */
        for (int64_t e = 0, all = gen_count(x); e < all; ++e)
            gen_store(x->dtype, x->data, gen_offset(x, e), centred ? 4 + (e % 2 ? 2 : -2) : e % 2 ? 4 : -4);
    }
    workload_spoil(w->layout, x, true);
}

static bool make_forward(workload *w, choices *c) {
    bool ok = true;
    if (w->out == WORKLOAD_OUT)
        ok = workload_like(w, c, WORKLOAD_OUT, WORKLOAD_A, w->p.dtype);
    else
        workload_say(w, ", in place");
    if (w->p.op == PROBLEM_LAYERNORM && choices_pick(c, 3) != 2)
        ok = ok && workload_rows(w, c, WORKLOAD_MEAN);
    if (choices_pick(c, 3) != 2 || workload_headless(w))
        ok = ok && workload_rows(w, c, WORKLOAD_LSE);
    return ok;
}

static bool make_grad(workload *w, choices *c, int64_t weight) {
    const int64_t wanted = choices_pick(c, 4); /* all, d_x, the columns, d_x and d_weight */
    bool ok = workload_rows(w, c, WORKLOAD_SAVED_ROWS);
    if (w->p.op == PROBLEM_LAYERNORM)
        ok = ok && workload_rows(w, c, WORKLOAD_SAVED);
    if (wanted != 2 && choices_pick(c, 3) == 1) {
        w->out = WORKLOAD_D_OUT;
        workload_say(w, ", in place");
    }
    ok = ok && workload_packed(w, c, WORKLOAD_D_OUT, w->p.dtype, w->p.z, workload_blocks(w));
    if (wanted != 2 && w->out != WORKLOAD_D_OUT)
        ok = ok && workload_like(w, c, WORKLOAD_D_A, WORKLOAD_A, w->p.dtype);
    if (wanted != 1) {
        const int64_t shared =
            w->array[WORKLOAD_B].memory != NULL ? weight == 2 ? 2 : choices_pick(c, 2) : choices_pick(c, 3);
        ok = ok && add_columns(w, c, WORKLOAD_D_B, choices_float(c), shared);
    }
    if (wanted == 0 || wanted == 2)
        ok = ok && add_columns(w, c, WORKLOAD_D_V, choices_float(c), choices_pick(c, 3));
    return ok;
}

bool workload_make_norm(workload *w, choices *c) {
    static const double eps[] = {1e-5, 1e-3, 1e-12};
    const int64_t weight = choices_pick(c, 3), bias = choices_pick(c, 3);
    const bool with_weight = choices_pick(c, 4) != 3, with_bias = choices_pick(c, 4) != 3 && !w->p.backward;
    const int64_t offset = choices_pick(c, 3);
    w->eps = eps[choices_pick(c, 3)];
    if (!w->p.backward && choices_pick(c, 3) == 1)
        w->out = WORKLOAD_A;
    bool ok = workload_packed(w, c, WORKLOAD_A, w->p.dtype, w->p.z, workload_blocks(w));
    if (with_weight)
        ok = ok && add_columns(w, c, WORKLOAD_B, c->plain ? w->p.dtype : choices_float(c), weight);
    if (with_bias)
        ok = ok && add_columns(w, c, WORKLOAD_V, c->plain ? w->p.dtype : choices_float(c), bias);
    if (ok && offset == 1 && c->values == WORKLOAD_UNIFORM && workload_is_plain(&w->array[WORKLOAD_A].t)) {
        /* A mean far from 0: squares of the values would cancel. */
        const bstk_tensor *x = &w->array[WORKLOAD_A].t;
        for (int64_t e = 0, all = gen_count(x); e < all; ++e) {
            const int64_t at = gen_offset(x, e);
            gen_store(x->dtype, x->data, at, 100 + gen_load(x->dtype, x->data, at));
        }
        workload_say(w, ", mean 100");
    }
    workload_say(w, ", weight %d, bias %d, eps %g", with_weight ? (int)weight : -1, with_bias ? (int)bias : -1, w->eps);
    ok = ok && (w->p.backward ? make_grad(w, c, weight) : make_forward(w, c));
    if (ok && c->values == WORKLOAD_INTEGERS)
        make_exact(w, c);
    else if (ok && w->p.backward)
        ok = forward(w);
    return ok;
}
