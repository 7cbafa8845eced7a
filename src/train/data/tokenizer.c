/* A tokenizer made from training data (text/bpe_train.h). */
#include "train/data/data.h"

#include "base/file.h"
#include "text/bpe_train.h"
#include "text/tokenizer_config.h"
#include "train/data/encode.h"
#include "train/data/source.h"

#include <stdlib.h>

enum { BATCH = 1024, BATCH_BYTES = 1 << 24 };

static int add_text(void *context, const char *text, size_t n, cvn_err *err)
{
    return bpe_trainer_add(context, text, n, err);
}

static int count_words(BpeTrainer *trainer, SourceReader *reader, SourceUnit *unit,
                       const DataOptions *options, cvn_err *err)
{
    size_t n = 0;
    int64_t total = 0;
    for (size_t i = 0; i < reader->list->n; i++)
        total += reader->list->file[i].kind == SOURCE_TOKENS ? 0 : reader->list->file[i].size;
    do {
        TRY(source_batch(reader, unit, BATCH, BATCH_BYTES, &n, err));
        for (size_t i = 0; i < n; i++)
            TRY(data_unit_text(&unit[i], add_text, trainer, err));
        if (options->progress &&
            !options->progress(options->context, source_position(reader), total))
            return err_set(err, CVN_EINTERRUPTED, "interrupted while reading the text");
    } while (n);
    return CVN_OK;
}

static int write_folder(const char *folder, const StrBuf *json, cvn_err *err)
{
    Tokenizer *tokenizer;
    TRY(tokenizer_read(json->text, json->length, &tokenizer, err));
    int code = file_write(file_path(folder, "tokenizer.json").text, json->text, json->length, err);
    if (!code)
        code = tokenizer_config_write(tokenizer, folder, err);
    tokenizer_free(tokenizer);
    return code;
}

int data_train_tokenizer(const DataOptions *options, const char *out, int32_t *reached,
                         cvn_err *err)
{
    SCOPED(source_list_free) SourceList list = {0};
    SCOPED(source_reader_free)
    SourceReader reader = {.list = &list,
                           .separator = options->separator ? options->separator : SOURCE_SEPARATOR};
    SCOPED(strbuf_free) StrBuf json = {0};
    int32_t vocab = 0;
    TRY(source_list(&list, options->paths, options->n_paths, err));
    SCOPED(scoped_free) SourceUnit *unit = calloc(BATCH, sizeof *unit);
    if (!unit)
        return err_set(err, CVN_EMEM, "no memory to read the text");
    BpeTrainer *trainer = bpe_trainer_new(err);
    int code = trainer ? count_words(trainer, &reader, unit, options, err) : CVN_EMEM;
    if (!code && (code = bpe_trainer_run(trainer, options->vocab, &json, &vocab, err)))
        err_prefix(err, "'%s'", list.file[0].path);
    bpe_trainer_free(trainer);
    TRY(code);
    TRY(file_is_folder(out) ? write_folder(out, &json, err)
                            : file_write(out, json.text, json.length, err));
    if (reached)
        *reached = vocab;
    return CVN_OK;
}
