/*
 * What tokenizers of ranks share, tiktoken's files and Mistral's tekken.json: the ranks are the tokens in their order, single bytes
 * among them, and two adjacent tokens merge when their bytes together are a token, the lowest rank first.
 */
#ifndef CVN_TEXT_TIKTOKEN_H
#define CVN_TEXT_TIKTOKEN_H

#include "text/tokenizer_impl.h"

/* Decodes n characters of base 64 into at most n / 4 * 3 bytes; the number of bytes, or 0 where it is malformed. */
size_t rank_base64(const char *text, size_t n, char *out);

/* Describes the token of an id; false where another has the same bytes. */
bool rank_add(Tokenizer *tokenizer, int32_t id, const char *token, size_t n);

/* Describes a special token, also as an item of a set that is looked for; false where another has its name. */
bool rank_special(Tokenizer *tokenizer, int32_t id, const char *name, Added *item);

/* When all are described: the merges of n_ranks tokens, of which that with rank 0 has the id `first`, and the pattern by which
 * text is cut. */
int rank_finish(Tokenizer *tokenizer, int32_t first, int32_t n_ranks, const char *pattern,
                cvn_err *err);

#endif
