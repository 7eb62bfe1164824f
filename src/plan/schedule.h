/*
 * schedule.h: cuts the work of a layout into tasks of equal cost. Pure; depends on core only.
 *
 * Work lies on one axis of units: repeats x lines x parts. A line is a block row, a block column or a block; its cost
 * is its stored blocks plus a constant, and it may be cut into `parts` equal parts (groups of element rows), so that
 * one global row does not hold up the rest. A task is a range of units; no unit is split, and results do not depend on
 * the cut: any number of tasks gives the same bits.
 *
 * Lines that are shorter than a task stay whole, since kernels prepare something for each line that they begin and all
 * parts share the line's blocks in the caches. Where a few parts cost about as much as the line (attention has a query
 * a lane), `whole` keeps every line whole that does not exceed a thread's even share, and `grain` the parts together
 * that fill the lanes.
 */
#ifndef BSTK_SCHEDULE_H
#define BSTK_SCHEDULE_H

#include "core/context_impl.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct bstk__work {
    const int64_t *line_ptr; /* [lines + 1] prefix sums of stored blocks; NULL: one block a line */
    int64_t lines;
    int64_t repeats;   /* the same lines again: batches, and heads that share a layout */
    int64_t parts;     /* equal parts of a line, 1 or more */
    int64_t line_cost; /* cost of a line beside its blocks, in blocks */
    int64_t grain;     /* parts of a line that stay together, counted from its first one; 0: 1 */
    bool whole;        /* cut only lines that exceed a thread's even share */
} bstk__work;

typedef struct bstk__schedule {
    int64_t tasks;
    int64_t *bounds;  /* [tasks + 1], units; owned by the schedule */
    double imbalance; /* largest task / mean task; 1 when there is nothing to do */
} bstk__schedule;

/*
 * Makes at most `tasks` tasks for `threads`, fewer when there are fewer units; none for no work. Some may be empty.
 * BSTK_ERR_OVERFLOW when the costs do not fit 64 bits; BSTK_ERR_NOMEM.
 */
bstk_status bstk__schedule_make(bstk_context *ctx, const bstk__work *work, int64_t tasks, int64_t threads,
                                bstk__schedule *out);
void bstk__schedule_free(bstk_context *ctx, bstk__schedule *schedule);

#endif
