/*
 * test_check.c: the judge can say no. Wrong results of every kind are put into right ones and must be found; right ones
 * must pass. Also problem strings, the comparison rules, and runs with operands up against forbidden pages.
 */
#include "check/bound.h"
#include "check/check.h"
#include "check/gen.h"
#include "support/cm.h"
#include "support/guard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- problem strings --------------------------------------------------------------------------------------------- */

static problem parsed(const char *text) {
    problem p;
    char error[PROBLEM_TEXT] = "";
    if (!problem_parse(text, &p, error))
        fail_msg("%s: %s", text, error);
    return p;
}

static void strings_come_back(void **state) {
    (void)state;
    static const char *const canonical[] = {
        "dsd:f32:b64:m2048:n2048:k2048:bernoulli(0.5,0)",
        "sdd:bf16:b64:z2:h8:m4096:n4096:k64:local(4):ta:tb:tc",
        "dds:f16+f32:b8:m1:n0:k7:bernoulli(1e-05,18446744073709551615)",
        "softmax:f64:b256:h3:m300:n513:bigbird(3,2,1,42):causal",
        "attention:bf16:b16:z4:m1:n1:d256:longformer(5,1)",
        "pack:f16:b24:m5:n7:diag",
        "unpack:f32:b32:m64:n64:tril",
        "sdd:f64:b16:m3:n4:k5:ones",
        "dsd:f32:b64:m128:n8:k64:file(a/b:c (1).npy):ta",
        "dsd:f32:b64:m128:n8:k64:bernoulli(0.3333333333333333,1)",
        "attention:f16:b64:m64:n64:d64:ones:causal:cuda",
    };
    for (size_t i = 0; i < sizeof canonical / sizeof *canonical; ++i) {
        const problem p = parsed(canonical[i]);
        char text[PROBLEM_TEXT];
        assert_string_equal(problem_print(&p, text), canonical[i]);
        const problem again = parsed(text);
        assert_memory_equal(&again.z, &p.z, 5 * sizeof p.z);
        assert_true(again.density == p.density && again.seed == p.seed);
    }
    char text[PROBLEM_TEXT];
    const problem loose = parsed("dsd:f32:tril:cpu:n5:h1:m6:ta:b8:z1:k7"); /* any order, defaults spelt out */
    assert_string_equal(problem_print(&loose, text), "dsd:f32:b8:m6:n5:k7:tril:ta");
}

static void strings_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "problem: op is '', expected sdd, dsd, dds, softmax, attention, pack or unpack"},
        {"spmm:f32", "problem: op is 'spmm', expected sdd, dsd, dds, softmax, attention, pack or unpack"},
        {"layernorm:f32:b16:m1:n1:ones", "problem: op layernorm is not in this build"},
        {"sdd", "problem: 'sdd' has no dtype, expected OP:DTYPE:bB:mM:nN:..."},
        {"sdd:f8:b16", "problem: dtype is 'f8', expected f64, f32, f16, bf16, f16+f32 or bf16+f32"},
        {"softmax:f16+f32:b16", "problem: dtype f16+f32 is for sdd, dsd and dds only, not for softmax"},
        {"sdd:f32:b12:m1:n1:k1:ones", "problem: block is 12, expected a multiple of 8"},
        {"sdd:f32:b0:m1:n1:k1:ones", "problem: size 'b0', expected b and a number from 8 to 256"},
        {"sdd:f32:b512:m1:n1:k1:ones", "problem: size 'b512', expected b and a number from 8 to 256"},
        {"sdd:f32:b16:m1x:n1:k1:ones", "problem: size 'm1x', expected m and a number from 0 to 1000000000000"},
        {"sdd:f32:b16:z0:m1:n1:k1:ones", "problem: size 'z0', expected z and a number from 1 to 1000000000000"},
        {"sdd:f32:b16:m99999999999999999999:n1:k1:ones",
         "problem: size 'm99999999999999999999', expected m and a number from 0 to 1000000000000"},
        {"sdd:f32:m1:n1:k1:ones", "problem: block (bB) is missing in 'sdd:f32:m1:n1:k1:ones'"},
        {"sdd:f32:b16:n1:k1:ones", "problem: rows (mM) is missing in 'sdd:f32:b16:n1:k1:ones'"},
        {"sdd:f32:b16:m1:k1:ones", "problem: columns (nN) is missing in 'sdd:f32:b16:m1:k1:ones'"},
        {"sdd:f32:b16:m1:n1:ones", "problem: inner size (kK) is missing in 'sdd:f32:b16:m1:n1:ones'"},
        {"attention:f32:b16:m1:n1:ones", "problem: head size (dD) is missing in 'attention:f32:b16:m1:n1:ones'"},
        {"attention:f32:b16:m1:n1:d257:ones", "problem: size 'd257', expected d and a number from 1 to 256"},
        {"sdd:f32:b16:m1:n1:k1", "problem: pattern is missing in 'sdd:f32:b16:m1:n1:k1'"},
        {"sdd:f32:b16:m1:m1:n1:k1:ones", "problem: 'm1' comes after another part of its kind"},
        {"sdd:f32:b16:m1:n1:k1:ones:diag", "problem: 'diag' comes after another part of its kind"},
        {"sdd:f32:b16:m1:n1:k1:ones:cpu:cuda", "problem: 'cuda' comes after another part of its kind"},
        {"softmax:f32:b16:m1:n1:k1:ones", "problem: size 'k1' does not belong to softmax"},
        {"softmax:f32:b16:m1:n1:ones:ta", "problem: ta is for sdd, dsd and dds only, not for softmax"},
        {"sdd:f32:b16:m1:n1:k1:ones:causal", "problem: causal is for softmax and attention only, not for sdd"},
        {"sdd:f32:b16:m1:n1:k1:ones:bwd", "problem: bwd is not in this build"},
        {"sdd:f32:b16:m1:n1:k1:zeros",
         "problem: 'zeros' is neither a size, a flag nor a pattern (ones diag tril bernoulli(p,seed) local(w) "
         "bigbird(w,g,r,seed) longformer(w,g) file(path))"},
        {"sdd:f32:b16:m1:n1:k1:", "problem: '' is neither a size, a flag nor a pattern (ones diag tril "
                                  "bernoulli(p,seed) local(w) bigbird(w,g,r,seed) longformer(w,g) file(path))"},
        {"sdd:f32:b16:m1:n1:k1:local(4", "problem: pattern 'local(4' has no closing bracket"},
        {"sdd:f32:b16:m1:n1:k1:local(", "problem: pattern 'local(' has no closing bracket"},
        {"sdd:f32:b16:m1:n1:k1:local()", "problem: pattern is 'local()', expected local(w)"},
        {"sdd:f32:b16:m1:n1:k1:local", "problem: pattern is 'local', expected local(w)"},
        {"sdd:f32:b16:m1:n1:k1:ones(1)", "problem: pattern is 'ones(1)', expected ones"},
        {"sdd:f32:b16:m1:n1:k1:bernoulli(1.5,0)",
         "problem: pattern is 'bernoulli(1.5,0)', expected bernoulli(p,seed), p from 0 to 1"},
        {"sdd:f32:b16:m1:n1:k1:bernoulli(nan,0)",
         "problem: pattern is 'bernoulli(nan,0)', expected bernoulli(p,seed), p from 0 to 1"},
        {"sdd:f32:b16:m1:n1:k1:bigbird(1,2,3)", "problem: pattern is 'bigbird(1,2,3)', expected bigbird(w,g,r,seed)"},
        {"sdd:f32:b16:m1:n1:k1:bigbird(1,2,3,4,5,6)",
         "problem: pattern is 'bigbird(1,2,3,4,5,6)', expected bigbird(w,g,r,seed)"},
        {"sdd:f32:b16:m1:n1:k1:longformer(-1,2)", "problem: pattern is 'longformer(-1,2)', expected longformer(w,g)"},
        {"sdd:f32:b16:m1:n1:k1:file()", "problem: pattern 'file' has no path, expected file(path)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        problem p;
        char error[PROBLEM_TEXT] = "";
        if (problem_parse(cases[i][0], &p, error))
            fail_msg("'%s' was taken", cases[i][0]);
        assert_string_equal(error, cases[i][1]);
    }
}

static void layouts_of_problems(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t m, n, rows, cols;
    } cases[] = {
        {"sdd:f32:b16:m40:n70:k9:ones", 40, 70, 3, 5},    {"sdd:f32:b16:m40:n70:k9:ones:ta:tb", 40, 70, 3, 5},
        {"sdd:f32:b16:m40:n70:k9:ones:tc", 70, 40, 5, 3}, {"dsd:f32:b16:m40:n70:k9:ones", 40, 9, 3, 1},
        {"dsd:f32:b16:m40:n70:k9:ones:ta", 9, 40, 1, 3},  {"dsd:f32:b16:m40:n70:k9:ones:tb:tc", 40, 9, 3, 1},
        {"dds:f32:b16:m40:n70:k9:ones", 9, 70, 1, 5},     {"dds:f32:b16:m40:n70:k9:ones:tb", 70, 9, 5, 1},
        {"softmax:f32:b16:m40:n70:ones", 40, 70, 3, 5},   {"attention:f32:b64:m40:n70:d9:ones", 40, 70, 1, 2},
        {"pack:f32:b8:m0:n70:ones", 0, 70, 0, 9},         {"unpack:f32:b8:m8:n1:ones", 8, 1, 1, 1},
    };
    char error[PROBLEM_TEXT] = "";
    bstk_layout *layout;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const problem p = parsed(cases[i].text);
        assert_true(problem_layout(NULL, &p, &layout, error));
        assert_int_equal(bstk_layout_m(layout), cases[i].m);
        assert_int_equal(bstk_layout_n(layout), cases[i].n);
        assert_int_equal(bstk_layout_rows(layout), cases[i].rows);
        assert_int_equal(bstk_layout_cols(layout), cases[i].cols);
        assert_int_equal(bstk_layout_nnz(layout), cases[i].rows * cases[i].cols);
        bstk_layout_release(layout);
    }
    static const struct {
        const char *text;
        int64_t nnz;
    } counts[] = {{"softmax:f32:b16:h2:m80:n80:diag", 10},         {"softmax:f32:b16:m80:n80:tril", 15},
                  {"softmax:f32:b16:m80:n80:local(3)", 13},        {"softmax:f32:b16:m80:n80:local(3):causal", 9},
                  {"softmax:f32:b16:m80:n80:longformer(1,1)", 13}, {"softmax:f32:b16:m80:n80:bernoulli(0,1)", 0},
                  {"softmax:f32:b16:m80:n80:bernoulli(1,1)", 25},  {"softmax:f32:b16:m80:n80:ones:causal", 25}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        const problem p = parsed(counts[i].text);
        assert_true(problem_layout(NULL, &p, &layout, error));
        assert_int_equal(bstk_layout_nnz(layout), counts[i].nnz);
        bstk_layout_release(layout);
    }
    const problem missing = parsed("softmax:f32:b16:m80:n80:file(no_such_file.npy)");
    assert_false(problem_layout(NULL, &missing, &layout, error));
    assert_non_null(strstr(error, "no_such_file.npy"));
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static bound_result compare_one(bstk_dtype dtype, double got, double want, double bound) {
    double memory = 0;
    gen_store(dtype, &memory, 0, got);
    const bstk_tensor t = bstk_tensor_make(&memory, dtype, 1, shape(1));
    return bound_compare(&t, &want, &bound);
}

static void comparison_rules(void **state) {
    (void)state;
    assert_true(compare_one(BSTK_F64, 1.0, 1.25, 0.25).ok);
    assert_false(compare_one(BSTK_F64, 1.0, 1.5, 0.25).ok); /* two bounds off */
    assert_true(compare_one(BSTK_F64, 1.0, 1.5, 0.25).worst == 2);
    assert_false(compare_one(BSTK_F64, NAN, 1, 0.25).ok);
    assert_false(compare_one(BSTK_F64, NAN, 1, 0).ok);
    assert_false(compare_one(BSTK_F64, 1, NAN, 0.25).ok);
    assert_true(compare_one(BSTK_F64, NAN, NAN, 0).ok);
    assert_false(compare_one(BSTK_F64, INFINITY, 1, 0.25).ok);
    assert_true(compare_one(BSTK_F64, INFINITY, INFINITY, NAN).ok);
    assert_false(compare_one(BSTK_F64, -INFINITY, INFINITY, 1).ok);
    assert_false(compare_one(BSTK_F64, 1e300, INFINITY, INFINITY).ok);
    assert_true(compare_one(BSTK_F64, 1e300, 0, INFINITY).ok); /* either way is right */
    assert_true(compare_one(BSTK_F64, -0.0, 0, 0).ok);
    assert_false(compare_one(BSTK_F64, 0x1p-1074, 0, 0).ok);
    assert_false(compare_one(BSTK_F64, 1, 1, NAN).ok);
    /* Bound 0: the value rounded once to the type. */
    assert_true(compare_one(BSTK_F16, 2048, 2049, 0).ok);
    assert_false(compare_one(BSTK_F16, 2050, 2049, 0).ok);
    assert_true(compare_one(BSTK_BF16, 258, 257.5, 0).ok);
    /* Around the largest f16, 65504: infinity where the bound reaches 65520. */
    assert_true(compare_one(BSTK_F16, INFINITY, 65500, 32).ok);
    assert_true(compare_one(BSTK_F16, 65504, 65530, 32).ok);
    assert_false(compare_one(BSTK_F16, INFINITY, 65400, 32).ok);
    assert_false(compare_one(BSTK_F16, -INFINITY, 65500, 32).ok);
    assert_false(compare_one(BSTK_F16, 65504, 70000, 32).ok);
    assert_true(compare_one(BSTK_F16, INFINITY, 70000, 0).ok);
    /* The report names the worst. */
    double got[4] = {1, 2, 3, 4};
    const double want[4] = {1, 2.5, 0, 4}, bound[4] = {1, 0.25, 1, 1};
    const bstk_tensor t = bstk_tensor_make(got, BSTK_F64, 2, shape(2, 2));
    const bound_result r = bound_compare(&t, want, bound);
    assert_true(!r.ok && r.at == 2 && r.bad == 2 && r.got == 3 && r.want == 0 && r.bound == 1 && r.worst == 3);
}

/* ---- tampering --------------------------------------------------------------------------------------------------- */

typedef struct tamper {
    int what;      /* see tamper_run */
    int from, run; /* acts from this run on, counted from 1 */
} tamper;

enum { NOTHING, ONE_ELEMENT, TRANSPOSED_BLOCK, UNTOUCHED, AROUND, BETWEEN, INPUT, SCRATCH, LSE, FLIPPED_BIT };

static void tamper_run(void *user, workload *w) {
    tamper *t = user;
    const bstk_tensor *out = &w->array[w->out].t;
    const int64_t last = gen_count(out) - 1;
    unsigned char *item = (unsigned char *)out->data;
    if (++t->run < t->from || last < 0)
        return;
    switch (t->what) {
    case ONE_ELEMENT: {
        /* Not the last one, which a ragged edge may have: one in the middle of the first row. */
        const int64_t at = gen_offset(out, 1);
        const double value = gen_load(out->dtype, out->data, at);
        gen_store(out->dtype, out->data, at, value + fabs(value) / 64 + 0x1p-10);
        break;
    }
    case TRANSPOSED_BLOCK: /* the first block of packed values */
        for (int64_t i = 0; i < w->p.block; ++i) {
            for (int64_t j = 0; j < i; ++j) {
                const int64_t at = gen_offset(out, i * w->p.block + j), to = gen_offset(out, j * w->p.block + i);
                const double value = gen_load(out->dtype, out->data, at);
                gen_store(out->dtype, out->data, at, gen_load(out->dtype, out->data, to));
                gen_store(out->dtype, out->data, to, value);
            }
        }
        break;
    case UNTOUCHED:
        gen_store(out->dtype, out->data, gen_offset(out, last), NAN);
        break;
    case AROUND:
        w->array[w->out].memory[w->array[w->out].bytes - 1] ^= 1;
        break;
    case BETWEEN: /* the first byte that is no element's: before the data */
        w->array[w->out].memory[3] ^= 1;
        break;
    case INPUT:
        ((unsigned char *)w->array[WORKLOAD_A].t.data)[0] ^= 1;
        break;
    case SCRATCH:
        w->scratch.memory[w->scratch.bytes - 1] = 0;
        break;
    case LSE:
        if (w->array[WORKLOAD_LSE].memory != NULL)
            gen_store(w->array[WORKLOAD_LSE].t.dtype, w->array[WORKLOAD_LSE].t.data, 0, 40);
        break;
    case FLIPPED_BIT:
        item[0] ^= 1; /* last bit of the first element: within the bound, but other bits */
        break;
    default:
        break;
    }
}

/* The check must fail with a message that starts with the problem and has `part` in it. */
static void caught(const char *text, int what, int from, const char *part) {
    const problem p = parsed(text);
    tamper t = {.what = what, .from = from};
    const check_options options = {.variants = 1, .tamper = tamper_run, .tamper_user = &t};
    check_report report;
    if (check_problem(&p, NULL, &options, &report))
        fail_msg("%s: tampering %d was not found", text, what);
    assert_false(report.passed);
    assert_memory_equal(report.message, text, strlen(text));
    if (strstr(report.message, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, report.message);
    assert_null(strchr(report.message, '\n'));
    if (from < 3)
        assert_non_null(strstr(report.message, report.kernel));
}

static void wrong_results_are_caught(void **state) {
    (void)state;
    static const char *const all[] = {
        "sdd:f32:b16:m40:n50:k33:ones",       "sdd:f16:b8:h2:m24:n24:k20:ones:tc",   "dsd:f64:b16:m33:n20:k48:ones",
        "dsd:bf16+f32:b16:m33:n20:k48:tril",  "dds:bf16:b16:m20:n48:k40:ones:ta",    "softmax:f32:b16:m32:n40:ones",
        "softmax:f16:b16:m32:n40:ones",       "softmax:bf16:b16:m32:n40:ones",       "softmax:f64:b16:m32:n40:ones",
        "attention:f32:b16:m32:n32:d16:ones", "attention:bf16:b16:m32:n32:d16:ones", "pack:f32:b16:m32:n32:ones",
        "unpack:f16:b16:m32:n32:ones",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        const problem p = parsed(all[i]);
        tamper nothing = {.what = NOTHING};
        const check_options options = {.variants = 1, .tamper = tamper_run, .tamper_user = &nothing};
        check_report report;
        if (!check_problem(&p, NULL, &options, &report))
            fail_msg("%s", report.message);
        assert_true(report.worst <= 1 && report.runs == 15 && nothing.run == 15 && report.message[0] == '\0');
        caught(all[i], ONE_ELEMENT, 1, "[");
        caught(all[i], UNTOUCHED, 1, "is nan, expected");
        caught(all[i], AROUND, 1, "first run: bytes around or between the elements of output were written");
        caught(all[i], BETWEEN, 1, "first run: bytes around or between the elements of output were written");
        caught(all[i], INPUT, 1, "first run: input a, x or q was written");
        caught(all[i], SCRATCH, 1, "first run: bytes outside the scratch were written");
        caught(all[i], FLIPPED_BIT, 2, "the second run gives other bits than the first run");
        caught(all[i], FLIPPED_BIT, 3, "a run on 1 threads gives other bits than the first run");
        caught(all[i], FLIPPED_BIT, 5, "a run on 7 threads gives other bits than the first run");
    }
    caught("sdd:f32:b16:m32:n32:k33:ones", TRANSPOSED_BLOCK, 1, "c[");
    caught("softmax:f32:b16:m32:n32:ones", TRANSPOSED_BLOCK, 1, "y[");
    caught("pack:f32:b16:m32:n32:ones", TRANSPOSED_BLOCK, 1, "y[");
    caught("softmax:f32:b16:m32:n32:ones", LSE, 1, "lse[0, 0, 0] is 40, expected");
    caught("attention:f16:b16:m32:n32:d8:ones", LSE, 1, "lse[0, 0, 0] is 40, expected");
    /* Only in the pass with integers (runs 6 to 10): a last bit that the bound would forgive. */
    caught("dsd:f32:b16:m32:n20:k32:ones", FLIPPED_BIT, 6, "integers, variant 0");
    caught("softmax:f32:b16:m32:n32:ones", FLIPPED_BIT, 6, "integers, variant 0");
    caught("attention:f16:b16:m32:n32:d8:ones", FLIPPED_BIT, 6, "integers, variant 0");
}

static void plans_and_kernels(void **state) {
    (void)state;
    problem p = parsed("dsd:f32:b16:m33:n20:k48:ones");
    check_report report;
    assert_true(check_problem(&p, "dsd_f32_scalar", NULL, &report));
    assert_string_equal(report.kernel, "dsd_f32_scalar");
    assert_int_equal(report.runs, 6 * 15);
    assert_false(check_problem(&p, "no_such_kernel", NULL, &report));
    assert_non_null(strstr(report.message, "no_such_kernel"));
    p = parsed("dsd:f32:b16:m33:n20:k48:ones:cuda");
    assert_false(check_problem(&p, NULL, NULL, &report));
    assert_string_equal(report.message, "dsd:f32:b16:m33:n20:k48:ones:cuda: problem: device cuda is not in this build");
}

/* ---- forbidden pages --------------------------------------------------------------------------------------------- */

/* Moves the contiguous operands of variant 0 up against a forbidden page; the results must be the usual bits. */
static void run_guarded(const char *text, guard_side side) {
    const problem p = parsed(text);
    char error[PROBLEM_TEXT] = "";
    workload w;
    if (!workload_make(&p, WORKLOAD_UNIFORM, 1, 0, &w, error))
        fail_msg("%s: %s", text, error);
    ok(workload_plan(&w, NULL, NULL));
    ok(workload_run(&w));
    double *want = gen_doubles(&w.array[w.out].t);
    assert_non_null(want);
    guard guards[WORKLOAD_ARRAYS + 1] = {{0}};
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        bstk_tensor *t = &w.array[i].t;
        if (w.array[i].memory == NULL)
            continue;
        const size_t bytes = (size_t)gen_count(t) * bstk_dtype_size(t->dtype);
        guards[i] = guard_make(bytes, side);
        if (i < WORKLOAD_INPUTS)
            memcpy(guards[i].data, t->data, bytes);
        t->data = guards[i].data;
    }
    guards[WORKLOAD_ARRAYS] = guard_make((size_t)gen_count(&w.scratch.t), side);
    w.scratch.t.data = guards[WORKLOAD_ARRAYS].data;
    ok(workload_run(&w));
    double *got = gen_doubles(&w.array[w.out].t);
    assert_non_null(got);
    for (int64_t i = 0; i < gen_count(&w.array[w.out].t); ++i)
        assert_true(got[i] == want[i]);
    for (int i = 0; i <= WORKLOAD_ARRAYS; ++i) {
        if (guards[i].mapping != NULL)
            guard_free(&guards[i]);
    }
    free(want);
    free(got);
    workload_free(&w);
}

static void nothing_beyond_the_operands(void **state) {
    (void)state;
    static const char *const ops[] = {"sdd", "dsd", "dds", "softmax", "attention", "pack", "unpack"};
    static const char *const types[] = {"f64", "f32", "f16", "bf16"};
    static const char *const sizes[] = {"b16:z2:h2:m45:n70:%c33:bernoulli(0.6,1)", "b16:m64:n48:%c16:ones",
                                        "b8:m1:n1:%c1:ones", "b64:m130:n65:%c7:tril"};
    for (int op = 0; op < 7; ++op) {
        for (int type = 0; type < 4; ++type) {
            for (int size = 0; size < 4; ++size) {
                char text[PROBLEM_TEXT], rest[PROBLEM_TEXT];
                snprintf(rest, sizeof rest, sizes[size], op == 4 ? 'd' : 'k');
                if (op > 4 || op == 3) { /* no inner size: cut ":k..." out */
                    char *from = strstr(rest, ":k"), *to = strchr(from + 1, ':');
                    memmove(from, to, strlen(to) + 1);
                }
                snprintf(text, sizeof text, "%s:%s:%.400s", ops[op], types[type], rest);
                run_guarded(text, GUARD_END);
                run_guarded(text, GUARD_START);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_come_back),           cmocka_unit_test(strings_refused),
        cmocka_unit_test(layouts_of_problems),         cmocka_unit_test(comparison_rules),
        cmocka_unit_test(wrong_results_are_caught),    cmocka_unit_test(plans_and_kernels),
        cmocka_unit_test(nothing_beyond_the_operands),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
