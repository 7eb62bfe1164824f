/* terms.c: the terms of a score: options, files and shapes that softmax and attention share. */
#include "terms.h"

#include <string.h>

enum {
    KEY_FILE = KEY_TERMS, /* + term_file */
    KEY_DOCUMENTS = KEY_FILE + TERM_FILES,
    KEY_CU_SEQLENS,
    KEY_SCALE,
    KEY_SOFTCAP,
    KEY_CAUSAL,
    KEY_CAUSAL_OFFSET,
    KEY_BOTTOM_RIGHT,
    KEY_WINDOW,
    KEY_PADDING_MODE,
    KEY_MASK_MODE,
    KEY_DROPOUT,
    KEY_SEED,
    KEY_OFFSET
};

static const struct argp_option options[] = {
    {0, 0, 0, 0, "Terms of a score:", 3},
    {"scale", KEY_SCALE, "S", 0, "Factor of the scores (default: 1; attention: 1/sqrt(D))", 3},
    {"softcap", KEY_SOFTCAP, "C", 0, "Scores become C * tanh(score / C); 0: they do not (default: 0)", 3},
    {"rpe", KEY_FILE + TERM_RPE, "FILE", 0, "Addend [M,N], [H,M,N] or [Z,H,M,N]", 3},
    {"rel", KEY_FILE + TERM_REL, "FILE", 0, "Relative logits [Z,H,M,E], [H,M,E] or [M,E]: (i,j) adds column E-1-(i-j)",
     3},
    {"alibi", KEY_FILE + TERM_ALIBI, "FILE", 0, "Slopes [H] or [Z,H]: subtracts slope * |diagonal - j|", 3},
    {"sinks", KEY_FILE + TERM_SINKS, "FILE", 0, "Logits [H] that join the sum of their head's rows only", 3},
    {0, 0, 0, 0, "Places that are kept; the diagonal of row i is column i:", 4},
    {"causal", KEY_CAUSAL, 0, 0, "Keep only columns up to the diagonal", 4},
    {"window", KEY_WINDOW, "L,R", 0, "Keep only columns from L before the diagonal to R after it; -1: no limit", 4},
    {"bottom-right", KEY_BOTTOM_RIGHT, 0, 0,
     "The diagonal of --causal, --window and --alibi is i + N - M: it ends in the last column", 4},
    {"causal-offset", KEY_CAUSAL_OFFSET, "N", 0,
     "The diagonal of --causal, --window and --alibi is N more (default: 0)", 4},
    {"key-padding", KEY_FILE + TERM_KEY_PADDING, "FILE", 0, "Mask of columns [Z,N] or [N]", 4},
    {"key-padding-mode", KEY_PADDING_MODE, "MODE", 0, "add or mul, as --mask-mode", 4},
    {"mask", KEY_FILE + TERM_MASK, "FILE", 0, "Mask [M,N], [Z,M,N] or [Z,H,M,N]", 4},
    {"mask-mode", KEY_MASK_MODE, "MODE", 0,
     "add: floating values are added, bool and u8 keep where nonzero; mul: 0 drops, anything else keeps (default: add)",
     4},
    {"documents", KEY_DOCUMENTS, "FILE", 0,
     "Numbers of documents [N] or [Z,N], int32 or int64, of rows and columns: "
     "keep only columns of the row's document",
     4},
    {"q-documents", KEY_FILE + TERM_Q_DOCUMENTS, "FILE", 0, "The rows' [M] or [Z,M], with --k-documents", 4},
    {"k-documents", KEY_FILE + TERM_K_DOCUMENTS, "FILE", 0, "The columns' [N] or [Z,N], with --q-documents", 4},
    {"cu-seqlens", KEY_CU_SEQLENS, "FILE", 0,
     "Sequences laid end to end: where they begin, and the end, "
     "[S+1], int32 or int64, for rows and columns: keep only columns of the row's sequence, and count from its start",
     4},
    {"cu-seqlens-q", KEY_FILE + TERM_CU_SEQLENS_Q, "FILE", 0, "The rows', with --cu-seqlens-k", 4},
    {"cu-seqlens-k", KEY_FILE + TERM_CU_SEQLENS_K, "FILE", 0, "The columns', with --cu-seqlens-q", 4},
    {0, 0, 0, 0, "Dropout:", 5},
    {"dropout", KEY_DROPOUT, "P", 0, "Probability, 0 to 1, that a weight becomes 0; the others grow by 1/(1-P)", 5},
    {"seed", KEY_SEED, "S", 0, "Of the dropout; same seed and offset, same places, everywhere (default: 0)", 5},
    {"offset", KEY_OFFSET, "O", 0, "Of the dropout, such as the number of the step (default: 0)", 5},
    {0}};

/* Name of the option, and of the operand in the library's messages. */
static const struct {
    const char *option, *operand;
} files[TERM_FILES] = {{"--rpe", "rpe"},
                       {"--rel", "rel_logits"},
                       {"--key-padding", "key_padding_mask"},
                       {"--mask", "attn_mask"},
                       {"--alibi", "alibi_slopes"},
                       {"--sinks", "sinks"},
                       {"--q-documents", "q_documents"},
                       {"--k-documents", "k_documents"},
                       {"--cu-seqlens-q", "cu_seqlens_q"},
                       {"--cu-seqlens-k", "cu_seqlens_k"}};

static bstk_mask_mode parse_mode(const common_opts *common, const char *option, const char *text) {
    if (strcmp(text, "add") == 0)
        return BSTK_MASK_ADD;
    if (strcmp(text, "mul") == 0)
        return BSTK_MASK_MUL;
    usage_error("%s: %s is '%s', expected add or mul", common->command, option, text);
}

/* One of a pair is given without the other. */
static void expect_pair(const common_opts *common, const terms_opts *o, term_file first, const char *both) {
    if (!o->files[first] == !o->files[first + 1])
        return;
    int given = o->files[first] ? 0 : 1;
    usage_error("%s: %s needs %s, or give %s for both", common->command, files[(int)first + given].option,
                files[(int)first + !given].option, both);
}

static void check_terms(const common_opts *common, const terms_opts *o) {
    if (!o->causal && !o->windowed && !o->files[TERM_ALIBI] && (o->bottom_right || o->offset_given))
        usage_error("%s: %s needs --causal, --window or --alibi, whose diagonal it moves", common->command,
                    o->bottom_right ? "--bottom-right" : "--causal-offset");
    if (o->key_padding_mode && !o->files[TERM_KEY_PADDING])
        usage_error("%s: --key-padding-mode needs --key-padding", common->command);
    if (o->mask_mode && !o->files[TERM_MASK])
        usage_error("%s: --mask-mode needs --mask", common->command);
    expect_pair(common, o, TERM_Q_DOCUMENTS, "--documents");
    expect_pair(common, o, TERM_CU_SEQLENS_Q, "--cu-seqlens");
    if (o->seed_given && !o->dropout_given)
        usage_error("%s: --seed and --offset need --dropout", common->command);
}

static error_t parse_terms(int key, char *arg, struct argp_state *state) {
    terms_input *input = state->input;
    const common_opts *common = input->common;
    terms_opts *o = input->terms;
    if (key >= KEY_FILE && key < KEY_FILE + TERM_FILES) {
        o->files[key - KEY_FILE] = arg;
        return 0;
    }
    switch (key) {
    case KEY_DOCUMENTS:
        o->files[TERM_Q_DOCUMENTS] = o->files[TERM_K_DOCUMENTS] = arg;
        return 0;
    case KEY_CU_SEQLENS:
        o->files[TERM_CU_SEQLENS_Q] = o->files[TERM_CU_SEQLENS_K] = arg;
        return 0;
    case KEY_SCALE:
        o->scale = option_double(common, "--scale", arg);
        o->scale_given = true;
        return 0;
    case KEY_SOFTCAP:
        o->softcap = option_range(common, "--softcap", arg, 0, 1e30);
        return 0;
    case KEY_CAUSAL:
        o->causal = true;
        return 0;
    case KEY_CAUSAL_OFFSET:
        o->causal_offset = option_int(common, "--causal-offset", arg, -INT64_MAX, INT64_MAX);
        o->offset_given = true;
        return 0;
    case KEY_BOTTOM_RIGHT:
        o->bottom_right = true;
        return 0;
    case KEY_WINDOW:
        option_pair(common, "--window", arg, -1, "L,R in tokens, -1 for no limit", o->window);
        o->windowed = true;
        return 0;
    case KEY_PADDING_MODE:
        o->key_padding_mode = parse_mode(common, "--key-padding-mode", arg);
        return 0;
    case KEY_MASK_MODE:
        o->mask_mode = parse_mode(common, "--mask-mode", arg);
        return 0;
    case KEY_DROPOUT:
        o->dropout = option_range(common, "--dropout", arg, 0, 1);
        o->dropout_given = true;
        return 0;
    case KEY_SEED:
        o->seed = option_seed(common, "--seed", arg);
        o->seed_given = true;
        return 0;
    case KEY_OFFSET:
        o->offset = option_seed(common, "--offset", arg);
        o->seed_given = true;
        return 0;
    case ARGP_KEY_END:
        check_terms(common, o);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp terms_argp = {options, parse_terms, 0, 0, 0, 0, 0};

/* A file that serves rows and columns is read once. */
static const bstk_tensor *load(const common_opts *common, const terms_opts *o, terms_arrays *arrays, term_file term) {
    if (!o->files[term])
        return NULL;
    if (term > 0 && o->files[term] == o->files[term - 1]) {
        remember_operand(files[term].operand, o->files[term]);
        return &arrays->files[term - 1].t;
    }
    load_term(common, files[term].operand, o->files[term], &arrays->files[term]);
    return &arrays->files[term].t;
}

void load_terms(const common_opts *common, const terms_opts *o, terms_arrays *arrays, bstk_score_terms *terms) {
    *arrays = (terms_arrays){0};
    *terms = (bstk_score_terms)BSTK_SCORE_TERMS_INIT;
    if (o->scale_given)
        terms->scale = o->scale;
    if (o->windowed) {
        terms->window_left = o->window[0];
        terms->window_right = o->window[1];
    }
    terms->softcap = o->softcap;
    terms->causal = o->causal;
    terms->causal_offset = o->causal_offset;
    terms->bottom_right = o->bottom_right;
    terms->rpe = load(common, o, arrays, TERM_RPE);
    terms->rel_logits = load(common, o, arrays, TERM_REL);
    terms->key_padding_mask = load(common, o, arrays, TERM_KEY_PADDING);
    terms->attn_mask = load(common, o, arrays, TERM_MASK);
    terms->alibi_slopes = load(common, o, arrays, TERM_ALIBI);
    terms->sinks = load(common, o, arrays, TERM_SINKS);
    terms->q_documents = load(common, o, arrays, TERM_Q_DOCUMENTS);
    terms->k_documents = load(common, o, arrays, TERM_K_DOCUMENTS);
    terms->cu_seqlens_q = load(common, o, arrays, TERM_CU_SEQLENS_Q);
    terms->cu_seqlens_k = load(common, o, arrays, TERM_CU_SEQLENS_K);
    terms->key_padding_mode = o->key_padding_mode;
    terms->attn_mode = o->mask_mode;
    terms->dropout = o->dropout;
    terms->dropout_seed = o->seed;
    terms->dropout_offset = o->offset;
}

void free_terms(terms_arrays *arrays) {
    for (int i = 0; i < TERM_FILES; i++)
        io_array_free(&arrays->files[i]);
}
