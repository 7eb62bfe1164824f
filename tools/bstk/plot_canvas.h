/* plot_canvas.h: a picture in memory to draw on: boxes, lines, markers and text, all with smooth edges. */
#ifndef BSTK_PLOT_CANVAS_H
#define BSTK_PLOT_CANVAS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct canvas {
    int width, height;
    uint8_t *pixels; /* [height, width, 3], red green blue */
} canvas;

typedef uint32_t colour; /* 0xRRGGBB */

bool canvas_make(canvas *c, int width, int height, colour page); /* false without memory */
void canvas_free(canvas *c);

/* Coordinates are pixels; whole numbers are the middle of one. What lies outside is left out. */
void canvas_box(canvas *c, int x, int y, int width, int height, colour k);
void canvas_line(canvas *c, double x0, double y0, double x1, double y1, double thickness, colour k);

typedef enum marker {
    MARKER_CIRCLE,
    MARKER_SQUARE,
    MARKER_DIAMOND,
    MARKER_UP,
    MARKER_DOWN,
    MARKER_HEXAGON,
    MARKERS
} marker;
/* `filled` false: the outline, the page's colour inside. */
void canvas_marker(canvas *c, double x, double y, marker m, bool filled, colour k, colour page);

/* Text of one width, ASCII; (x, y) is the left end of the base line. A scale of 1 has capitals 9 pixels high. */
enum { TEXT_ADVANCE = 8, TEXT_HEIGHT = 9 };
void canvas_text(canvas *c, double x, double y, const char *text, int scale, bool bold, colour k);
int canvas_text_width(const char *text, int scale);

#endif
