/*
 * test_memory.h: memory that watches the library: an allocator that counts and can fail, memory that ends at a guard
 * page, and address space far beyond what is touched.
 */
#ifndef BSTK_TESTS_MEMORY_H
#define BSTK_TESTS_MEMORY_H

#include <bstk/bstk.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Counts of an allocator; `fail_at` n makes the n-th call from now on (1 is the next) return NULL. */
typedef struct watch {
    atomic_int_fast64_t calls, live;       /* allocations made, and not freed yet */
    atomic_int_fast64_t bytes, peak_bytes; /* held now, and at most; the context itself included */
    atomic_int_fast64_t fail_at;           /* 0: never */
} watch;

/* A context whose memory goes through `w` (zeroed by the caller). opts may be NULL; its memory hooks are set here. */
bstk_context *watched_context(watch *w, const bstk_context_opts *opts);

/* `bytes` that end right before a page that nobody may touch; the address is as misaligned as that makes it. */
void *guarded_alloc(size_t bytes);
void guarded_free(void *ptr, size_t bytes);

/* Zero-filled address space of which only touched pages take memory. */
void *sparse_alloc(size_t bytes);
void sparse_free(void *ptr, size_t bytes);

/*
 * Address space for an output of which only the last `tail` bytes matter: the pages before them are all the same few
 * megabytes. Both sizes are rounded up to whole pages, the end stays where `bytes` says. Freed by sparse_free.
 */
void *scrap_alloc(size_t bytes, size_t tail);

#endif
