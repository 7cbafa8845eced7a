/*
 * Text to token ids and back, for every tokenizer the Llama family uses. The kind is found from the
 * file's content:
 *
 *     kind             file                 text is cut by            tokens are merged by
 *     sentencepiece    tokenizer.model      (not cut)                 score of the merged piece
 *     tiktoken         tokenizer.model      Llama 3's or 4's pattern  rank of the merged bytes
 *     tekken           tekken.json          what the file says        rank of the merged bytes
 *     huggingface      tokenizer.json       what the file says        order of its merge list
 *
 * All are byte-pair encodings and end up in the same tables (bpe.h); a GGUF file has one of the first and the last in it. Encoding is exact to the
 * id against the reference libraries. Text is bytes: what is not UTF-8 is encoded byte by byte and
 * comes back unchanged, where the references would replace it by U+FFFD.
 *
 *     Tokenizer *tokenizer;
 *     TokenIds ids = {0};
 *     if (tokenizer_open("model-folder", &tokenizer, err) ||
 *         tokenizer_encode(tokenizer, "Hello", 5, TOKENIZER_BOS, &ids, err))
 *         ...
 *
 * A Tokenizer does not change after it was opened: threads may share it.
 */
#ifndef CVN_TEXT_TOKENIZER_H
#define CVN_TEXT_TOKENIZER_H

#include "base/err.h"
#include "base/strbuf.h"
#include "text/token_ids.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Tokenizer Tokenizer;

enum {
    TOKENIZER_BOS =
        1, /* encode: the begin-of-sequence id in front, where the tokenizer has one and its texts begin with it */
    TOKENIZER_EOS = 2, /* encode: the end-of-sequence id behind, where the tokenizer has one */
    TOKENIZER_SPECIAL =
        4, /* encode: special tokens in the text become their ids (else they are plain
              text); decode: special tokens are written out (else they are skipped) */
    TOKENIZER_CONTINUE = 8, /* decode: other text stands before this, so a leading space is kept */
    TOKENIZER_PLAIN = 16, /* encode: added tokens that are not special are plain text, too: for text
                               that comes from outside and must not be able to mark anything */
};

/* Opens a tokenizer file, a GGUF file with one in it, or a model folder that has tokenizer.json, tekken.json or tokenizer.model (of a model
 * NAME.bin, the folder that it is in). The JSON
 * file is preferred: a fine-tuned model's added tokens are in it, while the tokenizer.model beside
 * it is often that of the base model. In a folder, tokenizer_config.json may name bos, eos and pad. */
int tokenizer_open(const char *path, Tokenizer **out, cvn_err *err);

/* Writes a tokenizer file, or the tokenizer of a GGUF file, into a folder under the name that tokenizer_open looks for.
 * CVN_EIO also where the GGUF file has none. */
int tokenizer_copy(const char *from, const char *folder, cvn_err *err);

/* As tokenizer_open for the bytes of a tokenizer file in memory; they are not needed afterwards. */
int tokenizer_read(const char *bytes, size_t n, Tokenizer **out, cvn_err *err);
void tokenizer_free(Tokenizer *tokenizer);

/* Appends the ids of n bytes of text. Time and memory grow with n (times log n at the worst). On
 * error (CVN_EMEM; CVN_EFORMAT for text the vocabulary cannot express) what was appended is taken
 * back. */
int tokenizer_encode(const Tokenizer *tokenizer, const char *text, size_t n, unsigned flags,
                     TokenIds *out, cvn_err *err);

/* How many bytes of a text have no token and stand in no id: some vocabularies lack those of control characters, and those that
 * are never part of UTF-8. They are left out, as the references do. *first is the place of the first one. */
size_t tokenizer_left_out(const Tokenizer *tokenizer, const char *text, size_t n, size_t *first);

/* The same for text of which some was made by whom one trusts and some was not: mark[i] is 0 where byte i may be of a
 * special token, which then becomes its id, as with TOKENIZER_SPECIAL; 1 where it is plain text, as with TOKENIZER_PLAIN.
 * Otherwise the text is one: words and merges go across. */
int tokenizer_encode_marked(const Tokenizer *tokenizer, const char *text, const char *mark,
                            size_t n, TokenIds *out, cvn_err *err);

/* Appends the bytes of n ids: CVN_EINVAL for an id outside the vocabulary. */
int tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t n, unsigned flags,
                     StrBuf *out, cvn_err *err);

/*
 * Decoding id by id. A UTF-8 character whose bytes come from several tokens is held back until it
 * is complete; bytes that can no longer become UTF-8 are passed on as they are. Invariant: what all
 * pushes and the flush appended equals what tokenizer_decode makes of the same ids.
 */
typedef struct Decoder {
    const Tokenizer *tokenizer; /* borrowed */
    unsigned flags;             /* TOKENIZER_SPECIAL | TOKENIZER_CONTINUE */
    bool started;               /* a leading space is no longer dropped */
    unsigned char held[4];      /* [n_held] an incomplete UTF-8 character */
    unsigned char n_held;       /* 0 to 3 */
} Decoder;

void decoder_init(Decoder *decoder, const Tokenizer *tokenizer, unsigned flags);
int decoder_push(Decoder *decoder, int32_t id, StrBuf *out, cvn_err *err);
void decoder_flush(Decoder *decoder, StrBuf *out);

/* "sentencepiece", "tiktoken", "tekken" or "huggingface". */
const char *tokenizer_kind(const Tokenizer *tokenizer);

/* A hash of the tokenizer's file and of which ids begin, end and pad a text: of two tokenizers with the same
 * hash, one makes the same ids as the other. */
uint64_t tokenizer_hash(const Tokenizer *tokenizer);

/* Ids run from 0 to tokenizer_vocab_size - 1. */
int32_t tokenizer_vocab_size(const Tokenizer *tokenizer);

/* The id, or -1 where the tokenizer has none. */
int32_t tokenizer_bos(const Tokenizer *tokenizer);
int32_t tokenizer_eos(const Tokenizer *tokenizer);
int32_t tokenizer_pad(const Tokenizer *tokenizer);

/* The bytes the vocabulary holds for an id ("\xe2\x96\x81the", "<0x0A>", " the", "<|eot_id|>") and
 * their number; NULL for an id outside the vocabulary. Not always UTF-8, and NUL bytes are
 * possible. */
const char *tokenizer_piece(const Tokenizer *tokenizer, int32_t id, size_t *length);

/* The source of the chat template that belongs to the tokenizer, or NULL: of a folder its chat_template.jinja, else
 * "chat_template" of its tokenizer_config.json (of a list of named ones, "default"); of a GGUF file
 * tokenizer.chat_template. */
const char *tokenizer_chat_template(const Tokenizer *tokenizer);

/* That of conversations with tools where it is another, or NULL: of a list of named ones "tool_use", of a GGUF file
 * tokenizer.chat_template.tool_use. */
const char *tokenizer_tool_template(const Tokenizer *tokenizer);

/* The id of a special or added token by its text ("<|eot_id|>"), or -1. */
int32_t tokenizer_special(const Tokenizer *tokenizer, const char *text);

#endif
