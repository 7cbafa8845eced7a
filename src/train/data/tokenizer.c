/* A tokenizer made from training data (text/bpe_train.h). */
#include "train/data/data.h"

#include "base/file.h"
#include "text/bpe_train.h"
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

/* What transformers wants to know besides. */
static const char CONFIG[] = "{\n"
                             "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                             "  \"bos_token\": \"<|begin_of_text|>\",\n"
                             "  \"eos_token\": \"<|end_of_text|>\",\n"
                             "  \"pad_token\": \"<|finetune_right_pad_id|>\",\n"
                             "  \"clean_up_tokenization_spaces\": false,\n"
                             "  \"model_input_names\": [\"input_ids\", \"attention_mask\"]\n"
                             "}\n";

static int write_out(const char *out, const StrBuf *json, cvn_err *err)
{
    if (!file_is_folder(out))
        return file_write(out, json->text, json->length, err);
    TRY(file_write(file_path(out, "tokenizer.json").text, json->text, json->length, err));
    return file_write(file_path(out, "tokenizer_config.json").text, CONFIG, sizeof CONFIG - 1, err);
}

int data_train_tokenizer(const DataOptions *options, const char *out, int32_t *reached,
                         cvn_err *err)
{
    SourceList list = {0};
    SCOPED(strbuf_free) StrBuf json = {0};
    int32_t vocab = 0;
    TRY(source_list(&list, options->paths, options->n_paths, err));
    SourceReader *reader = calloc(1, sizeof *reader);
    SCOPED(scoped_free) SourceUnit *unit = calloc(BATCH, sizeof *unit);
    BpeTrainer *trainer = bpe_trainer_new(err);
    int code = trainer ? CVN_OK : CVN_EMEM;
    if (!reader || !unit)
        code = err_set(err, CVN_EMEM, "no memory to read the text");
    else
        *reader = (SourceReader){
            .list = &list, .separator = options->separator ? options->separator : SOURCE_SEPARATOR};
    if (!code)
        code = count_words(trainer, reader, unit, options, err);
    if (!code && (code = bpe_trainer_run(trainer, options->vocab, &json, &vocab, err)))
        err_prefix(err, "'%s'", list.file[0].path);
    if (!code)
        code = write_out(out, &json, err);
    if (!code && reached)
        *reached = vocab;
    if (reader)
        source_reader_free(reader);
    free(reader);
    bpe_trainer_free(trainer);
    source_list_free(&list);
    return code;
}
