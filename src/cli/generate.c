/* caravan generate: texts go on, one as it comes or several in a batch. */
#include "base/heap.h"
#include "base/rng.h"
#include "base/threads.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "serve/engine.h"
#include "serve/receipt.h"
#include "serve/stops.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL,
    PROMPT,
    FILE_,
    TOKENS,
    PROMPTS,
    SAMPLES,
    SLOTS,
    STOP,
    MAX_TOKENS,
    SPECIAL,
    TOKENIZER,
    RECEIPT
};

static const Option *const options[] = {
    [MODEL] = SHARED(MODEL),
    OPTION(PROMPT, "prompt", .letter = 'p', .kind = ARG_TEXT, .required = true, .group = 1,
           .value = "TEXT", .help = "prompt"),
    [FILE_] = SHARED(TEXT_FILE),
    OPTION(TOKENS, "tokens", .kind = ARG_TOKENS, .required = true, .group = 1, .value = "IDS",
           .help = "prompt as token ids, 1,2,3"),
    OPTION(PROMPTS, "prompts", .kind = ARG_INPUT, .required = true, .group = 1, .value = "FILE",
           .help = "prompts, a JSON string per line"),
    OPTION(SAMPLES, "n", .kind = ARG_INT, .low = 1, .high = 1 << 16, .value = "N", .fallback = "1",
           .help = "completions per prompt, each with its own seed"),
    [SLOTS] = SHARED(SLOTS),
    OPTION(STOP, "stop", .kind = ARG_TEXT, .repeats = true, .value = "TEXT",
           .help = "stop sequence; repeatable"),
    OPTION(MAX_TOKENS, "max-tokens", .letter = 'n', .kind = ARG_INT, .low = 1, .high = 1 << 30,
           .value = "N", .fallback = "256", .help = "maximum tokens to generate"),
    OPTION(SPECIAL, "special", .kind = ARG_FLAG,
           .help = "encode special tokens such as <|eot_id|> in the prompt"),
    OPTION(TOKENIZER, "tokenizer", .kind = ARG_INPUT, .value = "FILE",
           .help = "tokenizer, default the model's"),
    OPTION(RECEIPT, "receipt", .kind = ARG_OUTPUT, .refuses = "mesh adapter", .value = "FILE",
           .help = "write a receipt of each text"),
    SAMPLING_OPTIONS,
    SHARED(SPECULATE),
    SHARED(DRAFT),
    SHARED(BUCKETS),
    CONSTRAINT_OPTIONS,
    SHARED(CONTEXT),
    RUN_MODEL_OPTIONS,
    SHARED(ADAPTER),
    SHARED(JSON),
    SHARED(DUMP),
    SHARED(PROFILE),
    NULL,
};

/* One text that goes on. */
typedef struct Text {
    const TokenIds *prompt; /* borrowed */
    TokenIds tokens;        /* generated */
    Decoder decoder;        /* used when the model has a tokenizer */
    Stops stops;
    StrBuf text;     /* generated, up to a stop text */
    size_t shown;    /* bytes of text that are printed */
    Receipt receipt; /* where one is asked for */
    cvn_err err;     /* of decoding or printing */
} Text;

/* A run of the command. */
typedef struct Batch {
    const Args *args;
    RunModel model;
    TokenIds *prompt; /* [n_prompts] owned */
    size_t n_prompts;
    Text *text;                 /* [n_texts] owned: the samples of prompt 0, of prompt 1, … */
    cvn_constraint *constraint; /* of all texts; owned, or NULL */
    cvn_request *request;
    cvn_result *result;
    int n_texts;
    bool decodes; /* the model has a tokenizer */
    bool json;    /* an object per text */
    bool streams; /* the only text goes to standard output as it comes */
    int printed;  /* texts that are printed: they come in order, each as soon as it is whole */
    bool drawn;   /* no seed was given, and one was drawn */
    cvn_err err;  /* of printing one on the way */
    Progress progress;
    double most, done; /* tokens of all texts together: at most, so far */
} Batch;

static void show(Text *t)
{
    size_t from = t->shown;
    t->shown = t->text.length;
    if (t->shown > from)
        put_text(stdout, t->text.text + from, t->shown - from, &t->err);
}

static int print_ended(Batch *b, bool all, cvn_err *err);

static bool on_token(void *context, int request, int32_t token)
{
    Batch *b = context;
    Text *t = &b->text[request];
    SCOPED(strbuf_free) StrBuf piece = {0};
    token_ids_add(&t->tokens, token);
    if (b->decodes)
        decoder_push(&t->decoder, token, &piece, &t->err);
    else
        strbuf_printf(&piece, "%s%d", t->tokens.n > 1 ? "," : "", (int)token);
    bool go_on = stops_push(&t->stops, piece.length ? piece.text : "", piece.length, &t->text);
    if (b->streams)
        show(t);
    else if (b->err.code == CVN_OK)
        print_ended(b, false, &b->err);
    progress_set(&b->progress, b->done++);
    return go_on && t->err.code == CVN_OK && b->err.code == CVN_OK;
}

static void on_logits(void *context, int request, const float *logits, int32_t token)
{
    Batch *b = context;
    receipt_add(&b->text[request].receipt, logits, cvn_model_vocab(b->model.model), token);
}

/* A line for each text. */
static int write_receipts(const Batch *b, cvn_err *err)
{
    const char *path = b->args->value[RECEIPT].text;
    SCOPED(strbuf_free) StrBuf lines = {0};
    json_auto_t *model = NULL;
    TRY(receipt_model(b->model.engine, &model, err));
    for (int i = 0; i < b->n_texts; i++)
        TRY(receipt_line(&b->text[i].receipt, model, &b->request[i], &lines, err));
    return file_write(path, lines.text, lines.length, err);
}

/* What the decoder and the stop texts still hold. */
static void finish_text(Batch *b, Text *t)
{
    SCOPED(strbuf_free) StrBuf piece = {0};
    if (b->decodes)
        decoder_flush(&t->decoder, &piece);
    stops_push(&t->stops, piece.length ? piece.text : "", piece.length, &t->text);
    stops_flush(&t->stops, &t->text);
    if (b->streams)
        show(t);
    if (t->text.failed || t->tokens.failed)
        err_set(&t->err, CVN_EMEM, "no memory for the text");
}

static json_t *timings_json(const RunModel *run, const cvn_result *result, size_t n_prompt)
{
    cvn_engine_stats stats = cvn_engine_get_stats(run->engine);
    double decode = result->total_seconds - result->first_seconds;
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:i,s:I}", "load_seconds", run->load_seconds,
                     "compile_seconds", run->compile_seconds, "prefill_seconds",
                     result->prefill_seconds, "prefill_tokens_per_second",
                     per_second((int64_t)n_prompt, result->prefill_seconds), "decode_seconds",
                     decode, "decode_tokens_per_second", per_second(result->n_tokens - 1, decode),
                     "threads", stats.threads, "peak_bytes",
                     (json_int_t)(stats.weight_bytes + stats.arena_bytes));
}

/* Tokens that begin behind the end of the text, which a stop text cut, are none of it. */
static int cut_tokens(const Batch *b, Text *t, cvn_err *err)
{
    Decoder decoder;
    SCOPED(strbuf_free) StrBuf so_far = {0};
    size_t n = 0;
    if (!b->decodes || !t->stops.stopped)
        return CVN_OK;
    decoder_init(&decoder, b->model.model->tokenizer, TOKENIZER_CONTINUE);
    while (n < t->tokens.n && so_far.length < t->text.length)
        TRY(decoder_push(&decoder, t->tokens.id[n++], &so_far, err));
    t->tokens.n = n;
    return so_far.failed ? err_set(err, CVN_EMEM, "no memory for the text") : CVN_OK;
}

/* A JSON object on a line of its own. */
static int print_object(const Batch *b, int i, cvn_err *err)
{
    static const char *const why[] = {[CVN_FINISH_EOS] = "eos",
                                      [CVN_FINISH_LENGTH] = "length",
                                      [CVN_FINISH_CONTEXT] = "length",
                                      [CVN_FINISH_STOPPED] = "interrupted",
                                      [CVN_FINISH_CANCELLED] = "interrupted",
                                      [CVN_FINISH_CONSTRAINT] = "constraint"};
    const Text *t = &b->text[i];
    size_t samples = (size_t)b->args->value[SAMPLES].integer;
    const cvn_result *result = &b->result[i];
    json_t *text =
        b->decodes ? bytes_json(t->text.text ? t->text.text : "", t->text.length) : json_null();
    SCOPED(strbuf_free) StrBuf asked = {0};
    cvn_err ignored = {0};
    if (b->decodes)
        tokenizer_decode(b->model.model->tokenizer, t->prompt->id, t->prompt->n,
                         b->model.encoding & TOKENIZER_SPECIAL, &asked, &ignored);
    json_t *prompt =
        b->decodes ? bytes_json(asked.text ? asked.text : "", asked.length) : json_null();
    return print_json(json_pack("{s:I,s:I,s:o,s:o,s:o,s:I,s:o,s:s,s:o}", "index",
                                (json_int_t)((size_t)i / samples), "sample",
                                (json_int_t)((size_t)i % samples), "prompt", prompt,
                                "prompt_tokens", json_ids(t->prompt->id, t->prompt->n), "tokens",
                                json_ids(t->tokens.id, t->tokens.n), "seed",
                                (json_int_t)b->request[i].sampling.seed, "text", text, "finish",
                                t->stops.stopped ? "stop" : why[result->finish], "timings",
                                timings_json(&b->model, result, t->prompt->n)),
                      err);
}

/* For people: each of several texts under a line that says whose it is, and a line end behind each. */
static void print_one(const Batch *b, int i)
{
    int samples = (int)b->args->value[SAMPLES].integer;
    Text *t = &b->text[i];
    if (b->n_texts > 1 && samples == 1)
        printf("%s--- %d\n", i ? "\n" : "", i);
    else if (b->n_texts > 1)
        printf("%s--- %d, sample %d\n", i ? "\n" : "", i / samples, i % samples);
    show(t);
    if (t->text.length && t->text.text[t->text.length - 1] != '\n')
        putchar('\n');
    fflush(stdout); /* before speeds, which go elsewhere */
}

/* Those that have ended, as far as none before them goes on still; or all there are. */
static int print_ended(Batch *b, bool all, cvn_err *err)
{
    while (b->printed < b->n_texts &&
           (all || b->result[b->printed].finish != CVN_FINISH_CANCELLED)) {
        int i = b->printed++;
        Text *t = &b->text[i];
        finish_text(b, t);
        if (t->err.code == CVN_OK)
            cut_tokens(b, t, &t->err);
        live_line_end();
        if (t->err.code == CVN_OK && !b->json)
            print_one(b, i);
        if (t->err.code)
            return err_set(err, t->err.code, "%s", t->err.message);
        if (b->json)
            TRY(print_object(b, i, err));
    }
    return CVN_OK;
}

/* The speeds, for people, on standard error. */
static void print_speeds(const Batch *b, double seconds)
{
    char seed[48] = "\n";
    const cvn_result *first = &b->result[0];
    size_t n_prompt = b->prompt[0].n;
    double decode = first->total_seconds - first->first_seconds;
    if (b->drawn)
        snprintf(seed, sizeof seed, "; seed %llu\n",
                 (unsigned long long)b->request[0].sampling.seed);
    if (b->n_texts == 1 && first->n_tokens == 0) {
        if (first->finish == CVN_FINISH_CANCELLED)
            fprintf(stderr, "interrupted before the first token\n");
        return;
    }
    if (b->n_texts == 1) {
        fprintf(stderr, "prompt: %zu token%s in %.2f s (%.0f tokens/s)", n_prompt,
                n_prompt == 1 ? "" : "s", first->prefill_seconds,
                per_second((int64_t)n_prompt, first->prefill_seconds));
        if (first->n_tokens > 1)
            fprintf(stderr, "; generated: %lld tokens in %.2f s (%.1f tokens/s, %.2f ms each)",
                    (long long)first->n_tokens, decode, per_second(first->n_tokens - 1, decode),
                    1e3 * decode / (double)(first->n_tokens - 1));
        fputs(seed, stderr);
        return;
    }
    cvn_engine_stats stats = cvn_engine_get_stats(b->model.engine);
    int64_t generated = 0;
    for (int i = 0; i < b->n_texts; i++)
        generated += b->result[i].n_tokens;
    fprintf(stderr,
            "%d texts in %.2f s: prompts of %lld tokens in %.2f s, %lld tokens generated (%.1f "
            "tokens/s in all)%s",
            b->n_texts, seconds, (long long)stats.prefill_tokens, stats.prefill_seconds,
            (long long)generated, per_second(generated, seconds), seed);
}

/* Texts under a constraint that were ended before they were complete. */
static int check_whole(const Batch *b, cvn_err *err)
{
    int cut = 0, undecided = 0;
    for (int i = 0; i < b->n_texts; i++) {
        cvn_finish finish = b->result[i].finish;
        cut += finish == CVN_FINISH_LENGTH || finish == CVN_FINISH_CONTEXT;
        undecided += finish == CVN_FINISH_CONSTRAINT;
    }
    if (cut && !b->json)
        fprintf(stderr,
                "caravan: %d of %d texts reached the token limit before they were complete\n", cut,
                b->n_texts);
    if (undecided)
        return err_set(err, CVN_EUNSUPPORTED,
                       "%d of %d texts ended early: the constraint exceeded its limits, or needs "
                       "tokens that the vocabulary lacks",
                       undecided, b->n_texts);
    return CVN_OK;
}

/* Results that were reached before Ctrl-C are printed all the same. */
static int generate(Batch *b, cvn_err *err)
{
    cvn_err run_err = {0};
    double begin = clock_seconds();
    if (!b->streams)
        b->progress = progress_start("generating", b->most);
    int code = cvn_engine_generate(b->model.engine, b->request, b->n_texts, on_token, b,
                                   run_interrupt(), b->result, &run_err);
    progress_end(&b->progress);
    double seconds = clock_seconds() - begin;
    bool stopped = code == CVN_EINTERRUPTED;
    if (code && !stopped)
        return err_set(err, code, "%s", run_err.message);
    if (b->err.code)
        return err_set(err, b->err.code, "%s", b->err.message);
    TRY(print_ended(b, true, err));
    if (!b->json)
        print_speeds(b, seconds);
    if (b->args->value[RECEIPT].given && !stopped)
        TRY(write_receipts(b, err));
    if (!stopped)
        return b->constraint ? check_whole(b, err) : CVN_OK;
    return err_set(err, CVN_EINTERRUPTED, "interrupted");
}

/* One more, empty still; NULL without memory. */
static TokenIds *add_prompt(Batch *b, cvn_err *err)
{
    TokenIds *more = heap_more(b->prompt, b->n_prompts, sizeof *more);
    if (!more) {
        err_set(err, CVN_EMEM, "no memory for %zu prompts", b->n_prompts + 1);
        return NULL;
    }
    b->prompt = more;
    more[b->n_prompts] = (TokenIds){0};
    return &more[b->n_prompts++];
}

/* One line of a prompts file: a JSON string, to ids. */
static int read_prompt(void *context, const char *line, size_t n, size_t number, cvn_err *err)
{
    Batch *b = context;
    json_error_t where;
    json_auto_t *json = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    TokenIds *out = add_prompt(b, err);
    (void)number;
    if (!out)
        return err->code;
    if (!json_is_string(json))
        return err_set(err, CVN_EFORMAT,
                       "not a JSON string; write one per line, such as \"Once upon a time\"");
    TRY(tokenizer_encode(b->model.model->tokenizer, json_string_value(json),
                         json_string_length(json), b->model.encoding, out, err));
    return out->n ? CVN_OK : err_set(err, CVN_EINVAL, "the prompt is empty");
}

static int read_all(Batch *b, cvn_err *err)
{
    const Value *v = b->args->value;
    SCOPED(scoped_free) char *text = NULL;
    size_t length = 0;
    if (!v[PROMPTS].given) {
        TokenIds *out = add_prompt(b, err);
        return out ? run_model_input(&b->model, &v[TOKENS], v[PROMPT].text, v[FILE_].text, out, err)
                   : err->code;
    }
    TRY(read_input(v[PROMPTS].text, &text, &length, err));
    TRY(each_line(v[PROMPTS].text, text, length, read_prompt, b, err));
    return b->n_prompts
               ? CVN_OK
               : err_set(err, CVN_EINVAL, "%s has no prompts; give one JSON string per line",
                         v[PROMPTS].text);
}

/* A text and a request for each sample of each prompt. */
static int make_requests(Batch *b, cvn_err *err)
{
    const Value *v = b->args->value;
    size_t samples = (size_t)v[SAMPLES].integer, n = samples * b->n_prompts;
    if (n > 1 << 20)
        return err_set(err, CVN_EINVAL, "%zu texts are too many for one run; give at most 1048576",
                       n);
    b->text = calloc(n, sizeof *b->text);
    b->request = calloc(n, sizeof *b->request);
    b->result = calloc(n, sizeof *b->result);
    if (!b->text || !b->request || !b->result)
        return err_set(err, CVN_EMEM, "no memory for %zu texts", n);
    b->n_texts = (int)n;
    b->most = (double)n * (double)v[MAX_TOKENS].integer;
    b->decodes = b->model.model->tokenizer != NULL;
    b->json = args_value(b->args, SHARED(JSON))->flag;
    b->streams = n == 1 && !b->json;
    cvn_sampling sampling = run_model_sampling(b->args);
    const Value *seed = args_value(b->args, SHARED(SEED));
    b->drawn = sampling.temperature > 0 && !seed->given && !b->model.cluster;
    if (b->drawn)
        sampling.seed = (uint64_t)clock_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    for (size_t i = 0; i < n; i++) {
        Text *t = &b->text[i];
        b->result[i].finish = CVN_FINISH_CANCELLED;
        t->prompt = &b->prompt[i / samples];
        if (b->decodes)
            decoder_init(&t->decoder, b->model.model->tokenizer, TOKENIZER_CONTINUE);
        stops_init(&t->stops, v[STOP].texts, v[STOP].n_texts);
        cvn_request *r = &b->request[i];
        *r = (cvn_request){.prompt = t->prompt->id,
                           .n_prompt = (int64_t)t->prompt->n,
                           .max_tokens = v[MAX_TOKENS].integer,
                           .ignore_eos = args_value(b->args, SHARED(IGNORE_EOS))->flag,
                           .constraint = b->constraint,
                           .on_logits = v[RECEIPT].given ? on_logits : NULL,
                           .sampling = sampling};
        r->sampling.seed = rng_seed(r->sampling.seed, i % samples);
    }
    return CVN_OK;
}

static int run_batch(Batch *b, cvn_err *err)
{
    const Value *v = b->args->value;
    RunOptions run = run_model_options(b->args);
    run.needs_tokenizer = !v[TOKENS].given || v[STOP].given;
    run.takes_ids = !v[TOKENS].given;
    run.special = v[SPECIAL].flag;
    run.tokenizer = v[TOKENIZER].text;
    for (size_t i = 0; i < v[STOP].n_texts; i++)
        if (!*v[STOP].texts[i])
            return err_set(err, CVN_EINVAL, "--stop is empty; give the text to stop at");
    if (run_model_constraint(b->args, &b->constraint, err) ||
        run_model_open(&b->model, &run, err) || read_all(b, err) || make_requests(b, err))
        return err->code;
    size_t longest = 0;
    for (size_t i = 0; i < b->n_prompts; i++)
        longest = b->prompt[i].n > longest ? b->prompt[i].n : longest;
    run.engine.slots = v[SLOTS].integer < b->n_texts ? (int)v[SLOTS].integer : b->n_texts;
    run.engine.logits_processors |= v[RECEIPT].given;
    TRY(run_model_start(&b->model, &run, (int64_t)longest, v[MAX_TOKENS].integer, err));
    return generate(b, err);
}

static int run(const Args *args, cvn_err *err)
{
    Batch b = {.args = args};
    int code = run_batch(&b, err);
    run_model_close(&b.model, err);
    for (int i = 0; i < b.n_texts; i++) {
        token_ids_free(&b.text[i].tokens);
        receipt_free(&b.text[i].receipt);
        stops_free(&b.text[i].stops);
        strbuf_free(&b.text[i].text);
    }
    for (size_t i = 0; i < b.n_prompts; i++)
        token_ids_free(&b.prompt[i]);
    free(b.prompt);
    free(b.text);
    free(b.request);
    free(b.result);
    cvn_constraint_free(b.constraint);
    return code;
}

const Command command_generate = {
    "generate",
    .about = "continue a prompt",
    .usage = "MODEL (--prompt TEXT | --file FILE | --prompts FILE | --tokens IDS) [options]",
    .examples = "generate -m my-llama -p 'Once upon a time'\ta streamed completion\n"
                "generate -m my-llama -f notes.txt --temperature 0 -n 100\t100 tokens, greedy\n"
                "generate -m my-llama --prompts all.jsonl --json\tmany prompts in a batch, a JSON "
                "object each\n"
                "generate -m my-llama -p 'Q: Why?' --stop $'\\nQ:' --n 3\tthree completions with a "
                "stop sequence\n"
                "generate -m my-llama -p 'Paris in JSON: ' --json-schema city.json\toutput "
                "constrained to a JSON schema\n",
    .notes =
        "The text goes to standard output, speeds go to standard error. The same seed gives the "
        "same text; without --seed a random one is used and printed with the speeds. With "
        "several texts, --json prints an object per line, in their order.",
    .options = options,
    .run = run,
};
