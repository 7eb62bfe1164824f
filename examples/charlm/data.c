/* data.c: the text, its split, windows of it, and the entropy of its bigrams; failures, memory and random numbers. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charlm.h"

enum { PIECE = 4096, VALID_EVERY = 10 }; /* pieces as long as a few windows: topics of the text are on both sides */

void charlm_die(const char *format, ...) {
    va_list args;
    fflush(stdout);
    fprintf(stderr, "charlm: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void charlm_must(bstk_status status) {
    if (status != BSTK_OK)
        charlm_die("%s (%s)", bstk_last_error(), bstk_status_name(status));
}

void *charlm_alloc(size_t n, size_t size) {
    void *memory = calloc(n ? n : 1, size);
    if (!memory)
        charlm_die("out of memory: %zu elements of %zu bytes", n, size);
    return memory;
}

uint64_t charlm_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double charlm_uniform(uint64_t *state) {
    return (double)(charlm_random(state) >> 11) * 0x1p-53;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void append_file(const char *path, uint8_t **bytes, size_t *size, size_t *room) {
    FILE *file = fopen(path, "rb");
    if (!file)
        charlm_die("cannot open text '%s': %s", path, strerror(errno));
    for (;;) {
        if (*size == *room) {
            *room = *room ? *room * 2 : 1 << 20;
            uint8_t *larger = realloc(*bytes, *room);
            if (!larger)
                charlm_die("out of memory: %zu bytes of text", *room);
            *bytes = larger;
        }
        const size_t got = fread(*bytes + *size, 1, *room - *size, file);
        *size += got;
        if (got == 0)
            break;
    }
    if (ferror(file))
        charlm_die("cannot read text '%s'", path);
    fclose(file);
}

charlm_text charlm_text_load(const char *const *paths, size_t n_paths) {
    uint8_t *all = NULL;
    size_t size = 0, room = 0;
    charlm_text text = {0};
    for (size_t i = 0; i < n_paths; i++)
        append_file(paths[i], &all, &size, &room);
    text.train = charlm_alloc(size, 1);
    text.valid = charlm_alloc(size, 1);
    for (size_t at = 0; at < size; at += PIECE) {
        const size_t n = size - at < PIECE ? size - at : PIECE;
        if (at / PIECE % VALID_EVERY == VALID_EVERY - 1) {
            memcpy(text.valid + text.n_valid, all + at, n);
            text.n_valid += n;
        } else {
            memcpy(text.train + text.n_train, all + at, n);
            text.n_train += n;
        }
    }
    free(all);
    return text;
}

void charlm_text_free(charlm_text *text) {
    free(text->train);
    free(text->valid);
    *text = (charlm_text){0};
}

void charlm_text_batch(const charlm_text *text, int64_t batch, int64_t context, uint64_t *random, uint8_t *tokens,
                       uint8_t *targets) {
    const size_t n = (size_t)context;
    if (text->n_train < n + 1)
        charlm_die("training text has %zu bytes, expected at least %zu (the context, and 1)", text->n_train, n + 1);
    for (int64_t z = 0; z < batch; z++) {
        const uint8_t *from = text->train + charlm_random(random) % (text->n_train - n);
        memcpy(tokens + z * context, from, n);
        memcpy(targets + z * context, from + 1, n);
    }
}

/* ---- bigrams ----------------------------------------------------------------------------------------------------- */

/* Bits per byte of `of` under p(b | a) = (count(a, b) + weight * p(b)) / (count(a) + weight), p(b) with 1/2 added. */
static double bigram_bits(const uint32_t (*count)[CHARLM_BYTES], const uint8_t *of, size_t n, double weight) {
    double after[CHARLM_BYTES] = {0}, single[CHARLM_BYTES] = {0}, total = 0, bits = 0;
    for (int a = 0; a < CHARLM_BYTES; a++)
        for (int b = 0; b < CHARLM_BYTES; b++) {
            after[a] += count[a][b];
            single[b] += count[a][b];
            total += count[a][b];
        }
    for (size_t i = 0; i + 1 < n; i++) {
        const double p = (single[of[i + 1]] + 0.5) / (total + 0.5 * CHARLM_BYTES);
        bits -= log2((count[of[i]][of[i + 1]] + weight * p) / (after[of[i]] + weight));
    }
    return n > 1 ? bits / (double)(n - 1) : 0;
}

charlm_bigram charlm_text_bigram(const charlm_text *text) {
    uint32_t(*count)[CHARLM_BYTES] = charlm_alloc(CHARLM_BYTES, sizeof *count);
    charlm_bigram result = {.valid = INFINITY};
    for (size_t i = 0; i + 1 < text->n_train; i++)
        count[text->train[i]][text->train[i + 1]]++;
    /* The weight that suits the validation text best: a choice in the bigrams' favour. */
    for (double weight = 0.5; weight <= 32; weight *= 2) {
        const double bits = bigram_bits((const uint32_t(*)[CHARLM_BYTES])count, text->valid, text->n_valid, weight);
        result.valid = bits < result.valid ? bits : result.valid;
    }
    result.train = bigram_bits((const uint32_t(*)[CHARLM_BYTES])count, text->train, text->n_train, 0);
    free(count);
    return result;
}
