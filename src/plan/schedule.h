/*
 * schedule.h: cuts the work of a layout into tasks of equal cost. Pure; depends on core only.
 *
 * Work lies on one axis of units: repeats x lines x parts. A line is a block row, a block column or a block; its cost
 * is its stored blocks plus a constant, and it may be cut into `parts` equal parts (groups of element rows), so that
 * one global row does not hold up the rest. A task is a range of units; no unit is split, and results do not depend on
 * the cut: any number of tasks gives the same bits.
 *
 * Lines that are shorter than a task stay whole: kernels prepare something for each line that they begin (an attention
 * that gathers the keys of 16 rows in two tasks does so twice), and all parts share the line's blocks in the caches.
 */
#ifndef BSTK_SCHEDULE_H
#define BSTK_SCHEDULE_H

#include "core/context_impl.h"

#include <stdint.h>

typedef struct bstk__work {
    const int64_t *line_ptr; /* [lines + 1] prefix sums of stored blocks; NULL: one block a line */
    int64_t lines;
    int64_t repeats;   /* the same lines again: batches, and heads that share a layout */
    int64_t parts;     /* equal parts of a line, 1 or more */
    int64_t line_cost; /* cost of a line beside its blocks, in blocks */
} bstk__work;

typedef struct bstk__schedule {
    int64_t tasks;
    int64_t *bounds;  /* [tasks + 1], units; owned by the schedule */
    double imbalance; /* largest task / mean task; 1 when there is nothing to do */
} bstk__schedule;

/*
 * Makes at most `tasks` tasks, fewer when there are fewer units; none for no work.
 * BSTK_ERR_OVERFLOW when the costs do not fit 64 bits; BSTK_ERR_NOMEM.
 */
bstk_status bstk__schedule_make(bstk_context *ctx, const bstk__work *work, int64_t tasks, bstk__schedule *out);
void bstk__schedule_free(bstk_context *ctx, bstk__schedule *schedule);

#endif
