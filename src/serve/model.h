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
    const char *quantize;  /* as it was asked for when the model was opened, io's; or NULL */
    Tokenizer *tokenizer;  /* owned, or NULL */
    cvn_err tokenizer_err; /* why it is NULL, where one was looked for */
    StrBuf warnings;       /* lines for the user */
};

/* Looks for the tokenizer of a model that was opened without one, beside what else is done with the model. A model without a
   tokenizer that can be read still takes token ids: why there is none is kept for who wants text. */
int model_open_tokenizer(cvn_model *m, const char *path, cvn_err *err);

#endif
