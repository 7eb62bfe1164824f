/* term.c: colours, the progress bar and pictures. Escape sequences go to terminals only, and NO_COLOR turns them off.
 */
#include "cli.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static bool plain_terminal(void) {
    const char *term = getenv("TERM");
    return !term || strcmp(term, "dumb") == 0;
}

static bool colours(void) {
    const char *no_color = getenv("NO_COLOR");
    return !(no_color && *no_color) && !plain_terminal() && isatty(STDOUT_FILENO);
}

const char *style_on(style s) {
    static const char *const codes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[31m"};
    return colours() ? codes[s] : "";
}

const char *style_off(void) {
    return colours() ? "\033[0m" : "";
}

int term_columns(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

void print_picture(const bstk_layout *layout, bool ascii) {
    char *text = io_picture_text(layout, term_columns(), ascii);
    if (!text)
        fail("layout: out of memory for the picture");
    fputs(text, stdout);
    free(text);
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* One bar at a time. A helper thread draws it, so that it moves while the library works. */
static struct {
    bool active;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stop, drawn; /* under the mutex */
    const char *label;
    int64_t total;
    _Atomic int64_t done;
    atomic_bool counts_tasks; /* a plan's tasks move the bar */
    double start;
} bar = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum { BAR_CELLS = 30 };
/* What one kernel of a plan adds to a bar, however many tasks it has. */
static const int64_t PLAN_UNITS = 1000000;

static void draw(void) {
    double seconds = now() - bar.start;
    if (bar.total <= 0) {
        fprintf(stderr, "\r%s ... %.0f s\033[K", bar.label, seconds);
    } else {
        double share = (double)atomic_load(&bar.done) / (double)bar.total;
        share = share > 1 ? 1 : share;
        char cells[BAR_CELLS + 1];
        memset(cells, '.', BAR_CELLS);
        memset(cells, '#', (size_t)(share * BAR_CELLS));
        cells[BAR_CELLS] = '\0';
        fprintf(stderr, "\r%s [%s] %3.0f %%  %.0f s\033[K", bar.label, cells, 100 * share, seconds);
    }
    fflush(stderr);
}

static void erase(void) {
    if (bar.drawn)
        fputs("\r\033[K", stderr);
    bar.drawn = false;
}

static void *draw_until_stopped(void *unused) {
    (void)unused;
    double wait = 1.0; /* shorter work shows nothing */
    pthread_mutex_lock(&bar.mutex);
    while (!bar.stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(wait * 1e9) % 1000000000;
        until.tv_sec += (time_t)wait + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&bar.wake, &bar.mutex, &until) == 0 || bar.stop)
            continue;
        draw();
        bar.drawn = true;
        wait = 0.2;
    }
    erase();
    pthread_mutex_unlock(&bar.mutex);
    return NULL;
}

bool progress_wanted(const common_opts *common) {
    return !common->quiet && !plain_terminal() && isatty(STDERR_FILENO);
}

void progress_begin(const common_opts *common, const char *label, int64_t total) {
    if (bar.active || !progress_wanted(common))
        return;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&bar.wake, &attributes);
    pthread_condattr_destroy(&attributes);
    bar.stop = false;
    bar.label = label;
    bar.total = total;
    atomic_store(&bar.done, 0);
    bar.start = now();
    bar.active = pthread_create(&bar.thread, NULL, draw_until_stopped, NULL) == 0;
}

void progress_task(void *unused, int64_t total) {
    (void)unused;
    if (atomic_load(&bar.counts_tasks))
        atomic_fetch_add(&bar.done, PLAN_UNITS / total);
}

void progress_begin_plan(const common_opts *common, const char *label, const bstk_plan *plan) {
    int64_t parts = 1; /* kernels of the plan, each with tasks of its own */
    for (const char *name = bstk_plan_kernel(plan); *name; name++)
        parts += *name == '+';
    progress_begin(common, label, parts * PLAN_UNITS);
    atomic_store(&bar.counts_tasks, true);
}

void progress_add(int64_t done) {
    atomic_fetch_add(&bar.done, done);
}

void progress_erase(void) {
    pthread_mutex_lock(&bar.mutex);
    erase();
    pthread_mutex_unlock(&bar.mutex);
}

void progress_end(void) {
    if (!bar.active)
        return;
    pthread_mutex_lock(&bar.mutex);
    bar.stop = true;
    pthread_cond_signal(&bar.wake);
    pthread_mutex_unlock(&bar.mutex);
    pthread_join(bar.thread, NULL);
    pthread_cond_destroy(&bar.wake);
    bar.active = false;
    atomic_store(&bar.counts_tasks, false);
}
