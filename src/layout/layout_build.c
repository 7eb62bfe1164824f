/*
 * layout_build.c: the named patterns.
 *
 * A pattern is, for each block row, one run of columns (`run`: the window, or the whole row where the row is global),
 * ranges of columns that every row has (`shared`: global columns), the columns (row mod stride) + k*stride (strided),
 * and random draws from the columns that are left. Causal cuts each row behind column `row`. Rows are generated twice,
 * to count and to fill; time and memory are O(stored blocks + rows + cols), never rows*cols.
 */
#include "layout/layout_index.h"
#include "layout/layout_random.h"

#include "core/checked.h"
#include "core/context_impl.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"unknown", "dense",      "local",   "fixed", "variable",
                                         "bigbird", "longformer", "strided", "random"};

const char *bstk_layout_kind_name(bstk_layout_kind kind) {
    return kind_names[kind >= BSTK_LAYOUT_DENSE && kind <= BSTK_LAYOUT_RANDOM ? kind : 0];
}

bstk_layout_kind bstk_layout_kind_from_name(const char *name) {
    for (int kind = BSTK_LAYOUT_DENSE; name && kind <= BSTK_LAYOUT_RANDOM; kind++)
        if (strcmp(name, kind_names[kind]) == 0)
            return (bstk_layout_kind)kind;
    return (bstk_layout_kind)0;
}

/* Columns or rows begin .. end-1. */
typedef struct range {
    int64_t begin, end;
} range;

typedef struct builder {
    bstk_layout_opts o; /* checked, defaults filled in */
    const char *who;
    bool bernoulli; /* random by density, not by count */
    bstk__bernoulli chance;
    range *run;    /* [rows] */
    range *shared; /* by begin; may overlap and reach past the last column */
    int64_t n_shared;
    int32_t *picks; /* [random], random columns of one row */
    uint8_t *taken; /* [cols], 0 between rows */
} builder;

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* -1 becomes `fallback`; other negative values are refused. */
static bstk_status take_count(const char *who, const char *name, int64_t fallback, int64_t *value) {
    if (*value == -1)
        *value = fallback;
    if (*value < 0)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s is %lld, expected 0 or more", who, name, (long long)*value);
    return BSTK_OK;
}

static bstk_status check_fixed(const bstk_layout_opts *o) {
    if (o->window < 1)
        return bstk__fail(BSTK_ERR_INVALID, "fixed: window is %lld, expected 1 or more", (long long)o->window);
    if (o->global < 1 || o->window % o->global != 0)
        return bstk__fail(BSTK_ERR_INVALID, "fixed: global is %lld, expected a divisor of window = %lld",
                          (long long)o->global, (long long)o->window);
    if (o->patterns < 1 || o->patterns > o->window / o->global)
        return bstk__fail(BSTK_ERR_INVALID, "fixed: patterns is %lld, expected 1 to %lld (window / global)",
                          (long long)o->patterns, (long long)(o->window / o->global));
    return BSTK_OK;
}

/* windows[] of variable; globals[] of variable and longformer. */
static bstk_status check_lists(const char *who, const bstk_layout_opts *o) {
    if (o->kind == BSTK_LAYOUT_VARIABLE) {
        if ((o->windows == NULL && o->n_windows != 0) || (o->windows && o->n_windows < 1))
            return bstk__fail(BSTK_ERR_INVALID, "%s: windows has %lld sizes, expected %s", who, (long long)o->n_windows,
                              o->windows ? "1 or more" : "0 with a NULL pointer");
        for (int64_t k = 0; k < o->n_windows; k++)
            if (o->windows[k] < 1)
                return bstk__fail(BSTK_ERR_INVALID, "%s: windows[%lld] is %lld, expected 1 or more", who, (long long)k,
                                  (long long)o->windows[k]);
    }
    if ((o->globals == NULL && o->n_globals != 0) || o->n_globals < 0 || o->n_globals > INT32_MAX)
        return bstk__fail(BSTK_ERR_INVALID, "%s: globals has %lld ranges, expected %s", who, (long long)o->n_globals,
                          o->globals ? "0 or more" : "0 with a NULL pointer");
    for (int64_t k = 0; k < o->n_globals; k++)
        if (o->globals[2 * k] < 0 || o->globals[2 * k + 1] <= o->globals[2 * k])
            return bstk__fail(BSTK_ERR_INVALID, "%s: globals[%lld] is {%lld, %lld}, expected 0 <= begin < end", who,
                              (long long)k, (long long)o->globals[2 * k], (long long)o->globals[2 * k + 1]);
    return BSTK_OK;
}

static bstk_status check_random(const char *who, bstk_layout_opts *o, bool *bernoulli) {
    const bool by_default = o->random == -1;
    if (!(o->density <= 1.0)) /* NaN too */
        return bstk__fail(BSTK_ERR_INVALID, "%s: density is %g, expected 0 to 1", who, o->density);
    if (o->kind == BSTK_LAYOUT_RANDOM && !by_default && o->density >= 0)
        return bstk__fail(BSTK_ERR_INVALID, "random: density is %g and random is %lld, expected one of them",
                          o->density, (long long)o->random);
    *bernoulli = o->kind == BSTK_LAYOUT_RANDOM && by_default;
    if (o->density < 0)
        o->density = 0.1;
    BSTK_TRY(take_count(who, "random", o->kind == BSTK_LAYOUT_BIGBIRD ? bstk__min(1, o->cols) : 0, &o->random));
    if (o->kind != BSTK_LAYOUT_BIGBIRD && o->kind != BSTK_LAYOUT_VARIABLE && o->kind != BSTK_LAYOUT_RANDOM)
        o->random = 0;
    if (o->random > o->cols)
        return bstk__fail(BSTK_ERR_INVALID, "%s: random is %lld, but a row has %lld blocks", who, (long long)o->random,
                          (long long)o->cols);
    return BSTK_OK;
}

/* Numbers are checked for every kind, and what a kind does not use is ignored: one set of options serves several. */
static bstk_status check_options(builder *b) {
    bstk_layout_opts *o = &b->o;
    const char *who = b->who;
    const bool no_shape = o->shape[0] == 0 && o->shape[1] == 0;
    BSTK_TRY(bstk__layout_check(who, o->heads, o->rows, o->cols, o->block, no_shape ? NULL : o->shape));
    BSTK_TRY(take_count(who, "window", o->kind == BSTK_LAYOUT_FIXED ? 4 : 3, &o->window));
    BSTK_TRY(take_count(who, "global", 1, &o->global));
    BSTK_TRY(take_count(who, "stride", 4, &o->stride));
    if (o->global_last < 0)
        return bstk__fail(BSTK_ERR_INVALID, "%s: global_last is %lld, expected 0 or more", who,
                          (long long)o->global_last);
    if (o->patterns < 0)
        return bstk__fail(BSTK_ERR_INVALID, "%s: patterns is %lld, expected 1 or more", who, (long long)o->patterns);
    BSTK_TRY(check_random(who, o, &b->bernoulli));
    const bool takes_horizontal = o->kind == BSTK_LAYOUT_FIXED || o->kind == BSTK_LAYOUT_VARIABLE;
    if (takes_horizontal && o->horizontal && o->causal)
        return bstk__fail(BSTK_ERR_INVALID, "%s: horizontal and causal are both 1, but a global row looks ahead", who);
    if (o->kind == BSTK_LAYOUT_STRIDED && o->stride < 1)
        return bstk__fail(BSTK_ERR_INVALID, "strided: stride is 0, expected 1 or more");
    o->stride = bstk__min(o->stride, INT32_MAX); /* no two blocks are further apart: sums stay small */
    if (o->kind == BSTK_LAYOUT_FIXED)
        BSTK_TRY(check_fixed(o));
    else
        o->patterns = 1;
    if (o->kind == BSTK_LAYOUT_VARIABLE || o->kind == BSTK_LAYOUT_LONGFORMER)
        BSTK_TRY(check_lists(who, o));
    return BSTK_OK;
}

/* ---- patterns --------------------------------------------------------------------------------------------------- */

/* |row - col| <= window/2 */
static void run_local(builder *b) {
    const int64_t reach = b->o.window / 2;
    for (int64_t row = 0; row < b->o.rows; row++)
        b->run[row] = (range){bstk__max(row - reach, 0), row + reach + 1};
}

/* Windows of the given sizes, side by side along the diagonal; the last size repeats. */
static void run_windows(builder *b, const int64_t *sizes, int64_t count) {
    int64_t begin = 0;
    for (int64_t k = 0; begin < b->o.rows; k++) {
        const int64_t end = begin + bstk__min(sizes[bstk__min(k, count - 1)], INT32_MAX);
        for (int64_t row = begin; row < end && row < b->o.rows; row++)
            b->run[row] = (range){begin, end};
        begin = end;
    }
}

static void run_all(builder *b, int64_t begin, int64_t end) {
    for (int64_t row = bstk__max(begin, 0); row < end && row < b->o.rows; row++)
        b->run[row] = (range){0, b->o.cols};
}

/*
 * Global ranges of fixed along an axis of n blocks: global blocks at place f = window - (1 + pattern)*global of each
 * whole window; a shorter window at the end has them at the same place, or further left as far as they must be to fit
 * before n. Range k; an empty one at the end behind the last.
 */
static range fixed_range(const bstk_layout_opts *o, int64_t pattern, int64_t n, int64_t k) {
    const int64_t place = o->window - (1 + pattern) * o->global, whole = n / o->window;
    if (k < whole)
        return (range){k * o->window + place, k * o->window + place + o->global};
    if (k > whole || n % o->window == 0)
        return (range){n, n};
    const int64_t begin = bstk__min(whole * o->window + place, n - o->global);
    return (range){begin, begin + o->global}; /* begins before 0 when global > n: cut where it is used */
}

static void prepare_fixed(builder *b, int64_t pattern) {
    run_windows(b, &b->o.window, 1);
    b->n_shared = 0;
    for (range r = fixed_range(&b->o, pattern, b->o.cols, 0); r.begin < r.end;
         r = fixed_range(&b->o, pattern, b->o.cols, b->n_shared))
        b->shared[b->n_shared++] = r;
    int64_t k = 0;
    for (range r = fixed_range(&b->o, pattern, b->o.rows, 0); b->o.horizontal && r.begin < r.end;
         r = fixed_range(&b->o, pattern, b->o.rows, ++k))
        run_all(b, r.begin, r.end);
}

static int compare_ranges(const void *x, const void *y) {
    const range *a = x, *b = y;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* globals[], or the first `global` blocks, into `shared`: sorted, with no overlap left, so that walking them costs no
 * more than storing them. */
static void take_globals(builder *b) {
    const bstk_layout_opts *o = &b->o;
    range *shared = b->shared;
    if (o->globals == NULL) {
        shared[0] = (range){0, o->global};
        b->n_shared = 1;
        return;
    }
    for (int64_t k = 0; k < o->n_globals; k++)
        shared[k] = (range){o->globals[2 * k], o->globals[2 * k + 1]};
    qsort(shared, (size_t)o->n_globals, sizeof *shared, compare_ranges);
    int64_t count = 0;
    for (int64_t k = 0; k < o->n_globals; k++) {
        if (count > 0 && shared[k].begin <= shared[count - 1].end)
            shared[count - 1].end = bstk__max(shared[count - 1].end, shared[k].end);
        else
            shared[count++] = shared[k];
    }
    b->n_shared = count;
}

static void prepare(builder *b, int64_t pattern) {
    const bstk_layout_opts *o = &b->o;
    static const int64_t default_windows[1] = {4};
    switch (o->kind) {
    case BSTK_LAYOUT_DENSE:
        run_all(b, 0, o->rows);
        break;
    case BSTK_LAYOUT_LOCAL:
    case BSTK_LAYOUT_STRIDED:
        run_local(b);
        break;
    case BSTK_LAYOUT_FIXED:
        prepare_fixed(b, pattern);
        break;
    case BSTK_LAYOUT_BIGBIRD:
        run_local(b);
        run_all(b, 0, o->global);
        run_all(b, o->rows - bstk__min(o->global_last, o->rows), o->rows);
        b->shared[0] = (range){0, o->global};
        b->shared[1] = (range){o->cols - bstk__min(o->global_last, o->cols), o->cols};
        b->n_shared = 2;
        break;
    case BSTK_LAYOUT_VARIABLE:
    case BSTK_LAYOUT_LONGFORMER:
        if (o->kind == BSTK_LAYOUT_LONGFORMER)
            run_local(b);
        else
            run_windows(b, o->windows ? o->windows : default_windows, o->windows ? o->n_windows : 1);
        take_globals(b);
        for (int64_t k = 0; (o->kind == BSTK_LAYOUT_LONGFORMER || o->horizontal) && k < b->n_shared; k++)
            run_all(b, b->shared[k].begin, b->shared[k].end);
        break;
    case BSTK_LAYOUT_RANDOM: /* no run: b->run is zeroed */
        break;
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* Appends the columns of r that lie in [*done, limit); counts only when out is NULL. */
static int64_t append(range r, int64_t limit, int64_t *done, int64_t count, int32_t *out) {
    const int64_t begin = bstk__max(r.begin, *done), end = bstk__min(r.end, limit);
    if (begin >= end)
        return count;
    for (int64_t col = begin; out && col < end; col++)
        out[count + col - begin] = (int32_t)col;
    *done = end;
    return count + end - begin;
}

/* Columns of a row that are there for a rule, not by chance: the run, merged into the shared or strided columns. */
static int64_t ruled_columns(const builder *b, int64_t row, int64_t limit, int32_t *out) {
    const int64_t stride = b->o.kind == BSTK_LAYOUT_STRIDED ? b->o.stride : 0;
    int64_t count = 0, done = 0;
    bool run_pending = true;
    for (int64_t k = 0; stride || k < b->n_shared; k++) {
        const int64_t at = stride ? row % stride + k * stride : 0;
        const range r = stride ? (range){at, at + 1} : b->shared[k];
        if (r.begin >= limit)
            break;
        if (run_pending && b->run[row].begin <= r.begin) {
            count = append(b->run[row], limit, &done, count, out);
            run_pending = false;
        }
        count = append(r, limit, &done, count, out);
    }
    return run_pending ? append(b->run[row], limit, &done, count, out) : count;
}

/* Columns of a row into out[], which has room for just as many; returns how many. Counts only when out is NULL. */
static int64_t row_columns(const builder *b, int64_t head, int64_t row, int32_t *out) {
    const int64_t limit = b->o.causal ? bstk__min(b->o.cols, row + 1) : b->o.cols;
    const uint64_t key = bstk__random_key(b->o.seed, (int)b->o.kind, head, row);
    if (b->bernoulli)
        return bstk__bernoulli_hits(&b->chance, key, limit, out);
    const int64_t ruled = ruled_columns(b, row, limit, NULL), drawn = bstk__min(b->o.random, limit - ruled);
    if (out == NULL)
        return ruled + drawn;
    /* Ruled columns go to the end of the row's room and are merged forward with the draws, which are numbers among the
     * columns that are free: number k is column k + (ruled columns before it). */
    const int32_t *rules = out + drawn;
    ruled_columns(b, row, limit, out + drawn);
    bstk__random_sample(key, (int32_t)(limit - ruled), (int32_t)drawn, b->picks, b->taken);
    int64_t count = 0, before = 0;
    for (int64_t k = 0; k < drawn; k++) {
        while (before < ruled && rules[before] <= b->picks[k] + before)
            out[count++] = rules[before++];
        out[count++] = (int32_t)(b->picks[k] + before);
    }
    return ruled + drawn; /* the ruled columns that are left stand where they belong */
}

/* Heads that may differ; head h beyond them repeats head h - distinct. */
static int64_t distinct_heads(const builder *b) {
    const int64_t distinct = b->bernoulli || b->o.random > 0 ? b->o.heads : b->o.patterns;
    return bstk__min(distinct, b->o.heads);
}

static bstk_status fill(builder *b, bstk_layout *layout) {
    const int64_t heads = b->o.heads, rows = b->o.rows, distinct = distinct_heads(b);
    int64_t *row_ptr = layout->row_ptr;
    for (int64_t head = 0; head < heads; head++) {
        int64_t *counts = row_ptr + head * rows + 1;
        if (head >= distinct) {
            memcpy(counts, counts - distinct * rows, (size_t)rows * sizeof *counts);
            continue;
        }
        if (head < b->o.patterns)
            prepare(b, head);
        for (int64_t row = 0; row < rows; row++)
            counts[row] = row_columns(b, head, row, NULL);
    }
    if (!bstk__layout_sum_rows(layout))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: the number of stored blocks does not fit 64 bits", b->who);
    BSTK_TRY(bstk__layout_alloc_blocks(layout, b->who, 0));
    for (int64_t head = 0; head < heads; head++) {
        const int64_t begin = row_ptr[head * rows], count = row_ptr[(head + 1) * rows] - begin;
        if (head >= distinct) {
            const int32_t *same = layout->col_idx + row_ptr[(head - distinct) * rows];
            memcpy(layout->col_idx + begin, same, (size_t)count * sizeof *same);
            continue;
        }
        if (head < b->o.patterns)
            prepare(b, head);
        for (int64_t row = 0; row < rows; row++)
            row_columns(b, head, row, layout->col_idx + row_ptr[head * rows + row]);
    }
    bstk__layout_index(layout);
    return BSTK_OK;
}

static bstk_status build(builder *b, bstk_context *ctx, bstk_layout *layout) {
    const bstk_layout_opts *o = &b->o;
    int64_t shared = bstk__max(2, o->n_globals); /* bigbird has two ranges */
    if (o->kind == BSTK_LAYOUT_FIXED)
        shared = o->cols / o->window + 1;
    b->run = bstk__alloc_zeroed(ctx, o->rows, sizeof *b->run);
    b->shared = bstk__alloc(ctx, shared, sizeof *b->shared);
    b->picks = bstk__alloc(ctx, o->random, sizeof *b->picks);
    b->taken = bstk__alloc_zeroed(ctx, o->random > 0 ? o->cols : 0, sizeof *b->taken);
    bstk_status status;
    if (b->run && b->shared && b->picks && b->taken)
        status = fill(b, layout);
    else
        status = bstk__fail(BSTK_ERR_NOMEM, "%s: out of memory (%lld block rows)", b->who, (long long)o->rows);
    bstk__free(ctx, b->run);
    bstk__free(ctx, b->shared);
    bstk__free(ctx, b->picks);
    bstk__free(ctx, b->taken);
    return status;
}

bstk_status bstk_layout_build(bstk_context *ctx, const bstk_layout_opts *opts, bstk_layout **out) {
    if (opts == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "layout: %s is NULL", opts ? "out" : "opts");
    if (opts->struct_size != sizeof *opts)
        return bstk__fail(BSTK_ERR_INVALID, "layout: opts.struct_size is %zu, expected %zu (BSTK_LAYOUT_OPTS_INIT)",
                          opts->struct_size, sizeof *opts);
    if (opts->kind < BSTK_LAYOUT_DENSE || opts->kind > BSTK_LAYOUT_RANDOM)
        return bstk__fail(BSTK_ERR_INVALID, "layout: kind is %d, expected %d to %d", (int)opts->kind,
                          (int)BSTK_LAYOUT_DENSE, (int)BSTK_LAYOUT_RANDOM);
    builder b = {.o = *opts, .who = bstk_layout_kind_name(opts->kind)};
    BSTK_TRY(check_options(&b));
    if (b.bernoulli)
        bstk__bernoulli_init(&b.chance, b.o.density);
    bstk_layout *layout;
    const int64_t *shape = b.o.shape[0] == 0 && b.o.shape[1] == 0 ? NULL : b.o.shape;
    BSTK_TRY(bstk__layout_new(ctx, b.who, b.o.heads, b.o.rows, b.o.cols, b.o.block, shape, &layout));
    bstk_status status = build(&b, layout->ctx, layout);
    if (status == BSTK_OK)
        *out = layout;
    else
        bstk_layout_release(layout);
    return status;
}
