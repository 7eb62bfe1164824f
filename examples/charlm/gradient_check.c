/*
 * gradient_check.c: holds the gradient of a tiny model against central differences in float64, the gradient in float32
 * against that in float64, and the decoder's logits against those of the whole window.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "charlm.h"

enum { BATCH = 2, CONTEXT = 40, PROBES = 16 };
/*
 * Central differences with step h err by h^2/6 times the third derivative plus 2^-53 * loss / h: with h = 1e-4 some
 * 1e-9 and 1e-11 for derivatives of order 1. Float32 has 2^-24 and sums of some hundred terms.
 */
static const double step = 1e-4, tolerance = 1e-7, tolerance_f32 = 1e-5, tolerance_decoder = 1e-12;

static double decoder_error(charlm_model *m, const uint8_t *tokens, const uint8_t *targets) {
    charlm_decoder *d = charlm_decoder_open(m);
    double worst = 0;
    charlm_model_loss(m, tokens, targets, false);
    for (int64_t i = 0; i < CONTEXT; i++) {
        const double *logits = charlm_decoder_step(d, tokens[i]);
        for (int64_t j = 0; j < CHARLM_BYTES; j++)
            worst = fmax(worst, fabs(logits[j] - ((const double *)m->logits)[i * CHARLM_BYTES + j]));
    }
    charlm_decoder_close(d);
    return worst;
}

int charlm_check_gradients(void) {
    /* A last block that is not full, grouped heads, and blocks that the layout leaves out. */
    const charlm_config config = {.layers = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .width = 32,
                                  .hidden = 48,
                                  .context = CONTEXT,
                                  .block = 8,
                                  .window = 3,
                                  .global = 1};
    charlm_model *m = charlm_model_open(&config, BATCH, BSTK_F64, 0, 1);
    charlm_model *m32 = charlm_model_open(&config, BATCH, BSTK_F32, 0, 1);
    uint8_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    uint64_t random = 7;
    for (int i = 0; i < BATCH * CONTEXT; i++) {
        tokens[i] = (uint8_t)(charlm_random(&random) % 16); /* few bytes: each occurs several times */
        targets[i] = (uint8_t)(charlm_random(&random) % 16);
    }
    charlm_model_loss(m, tokens, targets, true);
    charlm_model_loss(m32, tokens, targets, true);
    double *value = m->values, worst = 0, worst_f32 = 0;
    const double *grad = m->grads;
    const float *grad32 = m32->grads;
    for (int64_t p = 0; p < m->n_params; p++) {
        const charlm_param *param = &m->param[p];
        double size = 0, error = 0, error32 = 0;
        for (int64_t i = param->offset; i < param->offset + param->size; i++) {
            size = fmax(size, fabs(grad[i]));
            /* Not fmax: GCC 12.2 for AArch64 breaks down where it makes vectors of a maximum of converted floats. */
            const double off = fabs((double)grad32[i] - grad[i]);
            error32 = off > error32 ? off : error32;
        }
        for (int probe = 0; probe < PROBES; probe++) {
            /* Of the table of bytes only the rows of bytes that occur have a gradient. */
            const int64_t room = p == 0 ? 16 * config.width : param->size;
            const int64_t i = param->offset + (int64_t)(charlm_random(&random) % (uint64_t)room);
            const double kept = value[i];
            value[i] = kept + step;
            const double above = charlm_model_loss(m, tokens, targets, false);
            value[i] = kept - step;
            const double below = charlm_model_loss(m, tokens, targets, false);
            value[i] = kept;
            error = fmax(error, fabs((above - below) / (2 * step) - grad[i]));
        }
        printf("%-14s largest gradient %.2e  off differences by %.1e  float32 off by %.1e of it\n", param->name, size,
               error / size, error32 / size);
        worst = !(error / size <= worst) ? error / size : worst; /* a NaN stays */
        worst_f32 = !(error32 / size <= worst_f32) ? error32 / size : worst_f32;
    }
    const double decoder = decoder_error(m, tokens, targets);
    const bool right = worst <= tolerance && worst_f32 <= tolerance_f32 && decoder <= tolerance_decoder;
    printf("differences %.1e (at most %.0e), float32 %.1e (%.0e), decoder %.1e (%.0e): %s\n", worst, tolerance,
           worst_f32, tolerance_f32, decoder, tolerance_decoder, right ? "right" : "WRONG");
    charlm_model_close(m);
    charlm_model_close(m32);
    return right ? 0 : 1;
}
