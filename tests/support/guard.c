/* guard.c: mapped memory between two pages without access. */
#include "support/guard.h"

#include "support/cm.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

guard guard_make(size_t bytes, guard_side side) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page) / page * page;
    guard g = {.mapping_bytes = inside + 2 * page};
    g.mapping = mmap(NULL, g.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.mapping != MAP_FAILED);
    unsigned char *first = (unsigned char *)g.mapping + page;
    assert_int_equal(mprotect(first, inside, PROT_READ | PROT_WRITE), 0);
    memset(first, 0xff, inside);
    g.data = side == GUARD_END ? first + inside - bytes : first;
    return g;
}

void guard_free(guard *g) {
    munmap(g->mapping, g->mapping_bytes);
    *g = (guard){0};
}
