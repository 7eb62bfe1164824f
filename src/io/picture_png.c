/*
 * picture_png.c: a layout as a PNG of at most about 2000 x 2000 pixels with a palette. Heads lie on a grid that is
 * about square. A cell is edge x edge blocks and pitch x pitch pixels: edge is 1 and pitch up to 32 as long as all
 * blocks fit; beyond that pitch is 1 and the shade of a cell says how many of its blocks are stored.
 */
#include "io/io_internal.h"

#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = 2000,      /* pixels at most, margins not counted */
    GOOD_SIDE = 1600, /* pixels that enlarged blocks fill at most */
    MARGIN = 12,
    MAX_GAP = 16,    /* between heads */
    MAX_PITCH = 32,  /* pixels a block */
    LINES_FROM = 5,  /* pitch from which blocks have light lines between them */
    MAX_HEADS = 256, /* on 16 x 16 places each still has 109 pixels */
    SHADES = 64
};

/* Places in the palette. */
enum {
    PAGE,
    FRAME,
    LINE,
    ABSENT,
    ABSENT_DIAGONAL,
    PARTIAL,
    STORED,
    STORED_DIAGONAL,
    SHADE_0,
    COLOURS = SHADE_0 + SHADES
};

static const png_byte fixed_colours[SHADE_0][3] = {
    {255, 255, 255}, /* page */
    {150, 160, 172}, /* frame of a head */
    {255, 255, 255}, /* lines between blocks */
    {238, 241, 245}, /* absent */
    {208, 215, 225}, /* absent, on the diagonal */
    {133, 178, 226}, /* partly kept */
    {26, 82, 150},   /* stored */
    {16, 60, 118},   /* stored, on the diagonal */
};

typedef struct picture {
    const bstk_layout *layout;
    int64_t heads, across, down; /* heads drawn, their places side by side and one under the other */
    int64_t rows, cols;          /* cells of a head */
    int64_t edge, pitch, gap;
    int64_t width, height; /* pixels */
    png_byte *pixels;      /* [height, width] */
} picture;

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void lay_out(picture *p) {
    const int64_t rows = larger(bstk_layout_rows(p->layout), 1), cols = larger(bstk_layout_cols(p->layout), 1);
    p->heads = smaller(bstk_layout_heads(p->layout), MAX_HEADS);
    const int64_t square = (int64_t)ceil(sqrt((double)p->heads * (double)rows / (double)cols) - 1e-9);
    p->across = smaller(larger(square, 1), larger(p->heads, 1));
    p->down = larger(io__ceil_div(p->heads, p->across), 1);
    /* A head has a frame of one pixel; gaps take a quarter of a side at most. */
    p->gap = larger(smaller(SIDE / 4 / larger(p->across, p->down), MAX_GAP), 1);
    const int64_t gaps_x = p->gap * (p->across - 1), gaps_y = p->gap * (p->down - 1);
    const int64_t room_x = (SIDE - gaps_x) / p->across - 2, room_y = (SIDE - gaps_y) / p->down - 2;
    p->edge = larger(io__ceil_div(cols, room_x), io__ceil_div(rows, room_y));
    p->rows = io__ceil_div(rows, p->edge);
    p->cols = io__ceil_div(cols, p->edge);
    p->pitch = 1;
    if (p->edge == 1)
        p->pitch = smaller((GOOD_SIDE - gaps_x) / p->across / cols, (GOOD_SIDE - gaps_y) / p->down / rows);
    p->pitch = larger(smaller(p->pitch, MAX_PITCH), 1);
    p->width = 2 * MARGIN + gaps_x + p->across * (p->cols * p->pitch + 2);
    p->height = 2 * MARGIN + gaps_y + p->down * (p->rows * p->pitch + 2);
}

static png_byte *pixel(const picture *p, int64_t x, int64_t y) {
    return p->pixels + y * p->width + x;
}

static void fill(const picture *p, int64_t x, int64_t y, int64_t width, int64_t height, png_byte colour) {
    for (int64_t i = 0; i < height; i++)
        memset(pixel(p, x, y + i), colour, (size_t)width);
}

/* Of a reduced picture: from light for one block to dark for all that the cell, which may be cut by the edge, has. */
static png_byte shade(int64_t stored, int64_t blocks) {
    const int64_t step = (int64_t)((double)stored / (double)blocks * (SHADES - 1) + 0.5);
    return (png_byte)(SHADE_0 + smaller(step, SHADES - 1));
}

static void draw_cell(const picture *p, int64_t x, int64_t y, png_byte colour) {
    const bool lines = p->pitch >= LINES_FROM;
    if (lines)
        fill(p, x, y, p->pitch, p->pitch, LINE);
    fill(p, x, y, p->pitch - lines, p->pitch - lines, colour);
}

/* The cells of one row; x and y are the corner of the row's first cell. */
static void draw_row(const picture *p, int64_t head, int64_t row, int64_t x, int64_t y, int64_t *counts) {
    const int64_t rows = bstk_layout_rows(p->layout), cols = bstk_layout_cols(p->layout);
    const int64_t height = smaller(p->edge, rows - row * p->edge);
    io__count_cells(p->layout, head, row, p->edge, p->edge, counts);
    for (int64_t col = 0; col < p->cols; col++) {
        const int64_t blocks = height * smaller(p->edge, cols - col * p->edge);
        const bool diagonal = row == col;
        const png_byte none = diagonal ? ABSENT_DIAGONAL : ABSENT, all = diagonal ? STORED_DIAGONAL : STORED;
        const png_byte some = p->edge == 1 ? all : shade(counts[col], blocks);
        draw_cell(p, x + col * p->pitch, y, counts[col] == 0 ? none : some);
    }
    if (p->edge > 1 || bstk_layout_partial_count(p->layout) == 0)
        return;
    const int64_t *row_ptr = bstk_layout_row_ptr(p->layout) + head * rows + row;
    for (int64_t n = row_ptr[0]; n < row_ptr[1]; n++)
        if (bstk_layout_partial_mask(p->layout, n))
            draw_cell(p, x + bstk_layout_col_idx(p->layout)[n] * p->pitch, y, PARTIAL);
}

static void draw(const picture *p, int64_t *counts) {
    fill(p, 0, 0, p->width, p->height, PAGE);
    if (bstk_layout_rows(p->layout) == 0 || bstk_layout_cols(p->layout) == 0)
        return;
    for (int64_t head = 0; head < p->heads; head++) {
        const int64_t head_width = p->cols * p->pitch + 2, head_height = p->rows * p->pitch + 2;
        const int64_t x = MARGIN + head % p->across * (head_width + p->gap);
        const int64_t y = MARGIN + head / p->across * (head_height + p->gap);
        fill(p, x, y, head_width, head_height, FRAME);
        for (int64_t row = 0; row < p->rows; row++)
            draw_row(p, head, row, x + 1, y + 1 + row * p->pitch, counts);
    }
}

static void make_palette(png_byte palette[COLOURS][3]) {
    static const double light[3] = {185, 211, 238}, dark[3] = {10, 52, 110};
    memcpy(palette, fixed_colours, sizeof fixed_colours);
    for (int i = 0; i < SHADES; i++)
        for (int c = 0; c < 3; c++)
            palette[SHADE_0 + i][c] = (png_byte)(light[c] + (dark[c] - light[c]) * i / (SHADES - 1) + 0.5);
}

/* Compresses in memory, which takes a few MB at this size, so that the file goes through io_output like any other. */
static bool put_image(io_output *output, const char *name, png_image *image, const void *pixels, const void *palette,
                      io_error *error) {
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(*image);
    void *bytes = malloc(size);
    if (bytes == NULL)
        return io__fail(error, name, "out of memory (%zu bytes)", size);
    bool good = png_image_write_to_memory(image, bytes, &size, 0, pixels, 0, palette) != 0;
    if (!good)
        io__fail(error, name, "libpng: %s", image->message);
    good = good && io_output_write(output, bytes, size, error);
    free(bytes);
    return good;
}

static bool write(io_output *output, const char *name, const picture *p, io_error *error) {
    png_byte palette[COLOURS][3];
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)p->width,
                       .height = (png_uint_32)p->height,
                       .format = PNG_FORMAT_RGB_COLORMAP,
                       .colormap_entries = COLOURS};
    make_palette(palette);
    return put_image(output, name, &image, p->pixels, palette, error);
}

bool io_png_put(io_output *output, const char *name, const uint8_t *pixels, int width, int height, io_error *error) {
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    return put_image(output, name, &image, pixels, NULL, error);
}

bool io_picture_put(io_output *output, const char *name, const bstk_layout *layout, io_error *error) {
    picture p = {.layout = layout};
    lay_out(&p);
    int64_t *counts = calloc((size_t)p.cols, sizeof *counts);
    p.pixels = malloc((size_t)(p.width * p.height));
    bool good = counts && p.pixels;
    if (good) {
        draw(&p, counts);
        good = write(output, name, &p, error);
    } else {
        io__fail(error, name, "out of memory for a picture of %lld x %lld pixels", (long long)p.width,
                 (long long)p.height);
    }
    free(p.pixels);
    free(counts);
    return good;
}

bool io_picture_png(const char *path, const bstk_layout *layout, io_error *error) {
    io_output *output = io_output_open(path, error);
    return output != NULL && io__output_end(output, io_picture_put(output, path, layout, error), error);
}
