/* What counting and merging (bpe_train.c) leave for writing (bpe_train_json.c). */
#ifndef CVN_TEXT_BPE_TRAIN_IMPL_H
#define CVN_TEXT_BPE_TRAIN_IMPL_H

#include "base/strbuf.h"

#include <stdint.h>

typedef struct TrainSymbol {
    const char *text; /* [length] bytes, arena */
    int32_t length;
} TrainSymbol;

typedef struct TrainMerge {
    int32_t left, right; /* symbols */
} TrainMerge;

/* Byte `order` of the byte-level alphabet, whose characters ascend: 0 is '!', 255 is 0xad. */
unsigned char bpe_train_byte(int order);

/* Appends tokenizer.json: n symbols, of which the first 256 are the bytes, and the merges. */
void bpe_train_json(const TrainSymbol *symbol, int32_t n, const TrainMerge *merge, size_t n_merges,
                    StrBuf *out);

#endif
