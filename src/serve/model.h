/* An opened model: what it is, the files of its weights, its
   tokenizer. Read-only once opened; engines share it. */
#ifndef CVN_SERVE_MODEL_H
#define CVN_SERVE_MODEL_H

#include "base/strbuf.h"
#include "caravan/engine.h"
#include "io/model.h"
#include "text/tokenizer.h"

struct cvn_model {
    IoModel io;            /* config, parameter list and the files, owned */
    bool open;             /* io is to be closed */
    cvn_dtype dtype;       /* of weights, activations and cache */
    Tokenizer *tokenizer;  /* owned, or NULL */
    cvn_err tokenizer_err; /* why it is NULL, where one was looked for */
    StrBuf warnings;       /* lines for the user */
};

#endif
