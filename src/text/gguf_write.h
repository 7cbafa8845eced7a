/*
 * A tokenizer as the keys of a GGUF file (gguf_tokenizer.c tells which). Of one that is read here from those keys, every text
 * has the same ids.
 */
#ifndef CVN_TEXT_GGUF_WRITE_H
#define CVN_TEXT_GGUF_WRITE_H

#include "io/gguf_keys.h"
#include "text/tokenizer.h"

/* Those of a tokenizer, with its chat template; CVN_EUNSUPPORTED where it cuts text as nothing that the format knows. The ids
   of bos and eos are not among them. */
int gguf_write_tokenizer(const Tokenizer *t, GgufKeys *keys, cvn_err *err);

/* Those of another GGUF file, as they are. */
void gguf_copy_tokenizer(const Gguf *gguf, GgufKeys *keys);

#endif
