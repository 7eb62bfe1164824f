/* fuzz_npy.c: any bytes as a .npy file: refused with a message, or an array whose every element can be read. */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    io_array array;
    io_error error = {""};
    if (!io_npy_parse("fuzz.npy", data, size, &array, &error)) {
        if (strncmp(error.text, "fuzz.npy: ", 10) != 0 || strchr(error.text, '\n'))
            abort();
        return 0;
    }
    if (array.bytes > size)
        abort(); /* memory that the file does not back */
    int64_t last = 0, count = 1;
    for (int32_t axis = 0; axis < array.t.ndim; axis++) {
        last += (array.t.shape[axis] - 1) * array.t.stride[axis];
        count *= array.t.shape[axis];
    }
    if (count > 0 && (last + 1 != count || (size_t)count * bstk_dtype_size(array.t.dtype) != array.bytes))
        abort();
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < array.bytes; i++)
        sum = (unsigned char)(sum + ((const unsigned char *)array.t.data)[i]);
    io_array_free(&array);
    return 0;
}
