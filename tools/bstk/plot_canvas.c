/*
 * plot_canvas.c: drawing. Whatever is not a box is made of strokes: a pixel's share of the colour falls off over one
 * pixel from the stroke's edge, by the distance of the pixel's middle from the stroke's middle line.
 *
 * The font is strokes too, on a grid of one pixel, so that stems are sharp: pairs of a digit for x and a letter for
 * y (d is the base line, j the height of x, m that of capitals, a the end of descenders), a space begins a new stroke.
 */
#include "plot_canvas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool canvas_make(canvas *c, int width, int height, colour page) {
    *c = (canvas){width, height, malloc((size_t)width * (size_t)height * 3)};
    if (c->pixels)
        canvas_box(c, 0, 0, width, height, page);
    return c->pixels != NULL;
}

void canvas_free(canvas *c) {
    free(c->pixels);
    c->pixels = NULL;
}

static void blend(canvas *c, int x, int y, double share, colour k) {
    if (x < 0 || y < 0 || x >= c->width || y >= c->height || share <= 0)
        return;
    uint8_t *pixel = c->pixels + ((size_t)y * (size_t)c->width + (size_t)x) * 3;
    share = share > 1 ? 1 : share;
    for (int i = 0; i < 3; i++) {
        const double to = (double)(k >> (16 - 8 * i) & 255);
        pixel[i] = (uint8_t)(pixel[i] + (to - pixel[i]) * share + 0.5);
    }
}

void canvas_box(canvas *c, int x, int y, int width, int height, colour k) {
    for (int j = y < 0 ? 0 : y; j < y + height && j < c->height; j++)
        for (int i = x < 0 ? 0 : x; i < x + width && i < c->width; i++) {
            uint8_t *pixel = c->pixels + ((size_t)j * (size_t)c->width + (size_t)i) * 3;
            pixel[0] = (uint8_t)(k >> 16);
            pixel[1] = (uint8_t)(k >> 8);
            pixel[2] = (uint8_t)k;
        }
}

/* ---- strokes ----------------------------------------------------------------------------------------------------- */

static double distance(double x, double y, const double *from, const double *to) {
    const double dx = to[0] - from[0], dy = to[1] - from[1], length = dx * dx + dy * dy;
    double t = length > 0 ? ((x - from[0]) * dx + (y - from[1]) * dy) / length : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypot(x - from[0] - t * dx, y - from[1] - t * dy);
}

/* A polyline: each pixel by its nearest segment, so that corners are no darker than the rest. */
static void stroke(canvas *c, double points[][2], int count, double thickness, colour k) {
    double low[2] = {points[0][0], points[0][1]}, high[2] = {points[0][0], points[0][1]};
    for (int i = 1; i < count; i++)
        for (int axis = 0; axis < 2; axis++) {
            low[axis] = fmin(low[axis], points[i][axis]);
            high[axis] = fmax(high[axis], points[i][axis]);
        }
    const double reach = thickness / 2 + 0.5;
    for (int y = (int)floor(low[1] - reach); y <= (int)ceil(high[1] + reach); y++)
        for (int x = (int)floor(low[0] - reach); x <= (int)ceil(high[0] + reach); x++) {
            double nearest = distance(x, y, points[0], points[count > 1]);
            for (int i = 1; i + 1 < count; i++)
                nearest = fmin(nearest, distance(x, y, points[i], points[i + 1]));
            blend(c, x, y, reach - nearest, k);
        }
}

void canvas_line(canvas *c, double x0, double y0, double x1, double y1, double thickness, colour k) {
    double points[2][2] = {{x0, y0}, {x1, y1}};
    stroke(c, points, 2, thickness, k);
}

/* Inside of a convex polygon given clockwise: all of a pixel that is half a pixel inside of every edge. */
static void polygon(canvas *c, double points[][2], int count, colour k) {
    enum { REACH = 10 };
    const int x0 = (int)points[0][0], y0 = (int)points[0][1];
    for (int y = y0 - 2 * REACH; y <= y0 + 2 * REACH; y++)
        for (int x = x0 - 2 * REACH; x <= x0 + 2 * REACH; x++) {
            double inside = 1e9;
            for (int i = 0; i < count; i++) {
                const double *a = points[i], *b = points[(i + 1) % count];
                const double dx = b[0] - a[0], dy = b[1] - a[1];
                inside = fmin(inside, (dx * (y - a[1]) - dy * (x - a[0])) / hypot(dx, dy));
            }
            blend(c, x, y, inside + 0.5, k);
        }
}

static void disc(canvas *c, double x, double y, double radius, colour k) {
    for (int j = (int)floor(y - radius - 1); j <= (int)ceil(y + radius + 1); j++)
        for (int i = (int)floor(x - radius - 1); i <= (int)ceil(x + radius + 1); i++)
            blend(c, i, j, radius + 0.5 - hypot(i - x, j - y), k);
}

static void marker_of(canvas *c, double x, double y, marker m, double r, colour k) {
    double square[4][2] = {{x - r, y - r}, {x + r, y - r}, {x + r, y + r}, {x - r, y + r}};
    double diamond[4][2] = {{x, y - r}, {x + r, y}, {x, y + r}, {x - r, y}};
    double up[3][2] = {{x, y - r}, {x + r, y + r * 0.8}, {x - r, y + r * 0.8}};
    double down[3][2] = {{x, y + r}, {x - r, y - r * 0.8}, {x + r, y - r * 0.8}};
    double hexagon[6][2];
    for (int i = 0; i < 6; i++) {
        hexagon[i][0] = x + r * cos(i * 1.0471975512);
        hexagon[i][1] = y + r * sin(i * 1.0471975512);
    }
    switch (m) {
    case MARKER_SQUARE:
        polygon(c, square, 4, k);
        return;
    case MARKER_DIAMOND:
        polygon(c, diamond, 4, k);
        return;
    case MARKER_UP:
        polygon(c, up, 3, k);
        return;
    case MARKER_DOWN:
        polygon(c, down, 3, k);
        return;
    case MARKER_HEXAGON:
        polygon(c, hexagon, 6, k);
        return;
    default:
        disc(c, x, y, r, k);
    }
}

/* Equal areas look equal, not equal widths. */
static const double radii[MARKERS] = {
    [MARKER_CIRCLE] = 4.6, [MARKER_SQUARE] = 4.0, [MARKER_DIAMOND] = 5.6,
    [MARKER_UP] = 5.2,     [MARKER_DOWN] = 5.2,   [MARKER_HEXAGON] = 5.0,
};

void canvas_marker(canvas *c, double x, double y, marker m, bool filled, colour k, colour page) {
    const double r = radii[m];
    const bool triangle = m == MARKER_UP || m == MARKER_DOWN;
    marker_of(c, x, y, m, r + 1.2, page); /* a rim that parts markers which lie on each other */
    marker_of(c, x, y, m, r, k);
    if (!filled)
        marker_of(c, x, triangle ? y + (m == MARKER_UP ? 0.5 : -0.5) : y, m,
                  r - (triangle || m == MARKER_DIAMOND ? 2.6 : 1.8), page);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char *const glyphs[128] = {
    ['!'] = "2m2g 2e2d",
    ['"'] = "1m1k 3m3k",
    ['#'] = "1d2m 4d5m 0g6g 0j6j",
    ['$'] = "5l4m1m0l0j1i4i5h5e4d1d0e 3m3c",
    ['%'] = "0l0m1m1l0l 4d4e5e5d4d 5m0d",
    ['&'] = "5d1k1l2m3l3k0f0e1d3d5g",
    ['\''] = "2m2k",
    ['('] = "4m3l2j2f3d4c",
    [')'] = "1m2l3j3f2d1c",
    ['*'] = "3l3f 1j5h 5j1h",
    ['+'] = "0h4h 2f2j",
    [','] = "2e2d1c",
    ['-'] = "1h4h",
    ['.'] = "2d2e",
    ['/'] = "0c5m",
    ['0'] = "1d4d5e5l4m1m0l0e1d",
    ['1'] = "0k2m2d 0d4d",
    ['2'] = "0l1m4m5l5j0d5d",
    ['3'] = "0l1m4m5l5j4i2i 4i5h5e4d1d0e",
    ['4'] = "4d4m0g5g",
    ['5'] = "5m0m0i4i5h5e4d1d0e",
    ['6'] = "4m2m0k0e1d4d5e5h4i1i0h",
    ['7'] = "0m5m2d",
    ['8'] = "1i0j0l1m4m5l5j4i1i0h0e1d4d5e5h4i",
    ['9'] = "1d3d5f5l4m1m0l0i1h4h5i",
    [':'] = "2d2e 2i2j",
    [';'] = "2e2d1c 2i2j",
    ['<'] = "5k1h5e",
    ['='] = "0f4f 0i4i",
    ['>'] = "1k5h1e",
    ['?'] = "0l1m4m5l5j3h3g 3e3d",
    ['@'] = "4f2f2j4j4f5e5l4m1m0l0e1d4d",
    ['A'] = "0d0k2m3m5k5d 0h5h",
    ['B'] = "4i5h5e4d0d0m4m5l5j4i0i",
    ['C'] = "5l4m1m0l0e1d4d5e",
    ['D'] = "0d0m3m5k5f3d0d",
    ['E'] = "5m0m0d5d 0i4i",
    ['F'] = "5m0m0d 0i4i",
    ['G'] = "5l4m1m0l0e1d4d5e5h3h",
    ['H'] = "0m0d 5m5d 0i5i",
    ['I'] = "1m3m 2m2d 1d3d",
    ['J'] = "4m4e3d1d0e",
    ['K'] = "0m0d 5m0h 1i5d",
    ['L'] = "0m0d5d",
    ['M'] = "0d0m3i6m6d",
    ['N'] = "0d0m5d5m",
    ['O'] = "1d4d5e5l4m1m0l0e1d",
    ['P'] = "0d0m4m5l5i4h0h",
    ['Q'] = "1d4d5e5l4m1m0l0e1d 3f5d",
    ['R'] = "0d0m4m5l5i4h0h 3h5d",
    ['S'] = "5l4m1m0l0j1i4i5h5e4d1d0e",
    ['T'] = "0m6m 3m3d",
    ['U'] = "0m0e1d4d5e5m",
    ['V'] = "0m3d6m",
    ['W'] = "0m1d3i5d6m",
    ['X'] = "0m5d 5m0d",
    ['Y'] = "0m3h6m 3h3d",
    ['Z'] = "0m5m0d5d",
    ['['] = "3m1m1c3c",
    ['\\'] = "0m5c",
    [']'] = "1m3m3c1c",
    ['^'] = "1k3m5k",
    ['_'] = "0c5c",
    ['`'] = "1m2l",
    ['a'] = "1j4j5i5d 5g1g0f0e1d4d5e",
    ['b'] = "0m0d 0i1j4j5i5e4d1d0e",
    ['c'] = "5i4j1j0i0e1d4d5e",
    ['d'] = "5m5d 5i4j1j0i0e1d4d5e",
    ['e'] = "0g5g5i4j1j0i0e1d4d5e",
    ['f'] = "4m3m2l2d 0j4j",
    ['g'] = "5j5b4a1a0b 5i4j1j0i0e1d4d5e",
    ['h'] = "0m0d 0i1j4j5i5d",
    ['i'] = "1j2j2d 1d3d 2m2m",
    ['j'] = "2j3j3b2a0a 3m3m",
    ['k'] = "0m0d 4j0f 2h5d",
    ['l'] = "1m2m2d 1d3d",
    ['m'] = "0d0j 0i1j2j3i3d 3i4j5j6i6d",
    ['n'] = "0d0j 0i1j4j5i5d",
    ['o'] = "1d4d5e5i4j1j0i0e1d",
    ['p'] = "0j0a 0i1j4j5i5e4d1d0e",
    ['q'] = "5j5a 5i4j1j0i0e1d4d5e",
    ['r'] = "0j0d 0h2j4j",
    ['s'] = "5i4j1j0i0h1g4g5f5e4d1d0e",
    ['t'] = "2l2e3d4d 0j4j",
    ['u'] = "0j0e1d4d5e 5j5d",
    ['v'] = "0j3d6j",
    ['w'] = "0j1d3i5d6j",
    ['x'] = "0j5d 5j0d",
    ['y'] = "0j3d 6j2b1a0a",
    ['z'] = "0j5j0d5d",
    ['{'] = "4m3l3j2h3f3d4c",
    ['|'] = "2m2a",
    ['}'] = "1m2l2j3h2f2d1c",
    ['~'] = "0g1h2h3g4g5h",
};

void canvas_text(canvas *c, double x, double y, const char *text, int scale, bool bold, colour k) {
    enum { MOST_POINTS = 32 };
    const double thickness = scale * (bold ? 1.9 : 1.25);
    for (; *text; text++, x += TEXT_ADVANCE * scale) {
        const unsigned char letter = (unsigned char)*text;
        const char *g = letter < 128 ? glyphs[letter] : NULL;
        if (!g && letter != ' ')
            g = "0d0m5m5d0d"; /* what the font does not have */
        double points[MOST_POINTS][2];
        int count = 0;
        for (; g && *g; g += *g == ' ' ? 1 : 2) {
            if (*g == ' ') {
                stroke(c, points, count, thickness, k);
                count = 0;
            } else if (count < MOST_POINTS) {
                points[count][0] = x + scale * (g[0] - '0');
                points[count++][1] = y - scale * (g[1] - 'd');
            }
        }
        if (count > 0)
            stroke(c, points, count, thickness, k);
    }
}

int canvas_text_width(const char *text, int scale) {
    return (int)strlen(text) * TEXT_ADVANCE * scale;
}
