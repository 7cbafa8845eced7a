/*
 * Guesses of a small model (options.draft), which runs on rows of its own beside those of the engine. What a row of it holds is
 * compared with the text, so that it reads what is new, and again what it guessed wrong:
 *
 *     text             the cat sat on a          (the draft guessed "the mat" behind "on")
 *     its row holds    the cat sat on the        keeps 4 tokens, reads "a", and guesses what follows
 *
 * It draws as the row does, with the random numbers of the places that it guesses: so guesses stand more often than two models
 * would agree by chance.
 */
#ifndef CVN_SERVE_DRAFT_H
#define CVN_SERVE_DRAFT_H

#include "serve/engine.h"

typedef struct Draft {
    cvn_engine *e; /* owned */
    int32_t *
        *held; /* [rows] [context + 1]: what its caches hold, of each row as many as are filled */
    cvn_request *request; /* [rows] texts as prompts */
} Draft;

int draft_open(Draft *draft, const cvn_engine *of, cvn_err *err);
void draft_close(Draft *draft);

/* Guesses at most `most` tokens of those rows whose text is not NULL: guess[row][most], and n_guess[row]. text[row] has n[row]
   tokens and ends with the row's token. */
int draft_guess(Draft *draft, const cvn_engine *of, int32_t *const *text, const int64_t *n,
                int most, int32_t *const *guess, int *n_guess, cvn_err *err);

#endif
