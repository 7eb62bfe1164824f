/*
 * bench_plot.c: the results as a picture: a line a problem, on the left a bar of its share of the roof, on the right
 * the ratio to each peer on a logarithmic axis, where everything right of 1 is a win.
 */
#include "bench.h"
#include "plot_canvas.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum {
    MARGIN = 24,
    LINE = 19,         /* pixels of a problem */
    BAR = 11,          /* of its bar */
    SHARE_WIDTH = 400, /* 0 to 100 % */
    VALUE_WIDTH = 76,
    RATIO_WIDTH = 440,
    HEAD = 92, /* title, legend, axis above the first line */
    FOOT = 30,
    LEGEND_LINE = 18,
    LEGEND_COLUMNS = 3,
    KEYS = 16
};

static const colour PAGE = 0xffffff, INK = 0x1f2933, SOFT = 0x66737f, GRID = 0xe3e7eb, FRAME = 0x9aa5b1,
                    STRIPE = 0xf6f8fa, LOOP = 0x2b6cb0, COPY = 0x2f9e8f, RANGE = 0x10365f, LOSS = 0xfbeeee,
                    ONE = 0x52606d;

/* Peers by colours that differ for every kind of eyes, and by shapes. */
static const struct {
    const char *name;
    colour k;
    marker m;
} styles[] = {
    {"openblas", 0xd55e00, MARKER_CIRCLE}, {"libxsmm", 0x0072b2, MARKER_DIAMOND}, {"mkl", 0x009e73, MARKER_SQUARE},
    {"onednn", 0xcc79a7, MARKER_UP},       {"scipy", 0x7a5c00, MARKER_DOWN},      {"torch", 0x000000, MARKER_HEXAGON},
};

typedef struct plot {
    canvas c;
    const bench_report *report;
    const char *keys[KEYS]; /* of all ratios, in the order of the peers */
    int key_count, lines, head;
    int label_width, share_x, ratio_x, top, bottom;
    double low, high; /* ends of the ratio axis */
} plot;

static int style_of(const char *key) {
    for (int i = 0; i < (int)(sizeof styles / sizeof *styles); i++)
        if (strncmp(key, styles[i].name, strlen(styles[i].name)) == 0)
            return i;
    return 0;
}

static bool is_dense(const char *key) {
    return strstr(key, "_dense") != NULL;
}

/* "dsd:f32:b64:..." is under the heading "dsd f32" as "b64:...": what comes before the second colon, and the rest. */
static const char *split(const char *name, char heading[64]) {
    const char *first = strchr(name, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    const bool backward = strstr(name, ":bwd") != NULL;
    if (!second) {
        snprintf(heading, 64, "%.60s", name);
        return name;
    }
    snprintf(heading, 64, "%.*s %.*s%s", (int)(first - name), name, (int)(second - first - 1), first + 1,
             backward ? " backward" : "");
    return second + 1;
}

static bool starts_group(const bench_report *report, int i) {
    char before[64] = "", here[64];
    if (i > 0)
        split(report->results[i - 1].problem, before);
    split(report->results[i].problem, here);
    return strcmp(before, here) != 0;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void find_keys(plot *p) {
    for (int looks = 0; looks < (int)(sizeof styles / sizeof *styles); looks++)
        for (int dense = 0; dense < 2; dense++)
            for (int i = 0, found = 0; i < p->report->count && !found; i++)
                for (int j = 0; j < p->report->results[i].ratio_count && !found; j++) {
                    const char *key = p->report->results[i].ratios[j].key;
                    found = style_of(key) == looks && is_dense(key) == (dense == 1) && p->key_count < KEYS;
                    if (found)
                        p->keys[p->key_count++] = key;
                }
}

static void lay_out(plot *p) {
    char heading[64];
    find_keys(p);
    p->low = 0.5;
    p->high = 4;
    for (int i = 0; i < p->report->count; i++) {
        const bench_result *r = &p->report->results[i];
        const int width = canvas_text_width(split(r->problem, heading), 1) + 12;
        p->label_width = width > p->label_width ? width : p->label_width;
        p->lines += 1 + starts_group(p->report, i);
        for (int j = 0; j < r->ratio_count; j++) {
            p->low = fmin(p->low, r->ratios[j].ratio.median / 1.15);
            p->high = fmax(p->high, r->ratios[j].ratio.median * 1.25);
        }
    }
    p->label_width = p->label_width > 420 ? 420 : p->label_width;
    const int rows = (p->key_count + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    p->head = HEAD + (rows > 2 ? (rows - 2) * LEGEND_LINE : 0);
    p->share_x = MARGIN + p->label_width;
    p->ratio_x = p->share_x + SHARE_WIDTH + VALUE_WIDTH + 24;
    p->top = MARGIN + p->head;
    p->bottom = p->top + p->lines * LINE;
}

static double share_at(const plot *p, double share) {
    return p->share_x + SHARE_WIDTH * (share > 1.04 ? 1.04 : share);
}

static double ratio_at(const plot *p, double ratio) {
    return p->ratio_x + RATIO_WIDTH * log(ratio / p->low) / log(p->high / p->low);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void centred(plot *p, double x, int y, const char *text, colour k) {
    canvas_text(&p->c, floor(x - (canvas_text_width(text, 1) - 2) / 2.0), y, text, 1, false, k);
}

static void draw_title(plot *p) {
    char line[PROBLEM_TEXT], cpu[128], date[32];
    const time_t seconds = time(NULL);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(date, sizeof date, "%Y-%m-%d", &utc);
    bench_cpu(cpu, sizeof cpu);
    canvas_text(&p->c, MARGIN, MARGIN + 20, "bstk bench", 2, false, INK);
    snprintf(line, sizeof line, "%s, %d thread%s", cpu, p->report->threads, p->report->threads > 1 ? "s" : "");
    canvas_text(&p->c, MARGIN, MARGIN + 44, line, 1, false, SOFT);
    snprintf(line, sizeof line, "bstk %s, %s, %s", bstk_version(), BENCH_COMPILER, date);
    canvas_text(&p->c, MARGIN, MARGIN + 62, line, 1, false, SOFT);
}

static void legend_box(plot *p, int x, int y, colour k, const char *text) {
    canvas_box(&p->c, x, y - 9, 14, BAR, k);
    canvas_text(&p->c, x + 22, y, text, 1, false, INK);
}

static void draw_legend(plot *p) {
    const int y = MARGIN + 14;
    bool loop = false, copy = false;
    for (int i = 0; i < p->report->count; i++) {
        loop = loop || !p->report->results[i].of_copy;
        copy = copy || p->report->results[i].of_copy;
    }
    canvas_text(&p->c, p->share_x, y, "share of this core's roof (median; line: least to most)", 1, true, INK);
    if (loop)
        legend_box(p, p->share_x, y + 22, LOOP, "of the multiply-add loop");
    if (copy)
        legend_box(p, p->share_x + (loop ? 236 : 0), y + 22, COPY, "of a copy of as many bytes");
    if (p->key_count == 0)
        return;
    canvas_text(&p->c, p->ratio_x, y, "peer's time / bstk's (hollow: dense matrix)", 1, true, INK);
    for (int i = 0; i < p->key_count; i++) {
        const int x = p->ratio_x + i % LEGEND_COLUMNS * (RATIO_WIDTH / LEGEND_COLUMNS);
        const int at = y + 22 + i / LEGEND_COLUMNS * LEGEND_LINE;
        const int looks = style_of(p->keys[i]);
        canvas_marker(&p->c, x + 5, at - 4, styles[looks].m, !is_dense(p->keys[i]), styles[looks].k, PAGE);
        canvas_text(&p->c, x + 16, at, p->keys[i], 1, false, INK);
    }
}

static void draw_axes(plot *p) {
    char text[16];
    for (int percent = 0; percent <= 100; percent += 20) {
        const int x = (int)share_at(p, percent / 100.0);
        canvas_box(&p->c, x, p->top, 1, p->bottom - p->top, percent == 0 || percent == 100 ? FRAME : GRID);
        snprintf(text, sizeof text, "%d %%", percent);
        centred(p, x, p->top - 8, text, SOFT);
        centred(p, x, p->bottom + 18, text, SOFT);
    }
    if (p->key_count == 0)
        return;
    const int one = (int)ratio_at(p, 1);
    static const double ticks[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
    for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++) {
        const int x = (int)ratio_at(p, ticks[i]);
        if (x < p->ratio_x || x > p->ratio_x + RATIO_WIDTH)
            continue;
        canvas_box(&p->c, x - (x == one), p->top, x == one ? 2 : 1, p->bottom - p->top, x == one ? ONE : GRID);
        snprintf(text, sizeof text, "%gx", ticks[i]);
        centred(p, x, p->top - 8, text, x == one ? INK : SOFT);
        centred(p, x, p->bottom + 18, text, x == one ? INK : SOFT);
    }
}

static void draw_result(plot *p, const bench_result *r, int y) {
    char heading[64], value[16], label[PROBLEM_TEXT];
    const int middle = y + LINE / 2;
    snprintf(label, sizeof label, "%s", split(r->problem, heading));
    const size_t room = (size_t)(p->label_width - 12) / TEXT_ADVANCE;
    if (strlen(label) > room) /* a path: its end says more than its start would */
        snprintf(label, sizeof label, "...%s", split(r->problem, heading) + strlen(label) - room + 3);
    canvas_text(&p->c, MARGIN, middle + 4, label, 1, false, INK);
    if (r->share.most > 0) {
        const double x = share_at(p, r->share.median);
        canvas_box(&p->c, p->share_x, middle - BAR / 2, (int)(x - p->share_x) + 1, BAR, r->of_copy ? COPY : LOOP);
        canvas_line(&p->c, share_at(p, r->share.least), middle, share_at(p, r->share.most), middle, 1.4, RANGE);
        snprintf(value, sizeof value, "%5.1f %%", 100 * r->share.median);
        canvas_text(&p->c, p->share_x + SHARE_WIDTH + 22, middle + 4, value, 1, false, r->wrong ? 0xc00000 : INK);
    }
    for (int i = 0; i < r->ratio_count; i++) { /* a little apart in height too: many ratios are near each other */
        const int looks = style_of(r->ratios[i].key);
        canvas_marker(&p->c, ratio_at(p, r->ratios[i].ratio.median), middle + (looks % 3 - 1) * 3, styles[looks].m,
                      !is_dense(r->ratios[i].key), styles[looks].k, PAGE);
    }
}

bool bench_plot(const bench_report *report, uint8_t **pixels, int *width, int *height) {
    plot p = {.report = report};
    lay_out(&p);
    const int right = p.key_count > 0 ? p.ratio_x + RATIO_WIDTH : p.share_x + SHARE_WIDTH + VALUE_WIDTH;
    const int least = p.share_x + canvas_text_width("share of this core's roof (median; line: least to most)", 1);
    if (!canvas_make(&p.c, (right > least ? right : least) + MARGIN, p.bottom + FOOT + MARGIN / 2, PAGE))
        return false;
    if (p.key_count > 0)
        canvas_box(&p.c, p.ratio_x, p.top, (int)ratio_at(&p, 1) - p.ratio_x, p.bottom - p.top, LOSS);
    draw_title(&p);
    draw_legend(&p);
    draw_axes(&p);
    for (int i = 0, y = p.top; i < report->count; i++, y += LINE) {
        if (starts_group(report, i)) {
            char heading[64];
            split(report->results[i].problem, heading);
            canvas_box(&p.c, MARGIN - 6, y, p.c.width - 2 * MARGIN + 12, LINE, STRIPE);
            canvas_text(&p.c, MARGIN, y + LINE / 2 + 4, heading, 1, true, INK);
            y += LINE;
        }
        draw_result(&p, &report->results[i], y);
    }
    *pixels = p.c.pixels;
    *width = p.c.width;
    *height = p.c.height;
    return true;
}
