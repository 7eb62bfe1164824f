/* test_layout_build.c: the named patterns against pictures, against their formulas one block at a time, and the rules
 * of random draws, causality, options and memory. */
#include "layout_support.h"

#include <math.h>
#include <time.h>

static bstk_layout_opts opts_of(bstk_layout_kind kind, int64_t size) {
    bstk_layout_opts o = BSTK_LAYOUT_OPTS_INIT;
    o.kind = kind;
    o.rows = o.cols = size;
    o.block = 16;
    return o;
}

static bstk_layout *built(const bstk_layout_opts *o) {
    bstk_layout *layout = NULL;
    ASSERT_OK(bstk_layout_build(NULL, o, &layout));
    return layout;
}

static int64_t nnz_of(const bstk_layout_opts *o) {
    bstk_layout *layout = built(o);
    const int64_t nnz = bstk_layout_nnz(layout);
    bstk_layout_release(layout);
    return nnz;
}

/* ---- pictures --------------------------------------------------------------------------------------------------- */

/* Head `head` of what `o` builds. */
static void check_picture(const bstk_layout_opts *o, int64_t head, const char *picture) {
    bstk_layout *layout = built(o);
    assert_picture(layout, head, picture);
    check_arrays(layout);
    bstk_layout_release(layout);
}

static void test_picture_fixed(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_FIXED, 8);
    check_picture(&o, 0,
                  "####...#\n"
                  "####...#\n"
                  "####...#\n"
                  "####...#\n"
                  "...#####\n"
                  "...#####\n"
                  "...#####\n"
                  "...#####\n");
    assert_int_equal(nnz_of(&o), 40);
}

static void test_picture_fixed_causal(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_FIXED, 10);
    o.causal = 1;
    check_picture(&o, 0,
                  "#.........\n"
                  "##........\n"
                  "###.......\n"
                  "####......\n"
                  "...##.....\n"
                  "...###....\n"
                  "...####...\n"
                  "...#####..\n"
                  "...#...##.\n"
                  "...#...###\n");
    assert_int_equal(nnz_of(&o), 31);
}

static void test_picture_fixed_patterns(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_FIXED, 10);
    o.causal = 1;
    o.heads = 6;
    o.patterns = 4;
    check_picture(&o, 1,
                  "#.........\n"
                  "##........\n"
                  "###.......\n"
                  "####......\n"
                  "..#.#.....\n"
                  "..#.##....\n"
                  "..#.###...\n"
                  "..#.####..\n"
                  "..#...#.#.\n"
                  "..#...#.##\n");
    bstk_layout *layout = built(&o);
    uint8_t *mask = mask_of(layout);
    assert_memory_equal(mask + 400, mask, 200); /* heads 4 and 5 use patterns 0 and 1 again */
    assert_memory_not_equal(mask + 100, mask, 100);
    free(mask);
    bstk_layout_release(layout);
}

/* A last window that is too short for its global blocks' usual place. */
static void test_fixed_short_window(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_FIXED, 10);
    assert_int_equal(nnz_of(&o), 56);
    o.horizontal = 1;
    o.global = 2;
    assert_int_equal(nnz_of(&o), 92);
    o = opts_of(BSTK_LAYOUT_FIXED, 128); /* of a longer sequence the first 10 x 10 blocks have no short window */
    bstk_layout *layout = built(&o);
    uint8_t *mask = mask_of(layout);
    int ones = 0;
    for (int k = 0; k < 100; k++)
        ones += mask[k / 10 * 128 + k % 10];
    assert_int_equal(ones, 48);
    free(mask);
    bstk_layout_release(layout);
    o = opts_of(BSTK_LAYOUT_FIXED, 2); /* less than the global blocks of one window */
    o.global = 4;
    check_picture(&o, 0, "##\n##\n");
}

static void test_picture_variable(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_VARIABLE, 10);
    static const int64_t windows[] = {1, 2, 3}, globals[] = {5, 6, 0, 1, 30, 40};
    o.causal = 1;
    o.windows = windows;
    o.n_windows = 3;
    o.globals = globals;
    o.n_globals = 3;
    check_picture(&o, 0,
                  "#.........\n"
                  "##........\n"
                  "###.......\n"
                  "#..#......\n"
                  "#..##.....\n"
                  "#..###....\n"
                  "#....##...\n"
                  "#....###..\n"
                  "#....####.\n"
                  "#....#...#\n");
}

static void test_picture_longformer(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_LONGFORMER, 10);
    static const int64_t globals[] = {3, 4};
    assert_int_equal(nnz_of(&o), 44);
    o.causal = 1;
    o.globals = globals;
    o.n_globals = 1;
    check_picture(&o, 0,
                  "#.........\n"
                  "##........\n"
                  ".##.......\n"
                  "####......\n"
                  "...##.....\n"
                  "...###....\n"
                  "...#.##...\n"
                  "...#..##..\n"
                  "...#...##.\n"
                  "...#....##\n");
}

static void test_picture_local(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_LOCAL, 10);
    o.window = 4;
    assert_int_equal(nnz_of(&o), 44);
    o.window = -1; /* 3 */
    o.causal = 1;
    check_picture(&o, 0,
                  "#.........\n"
                  "##........\n"
                  ".##.......\n"
                  "..##......\n"
                  "...##.....\n"
                  "....##....\n"
                  ".....##...\n"
                  "......##..\n"
                  ".......##.\n"
                  "........##\n");
}

static void test_picture_strided(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_STRIDED, 10);
    check_picture(&o, 0,
                  "##..#...#.\n"
                  "###..#...#\n"
                  ".###..#...\n"
                  "..###..#..\n"
                  "#..###..#.\n"
                  ".#..###..#\n"
                  "..#..###..\n"
                  "...#..###.\n"
                  "#...#..###\n"
                  ".#...#..##\n");
}

/* BigBird of the language models: first and last block global, a window of three. */
static void test_bigbird_first_and_last(void **state) {
    (void)state;
    for (int64_t n = 5; n < 20; n++) {
        bstk_layout_opts o = opts_of(BSTK_LAYOUT_BIGBIRD, n);
        o.global_last = 1;
        o.random = 0;
        bstk_layout *layout = built(&o);
        uint8_t *mask = mask_of(layout), *want = calloc((size_t)(n * n), 1);
        for (int64_t i = 0; i < n; i++) {
            want[i * n] = want[i * n + n - 1] = 1;
            for (int64_t j = 0; j < n; j++)
                if (i == 0 || i == n - 1 || j == i - 1 || j == i || j == i + 1)
                    want[i * n + j] = 1;
        }
        assert_memory_equal(mask, want, (size_t)(n * n));
        free(mask);
        free(want);
        bstk_layout_release(layout);
    }
}

/* ---- formulas, one block at a time ------------------------------------------------------------------------------ */

static int in_globals(const bstk_layout_opts *o, int64_t k) {
    if (o->globals == NULL)
        return k < o->global;
    for (int64_t g = 0; g < o->n_globals; g++)
        if (k >= o->globals[2 * g] && k < o->globals[2 * g + 1])
            return 1;
    return 0;
}

static int same_window(const bstk_layout_opts *o, int64_t i, int64_t j) {
    int64_t begin = 0;
    for (int64_t k = 0;; k++) {
        const int64_t end = begin + (k < o->n_windows ? o->windows[k] : o->windows[o->n_windows - 1]);
        if (i < end)
            return j >= begin && j < end;
        begin = end;
    }
}

/* Is block k of an axis of n blocks global in `fixed`? The starts are listed one by one. */
static int fixed_global(const bstk_layout_opts *o, int64_t head, int64_t k, int64_t n) {
    const int64_t first = o->window - (1 + head % o->patterns) * o->global, whole = n - n % o->window;
    int global = 0;
    for (int64_t begin = first; begin < whole; begin += o->window)
        global |= k >= begin && k < begin + o->global;
    const int64_t last = whole + first < n - o->global ? whole + first : n - o->global;
    return global || (whole < n && k >= last && k < last + o->global);
}

/* Block (head, i, j) by the formulas in the header; every option has its value. Random blocks are left out. */
static int rule(const bstk_layout_opts *o, int64_t head, int64_t i, int64_t j) {
    const int64_t distance = i < j ? j - i : i - j;
    const int near = distance <= o->window / 2;
    if (o->causal && j > i)
        return 0;
    switch (o->kind) {
    case BSTK_LAYOUT_DENSE:
        return 1;
    case BSTK_LAYOUT_LOCAL:
        return near;
    case BSTK_LAYOUT_FIXED:
        return i / o->window == j / o->window || fixed_global(o, head, j, o->cols) ||
               (o->horizontal && fixed_global(o, head, i, o->rows));
    case BSTK_LAYOUT_VARIABLE:
        return same_window(o, i, j) || in_globals(o, j) || (o->horizontal && in_globals(o, i));
    case BSTK_LAYOUT_BIGBIRD:
        return near || i < o->global || j < o->global || i >= o->rows - o->global_last || j >= o->cols - o->global_last;
    case BSTK_LAYOUT_LONGFORMER:
        return near || in_globals(o, i) || in_globals(o, j);
    case BSTK_LAYOUT_STRIDED:
        return near || distance % o->stride == 0;
    case BSTK_LAYOUT_RANDOM:
        return 0;
    }
    return 0;
}

/* Rows, options and heads at random: every block that a rule asks for is there; of the others, none without random
 * blocks, else as many as asked for or as are free; none is above the diagonal of a causal layout. */
static void check_rules(const bstk_layout_opts *o) {
    bstk_layout *layout = built(o);
    uint8_t *mask = mask_of(layout);
    for (int64_t line = 0; line < o->heads * o->rows; line++) {
        const int64_t h = line / o->rows, i = line % o->rows;
        int64_t free_blocks = 0, extra = 0;
        for (int64_t j = 0; j < o->cols; j++) {
            const int stored = mask[line * o->cols + j];
            if (rule(o, h, i, j))
                assert_true(stored);
            else if (o->causal && j > i)
                assert_false(stored);
            else {
                free_blocks++;
                extra += stored;
            }
        }
        assert_int_equal(extra, o->random < free_blocks ? o->random : free_blocks);
    }
    check_arrays(layout);
    free(mask);
    bstk_layout_release(layout);
}

static void test_rules(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 6000; seed++) {
        test_seed(seed);
        bstk_layout_opts o = BSTK_LAYOUT_OPTS_INIT;
        int64_t windows[4], globals[8];
        o.kind = (bstk_layout_kind)(1 + test_below(8));
        o.heads = 1 + test_below(4);
        o.rows = test_below(14);
        o.cols = test_below(3) ? o.rows : test_below(14);
        o.block = 8;
        o.causal = (int32_t)test_below(2);
        o.seed = seed;
        o.window = test_below(9);
        o.global = test_below(5);
        o.global_last = test_below(3);
        o.stride = 1 + test_below(6);
        o.random = o.kind < BSTK_LAYOUT_VARIABLE ? 0 : test_below(o.cols + 1);
        o.horizontal = !o.causal && test_below(2);
        o.n_windows = 1 + test_below(4);
        for (int64_t k = 0; k < o.n_windows; k++)
            windows[k] = 1 + test_below(4);
        o.windows = windows;
        if (test_below(2)) {
            o.globals = globals;
            o.n_globals = test_below(5);
            for (int64_t k = 0; k < o.n_globals; k++) {
                globals[2 * k] = test_below(16);
                globals[2 * k + 1] = globals[2 * k] + 1 + test_below(3);
            }
        }
        if (o.kind == BSTK_LAYOUT_FIXED) {
            o.global = 1 + test_below(3);
            o.window = o.global * (1 + test_below(4));
            o.patterns = 1 + test_below(o.window / o.global);
        }
        if (o.kind == BSTK_LAYOUT_LONGFORMER || o.kind == BSTK_LAYOUT_STRIDED)
            o.random = 0;
        check_rules(&o);
    }
}

/* A window of w blocks has (w - 1)/2 on each side, an even one acts as w + 1; one of 2n - 1 blocks or more is all. */
static void test_window_counts(void **state) {
    (void)state;
    static const int64_t windows[] = {0, 1, 2, 3, 4, 15, 16, 17, 31, 32, 1000, INT64_MAX};
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
        for (int causal = 0; causal < 2; causal++) {
            bstk_layout_opts o = opts_of(BSTK_LAYOUT_LOCAL, 16), even = o;
            o.window = windows[k];
            o.causal = causal;
            o.random = 0;
            check_rules(&o);
            if (windows[k] >= 31)
                assert_int_equal(nnz_of(&o), causal ? 16 * 17 / 2 : 256);
            even = o;
            even.window = windows[k] | 1;
            assert_int_equal(nnz_of(&even), nnz_of(&o));
        }
}

/* ---- random blocks ---------------------------------------------------------------------------------------------- */

static uint64_t fingerprint(const bstk_layout_opts *o) {
    bstk_layout *layout = built(o);
    uint64_t hash = 14695981039346656037u;
    for (int64_t n = 0; n < bstk_layout_nnz(layout); n++) {
        hash = (hash ^ (uint64_t)bstk_layout_row_idx(layout)[n]) * 1099511628211u;
        hash = (hash ^ (uint64_t)bstk_layout_col_idx(layout)[n]) * 1099511628211u;
    }
    bstk_layout_release(layout);
    return hash;
}

/* The draws are part of what users see: the same seed gives the same layout in every release, on every platform. */
static void test_seeds_are_frozen(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_BIGBIRD, 64);
    o.heads = 3;
    o.random = 3;
    o.seed = 42;
    assert_true(fingerprint(&o) == 0xd92cbc378f3a181u);
    o.kind = BSTK_LAYOUT_RANDOM;
    assert_true(fingerprint(&o) == 0x8bbebf3a9459bbe1u);
    o.random = -1;
    o.density = 0.3;
    assert_true(fingerprint(&o) == 0x84d9ec9191a68bc8u);
    const uint64_t before = fingerprint(&o);
    o.seed = 43;
    assert_true(fingerprint(&o) != before);
}

static void test_heads_differ(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_BIGBIRD, 32);
    o.heads = 5;
    bstk_layout *layout = built(&o);
    uint8_t *mask = mask_of(layout);
    for (int h = 1; h < 5; h++)
        assert_memory_not_equal(mask + h * 1024, mask, 1024);
    o.heads = 2; /* head h does not depend on how many there are */
    bstk_layout *pair = built(&o);
    uint8_t *two = mask_of(pair);
    assert_memory_equal(two, mask, 2048);
    free(mask);
    free(two);
    bstk_layout_release(layout);
    bstk_layout_release(pair);
}

/* Each column is drawn as often as the others: 3 of 20 in 20000 rows is 3000 times, standard deviation 50.5. */
static void test_draws_are_even(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_RANDOM, 20);
    o.rows = 20000;
    o.random = 3;
    bstk_layout *layout = built(&o);
    assert_int_equal(bstk_layout_nnz(layout), 60000);
    for (int j = 0; j < 20; j++)
        assert_in_range(bstk_layout_col_ptr(layout)[j + 1] - bstk_layout_col_ptr(layout)[j], 2700, 3300);
    bstk_layout_release(layout);
}

static void test_density(void **state) {
    (void)state;
    static const double densities[] = {0.0, 1e-300, 1e-6, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0};
    for (size_t k = 0; k < sizeof densities / sizeof *densities; k++) {
        bstk_layout_opts o = opts_of(BSTK_LAYOUT_RANDOM, 1000);
        const double p = densities[k], mean = 1e6 * p, variance = mean * (1 - p);
        o.density = p;
        bstk_layout *layout = built(&o);
        const double off = (double)bstk_layout_nnz(layout) - mean;
        assert_true(off * off <= 36 * variance + 1e-9); /* six standard deviations */
        if (p == 0.5) /* and no column is favoured: 500 of 1000, standard deviation 15.8 */
            for (int j = 0; j < 1000; j++)
                assert_in_range(bstk_layout_col_ptr(layout)[j + 1] - bstk_layout_col_ptr(layout)[j], 400, 600);
        bstk_layout_release(layout);
    }
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_RANDOM, 1000); /* unset: 0.1 */
    bstk_layout *layout = built(&o);
    assert_in_range(bstk_layout_nnz(layout), 98200, 101800);
    uint8_t *mask = mask_of(layout);
    o.causal = 1; /* the same draws, cut */
    bstk_layout *causal = built(&o);
    uint8_t *cut = mask_of(causal);
    for (int k = 0; k < 1000 * 1000; k++)
        assert_int_equal(cut[k], k % 1000 <= k / 1000 ? mask[k] : 0);
    free(mask);
    free(cut);
    bstk_layout_release(layout);
    bstk_layout_release(causal);
}

/* Small layouts and many random blocks: an error by name, or all columns; never an endless search. */
static void test_small_bigbird(void **state) {
    (void)state;
    for (int64_t n = 0; n <= 5; n++)
        for (int64_t random = -1; random <= 7; random++)
            for (int64_t window = 1; window <= 5; window += 2)
                for (int64_t global = 0; global <= 2; global++)
                    for (int causal = 0; causal < 2; causal++) {
                        bstk_layout_opts o = opts_of(BSTK_LAYOUT_BIGBIRD, n);
                        o.window = window;
                        o.global = global;
                        o.random = random;
                        o.causal = causal;
                        if (random > n) {
                            char text[96];
                            bstk_layout *layout = NULL;
                            snprintf(text, sizeof text, "bigbird: random is %d, but a row has %d blocks", (int)random,
                                     (int)n);
                            ASSERT_FAILS(bstk_layout_build(NULL, &o, &layout), BSTK_ERR_INVALID, text);
                            assert_null(layout);
                            continue;
                        }
                        if (random == -1) {
                            nnz_of(&o); /* one block a row, or none in an empty layout */
                            o.random = n > 0;
                        }
                        o.global_last = 0;
                        check_rules(&o);
                    }
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

static void test_option_errors(void **state) {
    (void)state;
    static const int64_t bad_windows[] = {2, 0}, bad_globals[] = {0, 1, 3, 3}, negative[] = {-1, 2};
    bstk_layout_opts o;
    bstk_layout *layout = NULL;
#define REFUSED(the_kind, change, text)                                                                                \
    o = opts_of(BSTK_LAYOUT_##the_kind, 8);                                                                            \
    change;                                                                                                            \
    ASSERT_FAILS(bstk_layout_build(NULL, &o, &layout), BSTK_ERR_INVALID, text);                                        \
    assert_null(layout)
    REFUSED(LOCAL, o.window = -2, "local: window is -2, expected 0 or more");
    REFUSED(BIGBIRD, o.global = -3, "bigbird: global is -3, expected 0 or more");
    REFUSED(BIGBIRD, o.global_last = -1, "bigbird: global_last is -1, expected 0 or more");
    REFUSED(BIGBIRD, o.random = -2, "bigbird: random is -2, expected 0 or more");
    REFUSED(STRIDED, o.stride = -5, "strided: stride is -5, expected 0 or more");
    REFUSED(STRIDED, o.stride = 0, "strided: stride is 0, expected 1 or more");
    REFUSED(RANDOM, o.density = 1.5, "random: density is 1.5, expected 0 to 1");
    REFUSED(RANDOM, o.density = (double)NAN, "random: density is nan, expected 0 to 1");
    REFUSED(RANDOM, (o.density = 0.5, o.random = 2), "random: density is 0.5 and random is 2, expected one of them");
    REFUSED(RANDOM, o.random = 9, "random: random is 9, but a row has 8 blocks");
    REFUSED(VARIABLE, o.random = 9, "variable: random is 9, but a row has 8 blocks");
    REFUSED(FIXED, o.window = 0, "fixed: window is 0, expected 1 or more");
    REFUSED(FIXED, o.global = 3, "fixed: global is 3, expected a divisor of window = 4");
    REFUSED(FIXED, o.global = 0, "fixed: global is 0, expected a divisor of window = 4");
    REFUSED(FIXED, o.patterns = 5, "fixed: patterns is 5, expected 1 to 4 (window / global)");
    REFUSED(FIXED, o.patterns = 0, "fixed: patterns is 0, expected 1 to 4 (window / global)");
    REFUSED(FIXED, o.horizontal = o.causal = 1,
            "fixed: horizontal and causal are both 1, but a global row looks ahead");
    REFUSED(VARIABLE, o.horizontal = o.causal = 1,
            "variable: horizontal and causal are both 1, but a global row looks ahead");
    REFUSED(VARIABLE, (o.windows = bad_windows, o.n_windows = 2), "variable: windows[1] is 0, expected 1 or more");
    REFUSED(VARIABLE, o.windows = bad_windows, "variable: windows has 0 sizes, expected 1 or more");
    REFUSED(VARIABLE, o.n_windows = 1, "variable: windows has 1 sizes, expected 0 with a NULL pointer");
    REFUSED(LONGFORMER, (o.globals = bad_globals, o.n_globals = 2),
            "longformer: globals[1] is {3, 3}, expected 0 <= begin < end");
    REFUSED(LONGFORMER, (o.globals = negative, o.n_globals = 1),
            "longformer: globals[0] is {-1, 2}, expected 0 <= begin < end");
    REFUSED(LONGFORMER, o.n_globals = 1, "longformer: globals has 1 ranges, expected 0 with a NULL pointer");
    REFUSED(DENSE, o.heads = -1, "dense: heads is -1, expected 0 to 2147483647");
    REFUSED(DENSE, o.rows = (int64_t)1 << 31, "dense: rows is 2147483648, expected 0 to 2147483647");
    REFUSED(DENSE, o.block = 20, "dense: block is 20, expected a multiple of 8 from 8 to 256");
    REFUSED(DENSE, (o.shape[0] = 128, o.shape[1] = 100),
            "dense: shape N is 100, expected 113 to 128 (8 block cols of 16)");
    REFUSED(DENSE, o.kind = (bstk_layout_kind)9, "layout: kind is 9, expected 1 to 8");
    REFUSED(DENSE, o.kind = (bstk_layout_kind)0, "layout: kind is 0, expected 1 to 8");
    REFUSED(DENSE, o.struct_size = 1, "layout: opts.struct_size is 1, expected 176 (BSTK_LAYOUT_OPTS_INIT)");
#undef REFUSED
    assert_int_equal(bstk_layout_build(NULL, NULL, &layout), BSTK_ERR_INVALID);
    assert_int_equal(bstk_layout_build(NULL, &o, NULL), BSTK_ERR_INVALID);
}

/* Sizes near 2^63 are cut to the layout, not wrapped. */
static void test_huge_options(void **state) {
    (void)state;
    static const int64_t windows[] = {INT64_MAX}, globals[] = {5, INT64_MAX, INT64_MAX - 1, INT64_MAX};
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_BIGBIRD, 6);
    o.random = 0;
    o.global = o.global_last = INT64_MAX;
    assert_int_equal(nnz_of(&o), 36);
    o = opts_of(BSTK_LAYOUT_FIXED, 6);
    o.window = INT64_MAX;
    assert_int_equal(nnz_of(&o), 36);
    o = opts_of(BSTK_LAYOUT_VARIABLE, 6);
    o.windows = windows;
    o.n_windows = 1;
    assert_int_equal(nnz_of(&o), 36);
    o.windows = NULL;
    o.n_windows = 0;
    o.globals = globals;
    o.n_globals = 2;
    assert_int_equal(nnz_of(&o), 4 * 4 + 2 * 2 + 4);
    o = opts_of(BSTK_LAYOUT_STRIDED, 6);
    o.stride = INT64_MAX;
    o.window = 1;
    assert_int_equal(nnz_of(&o), 6);
    bstk_layout *layout = NULL;
    o = opts_of(BSTK_LAYOUT_DENSE, INT32_MAX);
    o.heads = INT32_MAX;
    assert_int_equal(bstk_layout_build(NULL, &o, &layout), BSTK_ERR_NOMEM);
    assert_null(layout);
}

static void test_shape_and_names(void **state) {
    (void)state;
    bstk_layout_opts o = opts_of(BSTK_LAYOUT_DENSE, 4);
    o.cols = 2;
    o.shape[0] = 50;
    o.shape[1] = 32;
    bstk_layout *layout = built(&o);
    assert_int_equal(bstk_layout_m(layout), 50);
    assert_int_equal(bstk_layout_n(layout), 32);
    assert_true(bstk_layout_density(layout) == 1.0);
    bstk_layout_release(layout);
    for (int kind = 1; kind <= 8; kind++) {
        const char *name = bstk_layout_kind_name((bstk_layout_kind)kind);
        assert_int_equal(bstk_layout_kind_from_name(name), kind);
        for (int64_t size = 0; size < 2; size++) { /* all defaults, on nothing and on one block */
            o = opts_of((bstk_layout_kind)kind, size);
            assert_true(nnz_of(&o) <= size);
        }
    }
    assert_string_equal(bstk_layout_kind_name(BSTK_LAYOUT_BIGBIRD), "bigbird");
    assert_string_equal(bstk_layout_kind_name((bstk_layout_kind)77), "unknown");
    assert_int_equal(bstk_layout_kind_from_name("unknown"), 0);
    assert_int_equal(bstk_layout_kind_from_name(""), 0);
    assert_int_equal(bstk_layout_kind_from_name(NULL), 0);
}

/* ---- memory and time -------------------------------------------------------------------------------------------- */

static bstk_status make_build(bstk_context *ctx, const void *arg, bstk_layout **out) {
    return bstk_layout_build(ctx, arg, out);
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (int kind = 1; kind <= 8; kind++) {
        bstk_layout_opts o = opts_of((bstk_layout_kind)kind, 9);
        o.heads = 2;
        check_out_of_memory(make_build, &o);
    }
}

/* A million tokens in blocks of 16: 65536 x 65536 blocks, of which a mask alone would be 4 GiB. */
static void test_million_tokens(void **state) {
    (void)state;
    static const bstk_layout_kind kinds[] = {BSTK_LAYOUT_LOCAL, BSTK_LAYOUT_BIGBIRD, BSTK_LAYOUT_LONGFORMER,
                                             BSTK_LAYOUT_VARIABLE, BSTK_LAYOUT_RANDOM};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bstk_layout_opts o = opts_of(kinds[k], 65536);
        o.random = kinds[k] == BSTK_LAYOUT_RANDOM || kinds[k] == BSTK_LAYOUT_BIGBIRD ? 3 : -1;
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        const int64_t nnz = nnz_of(&o);
        clock_gettime(CLOCK_MONOTONIC, &end);
        print_message("%-10s %8lld blocks in %.3f s\n", bstk_layout_kind_name(kinds[k]), (long long)nnz,
                      (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
        assert_true(nnz < 10 * 65536);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picture_fixed),
        cmocka_unit_test(test_picture_fixed_causal),
        cmocka_unit_test(test_picture_fixed_patterns),
        cmocka_unit_test(test_fixed_short_window),
        cmocka_unit_test(test_picture_variable),
        cmocka_unit_test(test_picture_longformer),
        cmocka_unit_test(test_picture_local),
        cmocka_unit_test(test_picture_strided),
        cmocka_unit_test(test_bigbird_first_and_last),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_window_counts),
        cmocka_unit_test(test_seeds_are_frozen),
        cmocka_unit_test(test_heads_differ),
        cmocka_unit_test(test_draws_are_even),
        cmocka_unit_test(test_density),
        cmocka_unit_test(test_small_bigbird),
        cmocka_unit_test(test_option_errors),
        cmocka_unit_test(test_huge_options),
        cmocka_unit_test(test_shape_and_names),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_million_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
