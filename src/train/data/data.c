#include "train/data/data.h"

#include "base/map.h"
#include "train/data/data_impl.h"

#include <inttypes.h>
#include <stdlib.h>

/* Opens what the list names: one cache for all the text in it, and each file of ids as it is. */
static int open_files(TrainData *data, const SourceList *list, const DataOptions *options,
                      cvn_err *err)
{
    size_t n = list->n;
    bool text = false;
    for (size_t i = 0; i < list->n; i++)
        text |= list->file[i].kind != SOURCE_TOKENS;
    data->file = arena_array(&data->arena, n + 1, sizeof *data->file);
    if (text) {
        TRY(data_make(data, list, options, &data->file[0], err));
        data->n_files++;
    }
    for (size_t i = 0; i < n; i++) {
        if (list->file[i].kind != SOURCE_TOKENS)
            continue;
        if (options->pairs)
            return err_set(err, CVN_EFORMAT,
                           "'%s' contains token ids, but preference pairs must be JSON",
                           list->file[i].path);
        DataFile *file = &data->file[data->n_files];
        file->path = arena_string(&data->arena, list->file[i].path);
        TRY(token_file_open(&file->tokens, file->path, err));
        data->n_files++;
    }
    if (!data->report.cache)
        data->report.cache = data->file[0].path;
    return CVN_OK;
}

const char *const data_packing_names[DATA_PACK_COUNT] = {
    [DATA_PACK_AUTO] = "auto",
    [DATA_PACK_STREAM] = "stream",
    [DATA_PACK_WHOLE] = "whole",
    [DATA_PACK_ONE] = "one",
};

bool data_is_partial(const TrainData *data)
{
    for (size_t i = 0; i < data->n_files; i++)
        if (data->file[i].tokens.learn)
            return true;
    for (size_t i = 0; i < data->n_parts; i++)
        if (data_is_partial(data->part[i]))
            return true;
    return false;
}

static uint64_t key_of(const TrainData *data, const DataOptions *options)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_printf(&text, "%" PRId64 " %" PRIu64 " %a %d %" PRId32 "\n", data->seq, options->seed,
                  options->validation, data->packing, data->pad);
    for (size_t i = 0; i < data->n_parts; i++)
        strbuf_printf(&text, "%016" PRIx64 " %" PRId64 "\n", data->part[i]->report.key,
                      data->share[i]);
    for (size_t i = 0; i < data->n_files; i++)
        strbuf_printf(&text, "%" PRId64 " %" PRId64 " %08" PRIx32 "\n",
                      data->file[i].tokens.n_tokens, data->file[i].tokens.n_documents,
                      data->file[i].tokens.sum);
    return hash_bytes(text.text, text.length);
}

typedef struct Opening {
    TrainData *data;
    SourceList list;
    const DataOptions *options;
} Opening;

static int open_sources(void *of, cvn_err *err)
{
    Opening *o = of;
    TrainData *data = o->data;
    const DataOptions *options = o->options;
    TRY(arena_init(&data->arena, err));
    int32_t eos = options->tokenizer ? tokenizer_eos(options->tokenizer) : -1;
    data->seq = options->seq;
    data->pairs = options->pairs;
    data->pad = eos >= 0 ? eos : 0;
    data->vocab = options->vocab       ? options->vocab
                  : options->tokenizer ? tokenizer_vocab_size(options->tokenizer)
                                       : INT32_MAX;
    TRY(data_held_open(data, options, err));
    TRY(data_mix_open(data, options, err));
    if (data->n_parts) {
        data->report.key = key_of(data, options);
        return CVN_OK;
    }
    TRY(source_list(&o->list, options->paths, options->n_paths, err));
    TRY(open_files(data, &o->list, options, err));
    for (size_t i = 0; i < data->n_files; i++) {
        DataFile *file = &data->file[i];
        file->first_token = data->report.tokens;
        file->first_document = data->report.documents;
        data->report.tokens += file->tokens.n_tokens;
        data->report.documents += file->tokens.n_documents;
        if (file->tokens.vocab > data->vocab)
            return err_set(err, CVN_EINVAL,
                           "'%s' has token ids of a vocabulary of %" PRId64
                           ", and the model's has %" PRId32
                           "; tokenize with the tokenizer of the model",
                           file->path, file->tokens.vocab, data->vocab);
    }
    data->packing = data->pairs                          ? DATA_PACK_ONE
                    : options->packing != DATA_PACK_AUTO ? options->packing
                    : data_is_partial(data)              ? DATA_PACK_WHOLE
                                                         : DATA_PACK_STREAM;
    TRY(data_cut(data, options, err));
    data->report.key = key_of(data, options);
    return CVN_OK;
}

int data_open(TrainData **out, const DataOptions *options, cvn_err *err)
{
    *out = NULL;
    if (options->n_paths == 0)
        return err_set(err, CVN_EINVAL, "no training data were given; name a file or a folder");
    if (options->seq < 1 || options->seq > INT32_MAX)
        return err_set(err, CVN_EINVAL, "the sequence length is %" PRId64 "; give 1 or more",
                       options->seq);
    if (!(options->validation >= 0 && options->validation <= 0.5))
        return err_set(err, CVN_EINVAL, "the validation fraction is %g; give 0 to 0.5",
                       options->validation);
    if (options->separator && !options->separator[0])
        return err_set(err, CVN_EINVAL, "the separator of documents is empty; give some text");
    Opening o = {.data = calloc(1, sizeof(TrainData)), .options = options};
    if (!o.data)
        return err_set(err, CVN_EMEM, "no memory to open the data");
    int code = protect(open_sources, &o, "opening the data", err);
    source_list_free(&o.list);
    if (code)
        data_free(o.data);
    else
        *out = o.data;
    return code;
}

void data_free(TrainData *data)
{
    if (!data)
        return;
    for (size_t i = 0; i < data->n_parts; i++)
        data_free(data->part[i]);
    data_free(data->held);
    for (size_t i = 0; i < data->n_files; i++)
        token_file_close(&data->file[i].tokens);
    for (int split = 0; split < DATA_SPLITS; split++)
        free(data->rows[split].begin);
    arena_free(&data->arena);
    free(data);
}

int64_t data_sequences(const TrainData *data, DataSplit split)
{
    return data->rows[split].n;
}

const DataReport *data_report(const TrainData *data)
{
    return &data->report;
}
