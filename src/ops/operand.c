/* operand.c: shape rules shared by all ops, and their messages. */
#include "ops/operand.h"

#include "core/checked.h"
#include "core/error.h"

bstk_status bstk__check_extent(const char *who, const char *name, const char *axis, int64_t got, int64_t need,
                               int64_t blocks, int32_t edge) {
    if (got == need)
        return BSTK_OK;
    const char *hint = got > 0 && bstk__ceil_div(got, edge) == blocks
                           ? "; for a ragged edge make the layout with its shape M,N (--shape)"
                           : "";
    return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %lld %s, but the layout needs %lld (%lld blocks of %d)%s", who,
                      name, (long long)got, axis, (long long)need, (long long)blocks, (int)edge, hint);
}

bstk_status bstk__check_packed(const char *who, const char *name, const bstk_tensor *t, const bstk__view *view,
                               const bstk_layout *layout) {
    const int64_t blocks = view->shape[1], edge = layout->block;
    const bool shared = layout->heads == 1 && layout->nnz > 0 && blocks % layout->nnz == 0; /* 0: no heads */
    if (view->shape[2] == edge && view->shape[3] == edge && (blocks == layout->nnz || shared))
        return BSTK_OK;
    char text[96];
    return bstk__fail(BSTK_ERR_INVALID,
                      "%s: %s is %s, expected packed values [Z, %lld, %d, %d]%s (%lld stored blocks of %d); pack makes "
                      "them from a dense matrix",
                      who, name, bstk__shape_text(t, text), (long long)layout->nnz, (int)edge, (int)edge,
                      layout->heads == 1 ? ", or that many blocks for each head" : "", (long long)layout->nnz,
                      (int)edge);
}

bstk_status bstk__broadcast(const char *who, const char *name, const char *axis, int64_t size, int64_t *all) {
    if (*all == 1)
        *all = size;
    else if (size != 1 && size != *all)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %s %lld, but the other operands have %lld (expected that or 1)",
                          who, name, axis, (long long)size, (long long)*all);
    return BSTK_OK;
}

bstk_status bstk__check_size(const char *who, const char *name, const char *axis, int64_t got, int64_t need) {
    if (got == need)
        return BSTK_OK;
    return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %s %lld, expected %lld", who, name, axis, (long long)got,
                      (long long)need);
}

bstk_status bstk__check_rows(const char *who, const char *row_name, const bstk_tensor *t, const char *name,
                             bstk_dtype values, const int64_t sizes[3], bstk__view *view) {
    static const char *const axes[3] = {"batch size", "heads", "rows"};
    const bstk_dtype need = values == BSTK_F64 ? BSTK_F64 : BSTK_F32;
    BSTK_TRY(bstk__view_make(who, row_name, t, 1, 3, view));
    if (t->dtype != need)
        return bstk__fail(BSTK_ERR_TYPE, "%s: %s is %s, expected %s beside %s of %s", who, row_name,
                          bstk_dtype_name(t->dtype), bstk_dtype_name(need), name, bstk_dtype_name(values));
    for (int axis = 0; axis < 3; axis++)
        BSTK_TRY(bstk__check_size(who, row_name, axes[axis], view->shape[axis + 1], sizes[axis]));
    return BSTK_OK;
}

bstk_status bstk__check_lse(const char *who, const bstk_tensor *lse, const char *name, bstk_dtype values,
                            const int64_t sizes[3], bstk__view *view) {
    BSTK_TRY(bstk__check_rows(who, "lse", lse, name, values, sizes, view));
    return bstk__check_output(who, "lse", lse);
}

double bstk__view_elements(const bstk__view *view) {
    return (double)view->shape[0] * (double)view->shape[1] * (double)view->shape[2] * (double)view->shape[3];
}
