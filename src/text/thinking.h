#ifndef CVN_TEXT_THINKING_H
#define CVN_TEXT_THINKING_H

#include "text/tokenizer.h"

/*
 * Splits an answer, as it streams in, into what stands between <think> and </think> and the rest. Bytes
 * that may be the beginning of a tag are held back. Line ends right behind a tag are dropped.
 */
typedef struct Thinking {
    bool inside;   /* between the tags */
    bool trim;     /* line ends are dropped until something else comes */
    bool answered; /* a </think> or other text has been seen: no <think> is expected any more */
    size_t n_held; /* bytes in held */
    char held[8];  /* the beginning of a tag, perhaps */
} Thinking;

/* Whether a prompt ends with <think>, but for white space behind it. */
bool thinking_begun(const Tokenizer *tokenizer, const TokenIds *prompt);

/* `inside`: the prompt ended so. */
void thinking_init(Thinking *thinking, bool inside);
void thinking_push(Thinking *thinking, const char *text, size_t n, StrBuf *thought, StrBuf *answer);
void thinking_flush(Thinking *thinking, StrBuf *thought, StrBuf *answer);

#endif
