/*
 * peer_python.c: SciPy and torch, through bench/peers/python_peer.py, which is compiled in and given to python3 -c. The
 * helper gets the operands through a socket, runs and times itself, and sends its results back for the check; it ends
 * when this process does.
 */
#include "peer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

extern const char python_peer_text[];

enum { LINE = 512 };

typedef struct helper {
    pid_t process; /* 0: none */
    int socket;
    int threads;
} helper;

/* ---- talking: false when the helper is gone ---------------------------------------------------------------------- */

static bool put(const helper *h, const void *bytes, size_t size) {
    for (const char *at = bytes; size > 0;) {
        const ssize_t sent = send(h->socket, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        at += sent > 0 ? sent : 0;
        size -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool get(const helper *h, void *bytes, size_t size) {
    for (char *at = bytes; size > 0;) {
        const ssize_t got = recv(h->socket, at, size, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? got : 0;
        size -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool get_line(const helper *h, char line[LINE]) {
    for (int i = 0; i < LINE - 1; i++) {
        if (!get(h, line + i, 1))
            return false;
        if (line[i] == '\n') {
            line[i] = '\0';
            return true;
        }
    }
    return false;
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static bool start(helper *h, const char *library, int threads, char text[PEER_TEXT]) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        snprintf(text, PEER_TEXT, "no socket: %s", strerror(errno));
        return false;
    }
    fflush(NULL);
    const pid_t parent = getpid(), process = fork();
    if (process == 0) {
        char count[16];
        snprintf(count, sizeof count, "%d", threads);
        setenv("OMP_NUM_THREADS", count, 1);
        setenv("OPENBLAS_NUM_THREADS", count, 1);
        setenv("MKL_NUM_THREADS", count, 1);
        signal(SIGINT, SIG_IGN); /* Ctrl-C ends it by the next line, whatever it is doing */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(127);
        if (dup2(pair[1], STDIN_FILENO) < 0)
            _exit(127);
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(127);
        execlp("python3", "python3", "-c", python_peer_text, library, count, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
    if (process < 0) {
        close(pair[0]);
        snprintf(text, PEER_TEXT, "no process: %s", strerror(errno));
        return false;
    }
    *h = (helper){process, pair[0], threads};
    return true;
}

static void stop(helper *h) {
    if (h->process == 0)
        return;
    close(h->socket);
    waitpid(h->process, NULL, 0);
    h->process = 0;
}

/* ---- a problem --------------------------------------------------------------------------------------------------- */

typedef struct python_state {
    helper *h;
    int way;
    void *out[PEER_OUTPUTS];
    size_t bytes[PEER_OUTPUTS];
    int outputs;
    double seconds; /* of the last runs; < 0: the helper is gone */
} python_state;

static void free_state(void *state) {
    python_state *s = state;
    for (int i = 0; i < s->outputs; i++)
        free(s->out[i]);
    free(s);
}

static double run_there(void *state, int64_t calls) {
    const python_state *s = state;
    char line[LINE];
    snprintf(line, sizeof line, "run %d %lld\n", s->way, (long long)calls);
    return put(s->h, line, strlen(line)) && get_line(s->h, line) ? strtod(line, NULL) : -1;
}

static void run_once(void *state) {
    run_there(state, 1);
}

static void collect(void *state) {
    const python_state *s = state;
    char line[LINE];
    snprintf(line, sizeof line, "get %d\n", s->way);
    bool ok = put(s->h, line, strlen(line));
    for (int i = 0; ok && i < s->outputs; i++)
        ok = get(s->h, s->out[i], s->bytes[i]);
    for (int i = 0; !ok && i < s->outputs; i++)
        memset(s->out[i], 0xff, s->bytes[i]); /* NaN: the check then says so */
}

static bool put_problem(const helper *h, const workload *w) {
    const problem *p = &w->p;
    const bstk_layout *l = w->layout;
    char line[LINE];
    const int64_t rows = bstk_layout_rows(l), nnz = bstk_layout_nnz(l);
    snprintf(line, sizeof line, "problem %s %s %d %lld %lld %lld %lld %lld %lld %lld %lld %d %d %d %d %d\n",
             problem_op_name(p->op), bstk_dtype_name(p->dtype), (int)p->block, (long long)p->z, (long long)p->h,
             (long long)p->m, (long long)p->n, (long long)p->k, (long long)rows, (long long)bstk_layout_cols(l),
             (long long)nnz, p->trans_a, p->trans_b, p->trans_c, p->causal, p->backward);
    bool ok = put(h, line, strlen(line)) &&
              put(h, bstk_layout_row_ptr(l), (size_t)(p->h * rows + 1) * sizeof(int64_t)) &&
              put(h, bstk_layout_col_idx(l), (size_t)nnz * sizeof(int32_t));
    static const int inputs[] = {WORKLOAD_A, WORKLOAD_B, WORKLOAD_V, WORKLOAD_D_OUT};
    for (int i = 0; ok && i < 4; i++) {
        const gen_array *a = &w->array[inputs[i]];
        if (a->memory)
            ok = put(h, a->t.data, (size_t)gen_count(&a->t) * bstk_dtype_size(a->t.dtype));
    }
    return ok;
}

static bool add_way(helper *h, const workload *w, int index, const char *line, peer_way *way) {
    python_state *s = calloc(1, sizeof *s);
    memset(way, 0, sizeof *way);
    if (!s)
        return false;
    s->h = h;
    s->way = index;
    const int places[PEER_OUTPUTS] = {w->out, WORKLOAD_D_B, WORKLOAD_D_V};
    for (int i = 0; i < (w->p.backward ? 3 : 1); i++) {
        void *memory = peer_output(way, w, places[i], w->p.dtype);
        if (!memory) {
            free_state(s);
            return false;
        }
        s->out[s->outputs] = memory;
        s->bytes[s->outputs++] = (size_t)gen_count(&w->array[places[i]].t) * bstk_dtype_size(w->p.dtype);
    }
    const size_t length = strcspn(line, " ");
    snprintf(way->key, sizeof way->key, "%.*s", (int)length, line);
    snprintf(way->how, sizeof way->how, "%s", line + length + (line[length] == ' '));
    way->state = s;
    way->run = run_once;
    way->time = run_there;
    way->collect = collect;
    way->free = free_state;
    return true;
}

/* The helper answers with the number of ways and a line for each, or with 0 and why not. */
static int ask(helper *h, const workload *w, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    const problem *p = &w->p;
    char line[LINE];
    if (!(problem_is_product(p->op) && !p->backward) && p->op != PROBLEM_ATTENTION) {
        snprintf(why, PEER_TEXT, "it has no %s%s", problem_op_name(p->op), p->backward ? " gradient" : "");
        return 0;
    }
    if (p->dtype != p->packed_dtype || bstk_layout_partial_count(w->layout) > 0 || p->trans_c) {
        snprintf(why, PEER_TEXT, "mixed types, partly kept blocks or transposed results");
        return 0;
    }
    snprintf(why, PEER_TEXT, "its helper process ended");
    if (h->process == 0 || !put_problem(h, w) || !get_line(h, line))
        return 0;
    const int offered = atoi(line);
    if (offered <= 0) {
        const char *text = strchr(line, ' ');
        snprintf(why, PEER_TEXT, "%.250s", text ? text + 1 : "no reason given");
        return 0;
    }
    int count = 0;
    for (int i = 0; i < offered; i++) {
        if (!get_line(h, line))
            break;
        if (count < PEER_WAYS && add_way(h, w, i, line, &ways[count]))
            count++;
    }
    return count;
}

/* ---- the two peers ----------------------------------------------------------------------------------------------- */

static helper scipy, torch;

static bool open_helper(helper *h, const char *library, int threads, char text[PEER_TEXT]) {
    char line[LINE];
    if (!start(h, library, threads, text))
        return false;
    if (get_line(h, line) && strncmp(line, "ok ", 3) == 0) {
        snprintf(text, PEER_TEXT, "%.250s", line + 3);
        return true;
    }
    snprintf(text, PEER_TEXT, "python3 on PATH has no %s with numpy", library);
    stop(h);
    return false;
}

static bool open_scipy(int threads, char text[PEER_TEXT]) {
    return open_helper(&scipy, "scipy", threads, text);
}

static bool open_torch(int threads, char text[PEER_TEXT]) {
    return open_helper(&torch, "torch", threads, text);
}

static int scipy_ways(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    (void)threads;
    return ask(&scipy, w, ways, why);
}

static int torch_ways(const workload *w, int threads, peer_way ways[PEER_WAYS], char why[PEER_TEXT]) {
    (void)threads;
    return ask(&torch, w, ways, why);
}

static void close_scipy(void) {
    stop(&scipy);
}

static void close_torch(void) {
    stop(&torch);
}

const peer peer_scipy = {"scipy", open_scipy, scipy_ways, close_scipy};
const peer peer_torch = {"torch", open_torch, torch_ways, close_torch};
