/* convert_plan.c: checks a pack or unpack, chooses the kernel and cuts the work. */
#include <bstk/convert.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/tensor_view.h"
#include "ops/convert/convert_kernel.h"
#include "ops/operand.h"
#include "plan/plan_impl.h"

static const char OP[] = "convert";

static const bstk__kernel kernels[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, accepts, function, scratch_bytes},
#include "ops/convert/convert.def"
#undef BSTK_KERNEL
};

typedef struct convert_plan {
    bstk_plan base;
    bstk_convert_direction direction;
    bstk_tensor x, y; /* descriptions */
    bstk__convert_args args;
} convert_plan;

static const char *name_of(bstk_convert_direction direction) {
    return direction == BSTK_PACK ? "pack" : "unpack";
}

static bstk_status check_desc(const bstk_convert_desc *desc, bstk_plan **out) {
    if (desc == NULL || out == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "convert: %s is NULL", desc ? "out" : "desc");
    if (desc->struct_size != sizeof *desc)
        return bstk__fail(BSTK_ERR_INVALID, "convert: desc.struct_size is %zu, expected %zu (BSTK_CONVERT_DESC_INIT)",
                          desc->struct_size, sizeof *desc);
    if (desc->direction != BSTK_PACK && desc->direction != BSTK_UNPACK)
        return bstk__fail(BSTK_ERR_INVALID, "convert: direction is %d, expected BSTK_PACK or BSTK_UNPACK",
                          (int)desc->direction);
    if (desc->layout == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: layout is NULL", name_of(desc->direction));
    return BSTK_OK;
}

/* Views of the dense and the packed side, checked against the layout and each other. */
static bstk_status check_shapes(const bstk_convert_desc *d, bstk__view *dense, bstk__view *packed, int64_t *heads) {
    const char *who = name_of(d->direction);
    const bool pack = d->direction == BSTK_PACK;
    const bstk_layout *l = d->layout;
    const char *dense_name = pack ? "x" : "y", *packed_name = pack ? "y" : "x";
    const bstk_tensor *packed_tensor = pack ? d->y : d->x;
    BSTK_TRY(bstk__view_make(who, dense_name, pack ? d->x : d->y, 2, 4, dense));
    BSTK_TRY(bstk__view_make(who, packed_name, packed_tensor, 3, 4, packed));
    BSTK_TRY(bstk__check_float(who, "x", d->x->dtype));
    if (d->x->dtype != d->y->dtype)
        return bstk__fail(BSTK_ERR_TYPE, "%s: y is %s, expected %s as x", who, bstk_dtype_name(d->y->dtype),
                          bstk_dtype_name(d->x->dtype));
    BSTK_TRY(bstk__check_packed(who, packed_name, packed_tensor, packed, l));
    BSTK_TRY(bstk__check_extent(who, dense_name, "rows", dense->shape[2], l->m, l->rows, l->block));
    BSTK_TRY(bstk__check_extent(who, dense_name, "columns", dense->shape[3], l->n, l->cols, l->block));
    BSTK_TRY(bstk__check_size(who, "y", "batch size", d->direction == BSTK_PACK ? packed->shape[0] : dense->shape[0],
                              d->direction == BSTK_PACK ? dense->shape[0] : packed->shape[0]));
    *heads = l->heads == 1 ? dense->shape[1] : l->heads;
    BSTK_TRY(bstk__check_size(who, dense_name, "heads", dense->shape[1], *heads));
    int64_t blocks;
    if (!bstk__mul(l->nnz, l->heads == 1 ? *heads : 1, &blocks))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %lld blocks x %lld heads do not fit 64 bits", who, (long long)l->nnz,
                          (long long)*heads);
    BSTK_TRY(bstk__check_size(who, packed_name, "stored blocks", packed->shape[1], blocks));
    return bstk__check_output(who, "y", d->y);
}

static bstk_status finish(const bstk_convert_desc *d, const bstk__view *dense, const bstk__view *packed, int64_t heads,
                          convert_plan *plan) {
    const char *who = name_of(d->direction);
    const bstk_layout *l = d->layout;
    const bool pack = d->direction == BSTK_PACK;
    plan->direction = d->direction;
    plan->x = *d->x;
    plan->y = *d->y;
    plan->args = (bstk__convert_args){.dense_z = dense->stride[0],
                                      .dense_h = dense->stride[1],
                                      .dense_row = dense->stride[2],
                                      .dense_col = dense->stride[3],
                                      .packed_z = packed->stride[0],
                                      .packed_block = packed->stride[1],
                                      .packed_row = packed->stride[2],
                                      .packed_col = packed->stride[3],
                                      .line_ptr = l->row_ptr,
                                      .row_idx = l->row_idx,
                                      .col_idx = l->col_idx,
                                      .nnz = l->nnz,
                                      .lines = l->heads * l->rows,
                                      .head_lines = l->rows,
                                      .layout_heads = l->heads,
                                      .heads = heads,
                                      .m = l->m,
                                      .n = l->n,
                                      .edge = l->block,
                                      .parts = l->block / 8};
    const bstk__question question = {.op = who,
                                     .dtype = d->x->dtype,
                                     .packed_dtype = d->x->dtype,
                                     .block = l->block,
                                     .args = &plan->args,
                                     .forced = d->kernel};
    const bstk__kernel *kernel;
    BSTK_TRY(bstk__select(plan->base.ctx, kernels, sizeof kernels / sizeof *kernels, &question, &kernel));
    bstk__work work = {.line_ptr = pack ? NULL : l->row_ptr,
                       .lines = pack ? l->nnz : plan->args.lines,
                       .parts = l->block / 8,
                       .line_cost = pack ? 0 : bstk__max(1, l->cols)}; /* unpack writes whole rows */
    if (!bstk__mul(dense->shape[0], heads / bstk__max(1, l->heads), &work.repeats))
        return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %lld batches x %lld heads do not fit 64 bits", who,
                          (long long)dense->shape[0], (long long)heads);
    const double written = bstk__view_elements(pack ? packed : dense);
    plan->base.bytes = (bstk__view_elements(packed) + written) * (double)bstk_dtype_size(d->x->dtype);
    return bstk__plan_schedule(&plan->base, kernel, &work, 4 * written, 0); /* an element costs about 4 flops */
}

bstk_status bstk_convert_plan(bstk_context *ctx, const bstk_convert_desc *desc, bstk_plan **out) {
    bstk__view dense, packed;
    int64_t heads = 0;
    BSTK_TRY(check_desc(desc, out));
    BSTK_TRY(check_shapes(desc, &dense, &packed, &heads));
    bstk_plan *plan;
    BSTK_TRY(bstk__plan_new(ctx, desc->layout, OP, sizeof(convert_plan), &plan));
    const bstk_status status = finish(desc, &dense, &packed, heads, (convert_plan *)plan);
    if (status != BSTK_OK)
        bstk_plan_release(plan);
    else
        *out = plan;
    return status;
}

bstk_status bstk_convert_run(const bstk_plan *base, const bstk_tensor *x, const bstk_tensor *y, const bstk_exec *exec) {
    if (base == NULL || base->op != OP)
        return bstk__fail(BSTK_ERR_INVALID, "convert: plan is %s", base ? "for another op" : "NULL");
    const convert_plan *plan = (const convert_plan *)base;
    const char *who = name_of(plan->direction);
    void *scratch;
    BSTK_TRY(bstk__check_same(who, "x", &plan->x, x));
    BSTK_TRY(bstk__check_same(who, "y", &plan->y, y));
    if (bstk__overlap(x, y))
        return bstk__fail(BSTK_ERR_INVALID, "%s: y overlaps x", who);
    BSTK_TRY(bstk__plan_scratch(base, who, exec, &scratch));
    bstk__convert_args args = plan->args;
    args.dense = plan->direction == BSTK_PACK ? x->data : y->data;
    args.packed = plan->direction == BSTK_PACK ? y->data : x->data;
    bstk__plan_run_tasks(base, &args, scratch);
    return BSTK_OK;
}

bstk_status bstk_convert(bstk_context *ctx, const bstk_convert_desc *desc) {
    bstk_plan *plan;
    BSTK_TRY(bstk_convert_plan(ctx, desc, &plan));
    const bstk_status status = bstk_convert_run(plan, desc->x, desc->y, NULL);
    bstk_plan_release(plan);
    return status;
}
