/* arrays.c: operands and layouts from files. */
#include "cli.h"

#include "check/gen.h"

#include <stdlib.h>
#include <string.h>

/* ---- which file an operand came from ----------------------------------------------------------------------------- */

enum { MAX_OPERANDS = 20 };
static struct { const char *name, *path; } operands[MAX_OPERANDS];
static int operand_count;

void remember_operand(const char *name, const char *path) {
    if (operand_count < MAX_OPERANDS) {
        operands[operand_count].name = name;
        operands[operand_count++].path = path;
    }
}

const char *operand_file(const char *name, size_t length) {
    for (int i = 0; i < operand_count; i++)
        if (strlen(operands[i].name) == length && strncmp(operands[i].name, name, length) == 0)
            return operands[i].path;
    return NULL;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

void make_array(io_array *array, bstk_dtype dtype, int ndim, const int64_t *shape) {
    io_error error;
    if (!io_array_make(array, dtype, ndim, shape, &error))
        fail("%s", error.text);
}

bstk_dtype lse_dtype(bstk_dtype dtype) {
    return dtype == BSTK_F64 ? BSTK_F64 : BSTK_F32;
}

static void read_array(const common_opts *common, const char *name, const char *path, io_array *array) {
    io_error error;
    if (!io_npy_read(path, array, &error))
        fail("%s: %s", common->command, error.text);
    remember_operand(name, path);
    if (common->dtype == BSTK_BF16 && array->t.dtype == BSTK_U16)
        array->t.dtype = BSTK_BF16; /* NumPy has no bfloat16: such files hold the bits */
}

void load_term(const common_opts *common, const char *name, const char *path, io_array *array) {
    read_array(common, name, path, array);
}

void load_operand(const common_opts *common, const char *name, const char *path, io_array *array) {
    read_array(common, name, path, array);
    bstk_tensor *from = &array->t;
    if (!common->dtype || from->dtype == common->dtype)
        return;
    if (!gen_is_float(from->dtype))
        fail("%s: %s is %s in %s, expected %s for --dtype %s", common->command, name, bstk_dtype_name(from->dtype),
             path, common->dtype == BSTK_BF16 ? "uint16 or a floating type" : "a floating type",
             bstk_dtype_name(common->dtype));
    io_array converted;
    make_array(&converted, common->dtype, from->ndim, from->shape);
    int64_t count = gen_count(from);
    for (int64_t i = 0; i < count; i++)
        gen_store(common->dtype, converted.t.data, i, gen_load(from->dtype, from->data, gen_offset(from, i)));
    io_array_free(array);
    *array = converted;
}

int64_t axis(const bstk_tensor *t, int back) {
    return back <= t->ndim ? t->shape[t->ndim - back] : 1;
}

int64_t packed_heads(const bstk_layout *layout, const bstk_tensor *packed) {
    int64_t nnz = bstk_layout_nnz(layout);
    if (bstk_layout_heads(layout) > 1)
        return bstk_layout_heads(layout);
    int64_t blocks = axis(packed, 3);
    return nnz > 0 && blocks > 0 && blocks % nnz == 0 ? blocks / nnz : 1;
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static bstk_layout *layout_from_npy(bstk_context *ctx, const common_opts *common, const layout_opts *opts,
                                    const void *bytes, size_t size, bool *sized) {
    if (opts->block == 0 && (!sized || opts->has_shape))
        usage_error("%s: --block is missing; %s is a 0/1 array, which does not tell the block edge", common->command,
                    opts->path);
    io_array mask;
    io_error error;
    if (!io_npy_parse(opts->path, bytes, size, &mask, &error))
        fail("%s: %s", common->command, error.text);
    if (sized)
        *sized = opts->block != 0;
    int block = opts->block ? opts->block : BSTK_MIN_BLOCK;
    bstk_layout *layout = NULL;
    must(bstk_layout_from_mask(ctx, &mask.t, block, opts->has_shape ? opts->shape : NULL, &layout));
    io_array_free(&mask);
    return layout;
}

static bstk_layout *layout_from_own_file(bstk_context *ctx, const common_opts *common, const layout_opts *opts,
                                         const void *bytes, size_t size) {
    bstk_layout *layout = NULL;
    if (bstk_layout_parse(ctx, bytes, size, &layout) != BSTK_OK)
        fail("%s; the file is %s", bstk_last_error(), opts->path);
    if (opts->block && opts->block != bstk_layout_block(layout))
        fail("%s: --block is %d, but the layout %s has blocks of %d", common->command, opts->block, opts->path,
             bstk_layout_block(layout));
    int64_t m = bstk_layout_m(layout), n = bstk_layout_n(layout);
    if (opts->has_shape && (opts->shape[0] != m || opts->shape[1] != n))
        fail("%s: --shape is %lld,%lld, but the layout %s is of %lld,%lld elements", common->command,
             (long long)opts->shape[0], (long long)opts->shape[1], opts->path, (long long)m, (long long)n);
    return layout;
}

bstk_layout *load_layout(bstk_context *ctx, const common_opts *common, const layout_opts *opts, bool *sized) {
    io_error error;
    void *bytes = NULL;
    size_t size = 0;
    if (!io_file_read(opts->path, SIZE_MAX, &bytes, &size, &error))
        fail("%s: %s", common->command, error.text);
    remember_operand("layout", opts->path);
    remember_operand("mask", opts->path);
    static const char npy_magic[] = "\x93NUMPY";
    bool npy = size >= sizeof npy_magic - 1 && memcmp(bytes, npy_magic, sizeof npy_magic - 1) == 0;
    bstk_layout *layout = npy ? layout_from_npy(ctx, common, opts, bytes, size, sized)
                              : layout_from_own_file(ctx, common, opts, bytes, size);
    free(bytes);
    return layout;
}
