/* test_pattern_file.c: .smtx and .mtx: good files, and each malformed one with its message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io_test.h"

typedef bool parser(const char *name, const void *bytes, size_t size, io_pattern *out, io_error *error);

/* From a block of exactly the text's size, so that a sanitizer sees a read beyond it. */
static bool parse_text(parser *parse, const char *text, size_t size, io_pattern *out, io_error *error) {
    char *copy = malloc(size + (size == 0));
    memcpy(copy, text, size);
    const bool good = parse("file", copy, size, out, error);
    free(copy);
    return good;
}

/* row is [rows + 1] pointers for .smtx and [count] rows for .mtx. */
static void check_good(parser *parse, const char *text, int64_t rows, int64_t cols, int64_t count, const int64_t *row,
                       const int64_t *col) {
    io_pattern p;
    io_error error;
    if (!parse_text(parse, text, strlen(text), &p, &error))
        fail_msg("%s: %s", text, error.text);
    assert_int_equal(p.rows, rows);
    assert_int_equal(p.cols, cols);
    assert_int_equal(p.count, count);
    const bool smtx = parse == io_smtx_parse;
    assert_true(smtx ? p.row == NULL : p.row_ptr == NULL);
    for (int64_t i = 0; i < (smtx ? rows + 1 : count); i++)
        assert_int_equal((smtx ? p.row_ptr : p.row)[i], row[i]);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(p.col[i], col[i]);
    io_pattern_free(&p);
    assert_null(p.col);
    io_pattern_free(&p);
}

static void check_bad(parser *parse, const char *text, const char *message) {
    io_pattern p = {.rows = 77};
    io_error error = {""};
    if (parse_text(parse, text, strlen(text), &p, &error))
        fail_msg("was read: %s", text);
    assert_int_equal(p.rows, 77);
    assert_null(p.col);
    assert_memory_equal(error.text, "file: ", 6);
    io_test_message(&error, message);
}

#define INDICES (const int64_t[])

static void smtx_good(void **state) {
    (void)state;
    parser *smtx = io_smtx_parse;
    check_good(smtx, "3, 4, 4\n0 1 1 4\n2 0 1 3\n", 3, 4, 4, INDICES{0, 1, 1, 4}, INDICES{2, 0, 1, 3});
    check_good(smtx, "3,4,4\n0 1 1 4\n3 2 1 0", 3, 4, 4, INDICES{0, 1, 1, 4}, INDICES{3, 2, 1, 0});
    check_good(smtx, "3 4 4 \r\n0 1 1 4 \r\n2 0 1 3 \r\n\r\n", 3, 4, 4, INDICES{0, 1, 1, 4}, INDICES{2, 0, 1, 3});
    check_good(smtx, " 1 ,\t2 , 1\n0\t1\n  1", 1, 2, 1, INDICES{0, 1}, INDICES{1});
    check_good(smtx, "2, 3, 0\n0 0 0 \n", 2, 3, 0, INDICES{0, 0, 0}, NULL);
    check_good(smtx, "2, 3, 0\n0 0 0", 2, 3, 0, INDICES{0, 0, 0}, NULL);
    check_good(smtx, "2, 3, 0\n0 0 0\n\n \n", 2, 3, 0, INDICES{0, 0, 0}, NULL);
    check_good(smtx, "0, 3, 0\n0\n", 0, 3, 0, INDICES{0}, NULL);
    check_good(smtx, "1, 9223372036854775806, 1\n0 1\n9223372036854775805\n", 1, INT64_MAX - 1, 1, INDICES{0, 1},
               INDICES{INT64_MAX - 2});
}

static void smtx_bad(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1: the file ends where rows was expected"},
        {"\n3, 4, 4\n", "line 1: the line ends where rows was expected"},
        {"3, 4\n0 1 1 4\n", "line 1: the line ends where nnz was expected"},
        {"3, 4, 4, 5\n0 1 1 4\n2 0 1 3\n", "line 1: ',' where the line should end"},
        {"3, 4, 4 5\n0 1 1 4\n2 0 1 3\n", "line 1: '5' where the line should end"},
        {"3;4;4\n", "line 1: '3;4;4' where rows was expected"},
        {"3,, 4, 4\n", "line 1: ',' where cols was expected"},
        {"3, -4, 4\n", "line 1: cols is -4, expected 0 or more"},
        {"3, +4, 4\n", "line 1: '+4,' where cols was expected"},
        {"3, -, 4\n", "line 1: '-,' where cols was expected"},
        {"99999999999999999999, 4, 4\n", "line 1: rows is 99999999999999999999, expected 0 or more, of 64 bits"},
        {"9223372036854775807, 4, 4\n", "line 1: rows is 9223372036854775807"},
        {"1000000000000000, 4, 4\n0 1 1 4\n", "line 1: 1000000000000001 row pointers announced, but only 9 bytes"},
        {"3, 400, 1000\n0 1 1 4\n2 0\n", "line 1: 1000 column indices announced, but only 13 bytes follow"},
        {"3, 4, 13\n0 1 1 4\n", "line 1: 13 entries in a matrix of 3 x 4"},
        {"0, 4, 1\n0\n0\n", "line 1: 1 entries in a matrix of 0 x 4"},
        {"3, 4, 4\n1 1 1 4\n2 0 1 3\n", "line 2: a row pointer is 1, expected 0"},
        {"3, 4, 4\n0 2 1 4\n2 0 1 3\n", "line 2: a row pointer is 1, expected 2 to 4"},
        {"3, 4, 4\n0 1 5 4\n2 0 1 3\n", "line 2: a row pointer is 5, expected 1 to 4"},
        {"3, 4, 4\n0 1 1 3\n2 0 1 3\n", "line 2: a row pointer is 3, expected 4"},
        {"3, 4, 4\n0 1 1\n4\n2 0 1 3\n", "line 2: the line ends where a row pointer was expected"},
        {"3, 4, 4\n0 1 1 4 4\n2 0 1 3\n", "line 2: '4' where the line should end"},
        {"3, 4, 4\n0 1 1.0 4\n2 0 1 3\n", "line 2: '1.0' where a row pointer was expected"},
        {"3, 4, 4\n0 1 1 4\n2 0 4 3\n", "line 3: a column index is 4, expected 0 to 3"},
        {"3, 4, 4\n0 1 1 4\n2 0 -1 3\n", "line 3: a column index is -1, expected 0 to 3"},
        {"3, 4, 4\n0 1 1 4\n2 0 1\n", "line 3: the line ends where a column index was expected"},
        {"3, 4, 4\n0 1 1 4\n2 0 1 3 3\n", "line 3: text after the end of the data"},
        {"3, 4, 4\n0 1 1 4\n2 0 1 3\n\n0\n", "line 5: text after the end of the data"},
        {"2, 3, 0\n0 0 0\n1\n", "line 3: text after the end of the data"},
        {"\x1b[31m\n", "line 1: '?[31m' where rows was expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_bad(io_smtx_parse, cases[i][0], cases[i][1]);
}

#define BANNER "%%MatrixMarket matrix coordinate "

static void mtx_good(void **state) {
    (void)state;
    parser *mtx = io_mtx_parse;
    check_good(mtx, BANNER "real general\n% comment\n%\n\n3 4 3\n1 1 1.5\n2 4 -2e-3\n\n3 2 0\n", 3, 4, 3,
               INDICES{0, 1, 2}, INDICES{0, 3, 1}); /* a listed zero is an entry */
    check_good(mtx, "%%matrixmarket MATRIX Coordinate Pattern General\r\n2 2 1\r\n2 1\r\n", 2, 2, 1, INDICES{1},
               INDICES{0});
    check_good(mtx, BANNER "pattern symmetric\n3 3 3\n1 1\n2 1\n3 2\n", 3, 3, 5, INDICES{0, 1, 0, 2, 1},
               INDICES{0, 0, 1, 1, 2});
    check_good(mtx, BANNER "integer skew-symmetric\n2 2 1\n2 1 7", 2, 2, 2, INDICES{1, 0}, INDICES{0, 1});
    check_good(mtx, BANNER "complex hermitian\n2 2 2\n1 1 1 0\n2 1 0 -1\n", 2, 2, 3, INDICES{0, 1, 0},
               INDICES{0, 0, 1});
    check_good(mtx, BANNER "real general\n3 3 0\n", 3, 3, 0, NULL, NULL);
    check_good(mtx, BANNER "real general\n0 0 0", 0, 0, 0, NULL, NULL);
    check_good(mtx, BANNER "real general\n1 3 3\n1 1 inf\n1 2 NaN\n1 3 +1.E5", 1, 3, 3, INDICES{0, 0, 0},
               INDICES{0, 1, 2});
}

static void mtx_bad(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1: the first word is '', expected %%MatrixMarket"},
        {"3 3 1\n1 1\n", "line 1: the first word is '3', expected %%MatrixMarket"},
        {"%%MatrixMarket vector coordinate real general\n", "line 1: the object is 'vector', expected matrix"},
        {"%%MatrixMarket matrix array real general\n2 2\n", "line 1: the format is 'array', expected coordinate"},
        {BANNER "quaternion general\n", "line 1: the field is 'quaternion', expected pattern, integer, real or"},
        {BANNER "real lower\n", "line 1: the symmetry is 'lower', expected general, symmetric"},
        {BANNER "real\n", "line 1: the symmetry is ''"},
        {BANNER "real general now\n", "line 1: 'now' where the line should end"},
        {BANNER "real general\n% no size", "line 2: the file ends where rows was expected"},
        {BANNER "real general\n3 3\n1 1 1\n", "line 2: the line ends where the number of entries was expected"},
        {BANNER "real general\n3 3 -1\n", "line 2: the number of entries is -1, expected 0 or more"},
        {BANNER "real general\n1000000 1000000 99999999\n1 1 1\n",
         "line 2: 99999999 entries announced, but only 7 bytes follow"},
        {BANNER "real general\n1 1 2\n1 1 1\n1 1 1\n", "line 2: 2 entries in a matrix of 1 x 1"},
        {BANNER "real symmetric\n2 3 1\n1 1 1\n", "line 3: a symmetric matrix of 2 x 3, expected a square"},
        {BANNER "pattern general\n3 3 1\n0 1\n", "line 3: a row is 0, expected 1 to 3"},
        {BANNER "pattern general\n3 3 1\n1 4\n", "line 3: a column is 4, expected 1 to 3"},
        {BANNER "real general\n3 3 1\n1 1 x\n", "line 3: 'x' where a value was expected"},
        {BANNER "real general\n3 3 1\n1 1    \n", "line 3: '' where a value was expected"},
        {BANNER "complex general\n3 3 1\n1 1 1\n", "line 3: '' where a value was expected"},
        {BANNER "pattern general\n3 3 1\n1 1 1\n", "line 3: '1' where the line should end"},
        {BANNER "pattern general\n3 3 2\n1 1   \n", "line 4: the file ends where a row was expected"},
        {BANNER "pattern general\n3 3 1\n1 1\n2 2\n", "line 4: text after the end of the data"},
        {BANNER "real skew-symmetric\n3 3 1\n2 2 0\n", "line 3: an entry on the diagonal of a skew-symmetric matrix"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_bad(io_mtx_parse, cases[i][0], cases[i][1]);
}

/* Every beginning that lacks a number is refused, and none reads beyond its end. */
static void truncated(void **state) {
    (void)state;
    static const char smtx[] = "3, 4, 4\n0 1 1 4\n2 0 1 3", mtx[] = BANNER "real general\n3 3 2\n1 1 1\n2 2 2";
    io_pattern p;
    io_error error;
    for (size_t part = 0; part < sizeof smtx - 1; part++)
        assert_false(parse_text(io_smtx_parse, smtx, part, &p, &error));
    for (size_t part = 0; part < sizeof mtx - 1; part++)
        assert_false(parse_text(io_mtx_parse, mtx, part, &p, &error));
    assert_false(parse_text(io_smtx_parse, "3, 4, 4\0", 8, &p, &error)); /* a NUL is text */
    io_test_message(&error, "line 1: '4?' where nnz was expected");
}

static void files(void **state) {
    (void)state;
    static const char smtx[] = "1, 2, 1\n0 1\n1\n", mtx[] = BANNER "pattern general\n1 2 1\n1 2\n";
    io_pattern p;
    io_error error;
    io_test_put(io_test_path("a.smtx"), smtx, sizeof smtx - 1);
    assert_true(io_smtx_read(io_test_path("a.smtx"), &p, &error));
    assert_int_equal(p.col[0], 1);
    io_pattern_free(&p);
    io_test_put(io_test_path("a.mtx"), mtx, sizeof mtx - 1);
    assert_true(io_mtx_read(io_test_path("a.mtx"), &p, &error));
    assert_int_equal(p.col[0], 1);
    io_pattern_free(&p);
    assert_false(io_mtx_read(io_test_path("a.smtx"), &p, &error));
    io_test_message(&error, "/a.smtx: line 1: the first word is '1,'");
    assert_false(io_smtx_read(io_test_path("none"), &p, &error));
    io_test_message(&error, "none: No such file or directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smtx_good), cmocka_unit_test(smtx_bad),
        cmocka_unit_test(mtx_good),  cmocka_unit_test(mtx_bad),
        cmocka_unit_test(truncated), cmocka_unit_test_setup_teardown(files, io_test_begin, io_test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
