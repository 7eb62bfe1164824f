/*
 * plan.h: what all plans have in common, and the list of kernels they choose from.
 *
 * layout -> plan -> run: a plan holds the chosen kernel, the cut of the work into tasks, and the exact scratch size for
 * one problem (layout, types, shapes, strides, options). It is immutable and reference counted: any number of threads
 * may run one plan at once, each with a scratch of its own. A run allocates nothing and locks nothing.
 */
#ifndef BSTK_PLAN_H
#define BSTK_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include <bstk/export.h>
#include <bstk/status.h>
#include <bstk/tensor.h>

BSTK_BEGIN_DECLS

typedef struct bstk_plan bstk_plan;

/** Drops a reference; NULL is fine.  Threads: any number at once. */
BSTK_API void bstk_plan_release(bstk_plan *plan);

/** Adds a reference and returns the plan; NULL is fine.  Threads: any number at once. */
BSTK_API bstk_plan *bstk_plan_retain(const bstk_plan *plan);

/** Bytes of scratch that each run in flight needs; 0 when it needs none. Any alignment will do. */
BSTK_API size_t bstk_plan_scratch_bytes(const bstk_plan *plan);

/** Name of the chosen kernel, "dsd_f32_scalar" for example; of a composed plan the names joined by "+". Never NULL. */
BSTK_API const char *bstk_plan_kernel(const bstk_plan *plan);

/** Useful floating-point operations of one run: stored blocks only, 2 for a multiply-add; 0 for copies. */
BSTK_API double bstk_plan_flops(const bstk_plan *plan);

/** Bytes that one run has to read and write at least, each operand counted once. */
BSTK_API double bstk_plan_bytes(const bstk_plan *plan);

/**
 * Tasks that the schedule cut the work into, 1 where it is so little that the calling thread does it alone; and the
 * largest task over a thread's even share of the work, at least 1: above 1 it alone holds up the others.
 */
BSTK_API int64_t bstk_plan_tasks(const bstk_plan *plan);
BSTK_API double bstk_plan_imbalance(const bstk_plan *plan);

/* How to run: the same struct for every op. NULL stands for all zeros, which fits plans without scratch. */
typedef struct bstk_exec {
    size_t struct_size;   /* set by BSTK_EXEC_INIT */
    void *scratch;        /* caller's memory, not shared with another run in flight */
    size_t scratch_bytes; /* at least bstk_plan_scratch_bytes() */
    void *stream;         /* a CUDA stream; ignored on the CPU */
} bstk_exec;

/* clang-format off */
#define BSTK_EXEC_INIT { sizeof(bstk_exec), 0, 0, 0 }
/* clang-format on */

/* ---- the registry ----------------------------------------------------------------------------------------------- */

typedef struct bstk_kernel_info {
    size_t struct_size;      /* set to sizeof(bstk_kernel_info) by the caller */
    const char *name;        /* unique: "sdd_f32_scalar" */
    const char *op;          /* "sdd", "dsd", "dds", "softmax", "pack", "unpack" ... */
    const char *isa;         /* "scalar", "avx2" ... */
    bstk_dtype dtype;        /* of the dense operands, or of the values */
    bstk_dtype packed_dtype; /* of the packed operand */
    int32_t block;           /* the one block edge it takes; 0: any */
    int32_t available;       /* 1 when this machine can run it under the default context */
    const char *why_not;     /* "" when available */
} bstk_kernel_info;

/** Number of registered kernels. */
BSTK_API int32_t bstk_kernel_count(void);

/** Kernel i of the registry, in order of preference within an op.  BSTK_ERR_INVALID when i is out of range. */
BSTK_API BSTK_NODISCARD bstk_status bstk_kernel_get(int32_t i, bstk_kernel_info *info);

BSTK_END_DECLS

#endif
