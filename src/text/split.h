/*
 * Splitting text into the words that are merged one by one, as the pattern of a tokenizer says.
 * Llama 3's pattern, which nearly all files have, is matched by hand; any other goes through PCRE2.
 */
#ifndef CVN_TEXT_SPLIT_H
#define CVN_TEXT_SPLIT_H

#include "base/arena.h"

#include <stddef.h>

/* tiktoken's pattern for Llama 3 (meta-llama/llama-models, models/llama3/tokenizer.py), and GPT-2's, by which a ByteLevel
 * pre-tokenizer splits, too. */
extern const char SPLIT_LLAMA3[], SPLIT_GPT2[];

/* Splits of a tokenizer, each of which cuts what the one before it left. */
enum { SPLIT_MAX = 6 };

typedef struct Split Split;

/* One caller's memory for one Split; the Split itself does not change and is shared by threads.
 * NULL for a Split that needs none. */
typedef struct SplitWork SplitWork;

/* A split by a regular expression of n bytes: each match is a word, and so is the text between two. */
int split_pattern_new(const char *pattern, size_t n, Split **out, cvn_err *err);

/* A split before each occurrence of a text of n bytes. */
int split_before_new(const char *text, size_t n, Split **out, cvn_err *err);

void split_free(Split *split);

int split_work_new(const Split *split, SplitWork **out, cvn_err *err);
void split_work_free(SplitWork *work);

/* Where the word that begins at text[begin] ends; begin < n, and begin < *end <= n. A text is gone
 * through from its begin, 0, word by word. */
int split_next(const Split *split, SplitWork *work, const char *text, size_t n, size_t begin,
               size_t *end, cvn_err *err);

#endif
