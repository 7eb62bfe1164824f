/* test_layout_file.c: layouts in files and in memory: round trips, every truncation, bit flips, errors of the system.
 */
#include "layout_support.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of its own for each run, and paths in it. */
static char folder[64];

static const char *path_of(const char *name) {
    static char path[sizeof folder + 258]; /* a folder, a slash, a name of at most 255 */
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/bstk-layout-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int files_in_folder(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static int remove_folder(void **state) {
    (void)state;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            remove(path_of(entry->d_name));
    closedir(dir);
    return rmdir(folder);
}

/* Random elements: whole, partly kept and absent blocks. */
static bstk_layout *random_layout(bstk_context *ctx, int64_t heads, int64_t m, int64_t n, int32_t block) {
    uint8_t *mask = malloc((size_t)(heads * m * n) + 1);
    for (int64_t k = 0; k < heads * m * n; k++) {
        const int64_t place = k / n / block * 7 + k % n / block * 3;
        mask[k] = place % 3 == 0 || (place % 3 == 1 && test_below(2));
    }
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, (int64_t[]){heads, m, n});
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_dense_mask(ctx, &t, block, &layout));
    free(mask);
    return layout;
}

/* The bytes that bstk_layout_save writes; free() them. */
static uint8_t *bytes_of(const bstk_layout *layout, size_t *size) {
    ASSERT_OK(bstk_layout_save(layout, path_of("bytes")));
    FILE *file = fopen(path_of("bytes"), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void test_round_trip(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        test_seed(seed);
        bstk_layout *layout =
            random_layout(NULL, test_below(4), test_below(90), test_below(90), (int32_t[]){8, 16, 40}[seed % 3]);
        bstk_layout *loaded = NULL, *parsed = NULL;
        size_t size;
        uint8_t *bytes = bytes_of(layout, &size);
        ASSERT_OK(bstk_layout_load(NULL, path_of("bytes"), &loaded));
        assert_same_layout(loaded, layout);
        check_arrays(loaded);
        memmove(bytes + 1, bytes, size); /* at an odd address */
        ASSERT_OK(bstk_layout_parse(NULL, bytes + 1, size, &parsed));
        assert_same_layout(parsed, layout);
        free(bytes);
        bstk_layout_release(layout);
        bstk_layout_release(loaded);
        bstk_layout_release(parsed);
    }
    assert_int_equal(files_in_folder(), 1); /* saving over a file leaves nothing beside it */
}

/* The format byte by byte: files of today are read by every later release. Blocks (0, 0) whole and (0, 1) with all but
 * the first element of 8 x 5 kept, past the ragged edge nothing. */
static void test_format_is_frozen(void **state) {
    (void)state;
    static const uint8_t want[] = {
        'B',  'S',  'T',  'K',  'L',  'A',  'Y',  0,   1, 0, 0, 0, 8, 0, 0, 0, /* version, block */
        1,    0,    0,    0,    0,    0,    0,    0,   1, 0, 0, 0, 0, 0, 0, 0, /* heads, rows */
        2,    0,    0,    0,    0,    0,    0,    0,   8, 0, 0, 0, 0, 0, 0, 0, /* cols, m */
        13,   0,    0,    0,    0,    0,    0,    0,   2, 0, 0, 0, 0, 0, 0, 0, /* n, nnz */
        1,    0,    0,    0,    0,    0,    0,    0,                           /* partial count */
        0,    0,    0,    0,    0,    0,    0,    0,   2, 0, 0, 0, 0, 0, 0, 0, /* row_ptr */
        0,    0,    0,    0,    0,    0,    0,    0,   1, 0, 0, 0, 0, 0, 0, 0, /* col_ptr */
        2,    0,    0,    0,    0,    0,    0,    0,   0, 0, 0, 0, 1, 0, 0, 0, /* col_ptr, col_idx */
        1,    0,    0,    0,    0,    0,    0,    0,                           /* partly kept block */
        0x1e, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f, 0x1f                         /* its mask */
    };
    uint8_t mask[8 * 13];
    memset(mask, 1, sizeof mask);
    mask[8] = 0;
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){8, 13});
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_from_dense_mask(NULL, &t, 8, &layout));
    size_t size;
    uint8_t *bytes = bytes_of(layout, &size);
    assert_int_equal(size, sizeof want);
    assert_memory_equal(bytes, want, sizeof want);
    free(bytes);
    bstk_layout_release(layout);
}

static void test_truncated(void **state) {
    (void)state;
    test_seed(5);
    bstk_layout *layout = random_layout(NULL, 2, 30, 40, 8), *got = NULL;
    size_t size;
    uint8_t *bytes = bytes_of(layout, &size);
    assert_true(bstk_layout_partial_count(layout) > 0);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1); /* so that a sanitizer sees a read past the end */
        memcpy(exact, bytes, cut);
        assert_int_equal(bstk_layout_parse(NULL, exact, cut, &got), BSTK_ERR_FORMAT);
        assert_null(got);
        free(exact);
    }
    bytes[size] = 0;
    ASSERT_FAILS(bstk_layout_parse(NULL, bytes, size + 1, &got), BSTK_ERR_FORMAT,
                 "layout: 1 bytes too many at the end");
    free(bytes);
    bstk_layout_release(layout);
}

/* A changed file is refused or gives a layout that is consistent; the memory taken stays near the file's size. */
static void test_damaged(void **state) {
    (void)state;
    counted_memory memory;
    bstk_context *ctx = counted_context(&memory);
    for (uint64_t seed = 0; seed < 6; seed++) {
        test_seed(seed);
        bstk_layout *layout = random_layout(NULL, 1 + (int64_t)seed % 2, 20 + 8 * (int64_t)seed, 40, 8);
        size_t size;
        uint8_t *bytes = bytes_of(layout, &size);
        int64_t refused = 0, read = 0;
        for (size_t bit = 0; bit < 8 * size + 4000; bit++) {
            const size_t second = (size_t)test_below((int64_t)size); /* behind the single flips come double ones */
            const uint8_t flip = (uint8_t)(1u << bit % 8), other = bit < 8 * size ? (uint8_t)0 : flip;
            bytes[bit / 8 % size] ^= flip;
            bytes[second] ^= other;
            bstk_layout *got = NULL;
            const bstk_status status = bstk_layout_parse(ctx, bytes, size, &got);
            if (status == BSTK_OK)
                check_arrays(got);
            else
                assert_int_equal(status, BSTK_ERR_FORMAT);
            refused += status != BSTK_OK;
            read += status == BSTK_OK;
            bstk_layout_release(got);
            assert_int_equal(memory.live, 1);
            bytes[bit / 8 % size] ^= flip;
            bytes[second] ^= other;
        }
        assert_true(refused > read); /* only element masks and the ragged edge have room for another meaning */
        free(bytes);
        bstk_layout_release(layout);
    }
    bstk_context_release(ctx);
}

/* One field of a small good file at a time; each has a message of its own. */
static void test_bad_fields(void **state) {
    (void)state;
    uint8_t mask[16 * 16];
    memset(mask, 1, sizeof mask);
    mask[0] = 0;
    for (int p = 0; p < 8; p++) /* blocks (0, 0) partly kept, (1, 0), (1, 1) */
        memset(mask + 16 * p + 8, 0, 8);
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){16, 16});
    bstk_layout *layout = NULL, *got = NULL;
    ASSERT_OK(bstk_layout_from_dense_mask(NULL, &t, 8, &layout));
    size_t size;
    uint8_t *good = bytes_of(layout, &size);
    static const struct {
        size_t at;
        uint8_t value;
        const char *text;
    } cases[] = {
        {0, 'X', "layout: not a layout file: it does not start with BSTKLAY"},
        {7, ' ', "layout: not a layout file: it does not start with BSTKLAY"},
        {8, 2, "layout: format version is 2, expected 1"},
        {12, 9, "layout: block is 9, expected a multiple of 8 from 8 to 256"},
        {15, 1, "layout: block is 0, expected a multiple of 8 from 8 to 256"},
        {23, 0x80, "layout: heads is -9223372036854775807, expected 0 to 2147483647"},
        {28, 1, "layout: rows is 4294967298, expected 0 to 2147483647"},
        {16, 3, "layout: the file ends early: 148 bytes are less than its header says"},
        {35, 0x40, "layout: shape N is 16, expected 8589934601 to 8589934608 (1073741826 block cols of 8)"},
        {40, 17, "layout: shape M is 17, expected 9 to 16 (2 block rows of 8)"},
        {63, 0xff, "layout: nnz is -72057594037927933, expected 0 or more"},
        {63, 0x7f, "layout: the file ends early: 148 bytes are less than its header says"},
        {64, 4, "layout: partial count is 4, expected 0 to 3 (nnz)"},
        {72, 1, "layout: row_ptr[0] is 1, expected row_ptr to rise from 0 to 3 (nnz)"},
        {80, 4, "layout: row_ptr[1] is 4, expected row_ptr to rise from 0 to 3 (nnz)"},
        {88, 2, "layout: row_ptr[2] is 2, expected row_ptr to rise from 0 to 3 (nnz)"},
        {104, 1, "layout: col_ptr[1] is 1, but the blocks say 2"},
        {120, 2, "layout: col_idx[0] is 2, expected 0 to 1"},
        {128, 0, "layout: col_idx[2] is 0, expected 1 to 1"},
        {132, 3, "layout: partly kept block 0 is number 3, expected 0 to 2"},
        {140, 0xff, "layout: the mask of block 0 keeps all, nothing or something past the edge"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const uint8_t kept = good[cases[k].at];
        good[cases[k].at] = cases[k].value;
        ASSERT_FAILS(bstk_layout_parse(NULL, good, size, &got), BSTK_ERR_FORMAT, cases[k].text);
        assert_null(got);
        good[cases[k].at] = kept;
    }
    free(good);
    bstk_layout_release(layout);
    memset(mask, 1, sizeof mask); /* 8 x 13: one block row, both blocks partly kept, five columns in the second */
    mask[0] = mask[8] = 0;
    const bstk_tensor ragged = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){8, 13});
    ASSERT_OK(bstk_layout_from_dense_mask(NULL, &ragged, 8, &layout));
    good = bytes_of(layout, &size);
    assert_int_equal(size, 152);
    good[128] = 0; /* the second partly kept block: number 1 becomes 0 */
    ASSERT_FAILS(bstk_layout_parse(NULL, good, size, &got), BSTK_ERR_FORMAT,
                 "layout: partly kept block 1 is number 0, expected 1 to 1");
    good[128] = 1;
    good[144 + 7] = 0x3f; /* a sixth column */
    ASSERT_FAILS(bstk_layout_parse(NULL, good, size, &got), BSTK_ERR_FORMAT,
                 "layout: the mask of block 1 keeps all, nothing or something past the edge");
    assert_null(got);
    assert_int_equal(bstk_layout_parse(NULL, NULL, 8, &got), BSTK_ERR_INVALID);
    assert_int_equal(bstk_layout_parse(NULL, good, size, NULL), BSTK_ERR_INVALID);
    assert_int_equal(bstk_layout_parse(NULL, NULL, 0, &got), BSTK_ERR_FORMAT);
    free(good);
    bstk_layout_release(layout);
}

/* ---- the system says no ------------------------------------------------------------------------------------------ */

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_file(const char *path, const char *text) {
    char got[32] = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(got, 1, sizeof got - 1, file) > 0);
    fclose(file);
    assert_string_equal(got, text);
}

static void assert_message(const char *path, const char *rest) {
    char text[512];
    snprintf(text, sizeof text, "%s: %s", path, rest);
    assert_string_equal(bstk_last_error(), text);
}

static void test_load_errors(void **state) {
    (void)state;
    bstk_layout *layout = NULL;
    assert_int_equal(bstk_layout_load(NULL, path_of("absent"), &layout), BSTK_ERR_IO);
    assert_message(path_of("absent"), "cannot open: No such file or directory");
    assert_int_equal(bstk_layout_load(NULL, folder, &layout), BSTK_ERR_IO);
    assert_message(folder, "not a regular file");
    write_file(path_of("text"), "1, 2, 3\n");
    assert_int_equal(bstk_layout_load(NULL, path_of("text"), &layout), BSTK_ERR_FORMAT);
    assert_message(path_of("text"), "not a layout file: it does not start with BSTKLAY");
    write_file(path_of("empty"), "");
    assert_int_equal(bstk_layout_load(NULL, path_of("empty"), &layout), BSTK_ERR_FORMAT);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0); /* has no writer: must not wait for one */
    assert_int_equal(bstk_layout_load(NULL, path_of("pipe"), &layout), BSTK_ERR_IO);
    assert_int_equal(bstk_layout_load(NULL, NULL, &layout), BSTK_ERR_INVALID);
    assert_int_equal(bstk_layout_load(NULL, "x", NULL), BSTK_ERR_INVALID);
    assert_null(layout);
}

static void test_save_errors(void **state) {
    (void)state;
    test_seed(9);
    bstk_layout *layout = random_layout(NULL, 2, 400, 400, 8);
    assert_int_equal(bstk_layout_save(layout, path_of("absent/l")), BSTK_ERR_IO);
    assert_message(path_of("absent/l"), "cannot create: No such file or directory");
    assert_int_equal(mkdir(path_of("taken"), 0700), 0);
    const int before = files_in_folder();
    assert_int_equal(bstk_layout_save(layout, path_of("taken")), BSTK_ERR_IO);
    assert_message(path_of("taken"), "cannot write: Is a directory");
    assert_int_equal(files_in_folder(), before);
    write_file(path_of("old"), "old");
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 6000; /* the disk is full in the middle of the file */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const bstk_status status = bstk_layout_save(layout, path_of("old"));
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(status, BSTK_ERR_IO);
    assert_message(path_of("old"), "cannot write: File too large");
    assert_file(path_of("old"), "old");
    assert_int_equal(files_in_folder(), before + 1);
    ASSERT_OK(bstk_layout_save(layout, path_of("old"))); /* replaces it */
    bstk_layout *loaded = NULL;
    ASSERT_OK(bstk_layout_load(NULL, path_of("old"), &loaded));
    assert_same_layout(loaded, layout);
    bstk_layout_release(loaded);
    assert_int_equal(bstk_layout_save(NULL, "x"), BSTK_ERR_INVALID);
    assert_int_equal(bstk_layout_save(layout, NULL), BSTK_ERR_INVALID);
    bstk_layout_release(layout);
}

static bstk_status make_load(bstk_context *ctx, const void *arg, bstk_layout **out) {
    return bstk_layout_load(ctx, arg, out);
}

static void test_out_of_memory(void **state) {
    (void)state;
    test_seed(2);
    counted_memory memory;
    bstk_context *ctx = counted_context(&memory);
    bstk_layout *layout = random_layout(ctx, 2, 60, 60, 8);
    const int before = files_in_folder();
    memory.fail_at = memory.calls + 1;
    assert_int_equal(bstk_layout_save(layout, path_of("full")), BSTK_ERR_NOMEM);
    assert_int_equal(files_in_folder(), before);
    ASSERT_OK(bstk_layout_save(layout, path_of("full")));
    check_out_of_memory(make_load, path_of("full"));
    bstk_layout_release(layout);
    bstk_context_release(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_format_is_frozen), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_damaged),     cmocka_unit_test(test_bad_fields),       cmocka_unit_test(test_load_errors),
        cmocka_unit_test(test_save_errors), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
