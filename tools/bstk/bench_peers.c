/*
 * bench_peers.c: the peers of a benchmark. Nobody is believed: our result and each peer's is held against the float64
 * reference before any time is compared. Runs take turns with ours in the same process (helper processes: back to
 * back), so that a ratio is one of neighbours in time.
 */
#include "bench.h"

#include "check/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PEERS = 16 };

/*
 * Peers add in other orders and round exponentials and 16-bit intermediates as they like; the bounds of products hold
 * for every order, so this is for the rest.
 */
static const double SLACK = 4;
static const double CHECK_WORK = 3e8; /* operations that a reference may take: about a second */
static const double BUDGET = 3;       /* times --min-time that one way of a peer may take; it runs once at least */

static struct {
    const peer *peer;
    char text[PEER_TEXT];
    bool open;
} asked[MOST_PEERS];
static int asked_count;

/* ---- which ------------------------------------------------------------------------------------------------------- */

static void add_peer(const peer *p) {
    for (int i = 0; i < asked_count; i++)
        if (asked[i].peer == p)
            return;
    asked[asked_count++].peer = p;
}

void bench_peers_add(const char *list) {
    const char *names[MOST_PEERS];
    for (int i = 0; i < peer_count; i++)
        names[i] = peer_list[i]->name;
    for (const char *at = list;; at++) {
        char name[64];
        const size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), at);
        int found = 0;
        for (int i = 0; i < peer_count; i++)
            if (strcmp(name, names[i]) == 0 || strcmp(name, "all") == 0) {
                add_peer(peer_list[i]);
                found++;
            }
        const char *near = found ? NULL : nearest(name, names, peer_count);
        if (near)
            usage_error("bench: unknown peer '%s'; did you mean '%s'?", name, near);
        if (!found)
            usage_error("bench: unknown peer '%s', expected openblas, libxsmm, mkl, onednn, scipy, torch or all", name);
        at += length;
        if (*at == '\0')
            return;
    }
}

bool bench_peers_open(const common_opts *common, int threads) {
    for (int i = 0; i < asked_count; i++) {
        progress_begin(common, "bench: looking for peers", 0);
        asked[i].open = asked[i].peer->open(threads, asked[i].text);
        progress_end();
        printf("peer %s: %s%s\n", asked[i].peer->name, asked[i].open ? "" : "not used: ", asked[i].text);
    }
    fflush(stdout);
    return asked_count > 0;
}

void bench_peers_close(void) {
    for (int i = 0; i < asked_count; i++)
        if (asked[i].open && asked[i].peer->close)
            asked[i].peer->close();
}

const char *bench_peers_text(int i, const char **name) {
    if (i >= asked_count)
        return NULL;
    *name = asked[i].peer->name;
    return asked[i].text;
}

/* ---- one problem ------------------------------------------------------------------------------------------------- */

static void add_note(bench_result *r, const char *name, const char *why) {
    if (r->note_count == BENCH_NOTES)
        return;
    bench_note *note = &r->notes[r->note_count++];
    snprintf(note->peer, sizeof note->peer, "%.31s", name);
    snprintf(note->why, sizeof note->why, "%.500s", why);
}

static bool check_ours(workload *w, const check_reference *reference, bench_result *r) {
    workload_reset(w);
    must(workload_run(w));
    r->checked = true;
    r->check_step = check_reference_step(reference);
    for (int i = 0; i < WORKLOAD_ARRAYS && !r->wrong; i++)
        if (w->array[i].memory && workload_is_output(w, i))
            r->wrong = !check_reference_holds(reference, i, &w->array[i].t, 1, r->error);
    return !r->wrong;
}

/* As bench_clock(), but with one thread the CPU time of all: none that a library starts on its own comes for free. */
static double peer_clock(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one of `calls` runs; < 0: the peer is gone. */
static double run_way(const peer_way *way, int threads, int64_t calls) {
    if (way->time)
        return way->time(way->state, calls);
    const double start = peer_clock(threads);
    for (int64_t i = 0; i < calls; i++)
        way->run(way->state);
    return (peer_clock(threads) - start) / (double)calls;
}

static bool check_way(const peer_way *way, const check_reference *reference, char error[PROBLEM_TEXT]) {
    if (way->collect)
        way->collect(way->state);
    for (int i = 0; i < way->outputs; i++)
        if (!check_reference_holds(reference, way->places[i], &way->out[i], SLACK, error))
            return false;
    return true;
}

/* The way enters the running, unless a faster one with its key is there. */
static void enter(bench_rivals *rivals, const peer_way *way, double once) {
    bench_rival *rival = NULL;
    for (int i = 0; i < rivals->count; i++)
        if (strcmp(rivals->items[i]->way.key, way->key) == 0)
            rival = rivals->items[i];
    if ((rival && rival->once <= once) || (!rival && rivals->count == BENCH_RATIOS)) {
        way->free(way->state);
        return;
    }
    if (rival)
        rival->way.free(rival->way.state);
    else
        rivals->items[rivals->count++] = rival = calloc(1, sizeof *rival);
    if (!rival)
        fail("bench: out of memory");
    rival->way = *way;
    rival->calls = bench_calls(once);
    rival->once = once;
}

/* Runs it, checks it, and times it a second time, warm. */
static void try_way(bench_rivals *rivals, const peer_way *way, const bench_opts *o, const check_reference *reference,
                    bench_result *r) {
    char error[PROBLEM_TEXT] = "";
    double once = run_way(way, o->threads, 1);
    if (once < 0 || !check_way(way, reference, error)) {
        char why[PROBLEM_TEXT + PEER_TEXT + 32];
        if (once < 0)
            snprintf(why, sizeof why, "%s: its helper process ended", way->how);
        else
            snprintf(why, sizeof why, "%s: wrong result: %s", way->how, error);
        add_note(r, way->key, why);
        way->free(way->state);
        return;
    }
    for (int i = 0; i < 3 && once * (i + 1) < o->min_time; i++) {
        const double again = run_way(way, o->threads, bench_calls(once));
        once = again > 0 && again < once ? again : once;
    }
    enter(rivals, way, once);
}

bench_rivals *bench_rivals_make(workload *w, const bench_opts *o, bench_result *r) {
    bench_rivals *rivals = calloc(1, sizeof *rivals);
    if (!rivals)
        fail("bench: out of memory");
    check_reference *reference = check_reference_make(w, CHECK_WORK);
    if (!reference)
        fail("bench: out of memory for the reference of %s", r->problem);
    if (check_ours(w, reference, r))
        for (int i = 0; i < asked_count; i++) {
            peer_way ways[PEER_WAYS];
            char why[PEER_TEXT] = "";
            const int count = asked[i].open ? asked[i].peer->ways(w, o->threads, ways, why) : 0;
            if (count == 0)
                add_note(r, asked[i].peer->name, asked[i].open ? why : "not used");
            for (int j = 0; j < count; j++)
                try_way(rivals, &ways[j], o, reference, r);
        }
    check_reference_free(reference);
    return rivals;
}

void bench_rivals_run(bench_rivals *rivals, const bench_opts *o, double ours) {
    for (int i = 0; i < rivals->count; i++) {
        bench_rival *rival = rivals->items[i];
        if (rival->count > 0 && rival->spent > BUDGET * o->min_time && o->repetitions == 0)
            continue;
        const double start = now();
        if (bench_needs_warmth(rival->once))
            run_way(&rival->way, o->threads, 1);
        const double seconds = run_way(&rival->way, o->threads, rival->calls);
        rival->spent += now() - start;
        if (seconds < 0 || rival->count == BENCH_SAMPLES)
            continue;
        rival->seconds[rival->count] = seconds;
        rival->ratio[rival->count++] = seconds / ours;
    }
}

void bench_rivals_end(bench_rivals *rivals, bench_result *r) {
    for (int i = 0; i < rivals->count; i++) {
        bench_rival *rival = rivals->items[i];
        if (rival->count > 0) {
            bench_ratio *ratio = &r->ratios[r->ratio_count++];
            memcpy(ratio->key, rival->way.key, sizeof ratio->key);
            memcpy(ratio->how, rival->way.how, sizeof ratio->how);
            ratio->ratio = bench_summarize(rival->ratio, rival->count);
            ratio->seconds = bench_summarize(rival->seconds, rival->count).median;
        } else {
            add_note(r, rival->way.key, "its helper process ended");
        }
        rival->way.free(rival->way.state);
        free(rival);
    }
    free(rivals);
}
