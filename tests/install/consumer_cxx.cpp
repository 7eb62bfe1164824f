// consumer_cxx.cpp: the headers from C++17, linked against the installed library: a layout, and an error's text.
#include <bstk/bstk.h>

#include <cstdio>
#include <cstring>

int main() {
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    bstk_layout *layout = nullptr;
    opts.kind = BSTK_LAYOUT_BIGBIRD;
    opts.rows = opts.cols = 16;
    opts.block = 32;
    if (bstk_layout_build(nullptr, &opts, &layout) != BSTK_OK) {
        std::fprintf(stderr, "%s\n", bstk_last_error());
        return 1;
    }
    const bool right = bstk_layout_m(layout) == 512 && bstk_layout_nnz(layout) > 0;
    bstk_layout_release(layout);
    opts.block = 12;
    const bool refused = bstk_layout_build(nullptr, &opts, &layout) == BSTK_ERR_INVALID;
    if (!right || !refused || std::strstr(bstk_last_error(), "block") == nullptr) {
        std::fprintf(stderr, "wrong: %d %d '%s'\n", right, refused, bstk_last_error());
        return 1;
    }
    std::printf("C++ consumer of bstk %s is fine\n", bstk_version());
    return 0;
}
