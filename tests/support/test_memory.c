/* test_memory.c: the watching allocator, guard pages and sparse address space. See test_memory.h. */
#include "support/test_memory.h"

#include "support/cm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Before each piece of memory its size, in a header of 64 bytes, the library's alignment. */
enum { HEADER = 64 };

static void *watched_alloc(void *user, size_t bytes, size_t align) {
    watch *w = user;
    atomic_fetch_add(&w->calls, 1);
    if (atomic_load(&w->fail_at) > 0 && atomic_fetch_sub(&w->fail_at, 1) == 1)
        return NULL;
    if (align > HEADER || bytes > SIZE_MAX / 2)
        return NULL;
    char *memory = aligned_alloc(HEADER, (bytes + 2 * HEADER - 1) / HEADER * HEADER);
    if (memory == NULL)
        return NULL;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + HEADER, 0xa5, bytes < 4096 ? bytes : 4096); /* what is not set by the library shows */
    atomic_fetch_add(&w->live, 1);
    const int_fast64_t held = atomic_fetch_add(&w->bytes, (int_fast64_t)bytes) + (int_fast64_t)bytes;
    int_fast64_t peak = atomic_load(&w->peak_bytes);
    while (held > peak && !atomic_compare_exchange_weak(&w->peak_bytes, &peak, held)) {
    }
    return memory + HEADER;
}

static void watched_free(void *user, void *ptr) {
    watch *w = user;
    size_t bytes;
    char *memory = (char *)ptr - HEADER;
    memcpy(&bytes, memory, sizeof bytes);
    atomic_fetch_sub(&w->live, 1);
    atomic_fetch_sub(&w->bytes, (int_fast64_t)bytes);
    free(memory);
}

bstk_context *watched_context(watch *w, const bstk_context_opts *given) {
    bstk_context_opts opts = BSTK_CONTEXT_OPTS_INIT;
    bstk_context *ctx = NULL;
    if (given)
        opts = *given;
    opts.alloc = watched_alloc;
    opts.free = watched_free;
    opts.alloc_user = w;
    ok(bstk_context_create(&opts, &ctx));
    return ctx;
}

static size_t whole_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

void *guarded_alloc(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = whole_pages(bytes);
    char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + size, page, PROT_NONE), 0);
    return memory + size - bytes;
}

void guarded_free(void *ptr, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = whole_pages(bytes);
    assert_int_equal(munmap((char *)ptr + bytes - size, size + page), 0);
}

void *sparse_alloc(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

void sparse_free(void *ptr, size_t bytes) {
    assert_int_equal(munmap(ptr, bytes), 0);
}

void *scrap_alloc(size_t bytes, size_t tail) {
    const size_t scrap = (size_t)1 << 24, kept = whole_pages(tail);
    char *memory = sparse_alloc(bytes);
    const int file = memfd_create("scrap", 0);
    assert_true(file >= 0 && ftruncate(file, (off_t)scrap) == 0);
    for (size_t at = 0; at + scrap + kept <= bytes; at += scrap)
        assert_true(mmap(memory + at, scrap, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == memory + at);
    close(file);
    return memory;
}
