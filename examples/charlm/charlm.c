/* charlm.c: the command line. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charlm.h"

static const char usage[] =
    "Usage: charlm [OPTION...]\n"
    "Trains a byte-level transformer with block-sparse attention on a text, evaluates it, and samples from it.\n"
    "\n"
    "  --steps N         training steps (default: 800; with --load: 0)\n"
    "  --text FILE       text to learn; several are read one after the other\n"
    "                    (default: examples/data/charlm_text.txt)\n"
    "  --load FILE       start from these parameters instead of random ones\n"
    "  --save FILE       write the parameters in the end\n"
    "  --sample N        in the end print N bytes of the model's own\n"
    "  --prompt TEXT     what the sample continues\n"
    "  --temperature T   0: always the likeliest byte (default: 0.8)\n"
    "  --attention KIND  sparse (local and global blocks) or dense (every block; both causal)\n"
    "  --context N       bytes that a window has (default: 1024)\n"
    "  --batch N         windows a step (default: 1)\n"
    "  --rate R          largest learning rate (default: 0.003)\n"
    "  --seed S          of the first parameters, the windows and the sample (default: 1)\n"
    "  --threads T       default: all cores; any number gives the same bits\n"
    "  --check-gradients hold a tiny model's gradients against finite differences\n"
    "  --help            this text\n"
    "\n"
    "Example: charlm --load examples/data/charlm.bin --sample 200\n";

enum { MAX_TEXTS = 1024 };

typedef struct options {
    const char *text[MAX_TEXTS];
    size_t n_texts;
    const char *load, *save, *prompt, *attention;
    int64_t steps, sample, context, batch, threads;
    double temperature, rate;
    uint64_t seed;
    bool check;
} options;

_Noreturn static void wrong_usage(const char *what, const char *value) {
    fprintf(stderr, "charlm: %s '%s' (--help tells more)\n", what, value);
    exit(2);
}

static int64_t whole(const char *name, const char *text, int64_t least, int64_t most) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        fprintf(stderr, "charlm: %s is '%s', expected %lld to %lld\n", name, text, (long long)least, (long long)most);
        exit(2);
    }
    return value;
}

static double real(const char *name, const char *text, double most) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= most)) {
        fprintf(stderr, "charlm: %s is '%s', expected 0 to %g\n", name, text, most);
        exit(2);
    }
    return value;
}

static options parse(int argc, char **argv) {
    options o = {.steps = -1, .prompt = "", .batch = 1, .temperature = 0.8, .rate = 0.003, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (strcmp(name, "--check-gradients") == 0) {
            o.check = true;
            continue;
        }
        if (strncmp(name, "--", 2) != 0)
            wrong_usage("not an option:", name);
        if (i + 1 >= argc)
            wrong_usage("unknown, or its value is missing:", name);
        const char *value = argv[++i];
        if (strcmp(name, "--text") == 0 && o.n_texts < MAX_TEXTS)
            o.text[o.n_texts++] = value;
        else if (strcmp(name, "--load") == 0)
            o.load = value;
        else if (strcmp(name, "--save") == 0)
            o.save = value;
        else if (strcmp(name, "--prompt") == 0)
            o.prompt = value;
        else if (strcmp(name, "--attention") == 0 && (strcmp(value, "sparse") == 0 || strcmp(value, "dense") == 0))
            o.attention = value;
        else if (strcmp(name, "--attention") == 0)
            wrong_usage("--attention must be sparse or dense, not", value);
        else if (strcmp(name, "--steps") == 0)
            o.steps = whole(name, value, 0, 100000000);
        else if (strcmp(name, "--sample") == 0)
            o.sample = whole(name, value, 0, 100000000);
        else if (strcmp(name, "--context") == 0)
            o.context = whole(name, value, 8, 65536);
        else if (strcmp(name, "--batch") == 0)
            o.batch = whole(name, value, 1, 1024);
        else if (strcmp(name, "--threads") == 0)
            o.threads = whole(name, value, 0, 4096);
        else if (strcmp(name, "--seed") == 0)
            o.seed = (uint64_t)whole(name, value, 0, INT64_MAX);
        else if (strcmp(name, "--temperature") == 0)
            o.temperature = real(name, value, 100);
        else if (strcmp(name, "--rate") == 0)
            o.rate = real(name, value, 1);
        else
            wrong_usage("unknown option", name);
    }
    if (o.steps < 0)
        o.steps = o.load ? 0 : 800;
    if (o.n_texts == 0)
        o.text[o.n_texts++] = "examples/data/charlm_text.txt";
    if (o.load && (o.attention || o.context))
        wrong_usage("the model's file decides; leave out", o.attention ? "--attention" : "--context");
    return o;
}

static charlm_model *make_model(const options *o) {
    if (o->load)
        return charlm_load(o->load, o->batch, (int32_t)o->threads);
    charlm_config config = charlm_config_default();
    config.dense = o->attention && strcmp(o->attention, "dense") == 0;
    if (o->context)
        config.context = o->context;
    return charlm_model_open(&config, o->batch, BSTK_F32, (int32_t)o->threads, o->seed);
}

static void describe(const charlm_model *m) {
    const charlm_config *c = &m->config;
    printf("model: %lld layers, %lld heads with %lld of keys and values, width %lld, %lld parameters, context %lld\n",
           (long long)c->layers, (long long)c->heads, (long long)c->kv_heads, (long long)c->width,
           (long long)m->n_values, (long long)c->context);
    printf("attention: %s, blocks of %lld, %lld of %lld blocks stored; kernels %s, %s; %d threads\n",
           c->dense ? "dense" : "local and global", (long long)c->block, (long long)bstk_layout_nnz(m->layout),
           (long long)(bstk_layout_rows(m->layout) * bstk_layout_cols(m->layout)), bstk_plan_kernel(m->attend),
           bstk_plan_kernel(m->attend_grad), (int)bstk_context_num_threads(m->env.ctx));
}

int main(int argc, char **argv) {
    const options o = parse(argc, argv);
    if (o.check)
        return charlm_check_gradients();
    charlm_model *m = make_model(&o);
    if (o.steps > 0 || o.sample == 0) {
        charlm_text text = charlm_text_load(o.text, o.n_texts);
        const charlm_bigram bigram = charlm_text_bigram(&text);
        describe(m);
        printf("text: %zu bytes to train on, %zu to validate; bigrams: %.3f bits/byte on the validation text (%.3f on "
               "their own)\n",
               text.n_train, text.n_valid, bigram.valid, bigram.train);
        fflush(stdout);
        const charlm_training how = {.steps = o.steps, .rate = o.rate, .seed = o.seed};
        if (o.steps > 0)
            charlm_train(m, &text, &how);
        const double bits = charlm_model_valid(m, &text);
        printf("validation: %.3f bits/byte, bigrams %.3f\n", bits, bigram.valid);
        printf("parameters: %016llx\n", (unsigned long long)charlm_model_hash(m));
        charlm_text_free(&text);
    }
    if (o.save)
        charlm_save(m, o.save);
    if (o.sample > 0)
        charlm_sample(m, o.prompt, o.sample, o.temperature, o.seed);
    charlm_model_close(m);
    return 0;
}
