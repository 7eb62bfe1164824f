/* fuzz_pattern.c: any bytes as .smtx and as .mtx: refused with a message, or every index inside the matrix. */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int condition) {
    if (!condition)
        abort();
}

static void check(bool good, io_pattern *p, const io_error *error) {
    if (!good) {
        need(strncmp(error->text, "fuzz: ", 6) == 0 && strchr(error->text, '\n') == NULL);
        return;
    }
    need(p->rows >= 0 && p->cols >= 0 && p->count >= 0 && (p->row_ptr == NULL) != (p->row == NULL));
    for (int64_t i = 0; i < p->count; i++) {
        need(p->col[i] >= 0 && p->col[i] < p->cols);
        need(p->row == NULL || (p->row[i] >= 0 && p->row[i] < p->rows));
    }
    for (int64_t i = 0; p->row_ptr && i < p->rows; i++)
        need(p->row_ptr[i] <= p->row_ptr[i + 1]);
    need(p->row_ptr == NULL || (p->row_ptr[0] == 0 && p->row_ptr[p->rows] == p->count));
    io_pattern_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    io_pattern pattern;
    io_error error = {""};
    bool good = io_smtx_parse("fuzz", data, size, &pattern, &error);
    check(good, &pattern, &error);
    good = io_mtx_parse("fuzz", data, size, &pattern, &error);
    check(good, &pattern, &error);
    return 0;
}
