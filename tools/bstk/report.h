/* report.h: what 'bstk attention --report' measures and prints. */
#ifndef BSTK_REPORT_H
#define BSTK_REPORT_H

#include "cli.h"

typedef struct report_input {
    const common_opts *common;
    bstk_context *ctx;
    const bstk_layout *layout;
    const char *layout_name;
    int64_t z, h, m, n, d, dv;
    const bstk_tensor *q, *k, *v;
    const bstk_score_terms *terms;
    const bstk_tensor *o; /* what the plan gave, [z, h, m, dv] in row-major order, whatever axes it names */
    bool composed;        /* which way to time */
    bool ascii;
} report_input;

/*
 * Prints the layout, block-sparse beside dense attention, and for each head its error against the float64 reference
 * and the share of its dense attention that the layout keeps. False when an output is beyond its rounding bound.
 */
bool attention_report(const report_input *in);

#endif
