/* registry.c: the union of the ops' lists for bstk_kernel_get, and the selection that all ops share. */
#include "plan/registry.h"

#include "core/cpu_features.h"
#include "core/error.h"

#include <stdio.h>
#include <string.h>

/* Names and needs only: functions stay in their ops. */
static const bstk__kernel all[] = {
#define BSTK_KERNEL(function, op, isa, needs, dtype, packed_dtype, block, accepts, scratch_bytes)                      \
    {#function, op, isa, needs, dtype, packed_dtype, block, 0, 0, 0},
#include "ops/attention/attention.def"
#include "ops/convert/convert.def"
#include "ops/matmul/matmul.def"
#include "ops/norm/norm.def"
#include "ops/softmax/softmax.def"
#undef BSTK_KERNEL
};

enum { ALL_COUNT = sizeof all / sizeof *all };

int32_t bstk_kernel_count(void) {
    return ALL_COUNT;
}

/* Texts of what a machine may lack: by the missing bit, so that the strings live for ever. */
static const char *missing_text(uint32_t missing) {
    if (missing & (BSTK__F_AVX512 | BSTK__F_AVX512_BF16))
        return missing & BSTK__F_AVX512 ? "needs AVX-512, which this CPU or the cap does not allow"
                                        : "needs AVX-512 BF16, which this CPU or the cap does not allow";
    if (missing & BSTK__F_AVX2)
        return "needs AVX2, which this CPU or the cap does not allow";
    return "needs NEON, which this CPU or the cap does not allow";
}

bstk_status bstk_kernel_get(int32_t i, bstk_kernel_info *info) {
    if (info == NULL || info->struct_size != sizeof *info)
        return bstk__fail(BSTK_ERR_INVALID, "kernel: info is NULL or its struct_size is not %zu", sizeof *info);
    if (i < 0 || i >= ALL_COUNT)
        return bstk__fail(BSTK_ERR_INVALID, "kernel: i is %d, expected 0 to %d", (int)i, (int)ALL_COUNT - 1);
    const bstk__kernel *row = &all[i];
    const uint32_t missing = row->needs & ~bstk__context_resolve(NULL)->features;
    *info = (bstk_kernel_info){.struct_size = sizeof *info,
                               .name = row->name,
                               .op = row->op,
                               .isa = row->isa,
                               .dtype = row->dtype,
                               .packed_dtype = row->packed_dtype,
                               .block = row->block,
                               .available = missing == 0,
                               .why_not = missing ? missing_text(missing) : ""};
    return BSTK_OK;
}

/* NULL when the row takes the question, else why not. */
static const char *refusal(const bstk_context *ctx, const bstk__kernel *row, const bstk__question *question) {
    const uint32_t missing = row->needs & ~ctx->features;
    if (strcmp(row->op, question->op) != 0)
        return "is for another op";
    if (row->dtype != question->dtype || row->packed_dtype != question->packed_dtype)
        return "is for other types";
    if (row->block && row->block != question->block)
        return "is for another block";
    if (missing)
        return missing_text(missing);
    /* CPUs with AMX run vdpbf16ps at a quarter of the rate of those without: bf16 converted to f32 is then twice as
     * fast (Sapphire Rapids: 88 GFLOP/s of dots beside 175 of f32). */
    if ((row->needs & BSTK__F_AVX512_BF16) && (ctx->features & BSTK__F_AMX_BF16) && question->forced == NULL)
        return "is half as fast as f32 on a CPU with AMX";
    return row->accepts ? row->accepts(question->args) : NULL;
}

bstk_status bstk__select(bstk_context *ctx, const bstk__kernel *rows, int32_t count, const bstk__question *question,
                         const bstk__kernel **out) {
    const char *last = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (question->forced && strcmp(rows[i].name, question->forced) != 0)
            continue;
        last = refusal(ctx, &rows[i], question);
        if (last == NULL) {
            bstk__log(ctx, BSTK__LOG_DISPATCH, "%s %s/%s b%d: %s accepted", question->op,
                      bstk_dtype_name(question->dtype), bstk_dtype_name(question->packed_dtype), (int)question->block,
                      rows[i].name);
            *out = &rows[i];
            return BSTK_OK;
        }
        bstk__log(ctx, BSTK__LOG_DISPATCH, "%s %s/%s b%d: %s refused: %s", question->op,
                  bstk_dtype_name(question->dtype), bstk_dtype_name(question->packed_dtype), (int)question->block,
                  rows[i].name, last);
    }
    if (question->forced && last == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: kernel '%s' is not registered for this op (bstk kernels lists them)",
                          question->op, question->forced);
    if (question->forced)
        return bstk__fail(BSTK_ERR_UNSUPPORTED, "%s: kernel '%s' %s", question->op, question->forced, last);
    return bstk__fail(BSTK_ERR_UNSUPPORTED, "%s: no kernel takes %s with packed %s at block %d", question->op,
                      bstk_dtype_name(question->dtype), bstk_dtype_name(question->packed_dtype), (int)question->block);
}
