/* tokenizer_config.json for a tokenizer that comes without one: of a GGUF file, or made here. */
#ifndef CVN_TEXT_TOKENIZER_CONFIG_H
#define CVN_TEXT_TOKENIZER_CONFIG_H

#include "text/tokenizer.h"

/* Writes it into a folder: what begins, ends and pads a text, and the chat template, one that is built in where the
 * tokenizer has none but tokens of its own for it. Without it transformers guesses a class by the model. */
int tokenizer_config_write(const Tokenizer *tokenizer, const char *folder, cvn_err *err);

#endif
