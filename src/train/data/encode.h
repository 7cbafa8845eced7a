/*
 * A unit of a source becomes token ids, and for conversations what of them is to be learnt: the answers of
 * the assistant with the id that ends them, and nothing else.
 */
#ifndef CVN_TRAIN_DATA_ENCODE_H
#define CVN_TRAIN_DATA_ENCODE_H

#include "base/strbuf.h"
#include "text/chat.h"
#include "train/data/source.h"

typedef struct DataEncoder {
    const Tokenizer *tokenizer; /* borrowed */
    const ChatFormat *chat;     /* borrowed; NULL: messages are an error */
    bool pairs;                 /* records are pairs of answers, two documents each */
} DataEncoder;

/* Starts as {0} and is used again and again. */
typedef struct EncodedUnit {
    TokenIds ids;  /* owned */
    StrBuf learn;  /* owned: [ids.n] 0 or 1; empty where all is to be learnt */
    size_t second; /* where the second document of a pair begins; 0: there is one */
} EncodedUnit;

void encoded_unit_free(EncodedUnit *out);

/* Replaces what is in *out. The error names file and line, or byte. May run on many threads. */
int data_encode(const DataEncoder *encoder, const SourceUnit *unit, EncodedUnit *out, cvn_err *err);

/* Calls `take` with the text of a unit: of conversations, message by message. */
int data_unit_text(const SourceUnit *unit,
                   int (*take)(void *context, const char *text, size_t n, cvn_err *err),
                   void *context, cvn_err *err);

#endif
