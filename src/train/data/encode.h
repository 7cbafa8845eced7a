/*
 * A unit of a source becomes token ids, and for conversations what of them is to be learnt: the answers of
 * the assistant with the id that ends them, and nothing else.
 */
#ifndef CVN_TRAIN_DATA_ENCODE_H
#define CVN_TRAIN_DATA_ENCODE_H

#include "base/strbuf.h"
#include "train/data/conversation.h"
#include "train/data/source.h"

typedef struct DataEncoder {
    const Tokenizer *tokenizer; /* borrowed */
    const ChatWriter *chat;     /* borrowed; NULL: messages are an error … */
    const char *no_chat;        /* … and why */
    bool pairs;                 /* records are pairs of answers, two documents each */
} DataEncoder;

void encoded_unit_free(EncodedUnit *out);

/* Replaces what is in *out. The error names file and line, or byte. May run on many threads. */
int data_encode(const DataEncoder *encoder, const SourceUnit *unit, EncodedUnit *out, cvn_err *err);

/* Calls `take` with the text of a unit: of conversations, message by message. */
int data_unit_text(const SourceUnit *unit,
                   int (*take)(void *context, const char *text, size_t n, cvn_err *err),
                   void *context, cvn_err *err);

#endif
