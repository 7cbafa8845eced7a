/* caravan score: how likely a model finds a text. */
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "serve/model.h"

#include <math.h>
#include <stdlib.h>

enum { MODEL, TEXT, FILE_, TOKENS, CONTEXT, DTYPE, THREADS, SEED, MEMORY, JSON, DUMP, PROFILE };

static const Option *const options[] = {
    [MODEL] = &option_model,
    [TEXT] = &(const Option){"text", .kind = ARG_TEXT, .required = true, .group = 1,
                             .value = "TEXT", .help = "text to score"},
    [FILE_] =
        &(const Option){"file", .letter = 'f', .kind = ARG_INPUT, .required = true, .group = 1,
                        .value = "FILE", .help = "file with the text, - for standard input"},
    [TOKENS] = &(const Option){"tokens", .kind = ARG_TOKENS, .required = true, .group = 1,
                               .value = "IDS", .help = "token ids to score, 1,2,3"},
    [CONTEXT] = &option_context,
    [DTYPE] = &option_dtype,
    [THREADS] = &option_threads,
    [SEED] = &option_seed,
    [MEMORY] = &option_memory,
    [JSON] = &option_json,
    [DUMP] = &option_dump,
    [PROFILE] = &option_profile,
    NULL,
};

/* What scoring a list of ids gives. */
typedef struct Scores {
    float *logprob;  /* [n] */
    int32_t *argmax; /* [n] */
    double mean;     /* of logprob[1 … n-1], NaN when there is none */
} Scores;

static int print_scores_json(const TokenIds *ids, const Scores *scores)
{
    json_t *logprobs = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(logprobs, i ? json_real((double)scores->logprob[i]) : json_null());
    json_t *perplexity = isfinite(exp(-scores->mean)) ? json_real(exp(-scores->mean)) : json_null();
    return print_json(json_pack("{s:o,s:o,s:o,s:o}", "tokens", json_ids(ids->id, ids->n),
                                "logprobs", logprobs, "argmax", json_ids(scores->argmax, ids->n),
                                "perplexity", perplexity));
}

/* A token as people read it: its piece, or its id where the model has no tokenizer. */
static void print_piece(const cvn_model *model, int32_t id)
{
    StrBuf text = {0};
    if (model->tokenizer)
        tokenizer_decode(model->tokenizer, &id, 1, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE, &text,
                         NULL);
    fputc('"', stdout);
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.text[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 32 || c == 127)
            printf("\\x%02x", c);
        else
            fputc(c, stdout);
    }
    fputc('"', stdout);
    strbuf_free(&text);
}

static int print_scores(const cvn_model *model, const TokenIds *ids, const Scores *scores)
{
    for (size_t i = 1; i < ids->n; i++) {
        printf("%8d  %9.4f  ", (int)ids->id[i], (double)scores->logprob[i]);
        print_piece(model, ids->id[i]);
        if (scores->argmax[i - 1] != ids->id[i]) {
            printf("  likeliest ");
            print_piece(model, scores->argmax[i - 1]);
        }
        putchar('\n');
    }
    printf("%zu tokens, mean log-probability %.4f, perplexity %.4f\n", ids->n, scores->mean,
           exp(-scores->mean));
    return EXIT_OK;
}

static int score(RunModel *run, const TokenIds *ids, Scores *scores, cvn_err *err)
{
    scores->logprob = calloc(ids->n, sizeof *scores->logprob);
    scores->argmax = calloc(ids->n, sizeof *scores->argmax);
    if (!scores->logprob || !scores->argmax)
        return err_set(err, CVN_EMEM, "no memory to score %zu tokens", ids->n);
    int code = cvn_engine_score(run->engine, ids->id, (int64_t)ids->n, scores->logprob,
                                scores->argmax, err);
    double sum = 0;
    for (size_t i = 1; i < ids->n; i++)
        sum += (double)scores->logprob[i];
    scores->mean = ids->n > 1 ? sum / (double)(ids->n - 1) : NAN;
    return code;
}

static int run(const Args *args)
{
    const Value *v = args->value;
    cvn_err err = {0};
    RunModel model = {0};
    TokenIds ids = {0};
    Scores scores = {0};
    RunOptions options_ = {.path = v[MODEL].text,
                           .dtype = dtype_of(&v[DTYPE]),
                           .needs_tokenizer = !v[TOKENS].given,
                           .engine = {.rows = 1,
                                      .threads = (int)v[THREADS].integer,
                                      .context = v[CONTEXT].integer,
                                      .scoring = true,
                                      .no_generation = true,
                                      .memory_limit = (uint64_t)v[MEMORY].integer,
                                      .dump_dir = v[DUMP].text,
                                      .profile_path = v[PROFILE].text}};
    int code = run_model_open(&model, &options_, &err);
    if (code == CVN_OK)
        code = run_model_input(&model, &v[TOKENS], v[TEXT].text, v[FILE_].text, &ids, &err);
    if (code == CVN_OK)
        code = run_model_start(&model, &options_, (int64_t)ids.n, 0, &err);
    if (code == CVN_OK)
        code = score(&model, &ids, &scores, &err);
    int exit_code = EXIT_OK;
    if (code == CVN_OK)
        exit_code = v[JSON].flag ? print_scores_json(&ids, &scores)
                                 : print_scores(model.model, &ids, &scores);
    free(scores.logprob);
    free(scores.argmax);
    token_ids_free(&ids);
    cvn_err closing = {0};
    if (run_model_close(&model, &closing) && code == CVN_OK)
        return fail(&closing);
    return code ? fail(&err) : exit_code;
}

const Command command_score = {
    "score",
    .about = "print how likely a model finds a text",
    .usage = "--model DIR (--text TEXT | --file FILE | --tokens IDS) [options]",
    .examples =
        "score -m my-llama --text 'The sky is blue'\ta line per token, then the perplexity\n"
        "score -m my-llama -f story.txt --json\tone JSON object for scripts\n",
    .notes =
        "Log-probabilities are natural logarithms of p(token | the tokens before it); the first "
        "token has none. Perplexity is exp(-mean log-probability). In JSON, argmax[i] is the "
        "likeliest token after tokens 0 to i.",
    .options = options,
    .run = run,
};
