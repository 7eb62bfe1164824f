/* peers.c: the list of peers, and what their files share. */
#include "peer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const peer peer_openblas, peer_libxsmm, peer_mkl, peer_onednn, peer_scipy, peer_torch;

const peer *const peer_list[] = {&peer_openblas, &peer_libxsmm, &peer_mkl, &peer_onednn, &peer_scipy, &peer_torch};
const int peer_count = sizeof peer_list / sizeof *peer_list;

void *peer_library(const char *const *names, char text[PEER_TEXT]) {
    text[0] = '\0';
    for (int i = 0; names[i]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        const char *error = dlerror();
        if (text[0] == '\0')
            snprintf(text, PEER_TEXT, "%s", error ? error : names[i]);
    }
    return NULL;
}

bool peer_symbol(void *library, const char *name, void *function, char text[PEER_TEXT]) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        snprintf(text, PEER_TEXT, "it has no %s", name);
        return false;
    }
    memcpy(function, &symbol, sizeof symbol); /* C has no cast from an object's address to a function's */
    return true;
}

void *peer_output(peer_way *way, const workload *w, int place, bstk_dtype dtype) {
    const bstk_tensor *like = &w->array[place].t;
    const size_t count = (size_t)gen_count(like) * bstk_dtype_size(dtype), room = (count / 64 + 1) * 64;
    void *memory = aligned_alloc(64, room);
    if (!memory)
        return NULL;
    memset(memory, 0, room);
    way->out[way->outputs] = bstk_tensor_make(memory, dtype, like->ndim, like->shape);
    way->places[way->outputs++] = place;
    return memory;
}
