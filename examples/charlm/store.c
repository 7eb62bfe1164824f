/*
 * store.c: a model in a file, little-endian: 8 bytes "CHARLM1\n", the 10 numbers of charlm_config as int32, 16 bytes of
 * zeros, then the parameters as float16 in their order. The header is not trusted when it is read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charlm.h"

enum { HEADER = 64, NUMBERS = 10 };
static const char magic[8] = {'C', 'H', 'A', 'R', 'L', 'M', '1', '\n'};

/* Nearest float16, ties to even; what is beyond its range becomes the largest. */
static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t size = bits & 0x7fffffff;
    if (size >= 0x47800000)
        return (uint16_t)(sign | 0x7bff);
    if (size < 0x38800000) { /* below 2^-14: steps of 2^-24; adding 1/2 rounds to them */
        float shifted;
        memcpy(&shifted, &size, sizeof shifted);
        shifted += 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    const uint32_t rounded = size - 0x38000000 + 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | (rounded >> 13 > 0x7bff ? 0x7bff : rounded >> 13));
}

static float float_of(uint16_t half) {
    const int exponent = half >> 10 & 31, digits = half & 1023;
    const float size =
        exponent ? (float)(1024 + digits) * 0x1p-25f * (float)(1u << exponent) : (float)digits * 0x1p-24f;
    return half & 0x8000 ? -size : size;
}

static void numbers_of(const charlm_config *c, int64_t numbers[NUMBERS]) {
    const int64_t values[NUMBERS] = {c->layers,  c->heads, c->kv_heads, c->width,  c->hidden,
                                     c->context, c->block, c->window,   c->global, c->dense};
    memcpy(numbers, values, sizeof values);
}

void charlm_save(const charlm_model *m, const char *path) {
    char temporary[4096];
    unsigned char header[HEADER] = {0};
    int64_t numbers[NUMBERS];
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        charlm_die("the name '%s' is too long", path);
    numbers_of(&m->config, numbers);
    memcpy(header, magic, sizeof magic);
    for (int i = 0; i < NUMBERS; i++)
        for (int byte = 0; byte < 4; byte++)
            header[8 + 4 * i + byte] = (unsigned char)(numbers[i] >> 8 * byte & 255);
    FILE *file = fopen(temporary, "wb");
    if (!file)
        charlm_die("cannot write '%s': %s", temporary, strerror(errno));
    fwrite(header, 1, sizeof header, file);
    for (int64_t i = 0; i < m->n_values; i++) {
        const uint16_t half = half_of((float)m->env.rows->get(m->values, i));
        fputc(half & 255, file);
        fputc(half >> 8, file);
    }
    bool bad = ferror(file) != 0;
    bad |= fclose(file) != 0; /* what was still buffered may not fit */
    if (bad || rename(temporary, path) != 0) {
        const int why = errno;
        remove(temporary);
        charlm_die("cannot write '%s': %s", path, strerror(why));
    }
}

charlm_model *charlm_load(const char *path, int64_t batch, int32_t threads) {
    unsigned char header[HEADER];
    FILE *file = fopen(path, "rb");
    if (!file)
        charlm_die("cannot open model '%s': %s", path, strerror(errno));
    if (fread(header, 1, sizeof header, file) != sizeof header || memcmp(header, magic, sizeof magic) != 0)
        charlm_die("'%s' is not a model of charlm", path);
    int64_t n[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        const unsigned char *at = header + 8 + 4 * i;
        n[i] = (int64_t)at[0] | (int64_t)at[1] << 8 | (int64_t)at[2] << 16 | (int64_t)at[3] << 24;
    }
    const charlm_config config = {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]};
    const char *wrong = charlm_config_wrong(&config);
    if (wrong)
        charlm_die("model '%s': %s", path, wrong);
    charlm_model *m = charlm_model_open(&config, batch, BSTK_F32, threads, 0);
    unsigned char *halves = charlm_alloc((size_t)m->n_values + 1, 2);
    const size_t bytes = (size_t)m->n_values * 2, got = fread(halves, 1, bytes + 1, file);
    if (got != bytes)
        charlm_die("model '%s' has %s than the %zu bytes of parameters that its header tells", path,
                   got < bytes ? "less" : "more", bytes);
    for (int64_t i = 0; i < m->n_values; i++) {
        const uint16_t half = (uint16_t)(halves[2 * i] | halves[2 * i + 1] << 8);
        if ((half & 0x7c00u) == 0x7c00u) /* training never saves one; of random bytes every 32nd is */
            charlm_die("model '%s': parameter %lld is not finite", path, (long long)i);
        m->env.rows->set(m->values, i, (double)float_of(half));
    }
    free(halves);
    fclose(file);
    return m;
}
