/*
 * charlm.h: a byte-level causal transformer, trained and sampled with bstk's C API alone.
 *
 *     x = embed[byte];  per layer: x += proj(attention(qkv(norm(x))));  x += down(relu(up(norm(x)))^2)
 *     logits = head(norm(x));  loss = mean cross-entropy of the next byte
 * Norms are RMS norms; positions enter by ALiBi slopes alone, so there is no table of them. Activations are row-major
 * [rows, width] with rows = batch * context. What bstk computes: the linear layers (dds with the weights as the packed
 * operand of a dense layout), the norms, attention and the gradients of all of them. What rows.inc computes: embedding,
 * squared ReLU, cross-entropy.
 */
#ifndef CHARLM_H
#define CHARLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bstk/bstk.h>

#define CHARLM_BYTES      256 /* the vocabulary */
#define CHARLM_MAX_LAYERS 16

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/** Prints "charlm: " and the message as one line, and ends the program with 1. */
_Noreturn void charlm_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Ends the program with bstk's message unless the call succeeded. */
void charlm_must(bstk_status status);
/** Zeroed memory for n elements of `size` bytes; never NULL. */
void *charlm_alloc(size_t n, size_t size);

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/** Next 64 bits of splitmix64 (Steele, Lea and Flood, 2014); uniform number in [0, 1). */
uint64_t charlm_random(uint64_t *state);
double charlm_uniform(uint64_t *state);

/* ---- text -------------------------------------------------------------------------------------------------------- */

typedef struct charlm_text {
    uint8_t *train, *valid;
    size_t n_train, n_valid;
} charlm_text;

/** The files one after the other, in pieces of 4096 bytes: every tenth piece is for validation, the others train. */
charlm_text charlm_text_load(const char *const *paths, size_t n_paths);
void charlm_text_free(charlm_text *text);
/** `batch` windows of context + 1 bytes from random places: tokens and, one further, targets. */
void charlm_text_batch(const charlm_text *text, int64_t batch, int64_t context, uint64_t *random, uint8_t *tokens,
                       uint8_t *targets);

typedef struct charlm_bigram {
    double valid; /* bits per byte of the validation text under the training text's bigram counts */
    double train; /* H(next byte | byte) of the training text itself, which no smoothing burdens */
} charlm_bigram;
charlm_bigram charlm_text_bigram(const charlm_text *text);

/* ---- element code of both types (rows.c) ------------------------------------------------------------------------- */

typedef struct charlm_rows {
    void (*embed)(void *x, const void *table, const uint8_t *tokens, int64_t rows, int64_t width);
    void (*embed_grad)(void *d_table, const void *d_x, const uint8_t *tokens, int64_t rows, int64_t width);
    void (*relu2)(void *y, const void *x, int64_t n);
    void (*relu2_grad)(void *d, const void *x, int64_t n); /* d: of y on entry, of x on return */
    void (*add)(void *x, const void *y, int64_t n);
    /* Sum of the rows' losses in nats; with `grad`, logits become their gradient of the mean loss. */
    double (*cross_entropy)(void *logits, const uint8_t *targets, int64_t rows, bool grad);
    void (*set)(void *x, int64_t i, double value);
    double (*get)(const void *x, int64_t i);
} charlm_rows;

extern const charlm_rows charlm_rows_f32, charlm_rows_f64;

/* ---- layers on bstk (layers.c) ----------------------------------------------------------------------------------- */

typedef struct charlm_env {
    bstk_context *ctx;
    bstk_dtype dtype; /* f32; f64 for the check of the gradients */
    size_t size;      /* of an element */
    const charlm_rows *rows;
    void *scratch; /* shared by all plans: one runs at a time */
    size_t scratch_bytes;
} charlm_env;

void charlm_env_open(charlm_env *env, bstk_dtype dtype, int32_t threads);
void charlm_env_close(charlm_env *env);
/** Makes the scratch large enough for a plan; returns how to run. */
bstk_exec charlm_env_exec(charlm_env *env, const bstk_plan *plan);

/* y [rows, out] = x [rows, in] . w; w is the packed operand of a dense layout, so it and its gradient lie in blocks. */
typedef struct charlm_linear {
    bstk_tensor x, w, y;
    bstk_layout *layout;
    bstk_plan *plan, *grad; /* grad: NULL in a model that only runs forward */
} charlm_linear;

void charlm_linear_open(charlm_env *env, charlm_linear *l, int64_t rows, int64_t in, int64_t out, bool train);
void charlm_linear_close(charlm_linear *l);
/** y = x . w + beta * y */
void charlm_linear_run(charlm_env *env, const charlm_linear *l, const void *x, const void *w, double beta, void *y);
void charlm_linear_grad(charlm_env *env, const charlm_linear *l, const void *x, const void *w, const void *d_y,
                        void *d_x, void *d_w);

/* RMS norm of rows of `width`. One block of the layout is width x width: packed blocks are then the rows themselves. */
typedef struct charlm_norm {
    bstk_tensor x, weight, rstd;
    bstk_layout *layout;
    bstk_plan *plan, *grad;
} charlm_norm;

/** Rows that a buffer of x or y must have: whole blocks. */
int64_t charlm_norm_rows(int64_t rows, int64_t width);
void charlm_norm_open(charlm_env *env, charlm_norm *n, int64_t rows, int64_t width, bool train);
void charlm_norm_close(charlm_norm *n);
void charlm_norm_run(charlm_env *env, const charlm_norm *n, const void *x, const void *weight, void *y, void *rstd);
void charlm_norm_grad(charlm_env *env, const charlm_norm *n, const void *x, const void *weight, const void *rstd,
                      const void *d_y, void *d_x, void *d_weight);

/* ---- model ------------------------------------------------------------------------------------------------------- */

typedef struct charlm_config {
    int64_t layers, heads, kv_heads, width, hidden, context;
    int64_t block;          /* edge of attention's blocks */
    int64_t window, global; /* blocks of the local window (its causal half counts) and of the global start */
    int64_t dense;          /* 1: every causal block */
} charlm_config;

charlm_config charlm_config_default(void);
/** NULL, or what is wrong with it. */
const char *charlm_config_wrong(const charlm_config *c);

/* A parameter in the flat arrays of values and gradients. */
typedef struct charlm_param {
    char name[24];
    int64_t offset, size;
    double range; /* values start uniform in [-range, range]; 0: at 1 (norms) */
} charlm_param;

typedef struct charlm_layer {
    int64_t norm1, qkv, proj, norm2, up, down; /* offsets of the parameters */
    /* Kept for the gradient. x: the residual stream; n: normed; a: the product qkv, and so on. */
    void *x, *n1, *rstd1, *a, *o, *lse, *x2, *n2, *rstd2, *u, *r;
} charlm_layer;

typedef struct charlm_model {
    charlm_config config;
    charlm_env env;
    int64_t batch, rows; /* rows = batch * context */
    charlm_param param[3 + 6 * CHARLM_MAX_LAYERS];
    int64_t n_params, n_values;
    int64_t embed, norm, head; /* offsets */
    void *values, *grads;
    charlm_linear qkv, proj, up, down, out;
    charlm_norm rms;
    bstk_layout *layout; /* of attention */
    bstk_plan *attend, *attend_grad;
    bstk_tensor q, k, v, o, lse, slopes, d_q, d_k, d_v; /* data: of d_q, d_k and d_v and of the slopes */
    double slope[64];
    charlm_layer layer[CHARLM_MAX_LAYERS];
    void *x, *n, *rstd, *logits;               /* after the last layer */
    void *d_x, *d_n, *d_add, *d_a, *d_o, *d_u; /* gradients on their way down */
} charlm_model;

/** Offset of the parameters' element i, as an address. */
void *charlm_at(const charlm_model *m, void *base, int64_t i);
/** A model for `batch` windows at a time, its parameters drawn from `seed`. */
charlm_model *charlm_model_open(const charlm_config *config, int64_t batch, bstk_dtype dtype, int32_t threads,
                                uint64_t seed);
void charlm_model_close(charlm_model *m);
/** Mean loss in nats of batch windows; with `grad` also m->grads. */
double charlm_model_loss(charlm_model *m, const uint8_t *tokens, const uint8_t *targets, bool grad);
/** Bits per byte over the whole validation text, in windows of the context. */
double charlm_model_valid(charlm_model *m, const charlm_text *text);
/** FNV-1a hash of all parameters: two runs are the same when it is. */
uint64_t charlm_model_hash(const charlm_model *m);

/* ---- training, files, samples, check ----------------------------------------------------------------------------- */

typedef struct charlm_training {
    int64_t steps;
    double rate;   /* largest learning rate */
    uint64_t seed; /* of the windows */
} charlm_training;

/** AdamW (Loshchilov and Hutter, 2019) with warm-up and cosine decay; prints progress. */
void charlm_train(charlm_model *m, const charlm_text *text, const charlm_training *how);

/** Parameters as float16 behind a header of 64 bytes; written beside `path` and renamed. */
void charlm_save(const charlm_model *m, const char *path);
charlm_model *charlm_load(const char *path, int64_t batch, int32_t threads);

/** Prints the prompt and `count` bytes that the model continues it with; temperature 0 takes the likeliest. */
void charlm_sample(charlm_model *m, const char *prompt, int64_t count, double temperature, uint64_t seed);

/* One byte after another, with the keys and values of the earlier ones kept. */
typedef struct charlm_decoder charlm_decoder;
charlm_decoder *charlm_decoder_open(charlm_model *m);
void charlm_decoder_close(charlm_decoder *d);
/** Takes the next byte; returns the logits of the one after it, of the model's type. */
void *charlm_decoder_step(charlm_decoder *d, uint8_t byte);

/** Checks the gradient of a tiny model by finite differences; returns the process's exit status. */
int charlm_check_gradients(void);

#endif
