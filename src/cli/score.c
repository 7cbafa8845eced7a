/* caravan score: how likely a model finds a text. */
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/task.h"
#include "cli/terminal.h"
#include "serve/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL, TEXT, FILE_, TOKENS, TASK, STRIDE, SHOW, SUMMARY, CHECK, CONTEXT, JSON };

static const Option *const options[] = {
    [MODEL] = SHARED(MODEL),
    OPTION(TEXT, "text", .kind = ARG_TEXT, .required = true, .group = 1, .value = "TEXT",
           .help = "text to score"),
    [FILE_] = SHARED(TEXT_FILE),
    OPTION(TOKENS, "tokens", .kind = ARG_TOKENS, .required = true, .group = 1, .value = "IDS",
           .help = "token ids to score, 1,2,3"),
    OPTION(TASK, "task", .kind = ARG_INPUT, .required = true, .group = 1, .refuses = "stride show",
           .value = "FILE", .help = "task file: context, choices and answer as JSON lines"),
    OPTION(STRIDE, "stride", .kind = ARG_INT, .high = 1 << 30, .value = "N", .fallback = "0",
           .help = "stride of the sliding window, 0: half the context"),
    OPTION(SHOW, "show", .refuses = "json summary", .kind = ARG_FLAG,
           .help = "color the text by token probability"),
    OPTION(SUMMARY, "summary", .kind = ARG_FLAG, .help = "print only the last line"),
    OPTION(CHECK, "check-decode", .refuses = "task stride", .kind = ARG_FLAG,
           .help = "also decode the text, and compare log-probabilities bit for bit"),
    [CONTEXT] = SHARED(CONTEXT),
    [JSON] = SHARED(JSON),
    RUN_MODEL_OPTIONS,
    SHARED(ADAPTER),
    SHARED(SEED),
    SHARED(DUMP),
    SHARED(PROFILE),
    NULL,
};

/* What scoring a list of ids gives. */
typedef struct Scores {
    float *logprob;  /* [n] */
    int32_t *argmax; /* [n] */
    double mean;     /* of logprob[1 … n-1], NaN when there is none */
} Scores;

static int print_scores_json(const TokenIds *ids, const Scores *scores, bool summary, cvn_err *err)
{
    json_t *logprobs = json_array();
    json_t *perplexity = isfinite(exp(-scores->mean)) ? json_real(exp(-scores->mean)) : json_null();
    json_t *all = json_pack("{s:I,s:f,s:o}", "n_tokens", (json_int_t)ids->n, "mean_logprob",
                            scores->mean, "perplexity", perplexity);
    for (size_t i = 0; i < ids->n && !summary; i++)
        logprobs = json_append(logprobs, i ? json_real((double)scores->logprob[i]) : json_null());
    if (summary) {
        json_decref(logprobs);
    } else {
        all = json_with(all, "tokens", json_ids(ids->id, ids->n));
        all = json_with(all, "logprobs", logprobs);
        all = json_with(all, "argmax", json_ids(scores->argmax, ids->n));
    }
    return print_json(all, err);
}

/* A token as people read it: its piece, or its id where the model has no tokenizer. */
static void print_piece(const cvn_model *model, int32_t id)
{
    SCOPED(strbuf_free) StrBuf text = {0}, shown = {0};
    if (!model->tokenizer) {
        printf("%d", (int)id);
        return;
    }
    tokenizer_decode(model->tokenizer, &id, 1, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE, &text, NULL);
    add_visible(&shown, text.text ? text.text : "", text.length);
    printf("\"%s\"", shown.text ? shown.text : "");
}

/* Colours of 256 for p(token | before): below 1/1000, 1/100, 1/10, 1/2, and likelier. */
static const int SHADE[] = {196, 208, 220, 148, 40};
static const float SHADE_ENDS[] = {-6.9078f, -4.6052f, -2.3026f, -0.6931f};

/* The text itself, each token in the colour of its probability; plain where there are no colours. */
static int show_text(const cvn_model *model, const TokenIds *ids, const Scores *scores,
                     cvn_err *err)
{
    Decoder decoder;
    SCOPED(strbuf_free) StrBuf piece = {0};
    bool colors = terminal_colors(stdout);
    int code = CVN_OK;
    decoder_init(&decoder, model->tokenizer, 0);
    for (size_t i = 0; i <= ids->n && code == CVN_OK; i++) {
        strbuf_clear(&piece);
        if (i < ids->n)
            code = decoder_push(&decoder, ids->id[i], &piece, err);
        else
            decoder_flush(&decoder, &piece);
        if (code || !piece.length)
            continue;
        int shade = 0;
        while (colors && i > 0 && i < ids->n && shade < 4 &&
               scores->logprob[i] >= SHADE_ENDS[shade])
            shade++;
        if (colors && i > 0 && i < ids->n)
            printf("\033[38;5;%dm", SHADE[shade]);
        code = put_text(stdout, piece.text, piece.length, err);
        if (colors && i > 0 && i < ids->n)
            fputs("\033[0m", stdout);
    }
    putchar('\n');
    if (colors) {
        static const char *const names[] = {"< 1/1000", "< 1/100", "< 1/10", "< 1/2", ">= 1/2"};
        for (int i = 0; i < 5; i++)
            printf("\033[38;5;%dm%s\033[0m%s", SHADE[i], names[i], i < 4 ? "  " : "\n");
    }
    return code;
}

/*
 * A text longer than the context is scored in windows. Each begins `stride` tokens after the one before,
 * and only the tokens that no window had yet count, so that all but the first ones have at least
 * context - stride tokens before them:
 *
 *     context 6, stride 3     a b c d e f
 *                                   d e f g h i        g, h, i count, after d, e, f
 *                                         g h i j k
 */
static int score_windows(RunModel *run, const TokenIds *ids, int64_t window, int64_t stride,
                         Scores *scores, cvn_err *err)
{
    int64_t n = (int64_t)ids->n, done = 0;
    window = n < window ? n : window;
    SCOPED(scoped_free) float *logprob = calloc((size_t)window, sizeof *logprob);
    SCOPED(scoped_free) int32_t *argmax = calloc((size_t)window, sizeof *argmax);
    int code = logprob && argmax ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a window");
    Progress progress = progress_start("scoring", (double)n);
    for (int64_t begin = 0; code == CVN_OK && done < n; begin += stride) {
        int64_t end = n - begin < window ? n : begin + window;
        code = cvn_engine_score(run->engine, ids->id + begin, end - begin, logprob, argmax, err);
        for (int64_t i = done; i < end && code == CVN_OK; i++) {
            scores->logprob[i] = logprob[i - begin];
            scores->argmax[i] = argmax[i - begin];
        }
        done = end;
        progress_set(&progress, (double)done);
    }
    progress_end(&progress);
    return code;
}

static int score(RunModel *run, const TokenIds *ids, int64_t window, int64_t stride, Scores *scores,
                 cvn_err *err)
{
    scores->logprob = calloc(ids->n, sizeof *scores->logprob);
    scores->argmax = calloc(ids->n, sizeof *scores->argmax);
    if (!scores->logprob || !scores->argmax)
        return err_set(err, CVN_EMEM, "no memory to score %zu tokens", ids->n);
    if (stride == 0)
        stride = window > 1 ? window / 2 : 1;
    if (stride >= window)
        return err_set(
            err, CVN_EINVAL,
            "--stride is %lld; give less than the context of %lld, so that windows overlap",
            (long long)stride, (long long)window);
    int code = score_windows(run, ids, window, stride, scores, err);
    double sum = 0;
    for (size_t i = 1; i < ids->n; i++)
        sum += (double)scores->logprob[i];
    scores->mean = ids->n > 1 ? sum / (double)(ids->n - 1) : NAN;
    return code;
}

static int print_scores(const cvn_model *model, const Args *args, const TokenIds *ids,
                        const Scores *scores, cvn_err *err)
{
    bool shows = args->value[SHOW].flag;
    if (shows)
        TRY(show_text(model, ids, scores, err));
    for (size_t i = 1; i < ids->n && !shows && !args->value[SUMMARY].flag; i++) {
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
    return CVN_OK;
}

/* ---- the same text token by token ---- */

typedef struct Decoded {
    const Scores *scores;
    int64_t vocab, at;     /* the token that is next */
    int64_t differ, first; /* tokens that were scored otherwise, and the first of them */
    float logprob;         /* of that one, as it was decoded */
} Decoded;

static void compare_decoded(void *context, int id, const float *logits, int32_t token)
{
    Decoded *d = context;
    float logprob;
    (void)id;
    cvn_logprobs(logits, d->vocab, token, &logprob, NULL, NULL, 0);
    if (memcmp(&logprob, &d->scores->logprob[d->at], sizeof logprob) != 0 && !d->differ++) {
        d->first = d->at;
        d->logprob = logprob;
    }
    d->at++;
}

/* Decodes the text from its first token on, each token being taken as it is, and holds what its logits say to the scores. */
static int check_decode(const RunModel *run, const TokenIds *ids, const Scores *scores,
                        cvn_err *err)
{
    Decoded d = {.scores = scores, .vocab = cvn_model_vocab(run->model), .at = 1};
    const cvn_request request = {.prompt = ids->id,
                                 .n_prompt = 1,
                                 .max_tokens = (int64_t)ids->n - 1,
                                 .ignore_eos = true,
                                 .forced = ids->id + 1,
                                 .n_forced = (int64_t)ids->n - 1,
                                 .on_logits = compare_decoded};
    const cvn_listener listener = {.context = &d};
    TRY(cvn_engine_submit(run->engine, &request, &listener, NULL, err));
    for (int left = 1; left;)
        TRY(cvn_engine_step(run->engine, &left, err));
    if (d.at != (int64_t)ids->n)
        return err_set(err, CVN_EUNSUPPORTED, "only %lld of %zu tokens could be decoded",
                       (long long)d.at, ids->n);
    if (d.differ)
        return err_set(err, CVN_EUNSUPPORTED,
                       "%lld of %zu log-probabilities differ; token %lld is the first: scored "
                       "%.9g, decoded %.9g",
                       (long long)d.differ, ids->n - 1, (long long)d.first,
                       (double)scores->logprob[d.first], (double)d.logprob);
    fprintf(stderr, "decoding gives the same %zu log-probabilities, bit for bit\n", ids->n - 1);
    return CVN_OK;
}

/* Of an engine that scores a text at a time. */
static RunOptions options_of(const Args *args)
{
    RunOptions how = run_model_options(args);
    how.engine.slots = 1;
    how.engine.scoring = true;
    how.engine.no_generation = !args->value[CHECK].flag;
    how.engine.logits_processors = args->value[CHECK].flag;
    return how;
}

/* Everything but printing. */
static int score_input(const Args *args, RunModel *model, TokenIds *ids, Scores *scores,
                       cvn_err *err)
{
    const Value *v = args->value;
    RunOptions how = options_of(args);
    how.needs_tokenizer = !v[TOKENS].given || v[SHOW].flag;
    how.takes_ids = !v[TOKENS].given;
    TRY(run_model_open(model, &how, err));
    TRY(run_model_input(model, &v[TOKENS], v[TEXT].text, v[FILE_].text, ids, err));
    int64_t n = (int64_t)ids->n, window = v[CONTEXT].integer;
    if (window == 0)
        window = cvn_model_context(model->model);
    if (n < 2)
        return err_set(err, CVN_EINVAL,
                       "%s: the first token has no probability; give at least two tokens",
                       n ? "the text has only one token" : "the text is empty");
    if (v[CHECK].flag && n > window)
        return err_set(err, CVN_EINVAL,
                       "the text has %lld tokens, and the context %lld; --check-decode decodes "
                       "texts that are no longer than the context",
                       (long long)n, (long long)window);
    TRY(run_model_start(model, &how, n < window ? n : window, 0, err));
    return score(model, ids, window, v[STRIDE].integer, scores, err);
}

/* ---- questions with several answers ---- */

static int print_task_json(const Task *task, bool summary, cvn_err *err)
{
    static const char *const names[TASK_RULES][2] = {
        {"acc", "acc_stderr"}, {"acc_norm", "acc_norm_stderr"}, {"acc_bytes", "acc_bytes_stderr"}};
    json_t *all = json_pack("{s:I}", "n", (json_int_t)task->n), *list = json_array();
    for (int rule = 0; rule < TASK_RULES; rule++) {
        double error = task->error[rule];
        all = json_with(all, names[rule][0], json_real(task->accuracy[rule]));
        all = json_with(all, names[rule][1], isfinite(error) ? json_real(error) : json_null());
    }
    for (size_t i = 0; i < task->n && !summary; i++) {
        const Question *q = &task->question[i];
        json_t *logprobs = json_array();
        for (size_t k = 0; k < q->n_choices; k++)
            logprobs = json_append(logprobs, json_real(q->choice[k].logprob));
        json_t *one = json_pack("{s:I,s:I}", "answer", (json_int_t)q->answer, "choice",
                                (json_int_t)task_choice(q, TASK_SUM));
        list = json_append(list, json_with(one, "logprobs", logprobs));
    }
    if (summary)
        json_decref(list);
    else
        all = json_with(all, "questions", list);
    return print_json(all, err);
}

static int print_task(const Task *task, bool summary, cvn_err *err)
{
    for (size_t i = 0; i < task->n && !summary; i++) {
        const Question *q = &task->question[i];
        bool right = task_choice(q, TASK_SUM) == q->answer;
        printf("%6zu  %s ", i, right ? "right" : "wrong");
        for (size_t k = 0; k < q->n_choices; k++)
            printf(" %c%.4f", k == q->answer ? '*' : ' ', q->choice[k].logprob);
        putchar('\n');
    }
    SCOPED(scoped_free) char *text = task_text(task);
    if (!text)
        return err_set(err, CVN_EMEM, "no memory for a line");
    puts(text);
    return CVN_OK;
}

static int score_task(const Args *args, RunModel *model, Task *task, cvn_err *err)
{
    const Value *v = args->value;
    RunOptions how = options_of(args);
    how.needs_tokenizer = true;
    TRY(run_model_open(model, &how, err));
    TRY(task_read(task, v[TASK].text, model->model, model->encoding, err));
    int64_t window = v[CONTEXT].integer ? v[CONTEXT].integer : cvn_model_context(model->model);
    window = (int64_t)task->longest < window ? (int64_t)task->longest : window;
    TRY(run_model_start(model, &how, window, 0, err));
    return task_score(task, model->engine, window, run_interrupt(), err);
}

static int run(const Args *args, cvn_err *err)
{
    RunModel model = {0};
    SCOPED(token_ids_free) TokenIds ids = {0};
    SCOPED(task_free) Task task = {0};
    Scores scores = {0};
    bool summary = args->value[SUMMARY].flag, json = args->value[JSON].flag;
    int code;
    if (args->value[TASK].given) {
        code = score_task(args, &model, &task, err);
        if (!code)
            code = (json ? print_task_json : print_task)(&task, summary, err);
    } else {
        code = score_input(args, &model, &ids, &scores, err);
        if (!code)
            code = json ? print_scores_json(&ids, &scores, summary, err)
                        : print_scores(model.model, args, &ids, &scores, err);
        if (!code && args->value[CHECK].flag)
            code = check_decode(&model, &ids, &scores, err);
    }
    free(scores.logprob);
    free(scores.argmax);
    run_model_close(&model, err);
    return code;
}

const Command command_score = {
    "score",
    .about = "log-probabilities, perplexity, multiple-choice tasks",
    .usage = "MODEL (--text TEXT | --file FILE | --tokens IDS | --task FILE) [options]",
    .examples =
        "score -m my-llama --text 'The sky is blue'\ta line per token, then the perplexity\n"
        "score -m my-llama -f book.txt --stride 256 --summary\tperplexity of a long text\n"
        "score -m my-llama -f story.txt --show\tthe text colored by token probability\n"
        "score -m my-llama --task arc.jsonl --summary\tmultiple choice: accuracy and standard "
        "error\n"
        "score -m my-llama -f story.txt --json\tone JSON object for scripts\n"
        "score -m my-llama -f story.txt --summary --check-decode\tthat decoding says the same\n",
    .notes =
        "Log-probabilities are natural logarithms of p(token | the tokens before it); the first "
        "token has none. Perplexity is exp(-mean log-probability). A text longer than the context "
        "is scored with a sliding window. In JSON, argmax[i] is the most likely token after tokens "
        "0 to i.",
    .options = options,
    .run = run,
};
