/* tensor.h: element types, and the non-owning view of an array that every call takes. */
#ifndef BSTK_TENSOR_H
#define BSTK_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <bstk/export.h>
#include <bstk/status.h>

BSTK_BEGIN_DECLS

/* Element types. Products, softmax and attention compute on the four floating ones; masks may have any. */
typedef enum bstk_dtype {
    BSTK_F64 = 1,
    BSTK_F32 = 2,
    BSTK_F16 = 3,  /* IEEE binary16, held as uint16_t */
    BSTK_BF16 = 4, /* upper half of a binary32, held as uint16_t */
    BSTK_BOOL = 5, /* one byte; nonzero is true */
    BSTK_U8 = 6,
    BSTK_I8 = 7,
    BSTK_U16 = 8,
    BSTK_I16 = 9,
    BSTK_U32 = 10,
    BSTK_I32 = 11,
    BSTK_U64 = 12,
    BSTK_I64 = 13
} bstk_dtype;

/* Values are those of DLPack. */
typedef enum bstk_device_kind { BSTK_CPU = 1, BSTK_CUDA = 2 } bstk_device_kind;

typedef struct bstk_device {
    bstk_device_kind kind;
    int32_t index; /* 0 for the CPU */
} bstk_device;

#define BSTK_MAX_NDIM 4

/*
 * A view of somebody else's memory. Shapes and strides count elements; a stride may be any value, also negative
 * or 0 (0 repeats one element along an axis; inputs only). Leading axes may be left out: a dense matrix is
 * [M, K], [H, M, K] or [Z, H, M, K], packed values are [nnz, b, b] or [Z, nnz, b, b].
 */
typedef struct bstk_tensor {
    void *data; /* address of element [0, ..., 0] */
    bstk_dtype dtype;
    bstk_device device;
    int32_t ndim;
    int64_t shape[BSTK_MAX_NDIM];
    int64_t stride[BSTK_MAX_NDIM];
} bstk_tensor;

/** Bytes of one element; 0 for an unknown type.  Threads: any number at once. */
BSTK_API size_t bstk_dtype_size(bstk_dtype dtype);

/** Name of a type as NumPy spells it, "float32" or "bfloat16" for example; "unknown" otherwise. Never NULL. */
BSTK_API const char *bstk_dtype_name(bstk_dtype dtype);

/**
 * View of a contiguous row-major CPU array: stride[ndim-1] = 1, stride[i] = stride[i+1] * shape[i+1].
 *
 * @param data   first element; may be NULL when only the description is wanted, as in a plan's descriptor
 * @param ndim   0..BSTK_MAX_NDIM; a larger value is cut to BSTK_MAX_NDIM
 * @param shape  ndim sizes, elements
 * Threads: any number at once.  Allocates: no.
 */
BSTK_API bstk_tensor bstk_tensor_make(void *data, bstk_dtype dtype, int32_t ndim, const int64_t *shape);

BSTK_END_DECLS

#endif
