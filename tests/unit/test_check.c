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
#include <stdarg.h>
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
        "attention:f16:b64:m64:n64:d64:ones:causal:bwd:cuda",
        "layernorm:f32:b16:z2:h3:m5:n7:tril:bwd",
        "rmsnorm:bf16:b8:m5:n7:ones",
        "dds:f16+f32:b8:m1:n2:k7:ones:ta:bwd",
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
        {"", "problem: op is '', expected sdd, dsd, dds, softmax, layernorm, rmsnorm, attention, pack or unpack"},
        {"spmm:f32",
         "problem: op is 'spmm', expected sdd, dsd, dds, softmax, layernorm, rmsnorm, attention, pack or unpack"},
        {"layernorm:f32:b16:m1:n1:k1:ones", "problem: size 'k1' does not belong to layernorm"},
        {"rmsnorm:f32:b16:m1:n1:ones:causal", "problem: causal is for softmax and attention only, not for rmsnorm"},
        {"pack:f32:b16:m1:n1:ones:bwd", "problem: bwd of pack is unpack: ask for that"},
        {"unpack:f32:b16:m1:n1:ones:bwd", "problem: bwd of unpack is pack: ask for that"},
        {"softmax:f32:b16:m1:n1:ones:bwd:bwd", "problem: 'bwd' comes after another part of its kind"},
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
    int what;                                     /* see tamper_run */
    int from, run;                                /* acts from this run on, counted from 1 */
    int which;                                    /* the output that is damaged; 0: the first one */
    const char *outputs[WORKLOAD_ARRAYS], *input; /* names, as seen in the last run */
} tamper;

enum { NOTHING, ONE_ELEMENT, TRANSPOSED_BLOCK, UNTOUCHED, AROUND, BETWEEN, INPUT, SCRATCH, LSE, FLIPPED_BIT };

static void tamper_run(void *user, workload *w) {
    tamper *t = user;
    const gen_array *array = &w->array[t->which > 0 ? t->which : w->out];
    const bstk_tensor *out = &array->t;
    const int64_t last = gen_count(out) - 1;
    unsigned char *item = (unsigned char *)out->data;
    t->input = workload_name(w, WORKLOAD_A);
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i)
        t->outputs[i] = w->array[i].memory != NULL && workload_is_output(w, i) ? workload_name(w, i) : NULL;
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
        array->memory[array->bytes - 1] ^= 1;
        break;
    case BETWEEN: /* the first byte that is no element's: before the data */
        array->memory[3] ^= 1;
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

/* The check must fail with a message that starts with the problem and ends with `format` and so on in it. */
static void caught(const char *text, int what, int from, int which, const char *format, ...) {
    char part[PROBLEM_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    const problem p = parsed(text);
    tamper t = {.what = what, .from = from, .which = which};
    const check_options options = {.variants = 1, .tamper = tamper_run, .tamper_user = &t};
    check_report report;
    if (check_problem(&p, NULL, &options, &report))
        fail_msg("%s: tampering %d was not found", text, what);
    assert_false(report.passed);
    assert_memory_equal(report.message, text, strlen(text));
    if (strstr(report.message, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, report.message);
    assert_null(strchr(report.message, '\n'));
    assert_non_null(strstr(report.message, report.kernel));
}

/* Every output, one after the other. */
static void damaged_outputs_are_caught(const char *text, const tamper *seen) {
    for (int i = 0; i < WORKLOAD_ARRAYS; ++i) {
        const char *name = seen->outputs[i];
        if (name == NULL)
            continue;
        caught(text, ONE_ELEMENT, 1, i, ": %s[", name);
        caught(text, UNTOUCHED, 1, i, "is nan, expected");
        caught(text, AROUND, 1, i, "first run: bytes around or between the elements of %s were written", name);
        caught(text, BETWEEN, 1, i, "first run: bytes around or between the elements of %s were written", name);
        caught(text, FLIPPED_BIT, 2, i, "the second run gives other bits in %s than the first run", name);
        caught(text, FLIPPED_BIT, 3, i, "a run on 2 threads gives other bits in %s than the first run", name);
        caught(text, FLIPPED_BIT, 4, i, "a run on 7 threads gives other bits in %s than the first run", name);
    }
}

static void wrong_results_are_caught(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int outputs;
    } all[] = {
        {"sdd:f32:b16:m40:n50:k33:ones", 1},
        {"sdd:f16:b8:h2:m24:n24:k20:ones:tc", 1},
        {"dsd:f64:b16:m33:n20:k48:ones", 1},
        {"dsd:bf16+f32:b16:m33:n20:k48:tril", 1},
        {"dds:bf16:b16:m20:n48:k40:ones:ta", 1},
        {"softmax:f32:b16:m32:n40:ones", 2},
        {"softmax:f16:b16:m32:n40:ones", 2},
        {"softmax:bf16:b16:m32:n40:ones", 2},
        {"softmax:f64:b16:m32:n40:ones", 2},
        {"attention:f32:b16:m32:n32:d16:ones", 2},
        {"attention:bf16:b16:m32:n32:d16:ones", 2},
        {"pack:f32:b16:m32:n32:ones", 1},
        {"unpack:f16:b16:m32:n32:ones", 1},
        {"layernorm:f32:b16:m32:n40:ones", 3},
        {"rmsnorm:f16:b16:m32:n40:ones", 2},
        {"sdd:f32:b16:m40:n50:k33:ones:bwd", 2},
        {"dsd:f16:b16:m33:n20:k48:ones:bwd", 2},
        {"dds:bf16+f32:b16:m20:n48:k40:ones:ta:bwd", 2},
        {"softmax:f32:b16:m32:n40:ones:bwd", 1},
        {"softmax:f16:b16:m32:n40:ones:bwd", 1},
        {"layernorm:f32:b16:m32:n40:ones:bwd", 3},
        {"rmsnorm:bf16:b16:m32:n40:ones:bwd", 3},
        {"attention:f32:b16:m32:n32:d16:ones:bwd", 3},
        {"attention:f16:b16:m32:n32:d16:ones:causal:bwd", 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        const problem p = parsed(all[i].text);
        const int runs = p.op == PROBLEM_ATTENTION && p.backward ? 8 : 12;
        tamper nothing = {.what = NOTHING};
        const check_options options = {.variants = 1, .tamper = tamper_run, .tamper_user = &nothing};
        check_report report;
        if (!check_problem(&p, NULL, &options, &report))
            fail_msg("%s", report.message);
        assert_true(report.worst <= 1 && report.message[0] == '\0');
        assert_int_equal(report.runs, runs);
        assert_int_equal(nothing.run, runs);
        int outputs = 0;
        for (int k = 0; k < WORKLOAD_ARRAYS; ++k)
            outputs += nothing.outputs[k] != NULL;
        assert_int_equal(outputs, all[i].outputs);
        damaged_outputs_are_caught(all[i].text, &nothing);
        caught(all[i].text, INPUT, 1, 0, "first run: input %s was written", nothing.input);
        caught(all[i].text, SCRATCH, 1, 0, "first run: bytes outside the scratch were written");
    }
    caught("sdd:f32:b16:m32:n32:k33:ones", TRANSPOSED_BLOCK, 1, 0, "c[");
    caught("softmax:f32:b16:m32:n32:ones", TRANSPOSED_BLOCK, 1, 0, "y[");
    caught("pack:f32:b16:m32:n32:ones", TRANSPOSED_BLOCK, 1, 0, "y[");
    caught("softmax:f32:b16:m32:n32:ones", LSE, 1, 0, "lse[0, 0, 0] is 40, expected");
    caught("attention:f16:b16:m32:n32:d8:ones", LSE, 1, 0, "lse[0, 0, 0] is 40, expected");
    /* Only in the pass with integers (runs 5 to 8): a last bit that the bound would forgive. */
    caught("dsd:f32:b16:m32:n20:k32:ones", FLIPPED_BIT, 5, 0, "integers, variant 0");
    caught("softmax:f32:b16:m32:n32:ones", FLIPPED_BIT, 5, 0, "integers, variant 0");
    caught("attention:f16:b16:m32:n32:d8:ones", FLIPPED_BIT, 5, 0, "integers, variant 0");
    caught("dsd:f32:b16:m32:n20:k32:ones:bwd", FLIPPED_BIT, 5, WORKLOAD_D_B, "within 0 (1 of");
    caught("softmax:f32:b16:m32:n32:ones:bwd", FLIPPED_BIT, 5, 0, "within 0 (1 of");
    caught("layernorm:f32:b16:m32:n32:ones", FLIPPED_BIT, 5, 0, "within 0 (1 of");
    caught("layernorm:f32:b16:m32:n32:ones:bwd", FLIPPED_BIT, 5, 0, "within 0 (1 of");
    caught("rmsnorm:f16:b16:m32:n40:ones:bwd", FLIPPED_BIT, 5, WORKLOAD_D_B, "within 0 (1 of");
}

static void plans_and_kernels(void **state) {
    (void)state;
    problem p = parsed("dsd:f32:b16:m33:n20:k48:ones");
    check_report report;
    assert_true(check_problem(&p, "dsd_f32_scalar", NULL, &report));
    assert_string_equal(report.kernel, "dsd_f32_scalar");
    assert_int_equal(report.runs, 6 * 12);
    assert_false(check_problem(&p, "no_such_kernel", NULL, &report));
    assert_non_null(strstr(report.message, "no_such_kernel"));
    p = parsed("attention:f32:b16:m33:n20:d8:ones");
    assert_true(check_problem(&p, "composed", NULL, &report));
    assert_non_null(strchr(report.kernel, '+'));
    p = parsed("attention:f32:b16:m33:n20:d8:ones:bwd");
    assert_true(check_problem(&p, "attention_grad_f32_scalar", NULL, &report));
    assert_string_equal(report.kernel, "attention_grad_f32_scalar");
    assert_int_equal(report.runs, 6 * 8);
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
    double *want[WORKLOAD_ARRAYS] = {NULL};
    for (int i = WORKLOAD_INPUTS; i < WORKLOAD_ARRAYS; ++i)
        want[i] = w.array[i].memory != NULL ? gen_doubles(&w.array[i].t) : NULL;
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
    for (int i = WORKLOAD_INPUTS; i < WORKLOAD_ARRAYS; ++i) {
        double *got = want[i] != NULL ? gen_doubles(&w.array[i].t) : NULL;
        for (int64_t e = 0; got != NULL && e < gen_count(&w.array[i].t); ++e)
            assert_true(got[e] == want[i][e] || (isnan(got[e]) && isnan(want[i][e])));
        free(got);
        free(want[i]);
    }
    for (int i = 0; i <= WORKLOAD_ARRAYS; ++i) {
        if (guards[i].mapping != NULL)
            guard_free(&guards[i]);
    }
    workload_free(&w);
}

static void nothing_beyond_the_operands(void **state) {
    (void)state;
    static const char *const ops[] = {"sdd",  "dsd",    "dds",       "attention", "softmax",
                                      "pack", "unpack", "layernorm", "rmsnorm"};
    static const char *const types[] = {"f64", "f32", "f16", "bf16"};
    static const char *const sizes[] = {"b16:z2:h2:m45:n70:%c33:bernoulli(0.6,1)", "b16:m64:n48:%c16:ones",
                                        "b8:m1:n1:%c1:ones", "b64:m130:n65:%c7:tril"};
    for (int op = 0; op < 9; ++op) {
        for (int type = 0; type < 4; ++type) {
            for (int size = 0; size < 8; ++size) {
                char text[PROBLEM_TEXT], rest[PROBLEM_TEXT];
                const bool copies = op == 5 || op == 6, grad = size >= 4;
                if (copies && grad)
                    continue;
                snprintf(rest, sizeof rest, sizes[size % 4], op == 3 ? 'd' : 'k');
                if (op > 3) { /* no inner size: cut ":k..." out */
                    char *from = strstr(rest, ":k"), *to = strchr(from + 1, ':');
                    memmove(from, to, strlen(to) + 1);
                }
                snprintf(text, sizeof text, "%s:%s:%.400s%s", ops[op], types[type], rest, grad ? ":bwd" : "");
                run_guarded(text, GUARD_END);
                run_guarded(text, GUARD_START);
            }
        }
    }
}

/* ---- the reference alone ----------------------------------------------------------------------------------------- */

/* Whether the reference that takes `most` operations holds when 1 is added to element `at` of the output (-1: to none).
 */
static bool holds(workload *w, double most, int64_t at, int64_t *step, char error[PROBLEM_TEXT]) {
    check_reference *reference = check_reference_make(w, most);
    assert_non_null(reference);
    const bstk_tensor *t = &w->array[w->out].t;
    const double value = at < 0 ? 0 : gen_load(t->dtype, t->data, gen_offset(t, at));
    if (at >= 0)
        gen_store(t->dtype, t->data, gen_offset(t, at), value + 1);
    bool ok = true;
    for (int i = 0; i < WORKLOAD_ARRAYS && ok; ++i)
        if (w->array[i].memory != NULL && workload_is_output(w, i))
            ok = check_reference_holds(reference, i, &w->array[i].t, 1, error);
    if (at >= 0)
        gen_store(t->dtype, t->data, gen_offset(t, at), value);
    *step = check_reference_step(reference);
    check_reference_free(reference);
    return ok;
}

/* All of a small result; of a large product every so many-th column or row, and nothing between them. */
static void references_alone(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t stride, size; /* of what is thinned out, in the output; 0: nothing is */
    } cases[] = {
        {"dsd:f32:b8:h2:m24:n30:k16:bernoulli(0.7,1)", 1, 30},
        {"dsd:f64:b8:m24:n30:k16:ones:tb:tc", 24, 30},
        {"dds:f32:b8:m30:n24:k16:bernoulli(0.7,1)", 24, 30},
        {"dds:bf16:b8:z2:m30:n24:k16:ones:ta:tc", 1, 30},
        {"sdd:f32:b8:m24:n24:k30:ones:tb", 0, 0},
        {"dsd:f32:b8:m24:n30:k16:ones:bwd", 0, 0},
        {"attention:f32:b8:m24:n24:d30:tril:causal", 0, 0},
        {"attention:f32:b8:m24:n24:d30:tril:bwd", 0, 0},
        {"softmax:f32:b8:m24:n24:ones:bwd", 0, 0},
        {"pack:f32:b8:m24:n24:diag", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const problem p = parsed(cases[i].text);
        char error[PROBLEM_TEXT] = "";
        workload w;
        int64_t step;
        if (!workload_make(&p, WORKLOAD_UNIFORM, 0, 0, &w, error))
            fail_msg("%s: %s", cases[i].text, error);
        assert_int_equal(workload_plan(&w, NULL, NULL), BSTK_OK);
        workload_reset(&w);
        assert_int_equal(workload_run(&w), BSTK_OK);
        if (!holds(&w, 1e9, -1, &step, error))
            fail_msg("%s: %s", cases[i].text, error);
        assert_int_equal(step, 1);
        assert_false(holds(&w, 1e9, 5, &step, error));
        assert_non_null(strstr(error, "(1 of "));
        const double fifth = bstk_plan_flops(w.plan) / 5;
        assert_true(holds(&w, fifth, -1, &step, error));
        assert_int_equal(step, cases[i].size > 0 ? 5 : 1);
        if (cases[i].size > 0) {
            assert_false(holds(&w, fifth, 5 * cases[i].stride, &step, error));
            assert_true(holds(&w, fifth, 4 * cases[i].stride, &step, error));
            assert_true(holds(&w, 1, -1, &step, error)); /* less than one column: the first and maybe the last */
            assert_true(step % 2 == 1 && step <= cases[i].size);
        }
        workload_free(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_come_back),           cmocka_unit_test(strings_refused),
        cmocka_unit_test(layouts_of_problems),         cmocka_unit_test(comparison_rules),
        cmocka_unit_test(wrong_results_are_caught),    cmocka_unit_test(plans_and_kernels),
        cmocka_unit_test(nothing_beyond_the_operands), cmocka_unit_test(references_alone),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
