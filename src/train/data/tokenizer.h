/* A tokenizer made from training data (text/bpe_train.h). */
#ifndef CVN_TRAIN_DATA_TOKENIZER_H
#define CVN_TRAIN_DATA_TOKENIZER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct DataTokenizerOptions {
    const char *const *paths; /* [n_paths] text and JSONL files, and folders of them */
    size_t n_paths;
    int32_t vocab;         /* ids wanted, special tokens included */
    const char *separator; /* between documents of a text file; NULL: "<|endoftext|>" */
    const char *out; /* tokenizer.json; or a folder, where tokenizer_config.json comes with it */
    /* Told now and then how many bytes are read; false stops with CVN_EINTERRUPTED. May be NULL. */
    bool (*progress)(void *context, int64_t done, int64_t total);
    void *context;
} DataTokenizerOptions;

/* Trains and writes a tokenizer; *reached (may be NULL) is the size of its vocabulary, which is less than
 * wanted where the text is too small. Errors as those of data_open. */
int data_train_tokenizer(const DataTokenizerOptions *options, int32_t *reached, cvn_err *err);

#endif
