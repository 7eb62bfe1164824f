/* train.c: AdamW, its schedule, and the loop with its progress. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "charlm.h"

/* beta2 below the usual 0.999: a run of some thousand steps forgets its first gradients in time. */
static const double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-8, decay = 0.1, largest_norm = 1.0;

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

/* Of all threads: what a busy machine stretches less than the time that passes. */
static double processors(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

/* Rises over the first steps, then half a cosine down to a twentieth. */
static double rate_at(const charlm_training *how, int64_t step) {
    const int64_t warm = how->steps / 20 < 100 ? how->steps / 20 + 1 : 100;
    if (step < warm)
        return how->rate * (double)(step + 1) / (double)warm;
    const double part = (double)(step - warm) / (double)(how->steps - warm);
    return how->rate * (0.05 + 0.95 * 0.5 * (1 + cos(3.14159265358979 * part)));
}

/* One step of AdamW on float32, with the gradient cut to a norm of 1 first. Sums run in one order: same bits always. */
static void adamw(charlm_model *m, float *mean, float *square, double rate, int64_t step) {
    float *value = m->values;
    const float *grad = m->grads;
    double norm = 0;
    for (int64_t i = 0; i < m->n_values; i++)
        norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm);
    const float cut = (float)(norm > largest_norm ? largest_norm / norm : 1);
    const float b1 = (float)beta1, b2 = (float)beta2, eps = (float)epsilon;
    const float scale1 = (float)(1 / (1 - pow(beta1, (double)(step + 1))));
    const float scale2 = (float)(1 / (1 - pow(beta2, (double)(step + 1))));
    for (int64_t p = 0; p < m->n_params; p++) {
        const charlm_param *param = &m->param[p];
        const float keep = (float)(param->range > 0 ? 1 - rate * decay : 1); /* norms do not decay */
        for (int64_t i = param->offset; i < param->offset + param->size; i++) {
            const float g = grad[i] * cut;
            mean[i] = b1 * mean[i] + (1 - b1) * g;
            square[i] = b2 * square[i] + (1 - b2) * g * g;
            value[i] = value[i] * keep - (float)rate * (mean[i] * scale1) / (sqrtf(square[i] * scale2) + eps);
        }
    }
}

static void print_left(FILE *to, double seconds) {
    fprintf(to, "%d:%02d", (int)(seconds / 60), (int)seconds % 60);
}

void charlm_train(charlm_model *m, const charlm_text *text, const charlm_training *how) {
    float *mean = charlm_alloc((size_t)m->n_values, sizeof *mean);
    float *square = charlm_alloc((size_t)m->n_values, sizeof *square);
    uint8_t *tokens = charlm_alloc((size_t)m->rows, 1), *targets = charlm_alloc((size_t)m->rows, 1);
    uint64_t random = how->seed ^ 0x5bf03635d1e8a7c1u;
    const bool terminal = isatty(STDERR_FILENO);
    const int64_t every = how->steps < 50 ? 1 : how->steps / 50, check = how->steps < 250 ? how->steps : how->steps / 5;
    const double begin = now(), begin_cpu = processors();
    double paused = 0, paused_cpu = 0, sum = 0;
    int64_t summed = 0;
    for (int64_t step = 0; step < how->steps; step++) {
        charlm_text_batch(text, m->batch, m->config.context, &random, tokens, targets);
        sum += charlm_model_loss(m, tokens, targets, true);
        summed++;
        if (!isfinite(sum))
            charlm_die("the loss is not finite at step %lld", (long long)step + 1);
        adamw(m, mean, square, rate_at(how, step), step);

        const int64_t done = step + 1;
        const double spent = now() - begin - paused, left = spent / (double)done * (double)(how->steps - done);
        if (terminal) {
            fprintf(stderr, "\r\033[Kstep %lld of %lld, ", (long long)done, (long long)how->steps);
            print_left(stderr, left);
            fprintf(stderr, " left");
        }
        if (done % every != 0 && done != how->steps)
            continue;
        if (terminal)
            fprintf(stderr, "\r\033[K");
        const double loss = sum / (double)summed;
        printf("step %5lld  loss %.4f  %.3f bits/byte  %6.0f tokens/s  left ", (long long)done, loss, loss / log(2.0),
               (double)(done * m->rows) / spent);
        print_left(stdout, left);
        sum = 0;
        summed = 0;
        if (done % check == 0 && done != how->steps && text->n_valid > (size_t)m->rows) {
            const double start = now(), start_cpu = processors();
            printf("  validation %.3f", charlm_model_valid(m, text));
            paused += now() - start;
            paused_cpu += processors() - start_cpu;
        }
        printf("\n");
        fflush(stdout);
    }
    printf("trained %lld steps of %lld bytes in %.1f s (%.1f s of processors), validation apart\n",
           (long long)how->steps, (long long)m->rows, now() - begin - paused, processors() - begin_cpu - paused_cpu);
    free(mean);
    free(square);
    free(tokens);
    free(targets);
}
