/*
 * The two halves of the tokenizer.json reader. huggingface.c reads the vocabulary, the merges and the
 * added tokens; huggingface_stages.c reads what happens to text before and after: normalizer, pre-tokenizer,
 * post-processor, decoder. Whatever a file asks for that is not supported is refused by its name.
 */
#ifndef CVN_TEXT_HUGGINGFACE_H
#define CVN_TEXT_HUGGINGFACE_H

#include "text/tokenizer_impl.h"

#include <jansson.h>

/* What the decoder section says. */
typedef struct HfDecoder {
    bool byte_level;    /* tokens are spelled in the byte-level alphabet */
    bool blank;         /* U+2581 is a space */
    bool byte_fallback; /* "<0x0A>" is a byte */
    DecodeSpace space;  /* what becomes of the space in front */
} HfDecoder;

/* The value of a key, or NULL where it is absent or null. */
json_t *hf_member(const json_t *object, const char *key);

/* A boolean that defaults to `otherwise`. */
int hf_flag(const json_t *object, const char *key, bool otherwise, bool *value, cvn_err *err);

/* The string in "type" of a section, or an error that names the section. */
const char *hf_type(const json_t *section, const char *name, cvn_err *err);

int hf_read_normalizer(Tokenizer *tokenizer, const json_t *section, cvn_err *err);

/* Also says whether tokens are spelled in the byte-level alphabet. */
int hf_read_pre_tokenizer(Tokenizer *tokenizer, const json_t *section, bool *byte_level,
                          cvn_err *err);
int hf_read_decoder(const json_t *section, HfDecoder *decoder, cvn_err *err);

/* Finds bos and eos in the template; after the added tokens are known. */
int hf_read_post_processor(Tokenizer *tokenizer, const json_t *section, cvn_err *err);

#endif
