/* caravan tokenize: text to token ids and back. */
#include "cli/common.h"
#include "cli/terminal.h"
#include "text/bpe_train.h"
#include "text/tokenizer.h"
#include "train/data/data.h"
#include "train/data/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL,
    TOKENIZER,
    TRAIN_BPE,
    VOCAB,
    SEPARATOR,
    OUT,
    TEXT,
    FILE_,
    DECODE,
    JSONL,
    NO_BOS,
    SPECIAL,
    COUNT,
    JSON
};

static const Option *const options[] = {
    OPTION(MODEL, "model", .letter = 'm', .kind = ARG_INPUT, .model = true, .required = true,
           .group = 1, .value = "DIR", .help = "the tokenizer of a model"),
    OPTION(TOKENIZER, "tokenizer", .kind = ARG_INPUT, .group = 1, .value = "FILE",
           .help = "tokenizer.model, tokenizer.json or GGUF"),
    OPTION(TRAIN_BPE, "train-bpe", .refuses = "text file jsonl decode no-bos special count json",
           .kind = ARG_INPUT, .group = 1, .value = "FILE",
           .help = "train a tokenizer on files and folders of text or JSONL"),
    OPTION(VOCAB, "vocab", .kind = ARG_INT, .low = BPE_TRAIN_LEAST, .high = 1 << 22, .value = "N",
           .fallback = "4096", .help = "vocabulary size, special tokens included"),
    OPTION(SEPARATOR, "separator", .kind = ARG_TEXT, .value = "TEXT", .fallback = SOURCE_SEPARATOR,
           .help = "separator of documents in the training text"),
    OPTION(OUT, "out", .letter = 'o', .kind = ARG_OUTPUT, .value = "FILE",
           .fallback = "tokenizer.json", .help = "output of --train-bpe, a file or a folder"),
    OPTION(TEXT, "text", .kind = ARG_TEXT, .group = 2, .value = "TEXT",
           .help = "input text, default standard input"),
    OPTION(FILE_, "file", .letter = 'f', .kind = ARG_INPUT, .group = 2, .value = "FILE",
           .help = "input file, - for standard input"),
    OPTION(DECODE, "decode", .letter = 'd', .kind = ARG_FLAG,
           .help = "decode ids separated by commas or whitespace"),
    OPTION(JSONL, "jsonl", .kind = ARG_FLAG,
           .help = "JSON lines: {\"text\":…} in, {\"ids\":[…]} out; reversed with --decode"),
    OPTION(NO_BOS, "no-bos", .refuses = "decode", .kind = ARG_FLAG,
           .help = "do not prepend the BOS token"),
    OPTION(SPECIAL, "special", .kind = ARG_FLAG,
           .help = "encode special tokens in the text; --decode prints them"),
    OPTION(COUNT, "count", .letter = 'c', .kind = ARG_FLAG,
           .help = "print the number of tokens only"),
    [JSON] = SHARED(JSON),
    NULL,
};

/* What one run works with. */
typedef struct Work {
    Tokenizer *tokenizer; /* owned */
    const char *source;   /* of the input, for messages */
    unsigned flags;       /* of encoding or decoding */
    bool decode, count, json;
    TokenIds ids; /* owned; of the present text */
    StrBuf out;   /* owned; what is printed next */
    cvn_err lost; /* of printing one of several lines */
} Work;

static int print_out(Work *work, cvn_err *err)
{
    size_t n = work->out.length;
    if (work->out.failed)
        return err_set(err, CVN_EMEM, "no memory for the output");
    if (n && fwrite(work->out.text, 1, n, stdout) != n)
        return err_set(err, CVN_EIO, "standard output: %s", strerror(errno));
    strbuf_clear(&work->out);
    return CVN_OK;
}

/* {"ids":[…]} on one line, or the number of ids. */
static void add_ids_line(Work *work)
{
    if (work->count) {
        strbuf_printf(&work->out, work->json ? "{\"count\":%zu}\n" : "%zu\n", work->ids.n);
        return;
    }
    strbuf_puts(&work->out, "{\"ids\":[");
    for (size_t i = 0; i < work->ids.n; i++)
        strbuf_printf(&work->out, "%s%" PRIi32, i ? "," : "", work->ids.id[i]);
    strbuf_puts(&work->out, "]}\n");
}

static int encode(Work *work, const char *text, size_t n, cvn_err *err)
{
    work->ids.n = 0;
    warn_left_out(work->tokenizer, work->source, text, n);
    return tokenizer_encode(work->tokenizer, text, n, work->flags, &work->ids, err);
}

/* Reads "1, 2 3" into work->ids. */
static int read_ids(Work *work, const char *text, cvn_err *err)
{
    static const char separators[] = ", \t\r\n[]";
    work->ids.n = 0;
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id > INT32_MAX || (*end && !strchr(separators, *end)))
            return err_set(err, CVN_EINVAL,
                           "%s: id %zu is invalid; give integers separated by commas or whitespace",
                           work->source, work->ids.n + 1);
        token_ids_add(&work->ids, (int32_t)id);
        text = end;
    }
    return work->ids.failed ? err_set(err, CVN_EMEM, "no memory for the ids") : CVN_OK;
}

/* The text of work->ids: as it is, or in JSON on a line. */
static int add_decoded(Work *work, bool json, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    TRY(tokenizer_decode(work->tokenizer, work->ids.id, work->ids.n, work->flags, &text, err));
    if (!json) {
        strbuf_add(&work->out, text.text ? text.text : "", text.length);
        return CVN_OK;
    }
    json_auto_t *object =
        json_pack("{s:o}", "text", bytes_json(text.text ? text.text : "", text.length));
    SCOPED(scoped_free) char *line = json_dumps(object, JSON_COMPACT);
    if (!line)
        return err_set(err, CVN_EMEM, "no memory for the output");
    strbuf_puts(&work->out, line);
    strbuf_putc(&work->out, '\n');
    return CVN_OK;
}

/* The whole input at once. */
static int convert_all(Work *work, const char *text, size_t n, cvn_err *err)
{
    bool decodes = work->decode && !work->count;
    if ((work->decode ? read_ids(work, text, err) : encode(work, text, n, err)) ||
        (decodes && add_decoded(work, work->json, err)))
        return err->code;
    if (!decodes && (work->json || work->count))
        add_ids_line(work);
    for (size_t i = 0; !decodes && !work->json && !work->count && i < work->ids.n; i++) {
        size_t length = 0; /* one id per line with the piece of the vocabulary it stands for */
        const char *piece = tokenizer_piece(work->tokenizer, work->ids.id[i], &length);
        strbuf_printf(&work->out, "%7" PRIi32 "  ", work->ids.id[i]);
        if (piece)
            add_visible(&work->out, piece, length);
        strbuf_putc(&work->out, '\n');
    }
    return print_out(work, err);
}

/* The ids of a JSON list into work->ids. */
static int list_ids(Work *work, const json_t *list, cvn_err *err)
{
    work->ids.n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
            return err_set(err, CVN_EFORMAT, "\"ids\"[%zu] is not a token id", i);
        token_ids_add(&work->ids, (int32_t)id);
    }
    return work->ids.failed ? err_set(err, CVN_EMEM, "no memory for the ids") : CVN_OK;
}

static int convert_object(Work *work, const json_t *object, cvn_err *err)
{
    const char *key = work->decode ? "ids" : "text";
    const json_t *value = json_object_get(object, key);
    if (work->decode ? !json_is_array(value) : !json_is_string(value))
        return err_set(err, CVN_EFORMAT, "there is no %s \"%s\"", work->decode ? "list" : "string",
                       key);
    if (work->decode ? list_ids(work, value, err)
                     : encode(work, json_string_value(value), json_string_length(value), err))
        return err->code;
    if (work->decode && !work->count)
        return add_decoded(work, true, err);
    add_ids_line(work);
    return CVN_OK;
}

static int convert_line(void *context, const char *line, size_t n, size_t number, cvn_err *err)
{
    Work *work = context;
    json_error_t error;
    json_auto_t *object = json_loadb(line, n, JSON_ALLOW_NUL, &error);
    (void)number;
    TRY(object ? convert_object(work, object, err)
               : err_set(err, CVN_EFORMAT, "not a JSON object: %s", error.text));
    return print_out(work, &work->lost);
}

/* A JSON object per line. */
static int convert_lines(Work *work, const char *text, size_t n, cvn_err *err)
{
    int code = each_line(work->source, text, n, convert_line, work, err);
    if (work->lost.code)
        *err = work->lost;
    return code;
}

static int convert(Work *work, const Args *args, cvn_err *err)
{
    const Value *text = &args->value[TEXT], *file = &args->value[FILE_];
    SCOPED(scoped_free) char *read = NULL;
    size_t n = text->given ? strlen(text->text) : 0;
    work->source = text->given ? "--text" : file->given ? file->text : "standard input";
    if (!text->given)
        TRY(read_input(file->given ? file->text : "-", &read, &n, err));
    const char *input = text->given ? text->text : read;
    return (args->value[JSONL].flag ? convert_lines : convert_all)(work, input, n, err);
}

/* --train-bpe: its file and the operands are read. */
static int train(const Args *args, cvn_err *err)
{
    const char *path[1 + CLI_MAX_OPERANDS] = {args->value[TRAIN_BPE].text};
    const char *out = args->value[OUT].text;
    int32_t vocab = (int32_t)args->value[VOCAB].integer, reached;
    for (int i = 0; i < args->n_operands; i++)
        path[1 + i] = args->operand[i];
    const DataOptions data = {.paths = path,
                              .n_paths = 1 + (size_t)args->n_operands,
                              .vocab = vocab,
                              .separator = args->value[SEPARATOR].text};
    TRY(data_train_tokenizer(&data, out, &reached, err));
    if (reached < vocab)
        printf("%s: %" PRId32 " tokens, not %" PRId32
               ": no pair of neighbouring tokens occurs twice any more\n",
               out, reached, vocab);
    else
        printf("%s: %" PRId32 " tokens\n", out, reached);
    return CVN_OK;
}

static int run(const Args *args, cvn_err *err)
{
    if (args->value[TRAIN_BPE].given)
        return train(args, err);
    if (args->n_operands)
        return err_set(err, CVN_EINVAL, "'%s' needs --train-bpe; give text with --text or --file",
                       args->operand[0]);
    const Value *model = &args->value[MODEL], *file = &args->value[TOKENIZER];
    Work work = {.decode = args->value[DECODE].flag,
                 .count = args->value[COUNT].flag,
                 .json = args->value[JSON].flag};
    if (args->value[SPECIAL].flag)
        work.flags |= TOKENIZER_SPECIAL;
    if (!work.decode && !args->value[NO_BOS].flag)
        work.flags |= TOKENIZER_BOS;
    TRY(tokenizer_open(model->given ? model->text : file->text, &work.tokenizer, err));
    int code = convert(&work, args, err);
    tokenizer_free(work.tokenizer);
    token_ids_free(&work.ids);
    strbuf_free(&work.out);
    return code;
}

const Command command_tokenize = {
    "tokenize",
    .about = "encode and decode text; train a tokenizer",
    .usage = "(MODEL | --tokenizer FILE | --train-bpe FILE...) [--text TEXT | --file FILE] "
             "[options]",
    .examples =
        "tokenize --model my-llama --text \"Once upon a time\"\tids and their tokens\n"
        "tokenize --model my-llama --file book.txt --count\tnumber of tokens of a file\n"
        "tokenize --tokenizer tokenizer.json --decode --text 1,9038,2501\tids to text\n"
        "tokenize --model my-llama --jsonl < texts.jsonl > ids.jsonl\tJSON lines\n"
        "tokenize --train-bpe stories.txt --vocab 4096 -o tokenizer.json\ttrain a tokenizer\n",
    .notes = "Without --special, special tokens in the text are encoded as plain text, so input "
             "cannot inject them.\n\n"
             "--train-bpe trains a byte-level BPE tokenizer with the pre-tokenization and special "
             "tokens of Llama 3; Hugging Face's libraries load it, too.",
    .operands = "FILE",
    .max_operands = CLI_MAX_OPERANDS,
    .options = options,
    .run = run,
};
