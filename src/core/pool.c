/* pool.c: helper threads with a mailbox each. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity */
#include <sched.h>
#endif

#include "core/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1023, MOST_CPUS = 4096 };
/* Longer than the code between two calls of a program that does little else; a sleeping helper is some 10 us away and
 * costs its caller 2 us. */
static const int64_t SPIN_NS = 50000;

/*
 * Life of an offer: FREE, CLAIMED by a caller, OFFERED; then TAKEN by the helper and DONE, or FREE again because the
 * caller took it back. The helper of an offer that is AWAITED wakes the caller when it is done. A caller owns a helper
 * from CLAIMED until it sets FREE itself.
 */
enum { FREE, CLAIMED, OFFERED, TAKEN, AWAITED, DONE };

typedef struct helper {
    alignas(64) atomic_int state; /* a cache line of its own: both sides spin on it */
    atomic_int asleep;
    int32_t index;
    void (*body)(void *arg, int32_t i);
    void *arg;
    struct helper *next; /* of the same call */
    alignas(64) pthread_mutex_t lock;
    pthread_cond_t offered, done;
} helper;

static helper helpers[MOST];
static atomic_int started; /* helpers that exist */
static atomic_int most;    /* that may: MOST, or what there was when a thread could not be made; 0: nobody asked yet */
static atomic_int cpus;
static atomic_int busy; /* threads at work in a call of this file */
static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;

/* The quota of a container, as CPUs; MOST_CPUS without one. */
static int32_t quota_cpus(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    long long quota = 0, period = 0;
    const int found = f ? fscanf(f, "%lld %lld", &quota, &period) : 0;
    if (f)
        fclose(f);
    if (found != 2 || quota <= 0 || period <= 0 || quota / period >= MOST_CPUS)
        return MOST_CPUS;
    return (int32_t)((quota + period - 1) / period);
}

int32_t bstk__pool_cpus(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) /* fails on machines of more than 1024 CPUs */
        count = CPU_COUNT(&set);
#endif
    const int32_t quota = quota_cpus();
    return count < 1 ? 1 : count < quota ? (int32_t)count : quota;
}

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for a state for SPIN_NS, or not at all with a helper that has no CPU of its own. */
static bool spin(helper *h, int state) {
    if (h - helpers + 1 >= atomic_load_explicit(&cpus, memory_order_relaxed))
        return atomic_load_explicit(&h->state, memory_order_acquire) == state;
    const int64_t end = now_ns() + SPIN_NS;
    do
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&h->state, memory_order_acquire) == state)
                return true;
            pause_cpu();
        }
    while (now_ns() < end);
    return false;
}

/* `asleep` and the state are written here in one order and by the caller in the other, both sequentially consistent:
 * one of the two sees what the other one wrote. */
static void await_offer(helper *h) {
    if (spin(h, OFFERED))
        return;
    pthread_mutex_lock(&h->lock);
    atomic_store(&h->asleep, 1);
    while (atomic_load(&h->state) != OFFERED)
        pthread_cond_wait(&h->offered, &h->lock);
    atomic_store(&h->asleep, 0);
    pthread_mutex_unlock(&h->lock);
}

static void *serve(void *user) {
    helper *h = user;
    for (;;) {
        await_offer(h);
        int state = OFFERED;
        if (!atomic_compare_exchange_strong(&h->state, &state, TAKEN))
            continue; /* taken back */
        h->body(h->arg, h->index);
        if (atomic_exchange(&h->state, DONE) == AWAITED) {
            pthread_mutex_lock(&h->lock);
            pthread_cond_signal(&h->done);
            pthread_mutex_unlock(&h->lock);
        }
    }
    return NULL;
}

static void init_helper(helper *h) {
    atomic_store(&h->state, FREE);
    atomic_store(&h->asleep, 0);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->offered, NULL);
    pthread_cond_init(&h->done, NULL);
}

static void lock_before_fork(void) {
    pthread_mutex_lock(&grow_lock);
}

static void unlock_in_parent(void) {
    pthread_mutex_unlock(&grow_lock);
}

/* A child has none of the helpers, whatever they were at; it makes its own when it needs them. */
static void forget_in_child(void) {
    for (int32_t i = atomic_load(&started); i-- > 0;)
        init_helper(&helpers[i]);
    atomic_store(&started, 0);
    atomic_store(&most, MOST);
    atomic_store(&busy, 0);
    pthread_mutex_unlock(&grow_lock);
}

/* Makes helpers until there are `wanted`. They take no signals: those are for the program's own threads. */
static void grow(int32_t wanted) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_mutex_lock(&grow_lock);
    if (atomic_load(&most) == 0) {
        atomic_store(&cpus, bstk__pool_cpus());
        atomic_store(&most, pthread_atfork(lock_before_fork, unlock_in_parent, forget_in_child) == 0 ? MOST : 1);
    }
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV); /* of the thread that caused them: the program's handlers want to know */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t i; (i = atomic_load(&started)) < wanted && i < atomic_load(&most);) {
        pthread_t thread;
        init_helper(&helpers[i]);
        if (pthread_create(&thread, &attr, serve, &helpers[i]) == 0)
            atomic_store(&started, i + 1);
        else
            atomic_store(&most, i > 0 ? i : -1);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    pthread_mutex_unlock(&grow_lock);
}

/* Offers body(arg, index) to a helper; false when it is at work for another call. */
static bool offer(helper *h, void (*body)(void *arg, int32_t i), void *arg, int32_t index, helper *next) {
    int state = FREE;
    if (atomic_load_explicit(&h->state, memory_order_relaxed) != FREE ||
        !atomic_compare_exchange_strong(&h->state, &state, CLAIMED))
        return false;
    h->body = body;
    h->arg = arg;
    h->index = index;
    h->next = next;
    atomic_store(&h->state, OFFERED);
    if (atomic_load(&h->asleep)) {
        pthread_mutex_lock(&h->lock);
        pthread_cond_signal(&h->offered);
        pthread_mutex_unlock(&h->lock);
    }
    return true;
}

/* Takes an offer back, or waits until it is done; then the helper is free. */
static void finish(helper *h) {
    int state = OFFERED;
    if (atomic_compare_exchange_strong(&h->state, &state, FREE))
        return;
    if (!spin(h, DONE)) {
        state = TAKEN;
        if (atomic_compare_exchange_strong(&h->state, &state, AWAITED)) {
            pthread_mutex_lock(&h->lock);
            while (atomic_load(&h->state) == AWAITED) /* FREE in a child that was forked meanwhile */
                pthread_cond_wait(&h->done, &h->lock);
            pthread_mutex_unlock(&h->lock);
        }
    }
    atomic_store(&h->state, FREE);
}

void bstk__pool_run(int32_t n, void (*body)(void *arg, int32_t i), void *arg) {
    helper *mine = NULL;
    int32_t count = atomic_load_explicit(&started, memory_order_acquire), index = 0;
    if (n > count + 1 && (atomic_load(&most) == 0 || count < atomic_load(&most))) {
        grow(n - 1);
        count = atomic_load(&started);
    }
    /* No more threads at work in all calls together than there are CPUs, or than this call alone asks for. */
    const int32_t limit = n > atomic_load(&cpus) ? n : atomic_load(&cpus);
    const int32_t others = atomic_fetch_add(&busy, n), room = limit - others;
    const int32_t last = n < room ? n - 1 : room - 1;
    for (int32_t i = 0; i < count && index < last; i++)
        if (offer(&helpers[i], body, arg, index + 1, mine)) {
            mine = &helpers[i];
            index++;
        }
    atomic_fetch_sub(&busy, n - 1 - index);
    body(arg, 0);
    while (mine) {
        helper *next = mine->next;
        finish(mine);
        mine = next;
    }
    atomic_fetch_sub(&busy, 1 + index);
}
