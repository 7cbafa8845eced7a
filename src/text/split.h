/*
 * Splitting text into the words that are merged one by one, as the pattern of a tokenizer says.
 * Llama 3's pattern and Qwen's, which most files have, are matched by hand; any other goes through PCRE2.
 */
#ifndef CVN_TEXT_SPLIT_H
#define CVN_TEXT_SPLIT_H

#include "base/arena.h"

#include <stddef.h>

/* tiktoken's pattern for Llama 3 (meta-llama/llama-models, models/llama3/tokenizer.py); Qwen2's, which is the same with digits
 * one by one; GPT-2's, by which a ByteLevel pre-tokenizer splits, too; and that of Llama 4 and gpt-oss. */
extern const char SPLIT_LLAMA3[], SPLIT_QWEN2[], SPLIT_GPT2[], SPLIT_O200K[];

/* Splits of a tokenizer, each of which cuts what the one before it left. */
enum { SPLIT_MAX = 6 };

typedef struct Split Split;

/* One caller's memory for one Split; the Split itself does not change and is shared by threads.
 * NULL for a Split that needs none. */
typedef struct SplitWork SplitWork;

/*
 * What becomes of the matches of a pattern and of the text between them. "a--b" by "-":
 *
 *     SPLIT_ISOLATED       "a" "-" "-" "b"     each match is a word, and so is the text between two
 *     SPLIT_CONTIGUOUS     "a" "--" "b"        matches that touch are one word
 *     SPLIT_WITH_PREVIOUS  "a-" "-" "b"        a match ends the text before it
 *     SPLIT_WITH_NEXT      "a" "-" "-b"        a match begins the text behind it
 *     SPLIT_REMOVED        "a" "b"             matches are left out
 *     SPLIT_KEPT           "-" "-"             all but matches is left out
 */
typedef enum SplitBehavior {
    SPLIT_ISOLATED,
    SPLIT_CONTIGUOUS,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_REMOVED,
    SPLIT_KEPT,
} SplitBehavior;

/* A split by a regular expression of n bytes, or by each occurrence of a text of n bytes. */
int split_pattern_new(const char *pattern, size_t n, SplitBehavior behavior, Split **out,
                      cvn_err *err);
int split_text_new(const char *text, size_t n, SplitBehavior behavior, Split **out, cvn_err *err);

/* The split is to be made in the byte-level alphabet, as pre-tokenizers behind ByteLevel see text: é is "Ã©" to it. */
void split_set_spelled(Split *split);

void split_free(Split *split);

int split_work_new(const Split *split, SplitWork **out, cvn_err *err);
void split_work_free(SplitWork *work);

/* The word at text[*begin], *begin < n, or the one behind what is left out there: moves *begin to where it begins and *end to
 * where it ends; *begin = n where none is left. A text is gone through from its begin, 0, word by word. Bytes that are not UTF-8
 * are no part of a match, and never left out. */
int split_next(const Split *split, SplitWork *work, const char *text, size_t n, size_t *begin,
               size_t *end, cvn_err *err);

#endif
