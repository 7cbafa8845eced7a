/* The vocabulary of a tokenizer: what each of its tokens adds to a text that stands before it. */
#ifndef CVN_CONSTRAIN_TOKENS_H
#define CVN_CONSTRAIN_TOKENS_H

#include "caravan/constrain.h"
#include "text/tokenizer.h"

/* Of a model of n tokens, of which those in `end` end a text. Special tokens have no text, nor have tokens that the
   tokenizer lacks. */
int vocabulary_of(const Tokenizer *tokenizer, cvn_token n, const cvn_token *end, size_t n_end,
                  cvn_vocabulary **out, cvn_err *err);

#endif
