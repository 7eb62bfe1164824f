/*
 * picture_text.c: a layout in the terminal. With half blocks a character is one cell wide and two cells high, which is
 * nearly square on a screen:
 *     12 x 12 blocks of 64, density 27.8 %
 *     ┌────────────┐
 *     │█▀▀▄        │
 */
#include "io/io_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    GAP = 2,          /* columns between heads */
    MIN_COLUMNS = 16, /* a narrower terminal gets broken lines */
    MAX_HEADS = 64    /* more are counted, not drawn */
};

typedef struct picture {
    const bstk_layout *layout;
    FILE *out;
    bool ascii;
    int64_t heads, rows, cols, edge; /* heads drawn, cells, blocks of a cell's edge */
    int64_t width;                   /* of a head in characters, its caption and border included */
    int64_t *counts;                 /* [2, cols] of io__count_cells: an upper and a lower row of cells */
} picture;

static void repeat(FILE *out, const char *text, int64_t times) {
    for (int64_t i = 0; i < times; i++)
        fputs(text, out);
}

/* One line of one head, without the blanks up to the picture's width; returns the characters written. */
static int64_t draw_line(picture *p, int64_t head, int64_t line) {
    static const char *const halves[2][2] = {{" ", "▄"}, {"▀", "█"}};
    int64_t *upper = p->counts, *lower = p->counts + p->cols;
    io__count_cells(p->layout, head, p->ascii ? line : 2 * line, p->edge, upper);
    if (p->ascii) {
        for (int64_t col = 0; col < p->cols; col++)
            fputc(upper[col] ? '#' : '.', p->out);
        return p->cols;
    }
    const bool both = 2 * line + 1 < p->rows;
    if (both)
        io__count_cells(p->layout, head, 2 * line + 1, p->edge, lower);
    fputs("│", p->out);
    for (int64_t col = 0; col < p->cols; col++)
        fputs(halves[upper[col] > 0][both && lower[col] > 0], p->out);
    fputs("│", p->out);
    return p->cols + 2;
}

/* The line under or over a head's cells. */
static int64_t draw_border(picture *p, const char *left, const char *right) {
    fputs(left, p->out);
    repeat(p->out, "─", p->cols);
    fputs(right, p->out);
    return p->cols + 2;
}

static double head_density(const bstk_layout *layout, int64_t head) {
    const int64_t rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    const int64_t *row_ptr = bstk_layout_row_ptr(layout) + head * rows;
    const double blocks = (double)rows * (double)cols;
    return blocks > 0 ? (double)(row_ptr[rows] - row_ptr[0]) / blocks : 0;
}

static int64_t draw_caption(picture *p, int64_t head) {
    return fprintf(p->out, "head %" PRId64 ": %.1f %%", head, 100 * head_density(p->layout, head));
}

/* Heads `first` to `last` - 1 beside each other: captions, borders and cells, line by line. */
static void draw_band(picture *p, int64_t first, int64_t last) {
    const int64_t cell_lines = p->ascii ? p->rows : io__ceil_div(p->rows, 2);
    const int64_t from = bstk_layout_heads(p->layout) > 1 ? -2 : -1; /* -2: captions, -1 and cell_lines: borders */
    for (int64_t line = from; line <= cell_lines; line++) {
        if (p->ascii && (line == -1 || line == cell_lines))
            continue;
        for (int64_t head = first; head < last; head++) {
            const int64_t used = line == -2           ? draw_caption(p, head)
                                 : line == -1         ? draw_border(p, "┌", "┐")
                                 : line == cell_lines ? draw_border(p, "└", "┘")
                                                      : draw_line(p, head, line);
            repeat(p->out, " ", head + 1 < last ? p->width + GAP - used : 0);
        }
        fputc('\n', p->out);
    }
}

static void draw_title(const picture *p) {
    const bstk_layout *layout = p->layout;
    if (bstk_layout_heads(layout) != 1)
        fprintf(p->out, "%" PRId64 " heads of ", bstk_layout_heads(layout));
    fprintf(p->out, "%" PRId64 " x %" PRId64 " blocks of %d, density %.1f %%", bstk_layout_rows(layout),
            bstk_layout_cols(layout), (int)bstk_layout_block(layout), 100 * bstk_layout_density(layout));
    if (p->edge > 1)
        fprintf(p->out, "; a cell stands for %" PRId64 " x %" PRId64 " blocks", p->edge, p->edge);
    fputc('\n', p->out);
}

char *io_picture_text(const bstk_layout *layout, int columns, bool ascii) {
    const int64_t heads = bstk_layout_heads(layout), border = ascii ? 0 : 2;
    const int64_t room = (columns > MIN_COLUMNS ? columns : MIN_COLUMNS) - border;
    const int64_t rows = bstk_layout_rows(layout), cols = bstk_layout_cols(layout);
    picture p = {.layout = layout, .ascii = ascii, .heads = heads < MAX_HEADS ? heads : MAX_HEADS};
    p.edge = io__ceil_div(rows > cols ? rows : cols, room); /* as high as wide at most: a tall one would scroll away */
    p.edge = p.edge > 1 ? p.edge : 1;
    p.rows = io__ceil_div(rows, p.edge);
    p.cols = io__ceil_div(cols, p.edge);
    const int64_t caption = heads > 1 ? (int64_t)sizeof "head 63: 100.0 %" - 1 : 0;
    p.width = p.cols + border > caption ? p.cols + border : caption;
    const int64_t abreast = (room + border + GAP) / (p.width + GAP);
    const int64_t step = abreast > 1 ? abreast : 1;

    char *text = NULL;
    size_t size = 0;
    p.counts = malloc((2 * (size_t)p.cols + 1) * sizeof *p.counts);
    p.out = p.counts ? open_memstream(&text, &size) : NULL;
    if (p.out == NULL) {
        free(p.counts);
        return NULL;
    }
    draw_title(&p);
    for (int64_t first = 0; first < p.heads; first += step)
        draw_band(&p, first, first + step < p.heads ? first + step : p.heads);
    if (heads > p.heads)
        fprintf(p.out, "and %" PRId64 " more heads\n", heads - p.heads);
    free(p.counts);
    const bool failed = ferror(p.out) != 0;
    if (fclose(p.out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
