/*
 * picture_text.c: a layout in the terminal. With half blocks a character is one block wide and two blocks high, which
 * is nearly square on a screen:
 *     12 x 12 blocks of 64, density 27.8 %
 *     ┌────────────┐
 *     │█▀▀▄        │
 * A layout that is wider or higher than the terminal has columns is reduced: a character stands for 2 edge x edge
 * blocks, and its shade says how many of them are stored.
 */
#include "io/io_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    GAP = 2,          /* columns between heads */
    MIN_COLUMNS = 16, /* a narrower terminal gets broken lines */
    MAX_HEADS = 64,   /* more are counted, not drawn */
    LEVELS = 4        /* shades of characters with stored blocks */
};

typedef struct picture {
    const bstk_layout *layout;
    FILE *out;
    bool ascii;
    int64_t heads;          /* drawn */
    int64_t edge;           /* blocks that a character is wide; 1: not reduced */
    int64_t lines, columns; /* characters of a head, without border */
    int64_t width;          /* of a head, with border and caption */
    int64_t *counts;        /* [2, columns] */
} picture;

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static double head_density(const bstk_layout *layout, int64_t head) {
    const int64_t rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(layout) + head * rows;
    const double blocks = (double)rows * (double)cols;
    return blocks > 0 ? (double)(row_ptr[rows] - row_ptr[0]) / blocks : 0;
}

static void draw_blocks(const picture *p, int64_t head, int64_t line) {
    static const char *const halves[2][2] = {{" ", "▄"}, {"▀", "█"}};
    int64_t *upper = p->counts, *lower = p->counts + p->columns;
    if (p->ascii) {
        io__count_cells(p->layout, head, line, 1, 1, upper);
        for (int64_t col = 0; col < p->columns; col++)
            fputc(upper[col] ? '#' : '.', p->out);
        return;
    }
    const bool both = 2 * line + 1 < bstk_layout_rows(p->layout);
    io__count_cells(p->layout, head, 2 * line, 1, 1, upper);
    if (both)
        io__count_cells(p->layout, head, 2 * line + 1, 1, 1, lower);
    for (int64_t col = 0; col < p->columns; col++)
        fputs(halves[upper[col]][both && lower[col]], p->out);
}

static void draw_shades(const picture *p, int64_t head, int64_t line) {
    static const char *const shades[2][LEVELS + 1] = {{" ", "░", "▒", "▓", "█"}, {".", ":", "+", "*", "#"}};
    const int64_t rows = bstk_layout_rows(p->layout), cols = bstk_layout_cols(p->layout);
    const int64_t height = smaller(2 * p->edge, rows - line * 2 * p->edge); /* the last line and column may have less */
    io__count_cells(p->layout, head, line, 2 * p->edge, p->edge, p->counts);
    for (int64_t col = 0; col < p->columns; col++) {
        const int64_t width = smaller(p->edge, cols - col * p->edge);
        const double share = (double)p->counts[col] / ((double)width * (double)height);
        const int level = p->counts[col] == 0 ? 0 : (int)smaller(1 + (int64_t)(share * LEVELS), LEVELS);
        fputs(shades[p->ascii][level], p->out);
    }
}

/* One of the lines of a head; returns the columns that it took. */
static int64_t draw_line(const picture *p, int64_t head, int64_t line) {
    fputs(p->ascii ? "" : "│", p->out);
    if (p->edge == 1)
        draw_blocks(p, head, line);
    else
        draw_shades(p, head, line);
    fputs(p->ascii ? "" : "│", p->out);
    return p->columns + (p->ascii ? 0 : 2);
}

static int64_t draw_border(const picture *p, const char *left, const char *right) {
    fputs(left, p->out);
    for (int64_t col = 0; col < p->columns; col++)
        fputs("─", p->out);
    fputs(right, p->out);
    return p->columns + 2;
}

/* Decimals of a percentage: enough that a density below 0.1 % does not read as none. */
static int decimals(double share) {
    return share > 0 && share < 0.001 ? 4 : 1;
}

static int64_t draw_caption(const picture *p, int64_t head) {
    const double density = head_density(p->layout, head);
    return fprintf(p->out, "head %" PRId64 ": %.*f %%", head, decimals(density), 100 * density);
}

/* Heads `first` to `last` - 1 beside each other, line by line: captions, upper border, characters, lower border. */
static void draw_band(const picture *p, int64_t first, int64_t last) {
    enum { CAPTION = -2, UPPER = -1 };
    for (int64_t line = bstk_layout_heads(p->layout) > 1 ? CAPTION : UPPER; line <= p->lines; line++) {
        if (p->ascii && (line == UPPER || line == p->lines))
            continue;
        for (int64_t head = first; head < last; head++) {
            const int64_t used = line == CAPTION    ? draw_caption(p, head)
                                 : line == UPPER    ? draw_border(p, "┌", "┐")
                                 : line == p->lines ? draw_border(p, "└", "┘")
                                                    : draw_line(p, head, line);
            for (int64_t blanks = head + 1 < last ? p->width + GAP - used : 0; blanks > 0; blanks--)
                fputc(' ', p->out);
        }
        fputc('\n', p->out);
    }
}

static void draw(const picture *p, int64_t abreast) {
    const bstk_layout *layout = p->layout;
    const int64_t heads = bstk_layout_heads(layout);
    if (heads != 1)
        fprintf(p->out, "%" PRId64 " heads of ", heads);
    fprintf(p->out, "%" PRId64 " x %" PRId64 " blocks of %d, density %.*f %%", bstk_layout_rows(layout),
            bstk_layout_cols(layout), (int)bstk_layout_block(layout), decimals(bstk_layout_density(layout)),
            100 * bstk_layout_density(layout));
    if (p->edge > 1)
        fprintf(p->out, "; a character stands for %" PRId64 " x %" PRId64 " blocks", 2 * p->edge, p->edge);
    fputc('\n', p->out);
    for (int64_t first = 0; first < p->heads; first += abreast)
        draw_band(p, first, smaller(first + abreast, p->heads));
    if (heads > p->heads)
        fprintf(p->out, "and %" PRId64 " more heads\n", heads - p->heads);
}

char *io_picture_text(const bstk_layout *layout, int columns, bool ascii) {
    const int64_t heads = bstk_layout_heads(layout), border = ascii ? 0 : 2, room = larger(columns, MIN_COLUMNS);
    const int64_t rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    picture p = {.layout = layout, .ascii = ascii, .heads = smaller(heads, MAX_HEADS)};
    p.edge = larger(io__ceil_div(larger(rows, cols), room - border), 1); /* a high one would scroll away */
    p.columns = io__ceil_div(cols, p.edge);
    p.lines = io__ceil_div(rows, p.edge == 1 && ascii ? 1 : 2 * p.edge);
    p.width = larger(p.columns + border, heads > 1 ? (int64_t)sizeof "head 63: 100.0 %" - 1 : 0);
    char *text = NULL;
    size_t size = 0;
    p.counts = malloc((2 * (size_t)p.columns + 1) * sizeof *p.counts);
    p.out = p.counts ? open_memstream(&text, &size) : NULL;
    bool good = p.out != NULL;
    if (good) {
        draw(&p, larger((room + GAP) / (p.width + GAP), 1));
        good = ferror(p.out) == 0;
        good = fclose(p.out) == 0 && good;
    }
    free(p.counts);
    if (!good) {
        free(text);
        return NULL;
    }
    return text;
}
