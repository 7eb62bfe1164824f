/* layout_stats.c: figures of a layout. Here and not in src/layout, since one of them asks the schedule. */
#include "core/checked.h"
#include "core/error.h"
#include "layout/layout_impl.h"
#include "plan/schedule.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Smallest, largest and number of zero lengths of the lines of a prefix sum. */
static void lengths(const int64_t *ptr, int64_t lines, int64_t *low, int64_t *high, int64_t *empty) {
    *low = lines ? INT64_MAX : 0;
    *high = *empty = 0;
    for (int64_t i = 0; i < lines; i++) {
        const int64_t length = ptr[i + 1] - ptr[i];
        *low = bstk__min(*low, length);
        *high = bstk__max(*high, length);
        *empty += length == 0;
    }
}

bstk_status bstk_layout_get_stats(const bstk_layout *layout, bstk_layout_stats *stats) {
    if (layout == NULL || stats == NULL || stats->struct_size != sizeof *stats)
        return bstk__fail(BSTK_ERR_INVALID, "layout stats: layout or stats is NULL, or stats.struct_size is not %zu",
                          sizeof *stats);
    const int64_t lines = layout->heads * layout->rows;
    bstk_layout_stats s = {.struct_size = sizeof s, .nnz = layout->nnz, .partial = layout->partial_count};
    s.density = bstk_layout_density(layout);
    lengths(layout->row_ptr, lines, &s.row_min, &s.row_max, &s.empty_rows);
    lengths(layout->col_ptr, layout->heads * layout->cols, &s.col_min, &s.col_max, &s.empty_cols);
    s.row_mean = lines ? (double)layout->nnz / (double)lines : 0;
    s.row_imbalance = layout->nnz ? (double)s.row_max / s.row_mean : 1;
    s.head_min = layout->heads ? INT64_MAX : 0;
    for (int64_t h = 0; h < layout->heads; h++) {
        const int64_t blocks = layout->row_ptr[(h + 1) * layout->rows] - layout->row_ptr[h * layout->rows];
        s.head_min = bstk__min(s.head_min, blocks);
        s.head_max = bstk__max(s.head_max, blocks);
    }
    int64_t *sorted = bstk__alloc(layout->ctx, lines, sizeof *sorted);
    if (sorted == NULL)
        return bstk__fail(BSTK_ERR_NOMEM, "layout stats: out of memory (%lld rows)", (long long)lines);
    for (int64_t i = 0; i < lines; i++)
        sorted[i] = layout->row_ptr[i + 1] - layout->row_ptr[i];
    qsort(sorted, (size_t)lines, sizeof *sorted, compare);
    if (lines)
        s.row_median = (double)(sorted[(lines - 1) / 2] + sorted[lines / 2]) / 2;
    bstk__free(layout->ctx, sorted);

    /* As a dsd on 8 threads would be cut: 64 tasks, lines in groups of 8 element rows. */
    const bstk__work work = {.line_ptr = layout->row_ptr, .lines = lines, .repeats = 1, .parts = layout->block / 8};
    bstk__schedule schedule;
    BSTK_TRY(bstk__schedule_make(layout->ctx, &work, 64, 8, &schedule));
    s.task_imbalance = fmax(1, schedule.imbalance * 8 / (double)bstk__max(8, schedule.tasks));
    bstk__schedule_free(layout->ctx, &schedule);
    *stats = s;
    return BSTK_OK;
}
