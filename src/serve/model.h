/* An opened model: what it is, its weights, its
   tokenizer. Read-only once opened; engines share it. */
#ifndef CVN_SERVE_MODEL_H
#define CVN_SERVE_MODEL_H

#include "base/strbuf.h"
#include "caravan/engine.h"
#include "io/weights.h"
#include "text/tokenizer.h"

struct cvn_model {
    IoModel io;           /* config, parameter list and the files, owned */
    bool open;            /* io is to be closed */
    Weights weights;      /* owned; its arrays may lie in io's mappings */
    size_t weight_bytes;  /* of all of them */
    cvn_dtype dtype;      /* of weights, activations and cache */
    Tokenizer *tokenizer; /* owned, or NULL */
    StrBuf warnings;      /* lines for the user */
};

#endif
