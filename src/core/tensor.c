/* tensor.c: element types, and the checks of tensor_view.h. */
#include "core/tensor_view.h"

#include "core/checked.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t bstk_dtype_size(bstk_dtype dtype) {
    switch (dtype) {
    case BSTK_F64:
    case BSTK_U64:
    case BSTK_I64:
        return 8;
    case BSTK_F32:
    case BSTK_U32:
    case BSTK_I32:
        return 4;
    case BSTK_F16:
    case BSTK_BF16:
    case BSTK_U16:
    case BSTK_I16:
        return 2;
    case BSTK_BOOL:
    case BSTK_U8:
    case BSTK_I8:
        return 1;
    }
    return 0;
}

const char *bstk_dtype_name(bstk_dtype dtype) {
    static const char *const names[] = {"unknown", "float64", "float32", "float16", "bfloat16", "bool",   "uint8",
                                        "int8",    "uint16",  "int16",   "uint32",  "int32",    "uint64", "int64"};
    return dtype >= BSTK_F64 && dtype <= BSTK_I64 ? names[dtype] : names[0];
}

bstk_tensor bstk_tensor_make(void *data, bstk_dtype dtype, int32_t ndim, const int64_t *shape) {
    bstk_tensor t = {.data = data, .dtype = dtype, .device = {BSTK_CPU, 0}};
    t.ndim = ndim < 0 ? 0 : ndim > BSTK_MAX_NDIM ? BSTK_MAX_NDIM : ndim;
    int64_t stride = 1;
    for (int32_t axis = t.ndim - 1; axis >= 0; axis--) {
        t.shape[axis] = shape[axis];
        t.stride[axis] = stride;
        if (!bstk__mul(stride, shape[axis], &stride)) /* the sizes' check refuses it; here only no overflow */
            stride = INT64_MAX;
    }
    return t;
}

bool bstk__is_float(bstk_dtype dtype) {
    return dtype >= BSTK_F64 && dtype <= BSTK_BF16;
}

bstk_status bstk__check_float(const char *who, const char *name, bstk_dtype dtype) {
    if (!bstk__is_float(dtype))
        return bstk__fail(BSTK_ERR_TYPE, "%s: %s is %s, expected float64, float32, float16 or bfloat16", who, name,
                          bstk_dtype_name(dtype));
    return BSTK_OK;
}

const char *bstk__shape_text(const bstk_tensor *t, char *text) {
    int used = sprintf(text, "[");
    for (int32_t axis = 0; axis < t->ndim && axis < BSTK_MAX_NDIM; axis++)
        used += sprintf(text + used, "%s%lld", axis ? ", " : "", (long long)t->shape[axis]);
    sprintf(text + used, "]");
    return text;
}

bstk_status bstk__view_make(const char *who, const char *name, const bstk_tensor *t, int32_t min_ndim, int32_t max_ndim,
                            bstk__view *view) {
    if (t == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s is NULL", who, name);
    if (bstk_dtype_size(t->dtype) == 0)
        return bstk__fail(BSTK_ERR_TYPE, "%s: %s has the unknown type %d", who, name, (int)t->dtype);
    if (t->device.kind != BSTK_CPU)
        return bstk__fail(BSTK_ERR_UNSUPPORTED, "%s: %s is on device kind %d, expected the CPU (%d)", who, name,
                          (int)t->device.kind, (int)BSTK_CPU);
    if (t->ndim < min_ndim || t->ndim > max_ndim)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s has %d axes, expected %d to %d", who, name, (int)t->ndim,
                          (int)min_ndim, (int)max_ndim);
    int64_t low = 0, high = 0; /* offsets of the first and last byte must fit 64 bits, whatever the strides */
    const int64_t size = (int64_t)bstk_dtype_size(t->dtype);
    view->dtype = t->dtype;
    for (int32_t axis = 0; axis < 4; axis++) {
        const int32_t from = axis - (4 - t->ndim);
        view->shape[axis] = from < 0 ? 1 : t->shape[from];
        view->stride[axis] = from < 0 ? 0 : t->stride[from];
        if (view->shape[axis] < 0)
            return bstk__fail(BSTK_ERR_INVALID, "%s: %s has size %lld on axis %d, expected 0 or more", who, name,
                              (long long)view->shape[axis], (int)from);
        int64_t reach;
        const bool fits = view->shape[axis] == 0 || bstk__mul(view->shape[axis] - 1, view->stride[axis], &reach);
        if (!fits || (view->shape[axis] > 0 && (!bstk__mul(reach, size, &reach) ||
                                                !bstk__add(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))))
            return bstk__fail(BSTK_ERR_OVERFLOW, "%s: %s has offsets beyond 64 bits (axis %d: size %lld, stride %lld)",
                              who, name, (int)from, (long long)view->shape[axis], (long long)view->stride[axis]);
        if (view->shape[axis] <= 1)
            view->stride[axis] = 0; /* a stride never walked: one spelling for kernels and comparisons */
    }
    return BSTK_OK;
}

static bool is_empty(const bstk_tensor *t) {
    for (int32_t axis = 0; axis < t->ndim; axis++)
        if (t->shape[axis] == 0)
            return true;
    return false;
}

bstk_status bstk__check_output(const char *who, const char *name, const bstk_tensor *t) {
    /* Axis by axis from the smallest stride on: each must step over all that the smaller ones reach. */
    bool used[BSTK_MAX_NDIM] = {false};
    uint64_t reach = 1; /* elements from the first to the one after the last */
    if (is_empty(t))
        return BSTK_OK;
    for (int32_t round = 0; round < t->ndim; round++) {
        int32_t least = -1;
        for (int32_t axis = 0; axis < t->ndim; axis++)
            if (!used[axis] && t->shape[axis] > 1 && (least < 0 || llabs(t->stride[axis]) < llabs(t->stride[least])))
                least = axis;
        if (least < 0)
            return BSTK_OK;
        const uint64_t stride = (uint64_t)llabs(t->stride[least]);
        if (stride < reach)
            return bstk__fail(BSTK_ERR_INVALID,
                              "%s: output %s has stride %lld on axis %d of size %lld: its elements share memory", who,
                              name, (long long)t->stride[least], (int)least, (long long)t->shape[least]);
        reach += (uint64_t)(t->shape[least] - 1) * stride;
        used[least] = true;
    }
    return BSTK_OK;
}

bstk_status bstk__check_same(const char *who, const char *name, const bstk_tensor *planned, const bstk_tensor *given) {
    if (given == NULL)
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s is NULL", who, name);
    char planned_text[96], given_text[96];
    bool same = planned->dtype == given->dtype && planned->ndim == given->ndim &&
                planned->device.kind == given->device.kind && planned->device.index == given->device.index;
    for (int32_t axis = 0; same && axis < planned->ndim; axis++)
        same = planned->shape[axis] == given->shape[axis] &&
               (planned->shape[axis] <= 1 || planned->stride[axis] == given->stride[axis]); /* 1 is never walked */
    if (!same) {
        if (given->ndim < 0 || given->ndim > BSTK_MAX_NDIM)
            return bstk__fail(BSTK_ERR_MISMATCH, "%s: %s has %d axes, but the plan was made for %d", who, name,
                              (int)given->ndim, (int)planned->ndim);
        return bstk__fail(BSTK_ERR_MISMATCH, "%s: %s is %s %s, but the plan was made for %s %s (or other strides)", who,
                          name, bstk_dtype_name(given->dtype), bstk__shape_text(given, given_text),
                          bstk_dtype_name(planned->dtype), bstk__shape_text(planned, planned_text));
    }
    if (given->data == NULL && !is_empty(given))
        return bstk__fail(BSTK_ERR_INVALID, "%s: %s.data is NULL", who, name);
    return BSTK_OK;
}

/* Byte range [*first, *last) that a tensor may touch. */
static void range(const bstk_tensor *t, uintptr_t *first, uintptr_t *last) {
    int64_t low = 0, high = 0;
    for (int32_t axis = 0; axis < t->ndim; axis++) {
        const int64_t reach = (t->shape[axis] - 1) * t->stride[axis];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    const int64_t size = (int64_t)bstk_dtype_size(t->dtype);
    *first = (uintptr_t)t->data + (uintptr_t)(low * size);
    *last = (uintptr_t)t->data + (uintptr_t)(high * size) + (uintptr_t)size; /* (high + 1) * size may not fit */
}

/*
 * Bytes of the runs that a tensor consists of, its small axes merged where they touch, and the greatest common divisor
 * of the strides of the others, folded into *step: each run starts a multiple of it after the first.
 */
static int64_t run_bytes(const bstk_tensor *t, int64_t *step) {
    int64_t run = (int64_t)bstk_dtype_size(t->dtype), strides[BSTK_MAX_NDIM], sizes[BSTK_MAX_NDIM];
    int count = 0;
    for (int32_t axis = 0; axis < t->ndim; axis++) {
        const int64_t stride = t->stride[axis] * (int64_t)bstk_dtype_size(t->dtype);
        if (t->shape[axis] == 1 || stride == 0)
            continue;
        int at = count++; /* sorted by stride */
        for (; at > 0 && strides[at - 1] > llabs(stride); at--) {
            strides[at] = strides[at - 1];
            sizes[at] = sizes[at - 1];
        }
        strides[at] = llabs(stride);
        sizes[at] = t->shape[axis];
    }
    for (int i = 0; i < count; i++) {
        if (strides[i] <= run) {
            run += (sizes[i] - 1) * strides[i];
            continue;
        }
        for (int64_t other = strides[i]; other != 0;) { /* Euclid */
            const int64_t rest = *step % other;
            *step = other;
            other = rest;
        }
    }
    return run;
}

bool bstk__overlap(const bstk_tensor *x, const bstk_tensor *y) {
    if (is_empty(x) || is_empty(y))
        return false;
    uintptr_t x_first, x_last, y_first, y_last;
    range(x, &x_first, &x_last);
    range(y, &y_first, &y_last);
    if (x_first >= y_last || y_first >= x_last)
        return false;
    /* Interleaved views, as of q, k and v in one buffer: apart when their runs are, modulo the common step. */
    int64_t step = 0;
    const int64_t x_run = run_bytes(x, &step), y_run = run_bytes(y, &step);
    if (step == 0)
        return true;
    const int64_t difference = (int64_t)(y_first - x_first) % step,
                  ahead = difference < 0 ? difference + step : difference;
    return ahead < x_run || ahead > step - y_run;
}

bool bstk__identical(const bstk_tensor *x, const bstk_tensor *y) {
    if (x->data != y->data || x->dtype != y->dtype || x->ndim != y->ndim)
        return false;
    for (int32_t axis = 0; axis < x->ndim; axis++)
        if (x->shape[axis] != y->shape[axis] || (x->shape[axis] > 1 && x->stride[axis] != y->stride[axis]))
            return false;
    return true;
}

int64_t bstk__load_integer(bstk_dtype dtype, const void *address) {
    switch (dtype) {
    case BSTK_BOOL: /* any nonzero byte is true */
        return *(const uint8_t *)address != 0;
    case BSTK_U8:
        return *(const uint8_t *)address;
    case BSTK_I8:
        return *(const int8_t *)address;
    case BSTK_U16: {
        uint16_t v;
        memcpy(&v, address, sizeof v);
        return v;
    }
    case BSTK_I16: {
        int16_t v;
        memcpy(&v, address, sizeof v);
        return v;
    }
    case BSTK_U32: {
        uint32_t v;
        memcpy(&v, address, sizeof v);
        return v;
    }
    case BSTK_I32: {
        int32_t v;
        memcpy(&v, address, sizeof v);
        return v;
    }
    case BSTK_U64: {
        uint64_t v;
        memcpy(&v, address, sizeof v);
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    case BSTK_I64: {
        int64_t v;
        memcpy(&v, address, sizeof v);
        return v;
    }
    default:
        return 0;
    }
}
