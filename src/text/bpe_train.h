/*
 * Making a byte-level BPE tokenizer from text (Sennrich, Haddow and Birch 2016, arXiv:1508.07909; on bytes
 * as GPT-2 does it). Text is cut into words by Llama 3's pattern (split.h), and words are counted. A word is
 * a row of symbols, its bytes at first; again and again the pair of neighbours that occurs most often in all
 * the text becomes a new symbol, and the order in which this happened is the tokenizer.
 *
 *     words        low 5  lower 2  newest 6  widest 3       pairs: es 9, st 9, we 8, lo 7, …
 *     es                                                    n e w es t, w i d es t; es t is 9 now
 *     est                                                   …
 *
 * Of pairs that occur equally often the one with the smaller left symbol comes first, then the one with the
 * smaller right symbol; that is also what the trainer of Hugging Face's tokenizers does. (Its list can have
 * the same merge twice, where a symbol arises in two ways; ours never has.)
 *
 * A word enters its pairs into an index, and candidates wait in a heap, so a merge costs as much as the words
 * it changes. The result is a function of the counts alone, the same on every machine.
 *
 * The vocabulary: 256 bytes in the order of the byte-level alphabet, the merges, then special tokens, under
 * the names that Llama 3 gives them, so that chat formats work on it.
 */
#ifndef CVN_TEXT_BPE_TRAIN_H
#define CVN_TEXT_BPE_TRAIN_H

#include "base/err.h"
#include "base/strbuf.h"

#include <stdint.h>

/* The least vocabulary: bytes and special tokens. Words are cut after BPE_TRAIN_WORD bytes. */
enum { BPE_TRAIN_SPECIAL = 6, BPE_TRAIN_LEAST = 256 + BPE_TRAIN_SPECIAL, BPE_TRAIN_WORD = 256 };

typedef struct BpeTrainer BpeTrainer;

/* NULL with *err set when memory cannot be had. */
BpeTrainer *bpe_trainer_new(cvn_err *err);
void bpe_trainer_free(BpeTrainer *trainer);

/* Counts the words of n bytes of text. */
int bpe_trainer_add(BpeTrainer *trainer, const char *text, size_t n, cvn_err *err);

/*
 * Merges until the vocabulary has `vocab` ids (BPE_TRAIN_LEAST <= vocab <= 2^22), or no pair occurs twice;
 * *reached is the size it got. Appends the tokenizer to *json in the form of Hugging Face's tokenizer.json.
 * CVN_EFORMAT when no text was added. To be called once.
 */
int bpe_trainer_run(BpeTrainer *trainer, int32_t vocab, StrBuf *json, int32_t *reached,
                    cvn_err *err);

#endif
