/* check_rows.c: every row of the registry, and what is composed of rows, through the problems that fit it. */
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
    /* rows of 0 to 9 blocks, and a long inner axis: what makes tiles of several blocks */
    {8, 6, 5, 9, 3, 37, 2, 2, "bernoulli(0.6,5)"},
    {8, 2, 0, 7, 0, 40, 1, 1, "ones:tb"},
    {16, 3, 0, 5, 7, 600, 1, 1, "bernoulli(0.7,3)"},
    {8, 1, 0, 5, 0, 1100, 1, 1, "ones"},
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

/* Gradients of products: the products themselves are in the list above. */
static const entry product_grad_entries[] = {
    {8, 3, 0, 4, 0, 20, 1, 1, "bernoulli(0.5,1)"},
    {32, 1, 9, 2, 1, 31, 1, 1, "ones"},
    {64, 1, 0, 1, 3, 17, 1, 1, "ones"},
    {0, 2, 13, 3, 6, 19, 2, 2, "bernoulli(0.6,6)"},
    {0, 2, 13, 3, 6, 19, 2, 2, "bernoulli(0.6,6):ta"},
    {0, 2, 13, 3, 6, 19, 2, 2, "bernoulli(0.6,6):tb"},
    {0, 2, 13, 3, 6, 19, 2, 2, "bernoulli(0.6,6):tc"},
    {0, 2, 13, 3, 6, 19, 2, 2, "bernoulli(0.6,6):ta:tb:tc"},
    {0, 2, 0, 2, 0, 0, 1, 1, "ones"},
    {0, 0, 0, 2, 0, 16, 1, 1, "ones"},
    {0, 0, 1, 0, 1, 1, 1, 1, "ones"},
    {0, 3, 0, 3, 0, 8, 1, 2, "bernoulli(0,0)"},
    {0, 4, 0, 4, 0, 16, 1, 4, "bigbird(3,1,1,1)"},
};

static const entry softmax_grad_entries[] = {
    {8, 3, 0, 4, 0, 0, 1, 1, "bernoulli(0.6,1)"},
    {24, 2, 0, 2, 5, 0, 2, 1, "bernoulli(0.6,3)"},
    {64, 1, 9, 2, 1, 0, 1, 2, "ones:causal"},
    {128, 1, 1, 0, 127, 0, 1, 1, "ones"},
    {256, 0, 3, 1, 1, 0, 1, 1, "ones"},
    {0, 4, 7, 2, 3, 0, 2, 3, "bernoulli(0.6,7):causal"},
    {0, 3, 13, 4, 6, 0, 2, 2, "bernoulli(0.6,6)"},
    {0, 1, 0, 70, 5, 0, 1, 1, "ones"},
    {0, 5, 0, 5, 0, 0, 1, 4, "bigbird(3,1,1,1)"},
    {0, 0, 1, 0, 1, 0, 1, 1, "ones"},
    {0, 0, 0, 2, 0, 0, 1, 1, "ones"},
    {0, 3, 0, 3, 0, 0, 1, 2, "bernoulli(0,0)"},
    {0, 6, 0, 5, 0, 0, 1, 3, "bernoulli(0.15,9)"},
};

/* Norms and their gradients. */
static const entry norm_entries[] = {
    {8, 3, 0, 4, 0, 0, 1, 1, "bernoulli(0.6,1)"},
    {24, 2, 0, 2, 5, 0, 2, 1, "bernoulli(0.6,3)"},
    {32, 2, 0, 4, 0, 0, 1, 2, "ones"},
    {64, 1, 9, 2, 1, 0, 1, 2, "ones"},
    {128, 1, 1, 0, 127, 0, 1, 1, "ones"},
    {256, 0, 3, 1, 1, 0, 1, 1, "ones"},
    {0, 3, 13, 4, 6, 0, 2, 2, "bernoulli(0.6,6)"},
    {0, 1, 0, 64, 0, 0, 1, 1, "ones"},
    {0, 5, 0, 5, 0, 0, 1, 4, "bigbird(3,1,1,1)"},
    {0, 0, 1, 0, 1, 0, 1, 1, "ones"},
    {0, 0, 0, 2, 0, 0, 1, 1, "ones"},
    {0, 2, 0, 0, 0, 0, 1, 1, "ones"},
    {0, 3, 0, 3, 0, 0, 1, 2, "bernoulli(0,0)"},
    {0, 6, 0, 5, 0, 0, 2, 3, "bernoulli(0.15,9)"},
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

static const entry attention_grad_entries[] = {
    {8, 4, 0, 4, 0, 16, 1, 1, "bernoulli(0.6,1)"},
    {16, 4, 0, 4, 0, 16, 2, 4, "bigbird(3,1,1,1)"},
    {24, 2, 0, 2, 5, 7, 1, 2, "bernoulli(0.6,3)"},
    {32, 2, 0, 2, 0, 33, 1, 2, "ones:causal"},
    {64, 1, 9, 1, 1, 24, 1, 2, "ones"},
    {128, 0, 100, 1, 0, 16, 1, 1, "ones"},
    {256, 0, 80, 0, 90, 8, 1, 1, "ones"},
    {16, 3, 13, 3, 6, 20, 2, 2, "bernoulli(0.6,6)"},
    {16, 3, 7, 2, 3, 20, 2, 3, "bernoulli(0.6,7):causal"},
    {16, 1, 3, 6, 0, 1, 1, 1, "bernoulli(0.7,8)"},
    {16, 1, 0, 1, 3, 256, 1, 1, "ones"},
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

/* Length of the problem's op in the name of a row's op: "softmax_grad" is softmax with bwd. */
static int op_length(const char *op) {
    const char *grad = strstr(op, "_grad");
    return grad != NULL ? (int)(grad - op) : (int)strlen(op);
}

static bool is_op(const char *op, const char *name) {
    return strlen(name) == (size_t)op_length(op) && strncmp(op, name, strlen(name)) == 0;
}

/* M, N and K of an entry: which of them the sparse matrix has depends on the op, before transpositions. */
static void entry_text(const char *op, const char *dtype, const entry *e, int32_t block, char text[PROBLEM_TEXT]) {
    const int rows = e->row_blocks * block + e->row_extra, cols = e->col_blocks * block + e->col_extra;
    char sizes[64];
    if (is_op(op, "sdd"))
        snprintf(sizes, sizeof sizes, "m%d:n%d:k%d", rows, cols, (int)e->other);
    else if (is_op(op, "dsd"))
        snprintf(sizes, sizeof sizes, "m%d:n%d:k%d", rows, (int)e->other, cols);
    else if (is_op(op, "dds"))
        snprintf(sizes, sizeof sizes, "m%d:n%d:k%d", (int)e->other, cols, rows);
    else if (is_op(op, "attention"))
        snprintf(sizes, sizeof sizes, "m%d:n%d:d%d", rows, cols, (int)e->other);
    else
        snprintf(sizes, sizeof sizes, "m%d:n%d", rows, cols);
    snprintf(text, PROBLEM_TEXT, "%.*s:%s:b%d:z%d:h%d:%s:%s%s", op_length(op), op, dtype, (int)block, (int)e->z,
             (int)e->h, sizes, e->pattern, strstr(op, "_grad") != NULL ? ":bwd" : "");
}

/* NULL for an op that this file does not know. */
static const entry *entries_of(const char *op, int *count) {
    static const struct {
        const char *op;
        const entry *forward;
        int count;
        const entry *grad;
        int grad_count;
    } lists[] = {
        {"sdd", product_entries, LENGTH(product_entries), product_grad_entries, LENGTH(product_grad_entries)},
        {"dsd", product_entries, LENGTH(product_entries), product_grad_entries, LENGTH(product_grad_entries)},
        {"dds", product_entries, LENGTH(product_entries), product_grad_entries, LENGTH(product_grad_entries)},
        {"softmax", softmax_entries, LENGTH(softmax_entries), softmax_grad_entries, LENGTH(softmax_grad_entries)},
        {"layernorm", norm_entries, LENGTH(norm_entries), norm_entries, LENGTH(norm_entries)},
        {"rmsnorm", norm_entries, LENGTH(norm_entries), norm_entries, LENGTH(norm_entries)},
        {"attention", attention_entries, LENGTH(attention_entries), attention_grad_entries,
         LENGTH(attention_grad_entries)},
        {"pack", copy_entries, LENGTH(copy_entries), NULL, 0},
        {"unpack", copy_entries, LENGTH(copy_entries), NULL, 0},
    };
    for (int i = 0; i < LENGTH(lists); ++i) {
        const bool grad = strstr(op, "_grad") != NULL;
        if (is_op(op, lists[i].op)) {
            *count = grad ? lists[i].grad_count : lists[i].count;
            return grad ? lists[i].grad : lists[i].forward;
        }
    }
    *count = 0;
    return NULL;
}

/* Where the results of one row go. */
typedef struct tally {
    const check_options *options;
    check_callback callback;
    void *user;
    int64_t problems, failed;
    bool counting, stopped;
} tally;

/* What runs through a list of problems: a row, or ops that are made of several. */
typedef struct subject {
    const char *name, *op;
    const char *kernel; /* to force; NULL: the library chooses */
    bstk_dtype dtype, packed_dtype;
    int32_t block;
} subject;

static void report(tally *t, const subject *s, const problem *p, const check_report *r) {
    t->failed += !r->passed;
    if (t->callback != NULL && !t->callback(t->user, s->name, p, r))
        t->stopped = true;
}

static void check_subject(tally *t, const subject *s) {
    int count;
    const entry *entries = entries_of(s->op, &count);
    int32_t runs = 0;
    problem p;
    check_report r;
    for (int i = 0; i < count && !t->stopped; ++i) {
        if (s->block != 0 && entries[i].block != 0 && entries[i].block != s->block)
            continue;
        ++t->problems;
        if (t->counting)
            continue;
        char text[PROBLEM_TEXT], error[PROBLEM_TEXT];
        const int32_t block = s->block != 0 ? s->block : entries[i].block != 0 ? entries[i].block : 16;
        entry_text(s->op, dtype_text(s->dtype, s->packed_dtype), &entries[i], block, text);
        if (problem_parse(text, &p, error)) {
            check_problem(&p, s->kernel, t->options, &r);
        } else {
            memset(&p, 0, sizeof p);
            memset(&r, 0, sizeof r);
            snprintf(r.message, sizeof r.message, "%s: %s", text, error);
        }
        runs += r.runs;
        report(t, s, &p, &r);
    }
    if (runs == 0 && !t->counting && !t->stopped) {
        memset(&p, 0, sizeof p);
        memset(&r, 0, sizeof r);
        snprintf(r.message, sizeof r.message,
                 entries == NULL ? "kernel %s: its op %s has no list of problems"
                                 : "kernel %s refused every problem of its list (%s)",
                 s->name, s->op);
        report(t, s, &p, &r);
    }
}

static bool is_wanted(const tally *t, const char *kernel) {
    return t->options == NULL || t->options->kernel == NULL || strcmp(t->options->kernel, kernel) == 0;
}

const char *const check_composed[] = {"sdd_grad", "dsd_grad", "dds_grad", "composed", NULL};

static void check_rows(tally *t) {
    static const bstk_dtype types[][2] = {{BSTK_F64, BSTK_F64},   {BSTK_F32, BSTK_F32}, {BSTK_F16, BSTK_F16},
                                          {BSTK_BF16, BSTK_BF16}, {BSTK_F16, BSTK_F32}, {BSTK_BF16, BSTK_F32}};
    for (int32_t i = 0; i < bstk_kernel_count() && !t->stopped; ++i) {
        bstk_kernel_info row = {.struct_size = sizeof row};
        if (bstk_kernel_get(i, &row) == BSTK_OK && row.available && is_wanted(t, row.name))
            check_subject(t, &(subject){row.name, row.op, row.name, row.dtype, row.packed_dtype, row.block});
    }
    for (const char *const *name = check_composed; *name != NULL; ++name) {
        const bool attention = strcmp(*name, "composed") == 0;
        for (int i = 0; i < (attention ? 4 : LENGTH(types)) && !t->stopped && is_wanted(t, *name); ++i)
            check_subject(t, &(subject){*name, attention ? "attention" : *name, attention ? "composed" : NULL,
                                        types[i][0], types[i][1], 0});
    }
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
