/* schedule.c: equal cuts of a prefix sum, found by bisection. */
#include "plan/schedule.h"

#include "core/checked.h"
#include "core/error.h"

/* Cost of all units before `line` within one repeat, in 1/parts of a block. */
static int64_t cost_before_line(const bstk__work *w, int64_t line) {
    const int64_t blocks = w->line_ptr ? w->line_ptr[line] - w->line_ptr[0] : line;
    return (blocks + line * w->line_cost) * w->parts;
}

static int64_t cost_before_unit(const bstk__work *w, int64_t unit) {
    const int64_t per_repeat = w->lines * w->parts;
    const int64_t repeat = unit / per_repeat, rest = unit % per_repeat;
    const int64_t line = rest / w->parts, part = rest % w->parts;
    int64_t cost = repeat * cost_before_line(w, w->lines) + cost_before_line(w, line);
    if (part)
        cost += (cost_before_line(w, line + 1) - cost_before_line(w, line)) / w->parts * part;
    return cost;
}

/* The first unit that has at least `cost` before it. */
static int64_t first_unit_at(const bstk__work *w, int64_t cost, int64_t low, int64_t units) {
    int64_t high = units;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (cost_before_unit(w, middle) < cost)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A cut near `unit`, not before `low`: at the nearer end of a line that costs no more than `keep`, or of a grain. */
static int64_t cut_near(const bstk__work *w, int64_t unit, int64_t keep, int64_t low) {
    const int64_t part = unit % w->parts, line = unit / w->parts % w->lines;
    const bool stays = cost_before_line(w, line + 1) - cost_before_line(w, line) <= keep;
    const int64_t step = stays ? w->parts : bstk__max(1, bstk__min(w->grain, w->parts));
    const int64_t near = bstk__min(w->parts, (part + step / 2) / step * step);
    return bstk__max(low, unit - part + near);
}

bstk_status bstk__schedule_make(bstk_context *ctx, const bstk__work *work, int64_t tasks, int64_t threads,
                                bstk__schedule *out) {
    int64_t units, blocks, cost, scaled;
    *out = (bstk__schedule){.tasks = 0, .bounds = NULL, .imbalance = 1.0};
    blocks = work->line_ptr ? work->line_ptr[work->lines] - work->line_ptr[0] : work->lines;
    if (!bstk__mul(work->lines, work->parts, &units) || !bstk__mul(units, work->repeats, &units) ||
        !bstk__mul(work->lines, work->line_cost, &cost) || !bstk__add(cost, blocks, &cost) ||
        !bstk__mul(cost, work->parts, &cost) || !bstk__mul(cost, work->repeats, &cost) ||
        !bstk__mul(cost, tasks, &scaled))
        return bstk__fail(BSTK_ERR_OVERFLOW, "schedule: the work of %lld lines x %lld repeats does not fit 64 bits",
                          (long long)work->lines, (long long)work->repeats);
    tasks = bstk__min(tasks, units);
    if (units == 0)
        return BSTK_OK;
    int64_t *bounds = bstk__alloc(ctx, tasks + 1, sizeof *bounds);
    if (bounds == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "schedule: out of memory (%lld tasks)", (long long)tasks);
    const int64_t keep = cost / (work->whole ? bstk__min(tasks, threads) : tasks);
    int64_t largest = 0;
    bounds[0] = 0;
    for (int64_t t = 1; t <= tasks; t++) {
        const int64_t share = first_unit_at(work, t * cost / tasks, bounds[t - 1], units);
        bounds[t] = t == tasks ? units : cut_near(work, share, keep, bounds[t - 1]);
        largest = bstk__max(largest, cost_before_unit(work, bounds[t]) - cost_before_unit(work, bounds[t - 1]));
    }
    out->tasks = tasks;
    out->bounds = bounds;
    out->imbalance = cost ? (double)largest * (double)tasks / (double)cost : 1.0;
    return BSTK_OK;
}

void bstk__schedule_free(bstk_context *ctx, bstk__schedule *schedule) {
    bstk__free(ctx, schedule->bounds);
    *schedule = (bstk__schedule){.tasks = 0, .bounds = NULL, .imbalance = 1.0};
}
