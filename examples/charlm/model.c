/* model.c: the transformer: parameters, plans, forward and backward. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charlm.h"

charlm_config charlm_config_default(void) {
    return (charlm_config){.layers = 4,
                           .heads = 4,
                           .kv_heads = 2,
                           .width = 128,
                           .hidden = 256,
                           .context = 1024,
                           .block = 64,
                           .window = 3,
                           .global = 1};
}

const char *charlm_config_wrong(const charlm_config *c) {
    if (c->layers < 1 || c->layers > CHARLM_MAX_LAYERS)
        return "layers must be 1 to 16";
    if (c->width < 8 || c->width > 256 || c->width % 8)
        return "width must be a multiple of 8 up to 256";
    if (c->heads < 1 || c->heads > 64 || c->width % c->heads)
        return "heads must be 1 to 64 and divide width";
    if (c->kv_heads < 1 || c->heads % c->kv_heads || c->width / c->heads * c->kv_heads % 8)
        return "key/value heads must divide heads, and their width together must be a multiple of 8";
    if (c->hidden < 8 || c->hidden > 4096 || c->hidden % 8)
        return "hidden must be a multiple of 8 up to 4096";
    if (c->context < 8 || c->context > 65536)
        return "context must be 8 to 65536";
    if (c->block < 8 || c->block > 256 || c->block % 8)
        return "block must be a multiple of 8 up to 256";
    if (c->window < 1 || c->window > 65536 || c->global < 0 || c->global > 65536 || (c->dense != 0 && c->dense != 1))
        return "window, global or dense is out of range";
    return NULL;
}

void *charlm_at(const charlm_model *m, void *base, int64_t i) {
    return (char *)base + (size_t)i * m->env.size;
}

static int64_t kv_width(const charlm_config *c) {
    return c->width / c->heads * c->kv_heads;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static int64_t add_param(charlm_model *m, int64_t layer, const char *name, int64_t size, double range) {
    charlm_param *p = &m->param[m->n_params++];
    if (layer >= 0)
        snprintf(p->name, sizeof p->name, "layer%d.%s", (int)layer, name);
    else
        snprintf(p->name, sizeof p->name, "%s", name);
    p->offset = m->n_values;
    p->size = size;
    p->range = range;
    m->n_values += size;
    return p->offset;
}

static void add_params(charlm_model *m) {
    const charlm_config *c = &m->config;
    const int64_t w = c->width;
    /* Uniform with variance 1 / inputs; what is added to the residual stream is smaller by the root of the additions.
     */
    const double in = sqrt(3.0 / (double)w), add = 1 / sqrt(2.0 * (double)c->layers);
    m->embed = add_param(m, -1, "embed", CHARLM_BYTES * w, 0.5);
    for (int64_t l = 0; l < c->layers; l++) {
        charlm_layer *y = &m->layer[l];
        y->norm1 = add_param(m, l, "norm1", w, 0);
        y->qkv = add_param(m, l, "qkv", w * (w + 2 * kv_width(c)), in);
        y->proj = add_param(m, l, "proj", w * w, in * add);
        y->norm2 = add_param(m, l, "norm2", w, 0);
        y->up = add_param(m, l, "up", w * c->hidden, in);
        y->down = add_param(m, l, "down", c->hidden * w, sqrt(3.0 / (double)c->hidden) * add);
    }
    m->norm = add_param(m, -1, "norm", w, 0);
    m->head = add_param(m, -1, "head", w * CHARLM_BYTES, in * 0.5);
}

static void draw_params(charlm_model *m, uint64_t seed) {
    uint64_t state = seed;
    for (int64_t p = 0; p < m->n_params; p++)
        for (int64_t i = 0; i < m->param[p].size; i++) {
            const double range = m->param[p].range;
            const double value = range > 0 ? range * (2 * charlm_uniform(&state) - 1) : 1;
            m->env.rows->set(m->values, m->param[p].offset + i, (double)(float)value); /* the same in both types */
        }
}

/* ---- plans and buffers ------------------------------------------------------------------------------------------- */

static void *rows_of(const charlm_model *m, int64_t rows, int64_t width) {
    return charlm_alloc((size_t)(rows * width), m->env.size);
}

static void attention_terms(const charlm_model *m, bstk_score_terms *terms) {
    terms->causal = 1;
    terms->alibi_slopes = &m->slopes;
}

static void open_attention(charlm_model *m) {
    const charlm_config *c = &m->config;
    const int64_t t = c->context, d = c->width / c->heads, kv = kv_width(c), wide = c->width + 2 * kv;
    bstk_layout_opts opts = BSTK_LAYOUT_OPTS_INIT;
    opts.kind = c->dense ? BSTK_LAYOUT_DENSE : BSTK_LAYOUT_LONGFORMER;
    opts.block = (int32_t)c->block;
    opts.rows = opts.cols = (t + c->block - 1) / c->block;
    opts.shape[0] = opts.shape[1] = t;
    opts.causal = 1;
    opts.window = c->window;
    opts.global = c->global < opts.rows ? c->global : opts.rows;
    charlm_must(bstk_layout_build(m->env.ctx, &opts, &m->layout));

    /* q, k and v are columns of one product [batch * t, width + 2 kv]: views with strides, nothing is moved. */
    m->q = bstk_tensor_make(NULL, m->env.dtype, 4, (int64_t[]){m->batch, c->heads, t, d});
    m->k = bstk_tensor_make(NULL, m->env.dtype, 4, (int64_t[]){m->batch, c->kv_heads, t, d});
    m->o = m->q;
    memcpy(m->q.stride, (int64_t[]){t * wide, d, wide, 1}, sizeof m->q.stride);
    memcpy(m->k.stride, m->q.stride, sizeof m->k.stride);
    memcpy(m->o.stride, (int64_t[]){t * c->width, d, c->width, 1}, sizeof m->o.stride);
    m->v = m->k;
    /* Outputs must not lie between one another, so the gradients of q, k and v have a buffer each. */
    m->d_q = m->o;
    m->d_k = m->k;
    memcpy(m->d_k.stride, (int64_t[]){t * kv, d, kv, 1}, sizeof m->d_k.stride);
    m->d_v = m->d_k;
    m->d_q.data = rows_of(m, m->rows, c->width);
    m->d_k.data = rows_of(m, m->rows, kv);
    m->d_v.data = rows_of(m, m->rows, kv);
    m->lse = bstk_tensor_make(NULL, m->env.dtype, 3, (int64_t[]){m->batch, c->heads, t});
    /* ALiBi (Press et al., 2022): 2^-2, 2^-4, 2^-6, 2^-8 for 4 heads. */
    for (int64_t h = 0; h < c->heads; h++)
        m->slope[h] = exp2(-8.0 * (double)(h + 1) / (double)c->heads);
    m->slopes = bstk_tensor_make(m->slope, BSTK_F64, 1, &c->heads);

    bstk_attention_desc desc = BSTK_ATTENTION_DESC_INIT;
    desc.layout = m->layout;
    desc.q = &m->q;
    desc.k = &m->k;
    desc.v = &m->v;
    desc.o = &m->o;
    desc.lse = &m->lse;
    attention_terms(m, &desc.terms);
    charlm_must(bstk_attention_plan(m->env.ctx, &desc, &m->attend));
    bstk_attention_grad_desc grad = BSTK_ATTENTION_GRAD_DESC_INIT;
    grad.layout = m->layout;
    grad.q = &m->q;
    grad.k = &m->k;
    grad.v = &m->v;
    grad.d_q = &m->d_q;
    grad.d_k = &m->d_k;
    grad.d_v = &m->d_v;
    grad.o = grad.d_o = &m->o;
    grad.lse = &m->lse;
    attention_terms(m, &grad.terms);
    charlm_must(bstk_attention_grad_plan(m->env.ctx, &grad, &m->attend_grad));
}

static void open_buffers(charlm_model *m) {
    const charlm_config *c = &m->config;
    const int64_t w = c->width, wide = w + 2 * kv_width(c), padded = charlm_norm_rows(m->rows, w);
    m->values = charlm_alloc((size_t)m->n_values, m->env.size);
    m->grads = charlm_alloc((size_t)m->n_values, m->env.size);
    for (int64_t l = 0; l < c->layers; l++) {
        charlm_layer *y = &m->layer[l];
        y->x = rows_of(m, padded, w);
        y->n1 = rows_of(m, padded, w);
        y->rstd1 = rows_of(m, m->rows, 1);
        y->a = rows_of(m, m->rows, wide);
        y->o = rows_of(m, m->rows, w);
        y->lse = rows_of(m, m->rows, c->heads);
        y->x2 = rows_of(m, padded, w);
        y->n2 = rows_of(m, padded, w);
        y->rstd2 = rows_of(m, m->rows, 1);
        y->u = rows_of(m, m->rows, c->hidden);
        y->r = rows_of(m, m->rows, c->hidden);
    }
    m->x = rows_of(m, padded, w);
    m->n = rows_of(m, padded, w);
    m->rstd = rows_of(m, m->rows, 1);
    m->logits = rows_of(m, m->rows, CHARLM_BYTES);
    m->d_x = rows_of(m, padded, w);
    m->d_n = rows_of(m, padded, w);
    m->d_add = rows_of(m, padded, w);
    m->d_a = rows_of(m, m->rows, wide);
    m->d_o = rows_of(m, m->rows, w);
    m->d_u = rows_of(m, m->rows, c->hidden);
}

charlm_model *charlm_model_open(const charlm_config *config, int64_t batch, bstk_dtype dtype, int32_t threads,
                                uint64_t seed) {
    const char *wrong = charlm_config_wrong(config);
    if (wrong)
        charlm_die("%s", wrong);
    charlm_model *m = charlm_alloc(1, sizeof *m);
    m->config = *config;
    m->batch = batch;
    m->rows = batch * config->context;
    charlm_env_open(&m->env, dtype, threads);
    add_params(m);
    open_buffers(m);
    draw_params(m, seed);
    const int64_t w = config->width;
    charlm_linear_open(&m->env, &m->qkv, m->rows, w, w + 2 * kv_width(config), true);
    charlm_linear_open(&m->env, &m->proj, m->rows, w, w, true);
    charlm_linear_open(&m->env, &m->up, m->rows, w, config->hidden, true);
    charlm_linear_open(&m->env, &m->down, m->rows, config->hidden, w, true);
    charlm_linear_open(&m->env, &m->out, m->rows, w, CHARLM_BYTES, true);
    charlm_norm_open(&m->env, &m->rms, m->rows, w, true);
    open_attention(m);
    return m;
}

void charlm_model_close(charlm_model *m) {
    if (!m)
        return;
    for (int64_t l = 0; l < m->config.layers; l++) {
        charlm_layer *y = &m->layer[l];
        void *of_layer[] = {y->x, y->n1, y->rstd1, y->a, y->o, y->lse, y->x2, y->n2, y->rstd2, y->u, y->r};
        for (size_t i = 0; i < sizeof of_layer / sizeof *of_layer; i++)
            free(of_layer[i]);
    }
    void *others[] = {m->values, m->grads, m->x,   m->n,   m->rstd,     m->logits,   m->d_x,     m->d_n,
                      m->d_add,  m->d_a,   m->d_o, m->d_u, m->d_q.data, m->d_k.data, m->d_v.data};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        free(others[i]);
    charlm_linear *linear[] = {&m->qkv, &m->proj, &m->up, &m->down, &m->out};
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
        charlm_linear_close(linear[i]);
    charlm_norm_close(&m->rms);
    bstk_plan_release(m->attend);
    bstk_plan_release(m->attend_grad);
    bstk_layout_release(m->layout);
    charlm_env_close(&m->env);
    free(m);
}

/* ---- forward and backward ---------------------------------------------------------------------------------------- */

/* The views q, k and v of the product of a layer. */
typedef struct qkv_views {
    bstk_tensor q, k, v;
} qkv_views;

static qkv_views split(const charlm_model *m, void *product) {
    qkv_views s = {m->q, m->k, m->v};
    s.q.data = product;
    s.k.data = charlm_at(m, product, m->config.width);
    s.v.data = charlm_at(m, product, m->config.width + kv_width(&m->config));
    return s;
}

/* The other way: rows of q, k and v into the rows of a product. */
static void join(const charlm_model *m, const bstk_tensor *q, const bstk_tensor *k, const bstk_tensor *v,
                 void *product) {
    const int64_t w = m->config.width, kv = kv_width(&m->config);
    for (int64_t i = 0; i < m->rows; i++) {
        void *row = charlm_at(m, product, i * (w + 2 * kv));
        memcpy(row, charlm_at(m, q->data, i * w), (size_t)w * m->env.size);
        memcpy(charlm_at(m, row, w), charlm_at(m, k->data, i * kv), (size_t)kv * m->env.size);
        memcpy(charlm_at(m, row, w + kv), charlm_at(m, v->data, i * kv), (size_t)kv * m->env.size);
    }
}

static void attend(charlm_model *m, charlm_layer *y) {
    const qkv_views s = split(m, y->a);
    bstk_tensor o = m->o, lse = m->lse;
    o.data = y->o;
    lse.data = y->lse;
    bstk_score_terms terms = BSTK_SCORE_TERMS_INIT;
    attention_terms(m, &terms);
    const bstk_exec exec = charlm_env_exec(&m->env, m->attend);
    charlm_must(bstk_attention_run(m->attend, &s.q, &s.k, &s.v, &terms, &o, &lse, &exec));
}

/* From d_o to d_a, the gradient of q, k and v side by side. */
static void attend_grad(charlm_model *m, charlm_layer *y) {
    const qkv_views s = split(m, y->a);
    bstk_tensor o = m->o, lse = m->lse, d_o = m->o;
    o.data = y->o;
    lse.data = y->lse;
    d_o.data = m->d_o;
    bstk_attention_grad_desc desc = BSTK_ATTENTION_GRAD_DESC_INIT;
    desc.layout = m->layout;
    desc.q = &s.q;
    desc.k = &s.k;
    desc.v = &s.v;
    desc.o = &o;
    desc.lse = &lse;
    desc.d_o = &d_o;
    desc.d_q = &m->d_q;
    desc.d_k = &m->d_k;
    desc.d_v = &m->d_v;
    attention_terms(m, &desc.terms);
    const bstk_exec exec = charlm_env_exec(&m->env, m->attend_grad);
    charlm_must(bstk_attention_grad_run(m->attend_grad, &desc, &exec));
    join(m, &m->d_q, &m->d_k, &m->d_v, m->d_a);
}

static void forward(charlm_model *m, const uint8_t *tokens) {
    charlm_env *e = &m->env;
    const charlm_config *c = &m->config;
    const size_t stream = (size_t)(m->rows * c->width) * e->size;
    e->rows->embed(m->layer[0].x, charlm_at(m, m->values, m->embed), tokens, m->rows, c->width);
    for (int64_t l = 0; l < c->layers; l++) {
        charlm_layer *y = &m->layer[l];
        void *next = l + 1 < c->layers ? m->layer[l + 1].x : m->x;
        charlm_norm_run(e, &m->rms, y->x, charlm_at(m, m->values, y->norm1), y->n1, y->rstd1);
        charlm_linear_run(e, &m->qkv, y->n1, charlm_at(m, m->values, y->qkv), 0, y->a);
        attend(m, y);
        memcpy(y->x2, y->x, stream); /* the residual sum is the product's beta = 1 */
        charlm_linear_run(e, &m->proj, y->o, charlm_at(m, m->values, y->proj), 1, y->x2);
        charlm_norm_run(e, &m->rms, y->x2, charlm_at(m, m->values, y->norm2), y->n2, y->rstd2);
        charlm_linear_run(e, &m->up, y->n2, charlm_at(m, m->values, y->up), 0, y->u);
        e->rows->relu2(y->r, y->u, m->rows * c->hidden);
        memcpy(next, y->x2, stream);
        charlm_linear_run(e, &m->down, y->r, charlm_at(m, m->values, y->down), 1, next);
    }
    charlm_norm_run(e, &m->rms, m->x, charlm_at(m, m->values, m->norm), m->n, m->rstd);
    charlm_linear_run(e, &m->out, m->n, charlm_at(m, m->values, m->head), 0, m->logits);
}

/* On entry logits hold their gradient; d_x is that of the residual stream, to which each branch adds its own. */
static void backward(charlm_model *m, const uint8_t *tokens) {
    charlm_env *e = &m->env;
    const charlm_config *c = &m->config;
    const int64_t stream = m->rows * c->width;
    void *w = m->values, *g = m->grads;
    charlm_linear_grad(e, &m->out, m->n, charlm_at(m, w, m->head), m->logits, m->d_n, charlm_at(m, g, m->head));
    charlm_norm_grad(e, &m->rms, m->x, charlm_at(m, w, m->norm), m->rstd, m->d_n, m->d_x, charlm_at(m, g, m->norm));
    for (int64_t l = c->layers - 1; l >= 0; l--) {
        charlm_layer *y = &m->layer[l];
        charlm_linear_grad(e, &m->down, y->r, charlm_at(m, w, y->down), m->d_x, m->d_u, charlm_at(m, g, y->down));
        e->rows->relu2_grad(m->d_u, y->u, m->rows * c->hidden);
        charlm_linear_grad(e, &m->up, y->n2, charlm_at(m, w, y->up), m->d_u, m->d_n, charlm_at(m, g, y->up));
        charlm_norm_grad(e, &m->rms, y->x2, charlm_at(m, w, y->norm2), y->rstd2, m->d_n, m->d_add,
                         charlm_at(m, g, y->norm2));
        e->rows->add(m->d_x, m->d_add, stream);
        charlm_linear_grad(e, &m->proj, y->o, charlm_at(m, w, y->proj), m->d_x, m->d_o, charlm_at(m, g, y->proj));
        attend_grad(m, y);
        charlm_linear_grad(e, &m->qkv, y->n1, charlm_at(m, w, y->qkv), m->d_a, m->d_n, charlm_at(m, g, y->qkv));
        charlm_norm_grad(e, &m->rms, y->x, charlm_at(m, w, y->norm1), y->rstd1, m->d_n, m->d_add,
                         charlm_at(m, g, y->norm1));
        e->rows->add(m->d_x, m->d_add, stream);
    }
    e->rows->embed_grad(charlm_at(m, g, m->embed), m->d_x, tokens, m->rows, c->width);
}

double charlm_model_loss(charlm_model *m, const uint8_t *tokens, const uint8_t *targets, bool grad) {
    forward(m, tokens);
    const double loss = m->env.rows->cross_entropy(m->logits, targets, m->rows, grad);
    if (grad)
        backward(m, tokens);
    return loss / (double)m->rows;
}

double charlm_model_valid(charlm_model *m, const charlm_text *text) {
    const size_t context = (size_t)m->config.context, rows = (size_t)m->rows;
    double sum = 0;
    size_t runs = 0;
    for (size_t at = 0; at + rows + 1 <= text->n_valid; at += rows, runs++) /* windows of a batch follow one another */
        sum += charlm_model_loss(m, text->valid + at, text->valid + at + 1, false);
    if (runs == 0)
        charlm_die("validation text has %zu bytes, expected at least %zu (batch %lld windows of %zu, and 1)",
                   text->n_valid, rows + 1, (long long)m->batch, context);
    return sum / (double)runs / log(2.0);
}

uint64_t charlm_model_hash(const charlm_model *m) {
    const unsigned char *bytes = m->values;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < (size_t)m->n_values * m->env.size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}
