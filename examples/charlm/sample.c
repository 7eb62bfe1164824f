/*
 * sample.c: one byte after another. Each step runs the layers on a single row; its query meets the kept keys and values
 * of the bytes before it, through the blocks that the model's layout has in its row.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charlm.h"

struct charlm_decoder {
    charlm_model *m;
    charlm_linear qkv, proj, up, down, out;
    charlm_norm rms;
    void *x, *n, *rstd, *a, *o, *u, *logits;
    void *kept[CHARLM_MAX_LAYERS]; /* rows of keys and values side by side, [context, 2 kv] */
    uint8_t *bytes;                /* [context] that these rows are of */
    int64_t count;
};

charlm_decoder *charlm_decoder_open(charlm_model *m) {
    const charlm_config *c = &m->config;
    const int64_t w = c->width, kv = w / c->heads * c->kv_heads, padded = charlm_norm_rows(1, w);
    charlm_env *e = &m->env;
    charlm_decoder *d = charlm_alloc(1, sizeof *d);
    d->m = m;
    charlm_linear_open(e, &d->qkv, 1, w, w + 2 * kv, false);
    charlm_linear_open(e, &d->proj, 1, w, w, false);
    charlm_linear_open(e, &d->up, 1, w, c->hidden, false);
    charlm_linear_open(e, &d->down, 1, c->hidden, w, false);
    charlm_linear_open(e, &d->out, 1, w, CHARLM_BYTES, false);
    charlm_norm_open(e, &d->rms, 1, w, false);
    d->x = charlm_alloc((size_t)(padded * w), e->size);
    d->n = charlm_alloc((size_t)(padded * w), e->size);
    d->rstd = charlm_alloc(1, e->size);
    d->a = charlm_alloc((size_t)(w + 2 * kv), e->size);
    d->o = charlm_alloc((size_t)w, e->size);
    d->u = charlm_alloc((size_t)c->hidden, e->size);
    d->logits = charlm_alloc(CHARLM_BYTES, e->size);
    for (int64_t l = 0; l < c->layers; l++)
        d->kept[l] = charlm_alloc((size_t)(c->context * 2 * kv), e->size);
    d->bytes = charlm_alloc((size_t)c->context, 1);
    return d;
}

void charlm_decoder_close(charlm_decoder *d) {
    charlm_linear *linear[] = {&d->qkv, &d->proj, &d->up, &d->down, &d->out};
    void *memory[] = {d->x, d->n, d->rstd, d->a, d->o, d->u, d->logits, d->bytes};
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
        charlm_linear_close(linear[i]);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    for (int64_t l = 0; l < d->m->config.layers; l++)
        free(d->kept[l]);
    charlm_norm_close(&d->rms);
    free(d);
}

/* What one byte's query needs: row i / block of the model's layout, cut to the i + 1 keys that there are. */
typedef struct query {
    bstk_layout *layout;
    bstk_plan *plan;
    bstk_tensor q, k, o;
    bstk_score_terms terms;
} query;

static void query_open(charlm_decoder *d, int64_t i, query *y) {
    const charlm_model *m = d->m;
    const charlm_config *c = &m->config;
    const int64_t size = c->width / c->heads, kv = size * c->kv_heads, row = i / c->block, cols = row + 1;
    const int64_t *ptr = bstk_layout_row_ptr(m->layout);
    uint8_t *mask = charlm_alloc((size_t)cols, 1);
    for (int64_t n = ptr[row]; n < ptr[row + 1]; n++)
        mask[bstk_layout_col_idx(m->layout)[n]] = 1;
    const bstk_tensor blocks = bstk_tensor_make(mask, BSTK_U8, 2, (int64_t[]){1, cols});
    charlm_must(bstk_layout_from_mask(m->env.ctx, &blocks, (int32_t)c->block, (int64_t[]){1, i + 1}, &y->layout));
    free(mask);
    y->q = bstk_tensor_make(NULL, m->env.dtype, 4, (int64_t[]){1, c->heads, 1, size});
    y->o = y->q;
    y->k = bstk_tensor_make(NULL, m->env.dtype, 4, (int64_t[]){1, c->kv_heads, i + 1, size});
    memcpy(y->k.stride, (int64_t[]){0, size, 2 * kv, 1}, sizeof y->k.stride);
    y->terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    y->terms.causal = 1;
    y->terms.bottom_right = 1; /* the query is the last of the bytes */
    y->terms.alibi_slopes = &m->slopes;
    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = y->layout;
    desc.q = &y->q;
    desc.k = desc.v = &y->k;
    desc.o = &y->o;
    desc.terms = y->terms;
    charlm_must(bstk_attention_plan(m->env.ctx, &desc, &y->plan));
}

static void attend(charlm_decoder *d, const query *y, int64_t layer) {
    charlm_model *m = d->m;
    const charlm_config *c = &m->config;
    const int64_t kv = c->width / c->heads * c->kv_heads;
    bstk_tensor q = y->q, k = y->k, v = y->k, o = y->o;
    memcpy(charlm_at(m, d->kept[layer], d->count * 2 * kv), charlm_at(m, d->a, c->width),
           (size_t)(2 * kv) * m->env.size);
    q.data = d->a;
    k.data = d->kept[layer];
    v.data = charlm_at(m, d->kept[layer], kv);
    o.data = d->o;
    const bstk_exec exec = charlm_env_exec(&m->env, y->plan);
    charlm_must(bstk_attention_run(y->plan, &q, &k, &v, &y->terms, &o, NULL, &exec));
}

void *charlm_decoder_step(charlm_decoder *d, uint8_t byte) {
    charlm_model *m = d->m;
    charlm_env *e = &m->env;
    const charlm_config *c = &m->config;
    if (d->count == c->context) { /* full: the later half goes in again, from the beginning */
        const int64_t half = c->context / 2;
        d->count = 0;
        for (int64_t i = 0; i < half; i++)
            charlm_decoder_step(d, d->bytes[c->context - half + i]);
    }
    query y;
    query_open(d, d->count, &y);
    e->rows->embed(d->x, charlm_at(m, m->values, m->embed), &byte, 1, c->width);
    for (int64_t l = 0; l < c->layers; l++) {
        const charlm_layer *p = &m->layer[l];
        charlm_norm_run(e, &d->rms, d->x, charlm_at(m, m->values, p->norm1), d->n, d->rstd);
        charlm_linear_run(e, &d->qkv, d->n, charlm_at(m, m->values, p->qkv), 0, d->a);
        attend(d, &y, l);
        charlm_linear_run(e, &d->proj, d->o, charlm_at(m, m->values, p->proj), 1, d->x);
        charlm_norm_run(e, &d->rms, d->x, charlm_at(m, m->values, p->norm2), d->n, d->rstd);
        charlm_linear_run(e, &d->up, d->n, charlm_at(m, m->values, p->up), 0, d->u);
        e->rows->relu2(d->u, d->u, c->hidden);
        charlm_linear_run(e, &d->down, d->u, charlm_at(m, m->values, p->down), 1, d->x);
    }
    charlm_norm_run(e, &d->rms, d->x, charlm_at(m, m->values, m->norm), d->n, d->rstd);
    charlm_linear_run(e, &d->out, d->n, charlm_at(m, m->values, m->head), 0, d->logits);
    bstk_plan_release(y.plan);
    bstk_layout_release(y.layout);
    d->bytes[d->count++] = byte;
    return d->logits;
}

static uint8_t draw(const float *logits, double temperature, uint64_t *random) {
    double weight[CHARLM_BYTES], sum = 0;
    int best = 0;
    for (int j = 1; j < CHARLM_BYTES; j++)
        best = logits[j] > logits[best] ? j : best;
    if (temperature <= 0)
        return (uint8_t)best;
    for (int j = 0; j < CHARLM_BYTES; j++)
        sum += weight[j] = exp((double)(logits[j] - logits[best]) / temperature);
    double left = charlm_uniform(random) * sum;
    for (int j = 0; j < CHARLM_BYTES; j++) {
        left -= weight[j];
        if (left < 0)
            return (uint8_t)j;
    }
    return (uint8_t)best;
}

/* Text as it is; other control bytes, which could play with a terminal, as '?'. */
static void print_byte(uint8_t byte) {
    putchar((byte < 32 && byte != '\n' && byte != '\t') || byte == 127 ? '?' : byte);
}

void charlm_sample(charlm_model *m, const char *prompt, int64_t count, double temperature, uint64_t seed) {
    charlm_decoder *d = charlm_decoder_open(m);
    uint64_t random = seed ^ 0x2545f4914f6cdd1du;
    const float *logits = NULL;
    for (const char *at = *prompt ? prompt : "\n"; *at; at++)
        logits = charlm_decoder_step(d, (uint8_t)*at);
    for (const char *at = prompt; *at; at++)
        print_byte((uint8_t)*at);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t byte = draw(logits, temperature, &random);
        print_byte(byte);
        fflush(stdout);
        if (i + 1 < count)
            logits = charlm_decoder_step(d, byte);
    }
    putchar('\n');
    charlm_decoder_close(d);
}
