/*
 * test_matmul_grad.c: gradients of sdd, dsd and dds against float64 sums over dense matrices: every mode, flag and
 * type, operands shared by batches and heads, incoming gradients of any strides, and what must be refused.
 */
#include "check/bound.h"
#include "support/cm.h"
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, C, OPERANDS };

/* 0 in a size or in `packed` stands for the plain choice: 1 of it, all heads, all batches, the type of the dense. */
typedef struct grad_case {
    bstk_mode mode;
    bstk_dtype dtype, packed;
    int32_t block;
    int64_t z, h, m, n, k;
    bool trans[OPERANDS];
    rule layout;
    bool shared_layout;
    int64_t batches[2], heads[2]; /* of a and b; heads of a packed operand of a shared layout: 1 or h */
    gen_values values;
    gen_style style[OPERANDS], out_style;
    double alpha; /* 0: 1 */
    uint64_t seed;
} grad_case;

typedef struct problem {
    grad_case p;
    bstk_layout *layout;
    gen_array x[OPERANDS]; /* a, b, d_c */
    gen_array out[2];      /* d_a, d_b */
    int32_t sparse;        /* which one is packed */
    int64_t *numbers;      /* [layout heads, rows, cols]: the stored block's number, or -1 */
    double *want[2], *bound[2];
} problem;

static bstk_context *threads[8]; /* contexts of 1, 2 and 7 threads */

static int set_up(void **state) {
    (void)state;
    for (int n = 1; n < 8; n++) {
        bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
        opts.num_threads = n;
        ok(bstk_context_create(&opts, &threads[n]));
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int n = 1; n < 8; n++)
        bstk_context_release(threads[n]);
    return 0;
}

/* ---- making a problem -------------------------------------------------------------------------------------------- */

static const char *const mode_names[] = {"", "sdd", "dsd", "dds"};

static void text_of(const problem *x, const char *what, char text[256]) {
    const grad_case *p = &x->p;
    snprintf(text, 256, "%s %s %s/%s b%d z%lld (%lld, %lld) h%lld (%lld, %lld) m%lld n%lld k%lld%s%s%s%s",
             mode_names[p->mode], what, bstk_dtype_name(p->dtype), bstk_dtype_name(p->packed), (int)p->block,
             (long long)p->z, (long long)p->batches[A], (long long)p->batches[B], (long long)p->h,
             (long long)p->heads[A], (long long)p->heads[B], (long long)p->m, (long long)p->n, (long long)p->k,
             p->trans[A] ? " ta" : "", p->trans[B] ? " tb" : "", p->trans[C] ? " tc" : "",
             p->shared_layout ? " shared layout" : "");
}

/* Rows (0) or columns (1) of op(operand). */
static int64_t extent(const grad_case *p, int operand, int axis) {
    static const int letters[OPERANDS][2] = {{0, 2}, {2, 1}, {0, 1}};
    const int64_t sizes[3] = {p->m, p->n, p->k};
    return sizes[letters[operand][axis]];
}

static int64_t batches_of(const grad_case *p, int operand) {
    return operand == C ? p->z : p->batches[operand];
}
static int64_t heads_of(const grad_case *p, int operand) {
    return operand == C ? p->h : p->heads[operand];
}

/*
 * Position, in row-major order of the operand, of the element of op(operand) at (z, h, i, j) of the product; -1 where
 * nothing is stored.
 */
static int64_t locate(const problem *x, int operand, int64_t z, int64_t h, int64_t i, int64_t j) {
    const grad_case *p = &x->p;
    const int64_t heads = heads_of(p, operand);
    const int64_t oz = batches_of(p, operand) == 1 ? 0 : z, oh = h / (p->h / heads);
    const bool t = p->trans[operand];
    const int64_t row = t ? j : i, col = t ? i : j;
    if (operand != x->sparse)
        return ((oz * heads + oh) * extent(p, operand, t) + row) * extent(p, operand, !t) + col;
    const int64_t rows = bstk_layout_rows(x->layout), cols = bstk_layout_cols(x->layout), b = p->block;
    const int64_t number = x->numbers[((p->shared_layout ? 0 : h) * rows + row / b) * cols + col / b];
    if (number < 0)
        return -1;
    const int64_t nnz = bstk_layout_nnz(x->layout), blocks = x->x[operand].t.shape[1];
    return (((oz * blocks + number + (p->shared_layout ? oh * nnz : 0)) * b + row % b) * b) + col % b;
}

static void number_blocks(problem *x) {
    const bstk_layout *l = x->layout;
    const int64_t heads = bstk_layout_heads(l), rows = bstk_layout_rows(l), cols = bstk_layout_cols(l);
    x->numbers = malloc((size_t)(heads * rows * cols + 1) * sizeof *x->numbers);
    for (int64_t i = 0; i < heads * rows * cols; i++)
        x->numbers[i] = -1;
    for (int64_t line = 0; line < heads * rows; line++)
        for (int64_t n = bstk_layout_row_ptr(l)[line]; n < bstk_layout_row_ptr(l)[line + 1]; n++)
            x->numbers[line * cols + bstk_layout_col_idx(l)[n]] = n;
}

/* Everything of an operand that is no element of a matrix becomes NaN: it must not be looked at. */
static void poison(problem *x, int operand) {
    const bstk_tensor *t = &x->x[operand].t;
    const grad_case *p = &x->p;
    const int64_t count = gen_count(t);
    bool *real = calloc((size_t)count + 1, sizeof *real);
    for (int64_t z = 0; z < p->z; z++)
        for (int64_t h = 0; h < p->h; h++)
            for (int64_t i = 0; i < extent(p, operand, 0); i++)
                for (int64_t j = 0; j < extent(p, operand, 1); j++) {
                    const int64_t at = locate(x, operand, z, h, i, j);
                    if (at >= 0)
                        real[at] = true;
                }
    for (int64_t e = 0; e < count; e++)
        if (!real[e])
            gen_store(t->dtype, t->data, gen_offset(t, e), NAN);
    free(real);
}

static void make(problem *x, const grad_case *given) {
    *x = (problem){.p = *given};
    grad_case *p = &x->p;
    p->h = p->h ? p->h : 1;
    p->packed = p->packed ? p->packed : p->dtype;
    p->alpha = p->alpha != 0 ? p->alpha : 1;
    x->sparse = p->mode == BSTK_SDD ? C : p->mode == BSTK_DSD ? A : B;
    const bool t = p->trans[x->sparse];
    x->layout = rule_layout(&p->layout, p->shared_layout ? 1 : p->h, extent(p, x->sparse, t), extent(p, x->sparse, !t),
                            p->block);
    number_blocks(x);
    for (int i = A; i <= C; i++) {
        if (i != C) {
            p->batches[i] = p->batches[i] ? p->batches[i] : p->z;
            p->heads[i] = p->heads[i] ? p->heads[i] : p->h;
        }
        const int64_t batches = batches_of(p, i), heads = heads_of(p, i);
        const int64_t blocks = bstk_layout_nnz(x->layout) * (p->shared_layout ? heads : 1);
        const int64_t *const packed = shape(batches, blocks, p->block, p->block);
        const int64_t *const dense = shape(batches, heads, extent(p, i, p->trans[i]), extent(p, i, !p->trans[i]));
        const bstk_dtype dtype = i == x->sparse ? p->packed : p->dtype;
        const int64_t *const sizes = i == x->sparse ? packed : dense;
        make_array(&x->x[i], dtype, 4, sizes, p->style[i], p->values, 3 * p->seed + (uint64_t)i);
        if (p->style[i] < GEN_STYLES) /* else elements share memory */
            poison(x, i);
        if (i != C)
            make_array(&x->out[i], dtype, 4, sizes, p->out_style, GEN_NANS, p->seed + 7);
    }
}

static void drop(problem *x) {
    bstk_layout_release(x->layout);
    free(x->numbers);
    for (int i = A; i <= C; i++)
        gen_array_free(&x->x[i]);
    for (int i = A; i <= B; i++) {
        gen_array_free(&x->out[i]);
        free(x->want[i]);
        free(x->bound[i]);
    }
}

static bstk_matmul_grad_desc desc_of(problem *x) {
    bstk_matmul_grad_desc desc = BSTK_MATMUL_GRAD_DESC_INIT;
    desc.forward.mode = x->p.mode;
    desc.forward.trans_a = x->p.trans[A];
    desc.forward.trans_b = x->p.trans[B];
    desc.forward.trans_c = x->p.trans[C];
    desc.forward.layout = x->layout;
    desc.forward.a = &x->x[A].t;
    desc.forward.b = &x->x[B].t;
    desc.d_c = &x->x[C].t;
    desc.d_a = &x->out[A].t;
    desc.d_b = &x->out[B].t;
    return desc;
}

/* ---- the reference ----------------------------------------------------------------------------------------------- */

/* op(operand) of batch item z and head h as a dense matrix, 0 where nothing is stored. */
static void scatter(const problem *x, const double *elements, int operand, int64_t z, int64_t h, double *dense) {
    const int64_t rows = extent(&x->p, operand, 0), cols = extent(&x->p, operand, 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const int64_t at = locate(x, operand, z, h, i, j);
            dense[i * cols + j] = at < 0 ? 0 : elements[at];
        }
}

/* d op(A)(i, k) = sum_j G(i, j) B(k, j) and d op(B)(k, j) = sum_i A(i, k) G(i, j), at the elements that exist. */
static void refer(problem *x) {
    const grad_case *p = &x->p;
    double *elements[OPERANDS], *dense[OPERANDS], *size[2];
    for (int i = A; i <= C; i++) {
        elements[i] = gen_doubles(&x->x[i].t);
        dense[i] = malloc((size_t)(extent(p, i, 0) * extent(p, i, 1) + 1) * sizeof(double));
    }
    for (int i = A; i <= B; i++) {
        const size_t count = (size_t)gen_count(&x->out[i].t) + 1;
        x->want[i] = calloc(count, sizeof(double));
        x->bound[i] = calloc(count, sizeof(double));
        size[i] = calloc(count, sizeof(double));
    }
    for (int64_t z = 0; z < p->z; z++)
        for (int64_t h = 0; h < p->h; h++) {
            for (int i = A; i <= C; i++)
                scatter(x, elements[i], i, z, h, dense[i]);
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t k = 0; k < p->k; k++) {
                    const int64_t at = locate(x, A, z, h, i, k);
                    for (int64_t j = 0; at >= 0 && j < p->n; j++) {
                        const double term = p->alpha * dense[C][i * p->n + j] * dense[B][k * p->n + j];
                        x->want[A][at] += term;
                        size[A][at] += fabs(term);
                    }
                }
            for (int64_t k = 0; k < p->k; k++)
                for (int64_t j = 0; j < p->n; j++) {
                    const int64_t at = locate(x, B, z, h, k, j);
                    for (int64_t i = 0; at >= 0 && i < p->m; i++) {
                        const double term = p->alpha * dense[A][i * p->k + k] * dense[C][i * p->n + j];
                        x->want[B][at] += term;
                        size[B][at] += fabs(term);
                    }
                }
        }
    for (int i = A; i <= B; i++) {
        /* Terms of one element's sum: all batches and heads that shared it, times the inner size. */
        const int64_t terms =
            p->z * p->h / (p->heads[i] * (p->batches[i] ? p->batches[i] : 1)) * (i == A ? p->n : p->m);
        for (int64_t e = 0; e < gen_count(&x->out[i].t) && p->values != GEN_INTEGERS; e++)
            x->bound[i][e] = size[i][e] == 0 ? 0 : bound_product(x->out[i].t.dtype, terms, x->want[i][e], size[i][e]);
        free(size[i]);
    }
    for (int i = A; i <= C; i++) {
        free(elements[i]);
        free(dense[i]);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void clear(problem *x) {
    gen_fill(&x->out[A].t, GEN_NANS, 0);
    gen_fill(&x->out[B].t, GEN_NANS, 0);
}

/* Both gradients on 1, 7 and 7 threads, each alone on 2 without the data that it does not need: always the same bits.
 */
static void check_runs(problem *x) {
    char text[256];
    unsigned char *in[OPERANDS], *gaps[2], *first[2];
    for (int i = A; i <= C; i++)
        in[i] = gen_snapshot(&x->x[i]);
    clear(x);
    for (int i = A; i <= B; i++)
        gaps[i] = gen_snapshot(&x->out[i]);
    bstk_matmul_grad_desc desc = desc_of(x);
    ok(bstk_matmul_grad(threads[1], &desc, x->p.alpha));
    for (int i = A; i <= B; i++) {
        text_of(x, i == A ? "d_a" : "d_b", text);
        assert_within(text, &x->out[i].t, x->want[i], x->bound[i]);
        first[i] = gen_snapshot(&x->out[i]);
    }
    for (int run = 0; run < 4; run++) {
        const bool alone = run >= 2;
        const int which = run - 2; /* of a lone gradient */
        bstk_tensor unread = {0};
        desc = desc_of(x);
        if (alone) {
            unread = x->x[which].t;
            unread.data = NULL;
            *(which == A ? &desc.forward.a : &desc.forward.b) = &unread;
            *(which == A ? &desc.d_b : &desc.d_a) = NULL;
        }
        clear(x);
        ok(bstk_matmul_grad(threads[alone ? 2 : 7], &desc, x->p.alpha));
        for (int i = A; i <= B; i++) {
            text_of(x, i == A ? "d_a" : "d_b", text);
            if (alone && i != which) {
                if (!gen_unchanged(&x->out[i], gaps[i]))
                    fail_msg("%s: written though not wanted", text);
            } else if (!gen_unchanged(&x->out[i], first[i]))
                fail_msg("%s: run %d gave other bits", text, run);
        }
    }
    for (int i = A; i <= C; i++) {
        text_of(x, "gradient", text);
        if (!gen_unchanged(&x->x[i], in[i]) || (i != C && !gen_gaps_unchanged(&x->out[i], gaps[i])))
            fail_msg("%s: wrote outside of its outputs", text);
        free(in[i]);
    }
    for (int i = A; i <= B; i++) {
        free(gaps[i]);
        free(first[i]);
    }
}

static void check_grad(const grad_case *p) {
    problem x;
    make(&x, p);
    refer(&x);
    check_runs(&x);
    drop(&x);
}

/* ---- the matrix of cases ----------------------------------------------------------------------------------------- */

typedef struct types {
    bstk_dtype dense, packed;
} types;
static const types all_types[] = {{BSTK_F64, BSTK_F64},   {BSTK_F32, BSTK_F32}, {BSTK_F16, BSTK_F16},
                                  {BSTK_BF16, BSTK_BF16}, {BSTK_F16, BSTK_F32}, {BSTK_BF16, BSTK_F32}};
enum { TYPES = sizeof all_types / sizeof *all_types };

/* The size that the layout does not cover: K of sdd, N of dsd, M of dds. */
static void set_sizes(grad_case *p, int64_t rows, int64_t cols, int64_t free_size) {
    p->m = p->mode == BSTK_DDS ? free_size : rows;
    p->n = p->mode == BSTK_DSD ? free_size : cols;
    p->k = p->mode == BSTK_SDD ? free_size : p->mode == BSTK_DSD ? cols : rows;
}

static void set_flags(grad_case *p, int flags) {
    for (int i = A; i <= C; i++)
        p->trans[i] = flags >> i & 1;
}

typedef void visit(grad_case *p);

/* All modes, flags and types; what `p` has beside them stays. */
static void for_all(visit *body, const grad_case *p) {
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++)
        for (int flags = 0; flags < 8; flags++)
            for (int t = 0; t < TYPES; t++) {
                grad_case one = *p;
                one.mode = (bstk_mode)mode;
                one.dtype = all_types[t].dense;
                one.packed = all_types[t].packed;
                one.seed = p->seed + (uint64_t)(mode * 100 + flags * 10 + t);
                set_flags(&one, flags);
                body(&one);
            }
}

static void ragged(grad_case *p) {
    set_sizes(p, 27, 20, 17);
    check_grad(p);
}

static void plain(void **state) {
    (void)state;
    for_all(ragged,
            &(grad_case){.block = 8, .z = 2, .h = 2, .alpha = 0.75, .layout = {.kind = RULE_BERNOULLI, .p = .5}});
}

static void integers(void **state) {
    (void)state;
    for_all(ragged, &(grad_case){.block = 16,
                                 .z = 2,
                                 .h = 4,
                                 .heads = {[B] = 1},
                                 .batches = {[A] = 1},
                                 .values = GEN_INTEGERS,
                                 .layout = {.kind = RULE_MIXED}});
}

/* Every way in which an operand can be shared, in its mode. */
static void shared(grad_case *p) {
    const int sparse = p->mode == BSTK_SDD ? C : p->mode == BSTK_DSD ? A : B;
    set_sizes(p, 20, 27, 9);
    for (int layout = 0; layout < 2; layout++)
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < 3; b++) {
                grad_case one = *p;
                one.shared_layout = layout;
                one.heads[A] = a && (sparse != A || layout) ? 1 : 4;
                one.heads[B] = b == 0 || (sparse == B && !layout) ? 4 : b == 1 || sparse == B ? 1 : 2;
                if (layout && one.heads[A] != 4 && one.heads[B] != 4) /* then that would be all heads */
                    continue;
                one.batches[A] = b == 2 ? 1 : 3;
                one.batches[B] = a && b != 2 ? 1 : 3;
                check_grad(&one);
            }
}

static void shared_operands(void **state) {
    (void)state;
    for_all(shared, &(grad_case){.block = 8, .z = 3, .h = 4, .layout = {.kind = RULE_BERNOULLI, .p = .4, .seed = 5}});
}

/* A gradient summed over so many tasks' worth of work that the cut matters, from heads of very different density. */
static void large_sums(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++)
        for (int layout = 0; layout < 2; layout++)
            for (int which = A; which <= B; which++) {
                grad_case p = {.mode = (bstk_mode)mode,
                               .dtype = BSTK_F32,
                               .block = 16,
                               .z = 2,
                               .h = 3,
                               .shared_layout = layout,
                               .layout = {.kind = layout ? RULE_BERNOULLI : RULE_MIXED, .p = .6},
                               .trans = {[A] = layout, [C] = !layout}};
                const int sparse = mode == BSTK_SDD ? C : mode == BSTK_DSD ? A : B;
                set_sizes(&p, 100, 130, 40);
                p.batches[which] = 1;
                p.heads[which] = which == sparse && !layout ? 3 : 1;
                check_grad(&p);
            }
}

/* Layouts without a block, without a row, with one block; sizes of 0 and 1. */
static void corner(grad_case *p) {
    static const rule rules[] = {{.kind = RULE_ZEROS},
                                 {.kind = RULE_MIXED},
                                 {.kind = RULE_FIRST_ROW},
                                 {.kind = RULE_LAST_COLUMN},
                                 {.kind = RULE_SINGLE, .at_row = 1, .at_col = 0}};
    static const int64_t sizes[] = {0, 1, 17};
    if (p->dtype == BSTK_F64 || p->dtype == BSTK_BF16)
        return;
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int layout = 0; layout < 2; layout++) {
                grad_case one = *p;
                one.layout = rules[r];
                one.shared_layout = layout;
                one.heads[one.mode == BSTK_DDS ? A : B] = r % 2 ? 1 : 3;
                set_sizes(&one, 23, 16, sizes[s]);
                check_grad(&one);
            }
}

static void corners(void **state) {
    (void)state;
    for_all(corner, &(grad_case){.block = 8, .z = 2, .h = 3, .batches = {[B] = 1}});
}

/* No batch item at all: what was shared gets the empty sum. */
static void no_batch(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++)
        for (int which = A; which <= B; which++) {
            grad_case p = {.mode = (bstk_mode)mode, .dtype = BSTK_F32, .block = 8, .z = 0, .h = 2};
            set_sizes(&p, 16, 24, 5);
            p.batches[which] = 1;
            check_grad(&p);
        }
}

/* Every array in every style, and d_c with one element for all, as sum().backward() has it. */
static void style(grad_case *p) {
    static const gen_style last[] = {GEN_ZERO_FIRST, GEN_ZERO_SECOND};
    if (p->dtype != BSTK_F32 && p->packed != BSTK_BF16)
        return;
    set_sizes(p, 21, 27, 11);
    for (int s = 0; s < GEN_STYLES + 2; s++) {
        grad_case one = *p;
        one.style[C] = s < GEN_STYLES ? (gen_style)s : last[s - GEN_STYLES];
        one.style[A] = (gen_style)((s + 1) % GEN_STYLES);
        one.style[B] = (gen_style)((s + 2) % GEN_STYLES);
        one.out_style = (gen_style)((s + 3) % GEN_STYLES);
        check_grad(&one);
    }
}

static void styles(void **state) {
    (void)state;
    for_all(style, &(grad_case){.block = 8, .z = 2, .h = 2, .heads = {[B] = 0}, .layout = {.kind = RULE_TRIL}});
}

/* ---- single rules ------------------------------------------------------------------------------------------------ */

/* alpha 0: nothing is read, everything is 0. */
static void alpha_zero(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++) {
        grad_case p = {.mode = (bstk_mode)mode, .dtype = BSTK_F32, .block = 8, .z = 2, .h = 2, .values = GEN_NANS};
        problem x;
        set_sizes(&p, 16, 24, 5);
        p.batches[A] = 1;
        make(&x, &p);
        const bstk_matmul_grad_desc desc = desc_of(&x);
        ok(bstk_matmul_grad(NULL, &desc, 0));
        for (int i = A; i <= B; i++)
            for (int64_t e = 0; e < gen_count(&x.out[i].t); e++)
                assert_true(gen_load(BSTK_F32, x.out[i].t.data, gen_offset(&x.out[i].t, e)) == 0);
        drop(&x);
    }
}

/* A NaN in d_c reaches just the elements that its row and column meet at stored blocks. */
static void live_nan(void **state) {
    (void)state;
    grad_case p = {.mode = BSTK_DSD, .dtype = BSTK_F32, .block = 8, .z = 1, .layout = {.kind = RULE_DIAG}};
    problem x;
    set_sizes(&p, 24, 24, 3);
    make(&x, &p);
    gen_store(BSTK_F32, x.x[C].t.data, gen_offset(&x.x[C].t, 9 * 3 + 1), NAN); /* row 9, column 1 */
    const bstk_matmul_grad_desc desc = desc_of(&x);
    ok(bstk_matmul_grad(NULL, &desc, 1));
    for (int64_t e = 0; e < gen_count(&x.out[A].t); e++)
        assert_int_equal(isnan(gen_load(BSTK_F32, x.out[A].t.data, e)), e / 64 == 1 && e % 64 / 8 == 1);
    for (int64_t e = 0; e < gen_count(&x.out[B].t); e++)
        assert_int_equal(isnan(gen_load(BSTK_F32, x.out[B].t.data, e)), e / 24 == 1 && e % 3 == 1);
    drop(&x);
}

/* sum of x(e) y(e) and of its magnitudes over the elements that exist. */
static double dot(const problem *x, int operand, const bstk_tensor *u, const bstk_tensor *v, double *size) {
    const grad_case *p = &x->p;
    double *us = gen_doubles(u), *vs = gen_doubles(v), sum = 0;
    bool *seen = calloc((size_t)gen_count(u) + 1, sizeof *seen);
    *size = 0;
    for (int64_t z = 0; z < p->z; z++)
        for (int64_t h = 0; h < p->h; h++)
            for (int64_t i = 0; i < extent(p, operand, 0); i++)
                for (int64_t j = 0; j < extent(p, operand, 1); j++) {
                    const int64_t at = locate(x, operand, z, h, i, j);
                    if (at < 0 || seen[at])
                        continue;
                    seen[at] = true;
                    sum += us[at] * vs[at];
                    *size += fabs(us[at] * vs[at]);
                }
    free(us);
    free(vs);
    free(seen);
    return sum;
}

/* <d_C, C> = <d_A, A> = <d_B, B>: C is linear in either operand. */
static void scalar_products(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++)
        for (int flags = 0; flags < 8; flags++) {
            grad_case p = {.mode = (bstk_mode)mode,
                           .dtype = BSTK_F64,
                           .block = 8,
                           .z = 3,
                           .h = 4,
                           .alpha = -1.5,
                           .batches = {[A] = 1},
                           .layout = {.kind = RULE_BERNOULLI, .p = .5, .seed = (uint64_t)flags}};
            p.heads[mode == BSTK_DDS ? A : B] = mode == BSTK_DDS ? 1 : 2;
            set_sizes(&p, 20, 37, 13);
            set_flags(&p, flags);
            problem x;
            gen_array c;
            make(&x, &p);
            make_array(&c, BSTK_F64, 4, x.x[C].t.shape, GEN_CONTIGUOUS, GEN_NANS, 0);
            const bstk_matmul_grad_desc desc = desc_of(&x);
            bstk_matmul_desc forward = desc.forward;
            forward.c = &c.t;
            ok(bstk_matmul(NULL, &forward, p.alpha, 0));
            ok(bstk_matmul_grad(NULL, &desc, p.alpha));
            double size[OPERANDS];
            const double of_c = dot(&x, C, &x.x[C].t, &c.t, &size[C]);
            const double of_a = dot(&x, A, &x.x[A].t, &x.out[A].t, &size[A]);
            const double of_b = dot(&x, B, &x.x[B].t, &x.out[B].t, &size[B]);
            assert_true(fabs(of_c - of_a) <= 1e-12 * (size[A] + size[C]));
            assert_true(fabs(of_c - of_b) <= 1e-12 * (size[B] + size[C]));
            gen_array_free(&c);
            drop(&x);
        }
}

/* ---- cases that broke predecessors --------------------------------------------------------------------------- */

/* BC-086: a product that is right with gradients that are not; M and N differ. */
static void wrong_gradients(void **state) {
    (void)state;
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            grad_case p = {
                .mode = (bstk_mode)mode,
                .dtype = BSTK_F32,
                .block = 64,
                .z = 1,
                .seed = seed,
                .layout = {.kind = seed ? RULE_BERNOULLI : RULE_ONES, .p = .5, .seed = seed, .no_empty = true}};
            p.m = 1024;
            p.n = 768;
            p.k = 64;
            check_grad(&p);
            for (uint64_t more = 0; more < 10; more++) {
                p.m = 256;
                p.n = 192;
                p.seed = p.layout.seed = 10 * seed + more + 2;
                p.layout.kind = RULE_BERNOULLI;
                check_grad(&p);
            }
        }
}

/* BC-079: d_c is one element for all, transposed, or a slice: the gradients of a contiguous copy, to the bit. */
static void incoming_strides(void **state) {
    (void)state;
    static const gen_style strided[] = {GEN_TRANSPOSED, GEN_PADDED, GEN_SHUFFLED};
    for (int mode = BSTK_SDD; mode <= BSTK_DDS; mode++)
        for (int kind = 0; kind < 4; kind++) {
            grad_case p = {.mode = (bstk_mode)mode, .dtype = BSTK_F16, .block = 16, .z = 2, .h = 4};
            problem x;
            gen_array other;
            p.m = p.n = 32;
            p.k = mode == BSTK_SDD ? 128 : 32;
            make(&x, &p);
            bstk_tensor *d_c = &x.x[C].t;
            const int64_t count = gen_count(d_c);
            if (kind == 3)
                for (int64_t e = 0; e < count; e++)
                    gen_store(BSTK_F16, d_c->data, e, 1);
            bstk_matmul_grad_desc desc = desc_of(&x);
            ok(bstk_matmul_grad(NULL, &desc, 1));
            unsigned char *first[2] = {gen_snapshot(&x.out[A]), gen_snapshot(&x.out[B])};
            assert_true(gen_array_make(&other, BSTK_F16, 4, d_c->shape, kind < 3 ? strided[kind] : GEN_CONTIGUOUS, 1));
            for (int64_t e = 0; e < count; e++)
                gen_store(BSTK_F16, other.t.data, gen_offset(&other.t, e), gen_load(BSTK_F16, d_c->data, e));
            if (kind == 3)
                memset(other.t.stride, 0, sizeof other.t.stride);
            desc.d_c = &other.t;
            clear(&x);
            ok(bstk_matmul_grad(NULL, &desc, 1));
            for (int i = A; i <= B; i++) {
                assert_true(gen_unchanged(&x.out[i], first[i]));
                free(first[i]);
            }
            gen_array_free(&other);
            drop(&x);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),           cmocka_unit_test(integers),        cmocka_unit_test(shared_operands),
        cmocka_unit_test(large_sums),      cmocka_unit_test(corners),         cmocka_unit_test(no_batch),
        cmocka_unit_test(styles),          cmocka_unit_test(alpha_zero),      cmocka_unit_test(live_nan),
        cmocka_unit_test(scalar_products), cmocka_unit_test(wrong_gradients), cmocka_unit_test(incoming_strides),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
