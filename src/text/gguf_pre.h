/*
 * How the text of a GGUF file's byte-pair tokenizer is cut into words. The file only names it, in tokenizer.ggml.pre; what
 * the name stands for is the pre-tokenizer of the tokenizer.json that the file was made from, a row of patterns:
 *
 *     "smollm"    \p{N}, then GPT-2's pattern       "a 12" -> "a ", "1", "2" -> "a", " ", "1", "2"
 */
#ifndef CVN_TEXT_GGUF_PRE_H
#define CVN_TEXT_GGUF_PRE_H

#include "text/split.h"

#include <stdbool.h>

typedef struct GgufPre {
    const char *names;            /* that stand for this, separated by spaces */
    const char *split[SPLIT_MAX]; /* each cuts what the one before it left; NULL behind the last */
    bool whole;  /* a word that is a token stays one, whatever the merges ("ignore_merges") */
    bool bos;    /* a text begins with bos, unless the file says otherwise */
    bool blanks; /* spelled with U+2581 for spaces and <0x0A> for bytes, as SentencePiece does */
} GgufPre;

/* NULL for a name that is not known. */
const GgufPre *gguf_pre_find(const char *name);

/* The other way: what cuts by patterns that are given in the same form, ended by NULL; or NULL. */
const GgufPre *gguf_pre_of(const char *const *pattern, bool whole);

#endif
