/* caravan generate: a text goes on. */
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "serve/model.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL,
    PROMPT,
    FILE_,
    TOKENS,
    MAX_TOKENS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    SEED,
    IGNORE_EOS,
    CONTEXT,
    DTYPE,
    THREADS,
    MEMORY,
    JSON,
    DUMP,
    PROFILE
};

static const Option *const options[] = {
    [MODEL] = &option_model,
    [PROMPT] = &(const Option){"prompt", .letter = 'p', .kind = ARG_TEXT, .required = true,
                               .group = 1, .value = "TEXT", .help = "text to go on from"},
    [FILE_] =
        &(const Option){"file", .letter = 'f', .kind = ARG_INPUT, .required = true, .group = 1,
                        .value = "FILE", .help = "file with the text, - for standard input"},
    [TOKENS] = &(const Option){"tokens", .kind = ARG_TOKENS, .required = true, .group = 1,
                               .value = "IDS", .help = "token ids to go on from, 1,2,3"},
    [MAX_TOKENS] =
        &(const Option){"max-tokens", .letter = 'n', .kind = ARG_INT, .low = 1, .high = 1 << 30,
                        .value = "N", .fallback = "256", .help = "most tokens to generate"},
    [TEMPERATURE] = &option_temperature,
    [TOP_K] = &option_top_k,
    [TOP_P] = &option_top_p,
    [MIN_P] = &option_min_p,
    [SEED] = &option_seed,
    [IGNORE_EOS] = &option_ignore_eos,
    [CONTEXT] = &option_context,
    [DTYPE] = &option_dtype,
    [THREADS] = &option_threads,
    [MEMORY] = &option_memory,
    [JSON] = &option_json,
    [DUMP] = &option_dump,
    [PROFILE] = &option_profile,
    NULL,
};

/* What the callback of generation works on. */
typedef struct Stream {
    TokenIds tokens; /* generated */
    Decoder decoder; /* used when the model has a tokenizer */
    bool decodes;
    bool prints; /* text goes to standard output as it comes */
    StrBuf text; /* all of it */
    cvn_err err; /* of decoding or printing */
} Stream;

static void show(Stream *s, size_t from)
{
    size_t n = s->text.length - from;
    if (s->prints && n && (fwrite(s->text.text + from, 1, n, stdout) != n || fflush(stdout)))
        err_set(&s->err, CVN_EIO, "the text could not be written to standard output");
}

static bool on_token(void *context, int request, int32_t token)
{
    (void)request;
    Stream *s = context;
    size_t from = s->text.length;
    token_ids_add(&s->tokens, token);
    if (s->decodes)
        decoder_push(&s->decoder, token, &s->text, &s->err);
    else
        strbuf_printf(&s->text, "%s%d", s->tokens.n > 1 ? "," : "", (int)token);
    show(s, from);
    return s->err.code == CVN_OK;
}

static json_t *timings_json(const RunModel *run, const cvn_result *result, size_t n_prompt)
{
    cvn_engine_stats stats = cvn_engine_get_stats(run->engine);
    double decode = result->total_seconds - result->first_seconds;
    double decoded = (double)(result->n_tokens - 1);
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:i,s:I}", "load_seconds", run->load_seconds,
                     "compile_seconds", run->compile_seconds, "prefill_seconds",
                     result->prefill_seconds, "prefill_tokens_per_second",
                     result->prefill_seconds > 0 ? (double)n_prompt / result->prefill_seconds : 0.0,
                     "decode_seconds", decode, "decode_tokens_per_second",
                     decode > 0 ? decoded / decode : 0.0, "threads", stats.threads, "peak_bytes",
                     (json_int_t)(stats.weight_bytes + stats.arena_bytes));
}

static int print_result(const RunModel *run, const Stream *s, const TokenIds *prompt,
                        const cvn_result *result)
{
    static const char *const finishes[] = {"eos", "length", "context", "stopped"};
    json_t *text =
        s->decodes ? bytes_json(s->text.text ? s->text.text : "", s->text.length) : json_null();
    return print_json(
        json_pack("{s:o,s:o,s:o,s:s,s:o}", "prompt_tokens", json_ids(prompt->id, prompt->n),
                  "tokens", json_ids(s->tokens.id, s->tokens.n), "text", text, "finish",
                  finishes[result->finish], "timings", timings_json(run, result, prompt->n)));
}

/* The speeds, for people, on standard error. */
static void print_speed(const cvn_result *result, size_t n_prompt)
{
    double decode = result->total_seconds - result->first_seconds;
    fprintf(stderr, "\nprompt: %zu tokens in %.2f s (%.0f tokens/s)", n_prompt,
            result->prefill_seconds, (double)n_prompt / result->prefill_seconds);
    if (result->n_tokens > 1)
        fprintf(stderr, "; generated: %lld tokens in %.2f s (%.1f tokens/s, %.2f ms each)",
                (long long)result->n_tokens, decode, (double)(result->n_tokens - 1) / decode,
                1e3 * decode / (double)(result->n_tokens - 1));
    fputc('\n', stderr);
}

static int generate(RunModel *run, const Args *args, const TokenIds *prompt, Stream *stream,
                    cvn_err *err)
{
    const Value *v = args->value;
    cvn_request request = {.prompt = prompt->id,
                           .n_prompt = (int64_t)prompt->n,
                           .max_tokens = v[MAX_TOKENS].integer,
                           .ignore_eos = v[IGNORE_EOS].flag,
                           .sampling = {.temperature = (float)v[TEMPERATURE].real,
                                        .top_k = (int32_t)v[TOP_K].integer,
                                        .top_p = (float)v[TOP_P].real,
                                        .min_p = (float)v[MIN_P].real,
                                        .seed = (uint64_t)v[SEED].integer}};
    cvn_result result;
    int code = cvn_engine_generate(run->engine, &request, 1, on_token, stream, run_interrupt(),
                                   &result, err);
    bool stopped = code == CVN_EINTERRUPTED;
    if (code == CVN_OK || stopped) {
        size_t from = stream->text.length;
        if (stream->decodes)
            decoder_flush(&stream->decoder, &stream->text);
        show(stream, from);
        code =
            stream->err.code ? err_set(err, stream->err.code, "%s", stream->err.message) : CVN_OK;
    }
    if (code)
        return code;
    if (v[JSON].flag)
        return print_result(run, stream, prompt, &result) ? CVN_EIO
               : stopped                                  ? CVN_EINTERRUPTED
                                                          : 0;
    if (result.n_tokens > 0)
        print_speed(&result, prompt->n);
    return stopped ? CVN_EINTERRUPTED : CVN_OK;
}

static int run(const Args *args)
{
    const Value *v = args->value;
    cvn_err err = {0};
    bool sampling = v[TEMPERATURE].real > 0;
    RunModel model = {0};
    TokenIds prompt = {0};
    RunOptions options_ = {
        .path = v[MODEL].text,
        .dtype = dtype_of(&v[DTYPE]),
        .needs_tokenizer = !v[TOKENS].given,
        .engine = {.rows = 1,
                   .threads = (int)v[THREADS].integer,
                   .context = v[CONTEXT].integer,
                   .sampling = sampling,
                   .filters =
                       sampling && (v[TOP_K].integer > 0 || v[TOP_P].real < 1 || v[MIN_P].real > 0),
                   .memory_limit = (uint64_t)v[MEMORY].integer,
                   .dump_dir = v[DUMP].text,
                   .profile_path = v[PROFILE].text}};
    int code = run_model_open(&model, &options_, &err);
    if (code == CVN_OK)
        code = run_model_input(&model, &v[TOKENS], v[PROMPT].text, v[FILE_].text, &prompt, &err);
    if (code == CVN_OK)
        code = run_model_start(&model, &options_, (int64_t)prompt.n, v[MAX_TOKENS].integer, &err);
    if (code == CVN_OK) {
        Stream stream = {.decodes = model.model->tokenizer != NULL, .prints = !v[JSON].flag};
        if (stream.decodes)
            decoder_init(&stream.decoder, model.model->tokenizer, TOKENIZER_CONTINUE);
        code = generate(&model, args, &prompt, &stream, &err);
        strbuf_free(&stream.text);
        token_ids_free(&stream.tokens);
    }
    token_ids_free(&prompt);
    cvn_err closing = {0};
    int closed = run_model_close(&model, &closing);
    if (code == CVN_EINTERRUPTED)
        return EXIT_INTERRUPTED;
    if (code || closed)
        return fail(code ? &err : &closing);
    return EXIT_OK;
}

const Command command_generate = {
    "generate",
    .about = "let a model go on from a text",
    .usage = "--model DIR (--prompt TEXT | --file FILE | --tokens IDS) [options]",
    .examples =
        "generate -m my-llama -p 'Once upon a time'\ta story, as it comes\n"
        "generate -m my-llama -f notes.txt --temperature 0 -n 100\tthe likeliest 100 tokens\n"
        "generate -m my-llama --tokens 1,15043 --json\tids in, one JSON object out\n",
    .notes = "The text goes to standard output, speeds go to standard error. Ctrl-C ends the text. "
             "With the same seed a prompt gives the same text.",
    .options = options,
    .run = run,
};
