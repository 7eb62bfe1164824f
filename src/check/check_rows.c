/* check_rows.c: every row of the registry through the problems that fit it. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * Sizes in blocks plus elements, so that one list serves every block: the sparse matrix is rows x cols, `other` the
 * free or inner dense size of a product, the head size of attention. A block of 0 is replaced by the row's, or 16.
 */
typedef struct entry {
    int32_t block;
    int32_t row_blocks, row_extra, col_blocks, col_extra;
    int32_t other;
    int32_t z, h;
    const char *pattern; /* with flags */
} entry;

static const entry product_entries[] = {
    /* every block edge, whole and ragged */
    {8, 3, 0, 4, 0, 20, 1, 1, "bernoulli(0.5,1)"},
    {16, 2, 0, 3, 0, 33, 1, 1, "bernoulli(0.5,2)"},
    {24, 2, 0, 2, 5, 17, 1, 1, "bernoulli(0.6,3)"},
    {32, 2, 0, 3, 0, 64, 1, 1, "bernoulli(0.5,4)"},
    {64, 2, 0, 2, 0, 40, 1, 1, "bernoulli(0.6,5)"},
    {64, 1, 9, 2, 1, 31, 1, 1, "ones"},
    {128, 2, 0, 1, 0, 36, 1, 1, "ones"},
    {128, 1, 1, 0, 127, 16, 1, 1, "ones"},
    {256, 1, 0, 1, 0, 33, 1, 1, "ones"},
    {256, 1, 3, 0, 200, 8, 1, 1, "ones"},
    /* every transposition, ragged, with batches and heads */
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6)"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):ta"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):tb"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):ta:tb"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):tc"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):ta:tc"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):tb:tc"},
    {0, 2, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6):ta:tb:tc"},
    /* dense sizes */
    {0, 2, 0, 2, 0, 0, 1, 1, "ones"},
    {0, 2, 0, 2, 3, 1, 1, 2, "tril"},
    {0, 2, 0, 2, 0, 5, 1, 1, "tril:tc"},
    {0, 2, 0, 2, 0, 7, 1, 1, "ones:ta"},
    {0, 2, 0, 2, 0, 16, 2, 1, "diag:tb"},
    {0, 2, 0, 2, 0, 64, 1, 1, "bernoulli(0.5,7):tc"},
    {0, 2, 0, 2, 0, 257, 1, 1, "bernoulli(0.5,8)"},
    /* sparse sizes 0 and 1, empty layouts, empty rows */
    {0, 0, 0, 2, 0, 16, 1, 1, "ones"},
    {0, 2, 0, 0, 0, 16, 1, 1, "ones"},
    {0, 0, 1, 0, 1, 1, 1, 1, "ones"},
    {0, 0, 1, 3, 0, 9, 1, 1, "ones:ta"},
    {0, 3, 0, 0, 1, 9, 1, 1, "ones:tb"},
    {0, 3, 0, 3, 0, 16, 1, 1, "bernoulli(0,0)"},
    {0, 3, 0, 3, 0, 16, 2, 2, "bernoulli(0,0):tc"},
    {0, 6, 0, 5, 0, 16, 1, 1, "bernoulli(0.15,9)"},
    /* heads with different layouts, the usual patterns */
    {0, 5, 0, 5, 0, 32, 2, 4, "bigbird(3,1,1,1)"},
    {0, 6, 0, 6, 0, 20, 1, 4, "bernoulli(0.3,2)"},
    {0, 6, 0, 6, 2, 16, 3, 1, "longformer(3,1):ta"},
    {0, 9, 0, 9, 0, 24, 1, 2, "local(3):tb"},
};

static const entry softmax_entries[] = {
    {8, 3, 0, 4, 0, 0, 1, 1, "bernoulli(0.6,1)"},
    {16, 3, 0, 3, 0, 0, 1, 1, "bernoulli(0.5,2)"},
    {24, 2, 0, 2, 5, 0, 2, 1, "bernoulli(0.6,3)"},
    {32, 2, 0, 3, 0, 0, 1, 2, "bernoulli(0.5,4)"},
    {64, 2, 0, 2, 0, 0, 1, 1, "ones:causal"},
    {64, 1, 9, 2, 1, 0, 1, 2, "ones"},
    {128, 1, 0, 2, 0, 0, 1, 1, "ones"},
    {128, 1, 1, 0, 127, 0, 1, 1, "ones:causal"},
    {256, 1, 0, 1, 0, 0, 1, 1, "ones"},
    {256, 0, 3, 1, 1, 0, 1, 1, "ones"},
    {0, 4, 0, 4, 0, 0, 2, 2, "bernoulli(0.6,5):causal"},
    {0, 3, 13, 4, 6, 0, 2, 2, "bernoulli(0.6,6)"},
    {0, 4, 7, 2, 3, 0, 2, 3, "bernoulli(0.6,7):causal"},
    {0, 2, 0, 64, 0, 0, 1, 1, "bernoulli(0.8,8)"},
    {0, 1, 0, 128, 5, 0, 1, 1, "ones:causal"},
    {0, 5, 0, 5, 0, 0, 2, 4, "bigbird(3,1,1,1)"},
    {0, 5, 0, 5, 0, 0, 1, 2, "bigbird(3,1,1,1):causal"},
    {0, 6, 0, 6, 0, 0, 1, 2, "longformer(3,1)"},
    {0, 6, 0, 6, 0, 0, 1, 1, "local(3):causal"},
    {0, 0, 1, 0, 1, 0, 1, 1, "ones"},
    {0, 0, 1, 3, 0, 0, 2, 1, "ones"},
    {0, 3, 0, 0, 1, 0, 2, 1, "ones:causal"},
    {0, 0, 0, 2, 0, 0, 1, 1, "ones"},
    {0, 2, 0, 0, 0, 0, 1, 1, "ones"},
    {0, 3, 0, 3, 0, 0, 1, 2, "bernoulli(0,0)"},
    {0, 6, 0, 5, 0, 0, 1, 3, "bernoulli(0.15,9)"},
};

static const entry copy_entries[] = {
    {8, 3, 0, 4, 0, 0, 1, 1, "bernoulli(0.5,1)"},
    {16, 2, 0, 3, 0, 0, 1, 1, "bernoulli(0.5,2)"},
    {24, 2, 0, 2, 5, 0, 2, 3, "bernoulli(0.6,3)"},
    {32, 2, 0, 3, 0, 0, 1, 1, "bernoulli(0.5,4)"},
    {64, 1, 9, 2, 1, 0, 2, 1, "ones"},
    {128, 1, 1, 0, 127, 0, 1, 1, "ones"},
    {256, 1, 3, 0, 200, 0, 1, 1, "ones"},
    {0, 2, 13, 4, 6, 0, 2, 2, "bernoulli(0.6,6)"},
    {0, 0, 0, 2, 0, 0, 1, 1, "ones"},
    {0, 2, 0, 0, 0, 0, 1, 1, "ones"},
    {0, 0, 1, 0, 1, 0, 1, 1, "ones"},
    {0, 3, 0, 3, 0, 0, 1, 2, "bernoulli(0,0)"},
    {0, 5, 0, 5, 0, 0, 2, 4, "bigbird(3,1,1,1)"},
    {0, 9, 0, 9, 0, 0, 1, 2, "local(3)"},
};

static const entry attention_entries[] = {
    {8, 4, 0, 4, 0, 16, 1, 1, "bernoulli(0.6,1)"},
    {16, 4, 0, 4, 0, 32, 2, 4, "bigbird(3,1,1,1)"},
    {24, 2, 0, 2, 5, 7, 1, 2, "bernoulli(0.6,3)"},
    {32, 3, 0, 3, 0, 64, 1, 2, "local(3):causal"},
    {64, 2, 0, 2, 0, 64, 1, 1, "tril:causal"},
    {64, 1, 9, 2, 1, 40, 2, 2, "ones"},
    {128, 1, 0, 1, 0, 32, 1, 1, "ones"},
    {256, 1, 0, 1, 0, 16, 1, 1, "ones"},
    {16, 3, 13, 4, 6, 33, 2, 2, "bernoulli(0.6,6)"},
    {16, 4, 7, 2, 3, 20, 2, 3, "bernoulli(0.6,7):causal"},
    {16, 1, 3, 12, 0, 1, 1, 1, "bernoulli(0.7,8)"},
    {16, 2, 0, 2, 0, 256, 1, 1, "ones"},
    {16, 0, 1, 0, 1, 8, 1, 1, "ones"},
    {16, 0, 0, 2, 0, 8, 1, 1, "ones"},
    {16, 2, 0, 0, 0, 8, 1, 1, "ones"},
    {16, 3, 0, 3, 0, 8, 1, 2, "bernoulli(0,0)"},
    {16, 6, 0, 5, 0, 8, 1, 3, "bernoulli(0.15,9)"},
};

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static const char *dtype_text(bstk_dtype dtype, bstk_dtype packed) {
    switch (dtype) {
    case BSTK_F64:
        return "f64";
    case BSTK_F32:
        return "f32";
    case BSTK_F16:
        return packed == BSTK_F32 ? "f16+f32" : "f16";
    default:
        return packed == BSTK_F32 ? "bf16+f32" : "bf16";
    }
}

/* M, N and K of an entry: which of them the sparse matrix has depends on the op, before transpositions. */
static void entry_text(const char *op, const char *dtype, const entry *e, int32_t block, char text[PROBLEM_TEXT]) {
    const int rows = e->row_blocks * block + e->row_extra, cols = e->col_blocks * block + e->col_extra;
    char sizes[64];
    if (strcmp(op, "sdd") == 0)
        snprintf(sizes, sizeof sizes, "m%d:n%d:k%d", rows, cols, (int)e->other);
    else if (strcmp(op, "dsd") == 0)
        snprintf(sizes, sizeof sizes, "m%d:n%d:k%d", rows, (int)e->other, cols);
    else if (strcmp(op, "dds") == 0)
        snprintf(sizes, sizeof sizes, "m%d:n%d:k%d", (int)e->other, cols, rows);
    else if (strcmp(op, "attention") == 0)
        snprintf(sizes, sizeof sizes, "m%d:n%d:d%d", rows, cols, (int)e->other);
    else
        snprintf(sizes, sizeof sizes, "m%d:n%d", rows, cols);
    snprintf(text, PROBLEM_TEXT, "%s:%s:b%d:z%d:h%d:%s:%s", op, dtype, (int)block, (int)e->z, (int)e->h, sizes,
             e->pattern);
}

static const entry *entries_of(const char *op, int *count) {
    if (strcmp(op, "softmax") == 0) {
        *count = LENGTH(softmax_entries);
        return softmax_entries;
    }
    if (strcmp(op, "pack") == 0 || strcmp(op, "unpack") == 0) {
        *count = LENGTH(copy_entries);
        return copy_entries;
    }
    if (strcmp(op, "attention") == 0) {
        *count = LENGTH(attention_entries);
        return attention_entries;
    }
    *count = LENGTH(product_entries);
    return product_entries;
}

/* Where the results of one row go. */
typedef struct tally {
    const check_options *options;
    check_callback callback;
    void *user;
    int64_t problems, failed;
    bool counting, stopped;
} tally;

static void report(tally *t, const bstk_kernel_info *row, const problem *p, const check_report *r) {
    t->failed += !r->passed;
    if (t->callback != NULL && !t->callback(t->user, row, p, r))
        t->stopped = true;
}

static void check_row(tally *t, const bstk_kernel_info *row, const char *op, bstk_dtype dtype, bstk_dtype packed) {
    int count;
    const entry *entries = entries_of(op, &count);
    int32_t runs = 0;
    problem p;
    check_report r;
    for (int i = 0; i < count && !t->stopped; ++i) {
        const int32_t fixed = row != NULL ? row->block : 0;
        if (fixed != 0 && entries[i].block != 0 && entries[i].block != fixed)
            continue;
        ++t->problems;
        if (t->counting)
            continue;
        char text[PROBLEM_TEXT], error[PROBLEM_TEXT];
        const int32_t block = fixed != 0 ? fixed : entries[i].block != 0 ? entries[i].block : 16;
        entry_text(op, dtype_text(dtype, packed), &entries[i], block, text);
        if (problem_parse(text, &p, error)) {
            check_problem(&p, row != NULL ? row->name : NULL, t->options, &r);
        } else {
            memset(&p, 0, sizeof p);
            memset(&r, 0, sizeof r);
            snprintf(r.message, sizeof r.message, "%s: %s", text, error);
        }
        runs += r.runs;
        report(t, row, &p, &r);
    }
    if (runs == 0 && !t->counting && !t->stopped && row != NULL) {
        memset(&r, 0, sizeof r);
        snprintf(r.message, sizeof r.message, "kernel %s refused every problem of its list", row->name);
        report(t, row, &p, &r);
    }
}

static bool is_wanted(const tally *t, const char *kernel) {
    return t->options == NULL || t->options->kernel == NULL || strcmp(t->options->kernel, kernel) == 0;
}

static void check_rows(tally *t) {
    static const bstk_dtype floats[] = {BSTK_F64, BSTK_F32, BSTK_F16, BSTK_BF16};
    for (int32_t i = 0; i < bstk_kernel_count() && !t->stopped; ++i) {
        bstk_kernel_info row = {.struct_size = sizeof row};
        if (bstk_kernel_get(i, &row) == BSTK_OK && row.available && is_wanted(t, row.name))
            check_row(t, &row, row.op, row.dtype, row.packed_dtype);
    }
    for (int i = 0; i < LENGTH(floats) && !t->stopped && is_wanted(t, "attention"); ++i)
        check_row(t, NULL, "attention", floats[i], floats[i]);
}

int64_t check_all_rows(const check_options *options, check_callback callback, void *user) {
    tally t = {.options = options, .callback = callback, .user = user};
    check_rows(&t);
    return t.failed;
}

int64_t check_all_count(const check_options *options) {
    tally t = {.options = options, .counting = true};
    check_rows(&t);
    return t.problems;
}
