/* test_picture.c: layouts as text, to the character, and as PNG, to the pixel where it matters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io_test.h"

#include <png.h>

/* A layout from its picture: rows of # and . one after the other, heads too. */
static bstk_layout *layout_of(int64_t heads, int64_t rows, int64_t cols, const char *cells) {
    uint8_t *mask = malloc(strlen(cells) + 1);
    for (size_t i = 0; cells[i]; i++)
        mask[i] = cells[i] == '#';
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 3, (int64_t[]){heads, rows, cols});
    bstk_layout *layout;
    assert_int_equal(strlen(cells), heads * rows * cols);
    assert_int_equal(bstk_layout_from_mask(NULL, &t, 16, NULL, &layout), BSTK_OK);
    free(mask);
    return layout;
}

static bstk_layout *build(bstk_layout_kind kind, int64_t heads, int64_t rows, int64_t cols) {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout;
    opts.kind = kind;
    opts.heads = heads;
    opts.rows = rows;
    opts.cols = cols;
    assert_int_equal(bstk_layout_build(NULL, &opts, &layout), BSTK_OK);
    return layout;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void check_text(bstk_layout *layout, int columns, bool ascii, const char *expected) {
    char *text = io_picture_text(layout, columns, ascii);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void one_head(void **state) {
    (void)state;
    bstk_layout *layout = layout_of(1, 3, 5,
                                    "##..#"
                                    ".#.##"
                                    "#...#");
    check_text(layout, 80, true,
               "3 x 5 blocks of 16, density 53.3 %\n"
               "##..#\n"
               ".#.##\n"
               "#...#\n");
    check_text(layout, 80, false,
               "3 x 5 blocks of 16, density 53.3 %\n"
               "┌─────┐\n"
               "│▀█ ▄█│\n"
               "│▀   ▀│\n"
               "└─────┘\n");
    bstk_layout_release(layout);
}

static void several_heads(void **state) {
    (void)state;
    bstk_layout *layout = layout_of(3, 2, 3, "##....#..###...##.");
    check_text(layout, 40, true,
               "3 heads of 2 x 3 blocks of 16, density 44.4 %\n"
               "head 0: 33.3 %    head 1: 66.7 %\n"
               "##.               #..\n"
               "...               ###\n"
               "head 2: 33.3 %\n"
               "...\n"
               "##.\n");
    check_text(layout, 20, false,
               "3 heads of 2 x 3 blocks of 16, density 44.4 %\n"
               "head 0: 33.3 %\n"
               "┌───┐\n"
               "│▀▀ │\n"
               "└───┘\n"
               "head 1: 66.7 %\n"
               "┌───┐\n"
               "│█▄▄│\n"
               "└───┘\n"
               "head 2: 33.3 %\n"
               "┌───┐\n"
               "│▄▄ │\n"
               "└───┘\n");
    bstk_layout_release(layout);
    layout = build(BSTK_LAYOUT_DENSE, 100, 1, 1);
    char *text = io_picture_text(layout, 80, true);
    assert_non_null(strstr(text, "head 63: 100.0 %"));
    assert_null(strstr(text, "head 64:"));
    assert_non_null(strstr(text, "\nand 36 more heads\n"));
    free(text);
    bstk_layout_release(layout);
}

static void empty(void **state) {
    (void)state;
    bstk_layout *layout = build(BSTK_LAYOUT_DENSE, 1, 0, 2);
    check_text(layout, 80, true, "0 x 2 blocks of 64, density 0.0 %\n");
    check_text(layout, 80, false,
               "0 x 2 blocks of 64, density 0.0 %\n"
               "┌──┐\n"
               "└──┘\n");
    bstk_layout_release(layout);
}

/* 18 columns of characters hold 33 blocks when a character is two blocks wide; the last has one block only. */
static void reduced(void **state) {
    (void)state;
    bstk_layout *layout = build(BSTK_LAYOUT_LOCAL, 1, 33, 33);
    check_text(layout, 18, true,
               "33 x 33 blocks of 64, density 8.9 %; a character stands for 4 x 2 blocks\n"
               "**:..............\n"
               ".:**:............\n"
               "...:**:..........\n"
               ".....:**:........\n"
               ".......:**:......\n"
               ".........:**:....\n"
               "...........:**:..\n"
               ".............:**+\n"
               "...............*#\n");
    char *text = io_picture_text(layout, 20, false);
    assert_non_null(strstr(text, "│▓▓░              │\n"));
    free(text);
    text = io_picture_text(layout, 0, true); /* 16 columns at least: three blocks a character */
    assert_non_null(strstr(text, "a character stands for 6 x 3 blocks\n"));
    free(text);
    bstk_layout_release(layout);
    layout = build(BSTK_LAYOUT_DENSE, 2, 1000, 3); /* high ones are reduced too */
    text = io_picture_text(layout, 80, true);
    assert_non_null(strstr(text, "a character stands for 26 x 13 blocks\nhead 0: 100.0 %   head 1: 100.0 %\n#   "));
    free(text);
    bstk_layout_release(layout);
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

typedef struct pixels {
    png_image image;
    png_byte *bytes; /* RGB */
} pixels;

static pixels draw(const bstk_layout *layout) {
    pixels p = {.image = {.version = PNG_IMAGE_VERSION}};
    io_error error;
    const char *path = io_test_path("layout.png");
    if (!io_picture_png(path, layout, &error))
        fail_msg("%s", error.text);
    assert_int_equal(io_test_count(), 1);
    assert_true(png_image_begin_read_from_file(&p.image, path));
    p.image.format = PNG_FORMAT_RGB;
    p.bytes = malloc(PNG_IMAGE_SIZE(p.image));
    assert_true(png_image_finish_read(&p.image, NULL, p.bytes, 0, NULL));
    assert_in_range(p.image.width, 1, 2100);
    assert_in_range(p.image.height, 1, 2100);
    return p;
}

static unsigned colour(const pixels *p, unsigned x, unsigned y) {
    const png_byte *at = p->bytes + 3 * ((size_t)y * p->image.width + x);
    return (unsigned)at[0] << 16 | (unsigned)at[1] << 8 | at[2];
}

/* Sum of the channels: how light a pixel is. */
static unsigned light(const pixels *p, unsigned x, unsigned y) {
    const unsigned c = colour(p, x, y);
    return (c >> 16) + (c >> 8 & 255) + (c & 255);
}

static void png_small(void **state) {
    (void)state;
    bstk_layout *layout = layout_of(1, 2, 3,
                                    "#.#"
                                    ".#.");
    pixels p = draw(layout);
    assert_int_equal(p.image.width, 2 * 12 + 2 + 3 * 32);
    assert_int_equal(p.image.height, 2 * 12 + 2 + 2 * 32);
    const unsigned first = 13 + 16; /* margin, frame, middle of a block */
    const unsigned stored = colour(&p, first + 64, first), absent = colour(&p, first + 64, first + 32);
    assert_int_equal(colour(&p, 0, 0), 0xffffff);
    assert_true(light(&p, first + 64, first) + 300 < light(&p, first + 64, first + 32));
    assert_int_equal(colour(&p, first + 32, first), absent);
    assert_int_equal(colour(&p, first, first + 32), absent);
    assert_int_equal(colour(&p, first + 32, first + 32), colour(&p, first, first)); /* the diagonal's own shade */
    assert_int_not_equal(colour(&p, first, first), stored);
    assert_int_equal(colour(&p, first + 15, first), 0xffffff); /* line between blocks */
    free(p.bytes);
    bstk_layout_release(layout);
}

static void png_partial(void **state) {
    (void)state;
    uint8_t mask[8][24];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 24; j++)
            mask[i][j] = (uint8_t)(j < 16 ? j >= 8 : j == 16);
    const bstk_tensor t = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){8, 24});
    bstk_layout *layout;
    assert_int_equal(bstk_layout_from_dense_mask(NULL, &t, 8, &layout), BSTK_OK);
    pixels p = draw(layout);
    const unsigned absent = light(&p, 29, 29), stored = light(&p, 29 + 32, 29), partial = light(&p, 29 + 64, 29);
    assert_true(stored + 100 < partial && partial + 50 < absent);
    free(p.bytes);
    bstk_layout_release(layout);
}

static void png_heads(void **state) {
    (void)state;
    bstk_layout *layout = layout_of(3, 1, 1, ".#."); /* two beside each other, one below */
    pixels p = draw(layout);
    assert_int_equal(p.image.width, 2 * 12 + 2 * 34 + 16);
    assert_int_equal(p.image.height, p.image.width);
    assert_true(light(&p, 29 + 50, 29) + 200 < light(&p, 29, 29));
    assert_int_equal(colour(&p, 29, 29 + 50), colour(&p, 29, 29));
    assert_int_equal(colour(&p, 29 + 50, 29 + 50), 0xffffff);
    free(p.bytes);
    bstk_layout_release(layout);
}

static void png_large(void **state) {
    (void)state;
    bstk_layout *layout = build(BSTK_LAYOUT_LOCAL, 1, 4096, 4096); /* three blocks a pixel, 1366 pixels */
    pixels p = draw(layout);
    assert_int_equal(p.image.width, 24 + 2 + 1366);
    assert_true(light(&p, 13 + 500, 13 + 500) + 200 < light(&p, 13 + 502, 13 + 500));
    assert_true(light(&p, 13 + 500, 13 + 500) < light(&p, 13 + 501, 13 + 500)); /* one of nine blocks, a light shade */
    assert_true(light(&p, 13 + 501, 13 + 500) < light(&p, 13 + 502, 13 + 500));
    free(p.bytes);
    bstk_layout_release(layout);
}

/* Shapes at which sizes and divisions could go wrong. */
static void png_odd(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 0, 0},      {1, 0, 5},     {2, 5, 0},      {1, 1, 100000},
                                        {1, 100000, 1}, {7, 3, 900},   {1, 1, 1},      {0, 2, 2},
                                        {256, 40, 40},  {1000, 30, 3}, {300, 1, 5000}, {12, 2000, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const bstk_tensor t = bstk_tensor_make(NULL, BSTK_U8, 3, shapes[i]);
        bstk_layout *layout;
        if (shapes[i][0] == 0) {
            if (bstk_layout_from_mask(NULL, &t, 16, NULL, &layout) != BSTK_OK)
                continue;
        } else {
            layout = build(BSTK_LAYOUT_LOCAL, shapes[i][0], shapes[i][1], shapes[i][2]);
        }
        pixels p = draw(layout);
        free(p.bytes);
        char *text = io_picture_text(layout, 80, false);
        assert_non_null(text);
        free(text);
        bstk_layout_release(layout);
    }
}

static void png_refused(void **state) {
    (void)state;
    bstk_layout *layout = build(BSTK_LAYOUT_DENSE, 1, 2, 2);
    io_error error;
    assert_false(io_picture_png(io_test_path("none/a.png"), layout, &error));
    io_test_message(&error, "none/a.png: No such file or directory");
    assert_false(io_picture_png("/dev/full", layout, &error));
    io_test_message(&error, "/dev/full: No space left on device");
    bstk_layout_release(layout);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, io_test_begin, io_test_end)
    const struct CMUnitTest tests[] = {
        TEST(one_head),    TEST(several_heads), TEST(empty),     TEST(reduced), TEST(png_small),
        TEST(png_partial), TEST(png_heads),     TEST(png_large), TEST(png_odd), TEST(png_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
