/*
 * test_norm_errors.c: every refusal of the norms and their gradients by its text, with outputs untouched, runs that do
 * not fit their plan, and memory that runs out at every allocation.
 */
#include "support/cm.h"

#include "support/test_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { Z = 2, H = 2, M = 13, N = 11, B = 8, NNZ = 6, VALUES = Z * NNZ * B * B };

/* Head 0 stores all of its 2 x 2 blocks, head 1 the diagonal. */
static bstk_layout *layout, *other_layout;
static float x[VALUES], y[VALUES], d_y[VALUES], d_x[VALUES];
static float weight[H * N], bias[H * N], d_weight[H * N], d_bias[H * N], mean[Z * H * M], rstd[Z * H * M];

typedef struct arguments {
    bstk_tensor x, weight, bias, y, mean, rstd, d_y, d_x, d_weight, d_bias;
    bstk_norm_desc forward;
    bstk_norm_grad_desc backward;
} arguments;

static int setup(void **state) {
    (void)state;
    const uint8_t mask[H * 4] = {1, 1, 1, 1, 1, 0, 0, 1};
    const bstk_tensor t = bstk_tensor_make((void *)mask, BSTK_U8, 3, shape(H, 2, 2));
    ok(bstk_layout_from_mask(NULL, &t, B, shape(M, N), &layout));
    ok(bstk_layout_from_mask(NULL, &t, B, shape(M, N), &other_layout));
    for (int e = 0; e < VALUES; e++) {
        x[e] = (float)(e % 7);
        d_y[e] = (float)(e % 5);
    }
    for (int e = 0; e < H * N; e++)
        weight[e] = bias[e] = 1;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    bstk_layout_release(layout);
    bstk_layout_release(other_layout);
    return 0;
}

/* A valid call of each, with everything. */
static void fill(arguments *a) {
    const int64_t *values = shape(Z, NNZ, B, B), *columns = shape(H, N), *rows = shape(Z, H, M);
    a->x = bstk_tensor_make(x, BSTK_F32, 4, values);
    a->y = bstk_tensor_make(y, BSTK_F32, 4, values);
    a->d_y = bstk_tensor_make(d_y, BSTK_F32, 4, values);
    a->d_x = bstk_tensor_make(d_x, BSTK_F32, 4, values);
    a->weight = bstk_tensor_make(weight, BSTK_F32, 2, columns);
    a->bias = bstk_tensor_make(bias, BSTK_F32, 2, columns);
    a->d_weight = bstk_tensor_make(d_weight, BSTK_F32, 2, columns);
    a->d_bias = bstk_tensor_make(d_bias, BSTK_F32, 2, columns);
    a->mean = bstk_tensor_make(mean, BSTK_F32, 3, rows);
    a->rstd = bstk_tensor_make(rstd, BSTK_F32, 3, rows);
    a->forward = (bstk_norm_desc)BSTK_NORM_DESC_INIT;
    a->forward.layout = layout;
    a->forward.x = &a->x;
    a->forward.weight = &a->weight;
    a->forward.bias = &a->bias;
    a->forward.y = &a->y;
    a->forward.mean = &a->mean;
    a->forward.rstd = &a->rstd;
    a->backward = (bstk_norm_grad_desc)BSTK_NORM_GRAD_DESC_INIT;
    a->backward.layout = layout;
    a->backward.x = &a->x;
    a->backward.weight = &a->weight;
    a->backward.mean = &a->mean;
    a->backward.rstd = &a->rstd;
    a->backward.d_y = &a->d_y;
    a->backward.d_x = &a->d_x;
    a->backward.d_weight = &a->d_weight;
    a->backward.d_bias = &a->d_bias;
    float *const outputs[] = {y, d_x, d_weight, d_bias, mean, rstd};
    const size_t sizes[] = {sizeof y, sizeof d_x, sizeof d_weight, sizeof d_bias, sizeof mean, sizeof rstd};
    for (int o = 0; o < 6; o++)
        memset(outputs[o], 0x5a, sizes[o]);
}

static void assert_untouched(void) {
    const float *const outputs[] = {y, d_x, d_weight, d_bias, mean, rstd};
    const size_t sizes[] = {sizeof y, sizeof d_x, sizeof d_weight, sizeof d_bias, sizeof mean, sizeof rstd};
    for (int o = 0; o < 6; o++)
        for (size_t e = 0; e < sizes[o]; e++)
            assert_int_equal(((const unsigned char *)outputs[o])[e], 0x5a);
}

static void forward_refused(arguments *a, bstk_status status, const char *text) {
    bstk_plan *plan = NULL;
    refused(bstk_norm_plan(NULL, &a->forward, &plan), status, text);
    assert_null(plan);
    refused(bstk_norm(NULL, &a->forward), status, text);
    assert_untouched();
    fill(a);
}

static void backward_refused(arguments *a, bstk_status status, const char *text) {
    bstk_plan *plan = NULL;
    refused(bstk_norm_grad_plan(NULL, &a->backward, &plan), status, text);
    assert_null(plan);
    refused(bstk_norm_grad(NULL, &a->backward), status, text);
    assert_untouched();
    fill(a);
}

static void test_forward_desc(void **state) {
    (void)state;
    arguments a;
    fill(&a);
    bstk_plan *plan = NULL;
    refused(bstk_norm_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "norm: desc is NULL");
    refused(bstk_norm_plan(NULL, &a.forward, NULL), BSTK_ERR_INVALID, "layernorm: out is NULL");
    char text[128];
    snprintf(text, sizeof text, "norm: desc.struct_size is 3, expected %zu (BSTK_NORM_DESC_INIT)", sizeof a.forward);
    a.forward.struct_size = 3;
    forward_refused(&a, BSTK_ERR_INVALID, text);
    a.forward.kind = (bstk_norm_kind)3;
    forward_refused(&a, BSTK_ERR_INVALID, "norm: kind is 3, expected BSTK_LAYERNORM or BSTK_RMSNORM");
    a.forward.layout = NULL;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: layout is NULL");
    a.forward.eps = -0.5;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: eps is -0.5, expected a finite number of 0 or more");
    a.forward.eps = (double)INFINITY;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: eps is inf, expected a finite number of 0 or more");
    a.forward.eps = (double)NAN;
    a.forward.kind = BSTK_RMSNORM;
    forward_refused(&a, BSTK_ERR_INVALID, "rmsnorm: eps is nan, expected a finite number of 0 or more");
    a.forward.kind = BSTK_RMSNORM;
    forward_refused(&a, BSTK_ERR_INVALID, "rmsnorm: mean is given, expected NULL: only layernorm has a mean");
    a.forward.kernel = "rmsnorm_f32_scalar";
    forward_refused(&a, BSTK_ERR_UNSUPPORTED, "layernorm: kernel 'rmsnorm_f32_scalar' is for another op");
    a.forward.kernel = "norm_f32";
    forward_refused(&a, BSTK_ERR_INVALID,
                    "layernorm: kernel 'norm_f32' is not registered for this op (bstk kernels lists them)");
    a.forward.kernel = "layernorm_f32_scalar";
    ok(bstk_norm(NULL, &a.forward));
}

static void test_forward_tensors(void **state) {
    (void)state;
    arguments a;
    fill(&a);
    a.forward.x = NULL;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: x is NULL");
    a.forward.y = NULL;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: y is NULL");
    a.x.dtype = BSTK_I32;
    forward_refused(&a, BSTK_ERR_TYPE, "layernorm: x is int32, expected float64, float32, float16 or bfloat16");
    a.y.dtype = BSTK_F16;
    forward_refused(&a, BSTK_ERR_TYPE, "layernorm: y is float16, expected float32 as x");
    a.x.shape[1] = 5;
    forward_refused(
        &a, BSTK_ERR_INVALID,
        "layernorm: x is [2, 5, 8, 8], expected packed values [Z, 6, 8, 8] (6 stored blocks of 8); pack makes "
        "them from a dense matrix");
    a.y.shape[0] = 1;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: y has batch size 1, expected 2");
    a.y.stride[0] = 0;
    forward_refused(&a, BSTK_ERR_INVALID,
                    "layernorm: output y has stride 0 on axis 0 of size 2: its elements share memory");
    a.x.ndim = 2;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: x has 2 axes, expected 3 to 4");
    a.weight.dtype = BSTK_U8;
    forward_refused(&a, BSTK_ERR_TYPE, "layernorm: weight is uint8, expected float64, float32, float16 or bfloat16");
    a.weight.shape[1] = 12;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: weight has columns 12, expected 11");
    a.bias.shape[0] = 3;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: bias has 3 heads, expected 1 or 2");
    a.bias.ndim = 3;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: bias has 3 axes, expected 1 to 2");
    a.mean.dtype = BSTK_F64;
    forward_refused(&a, BSTK_ERR_TYPE, "layernorm: mean is float64, expected float32 beside x of float32");
    a.rstd.shape[2] = 16;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: rstd has rows 16, expected 13");
    a.rstd.shape[1] = 1;
    forward_refused(&a, BSTK_ERR_INVALID, "layernorm: rstd has heads 1, expected 2");
    a.mean.stride[2] = 0;
    forward_refused(&a, BSTK_ERR_INVALID,
                    "layernorm: output mean has stride 0 on axis 2 of size 13: its elements share memory");
    a.rstd.stride[1] = 0;
    forward_refused(&a, BSTK_ERR_INVALID,
                    "layernorm: output rstd has stride 0 on axis 1 of size 2: its elements share memory");
}

/* What only a run sees; the short forms run what they plan. */
static void short_refused(arguments *a, const char *text) {
    refused(bstk_norm(NULL, &a->forward), BSTK_ERR_INVALID, text);
    assert_untouched();
    fill(a);
}

static void short_grad_refused(arguments *a, const char *text) {
    refused(bstk_norm_grad(NULL, &a->backward), BSTK_ERR_INVALID, text);
    assert_untouched();
    fill(a);
}

static void test_overlaps(void **state) {
    (void)state;
    arguments a;
    fill(&a);
    a.y.data = x + 1;
    short_refused(&a, "layernorm: y overlaps x; expected x itself (in place) or other memory");
    a.x.data = y;
    a.y.stride[2] = 1;
    a.y.stride[3] = B; /* the same memory, but transposed */
    short_refused(&a, "layernorm: y overlaps x; expected x itself (in place) or other memory");
    a.weight.data = y + 100;
    short_refused(&a, "layernorm: y overlaps weight");
    a.mean.data = x;
    short_refused(&a, "layernorm: mean overlaps x");
    a.rstd.data = mean;
    short_refused(&a, "layernorm: rstd overlaps mean");
    a.x.data = NULL;
    short_refused(&a, "layernorm: x.data is NULL");
    a.bias.data = NULL;
    short_refused(&a, "layernorm: bias.data is NULL");
    a.d_x.data = d_y + 1;
    short_grad_refused(&a, "layernorm_grad: d_x overlaps d_y; expected d_y itself (in place) or other memory");
    a.d_x.data = x;
    short_grad_refused(&a, "layernorm_grad: d_x overlaps x");
    a.d_weight.data = weight;
    short_grad_refused(&a, "layernorm_grad: d_weight overlaps weight");
    a.d_bias.data = d_weight;
    short_grad_refused(&a, "layernorm_grad: d_bias overlaps d_weight");
    a.d_bias.data = rstd;
    short_grad_refused(&a, "layernorm_grad: d_bias overlaps rstd");
}

static void test_backward(void **state) {
    (void)state;
    arguments a;
    fill(&a);
    bstk_plan *plan = NULL;
    refused(bstk_norm_grad_plan(NULL, NULL, &plan), BSTK_ERR_INVALID, "norm_grad: desc is NULL");
    refused(bstk_norm_grad_plan(NULL, &a.backward, NULL), BSTK_ERR_INVALID, "layernorm_grad: out is NULL");
    char text[128];
    snprintf(text, sizeof text, "norm_grad: desc.struct_size is 0, expected %zu (BSTK_NORM_GRAD_DESC_INIT)",
             sizeof a.backward);
    a.backward.struct_size = 0;
    backward_refused(&a, BSTK_ERR_INVALID, text);
    a.backward.kind = (bstk_norm_kind)0;
    backward_refused(&a, BSTK_ERR_INVALID, "norm_grad: kind is 0, expected BSTK_LAYERNORM or BSTK_RMSNORM");
    a.backward.layout = NULL;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: layout is NULL");
    a.backward.d_x = a.backward.d_weight = a.backward.d_bias = NULL;
    backward_refused(&a, BSTK_ERR_INVALID,
                     "layernorm_grad: d_x, d_weight and d_bias are NULL, expected at least one of them");
    a.backward.mean = NULL;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: mean is NULL");
    a.backward.kind = BSTK_RMSNORM;
    backward_refused(&a, BSTK_ERR_INVALID, "rmsnorm_grad: mean is given, expected NULL: only layernorm has a mean");
    a.backward.rstd = NULL;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: rstd is NULL");
    a.backward.x = NULL;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: x is NULL");
    a.backward.d_y = NULL;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: d_y is NULL");
    a.d_y.dtype = BSTK_BF16;
    backward_refused(&a, BSTK_ERR_TYPE, "layernorm_grad: d_y is bfloat16, expected float32 as x");
    a.d_x.shape[0] = 3;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: d_x has batch size 3, expected 2");
    a.d_x.stride[1] = 0;
    backward_refused(&a, BSTK_ERR_INVALID,
                     "layernorm_grad: output d_x has stride 0 on axis 1 of size 6: its elements share memory");
    a.d_weight.shape[0] = 1;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: d_weight has 1 heads, expected 2 as weight");
    a.d_weight.stride[1] = 0;
    backward_refused(&a, BSTK_ERR_INVALID,
                     "layernorm_grad: output d_weight has stride 0 on axis 1 of size 11: its elements share memory");
    a.d_bias.shape[1] = 16;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: d_bias has columns 16, expected 11");
    a.d_bias.stride[0] = 0;
    backward_refused(&a, BSTK_ERR_INVALID,
                     "layernorm_grad: output d_bias has stride 0 on axis 0 of size 2: its elements share memory");
    a.mean.shape[0] = 1;
    backward_refused(&a, BSTK_ERR_INVALID, "layernorm_grad: mean has batch size 1, expected 2");
    a.backward.kernel = "layernorm_f32_scalar";
    backward_refused(&a, BSTK_ERR_UNSUPPORTED, "layernorm_grad: kernel 'layernorm_f32_scalar' is for another op");
}

static void run_refused(const bstk_plan *plan, arguments *a, bstk_status status, const char *text) {
    refused(bstk_norm_run(plan, &a->forward, NULL), status, text);
    assert_untouched();
    fill(a);
}

static void grad_run_refused(const bstk_plan *plan, arguments *a, bstk_status status, const char *text) {
    refused(bstk_norm_grad_run(plan, &a->backward, NULL), status, text);
    assert_untouched();
    fill(a);
}

static void test_runs(void **state) {
    (void)state;
    arguments a;
    fill(&a);
    bstk_plan *plan = NULL, *grad = NULL;
    a.forward.bias = NULL;
    a.backward.d_bias = NULL;
    ok(bstk_norm_plan(NULL, &a.forward, &plan));
    ok(bstk_norm_grad_plan(NULL, &a.backward, &grad));
    fill(&a);
    run_refused(NULL, &a, BSTK_ERR_INVALID, "norm: plan is NULL");
    run_refused(grad, &a, BSTK_ERR_INVALID, "norm: plan is for another op");
    run_refused(plan, &a, BSTK_ERR_MISMATCH, "layernorm: bias is given, but the plan was made without it");
    a.forward.bias = NULL;
    a.forward.rstd = NULL;
    run_refused(plan, &a, BSTK_ERR_INVALID, "layernorm: rstd is NULL");
    a.forward.kind = BSTK_RMSNORM;
    run_refused(plan, &a, BSTK_ERR_MISMATCH, "norm: kind is rmsnorm, but the plan was made for layernorm");
    a.forward.layout = other_layout;
    run_refused(plan, &a, BSTK_ERR_MISMATCH, "layernorm: layout is another one than the plan's");
    a.forward.eps = -1;
    run_refused(plan, &a, BSTK_ERR_INVALID, "layernorm: eps is -1, expected a finite number of 0 or more");
    a.x.stride[3] = 2;
    run_refused(
        plan, &a, BSTK_ERR_MISMATCH,
        "layernorm: x is float32 [2, 6, 8, 8], but the plan was made for float32 [2, 6, 8, 8] (or other strides)");
    bstk_exec exec = BSTK_EXEC_INIT;
    exec.struct_size = 1;
    a.forward.bias = NULL;
    char text[128];
    snprintf(text, sizeof text, "layernorm: exec.struct_size is 1, expected %zu (BSTK_EXEC_INIT)", sizeof exec);
    refused(bstk_norm_run(plan, &a.forward, &exec), BSTK_ERR_INVALID, text);
    refused(bstk_norm_run(plan, NULL, NULL), BSTK_ERR_INVALID, "norm: desc is NULL");
    assert_untouched();
    grad_run_refused(NULL, &a, BSTK_ERR_INVALID, "norm_grad: plan is NULL");
    grad_run_refused(plan, &a, BSTK_ERR_INVALID, "norm_grad: plan is for another op");
    grad_run_refused(grad, &a, BSTK_ERR_MISMATCH, "layernorm_grad: d_bias is given, but the plan was made without it");
    a.backward.d_x = NULL;
    grad_run_refused(grad, &a, BSTK_ERR_INVALID, "layernorm_grad: d_x is NULL");
    a.backward.kind = BSTK_RMSNORM;
    grad_run_refused(grad, &a, BSTK_ERR_MISMATCH,
                     "norm_grad: kind is rmsnorm_grad, but the plan was made for layernorm_grad");
    a.backward.layout = other_layout;
    grad_run_refused(grad, &a, BSTK_ERR_MISMATCH, "layernorm_grad: layout is another one than the plan's");
    bstk_plan_release(plan);
    bstk_plan_release(grad);
}

/* eps of the run counts, not the plan's: all x equal makes rstd = 1 / sqrt(eps). */
static void test_eps_of_run(void **state) {
    (void)state;
    arguments a;
    fill(&a);
    bstk_plan *plan = NULL;
    float equal[VALUES];
    for (int e = 0; e < VALUES; e++)
        equal[e] = 3;
    a.x.data = equal;
    ok(bstk_norm_plan(NULL, &a.forward, &plan));
    a.forward.eps = 0.25;
    ok(bstk_norm_run(plan, &a.forward, NULL));
    for (int e = 0; e < Z * H * M; e++)
        assert_true(rstd[e] == 2.0F && mean[e] == 3.0F);
    bstk_plan_release(plan);
}

static void test_memory(void **state) {
    (void)state;
    arguments a;
    watch w = {0};
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    opts.num_threads = 3;
    bstk_context *ctx = watched_context(&w, &opts);
    const int64_t live = atomic_load(&w.live);
    fill(&a);
    for (int backward = 0; backward < 2; backward++) {
        bstk_plan *plan = NULL;
        int n = 0;
        bstk_status status = BSTK_ERR_NOMEM;
        while (status == BSTK_ERR_NOMEM && n < 20) {
            atomic_store(&w.fail_at, ++n);
            status = backward ? bstk_norm_grad_plan(ctx, &a.backward, &plan) : bstk_norm_plan(ctx, &a.forward, &plan);
            if (status == BSTK_ERR_NOMEM) {
                assert_null(plan);
                assert_int_equal(atomic_load(&w.live), live);
                assert_non_null(strstr(bstk_last_error(), "out of memory"));
            }
        }
        ok(status);
        assert_int_equal(n, backward ? 6 : 3); /* one more than there are allocations */
        atomic_store(&w.fail_at, 0);
        const int64_t calls = atomic_load(&w.calls); /* a run allocates nothing */
        ok(backward ? bstk_norm_grad_run(plan, &a.backward, NULL) : bstk_norm_run(plan, &a.forward, NULL));
        assert_int_equal(atomic_load(&w.calls), calls);
        bstk_plan_release(plan);
        assert_int_equal(atomic_load(&w.live), live);
    }
    bstk_context_release(ctx);
    assert_int_equal(atomic_load(&w.live), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_desc), cmocka_unit_test(test_forward_tensors),
        cmocka_unit_test(test_overlaps),     cmocka_unit_test(test_backward),
        cmocka_unit_test(test_runs),         cmocka_unit_test(test_eps_of_run),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("norm errors", tests, setup, teardown);
}
