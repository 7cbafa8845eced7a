/*
 * Speculation: tokens are guessed, and one run draws after each of them what would have been drawn one by one.
 *
 *     text       the cat sat on the mat and the cat
 *     guessed    sat on the mat                         what followed when the text last went on so
 *     drawn      after "cat" sat, "sat" on, "on" a      "sat on" stand, and "a" is drawn: 3 tokens of one run
 *
 * A guess stands where it equals what is drawn at its place, with the random number, the filters and the biases of that place,
 * as if those before it had been decoded one by one: a text is the same whatever is guessed, and however much. So that may
 * depend on time: of the programs there are that one runs which promises most tokens per second, by how long each took and by
 * how often guesses of the kind stood in that row.
 *
 * Where more rows than 32 are multiplied at once, some products round otherwise (cpu/kernels/choice.c): a run takes no more
 * tokens than that. Of engines with many rows a program for one row alone remains.
 */
#ifndef CVN_SERVE_GUESS_H
#define CVN_SERVE_GUESS_H

#include "serve/draft.h"

enum {
    GUESS_MOST = 7, /* tokens guessed at once: attention takes so many and one more as one alone */
    GUESS_TOKENS = 32, /* of a run */
    GUESS_STEPS = 4,   /* programs of a mode, at most */
    GUESS_DRAFT =
        4, /* kind of a draft model's guesses; those below have the same tokens before them, the more the higher */
    GUESS_FORCED, /* what a constraint lets come alone: it stands */
    GUESS_KINDS
};

typedef struct RowGuess {
    int32_t *text; /* [context + 1] all tokens, the last one drawn included */
    int64_t n;
    int32_t guess[GUESS_MOST];
    int n_guess, stood; /* guesses; those that stood so far */
    int kind;
    float rate[GUESS_KINDS]; /* of guesses that stood, lately */
} RowGuess;

/* Writes up to GUESS_MOST guesses of how a row goes on; returns how many. */
typedef int GuessFn(void *context, int row, int32_t *guess);

typedef struct Guesser {
    bool looks_up;  /* options.speculate: else only what is forced is guessed */
    RowGuess *row;  /* [rows] */
    Inputs in;      /* of a run: tokens, and everything that drawing needs, for each token */
    int64_t *place; /* [rows] of a row among those of the run, or -1 */
    int n_steps;
    EngineStep step[SAMPLE_MODE_COUNT][GUESS_STEPS];
    double seconds[GUESS_STEPS]; /* of a run, lately; 0: not known */
    double decode;               /* of a decode step */
    Draft draft;                 /* with options.draft */
    double drafted;              /* seconds of a token that it guesses */
    int32_t **text, **guess;     /* [rows] of those that it guesses for; else NULL */
    int64_t *n;                  /* [rows] tokens of these texts */
    int *n_guess;                /* [rows] */
    const int32_t *next;         /* [rows of the run, seq] what the last run drew … */
    const float *logits;         /* … of these [rows of the run, seq, vocab], where it adjusts */
    int64_t seq;                 /* of the last run */
    GuessFn *from; /* instead of looking texts up, whatever that promises: for tests */
    void *context; /* of `from` */
} Guesser;

/* The row has another request; it has drawn a token. */
void guess_begin(cvn_engine *e, int row, const cvn_request *request);
void guess_add(cvn_engine *e, int row, int32_t token);

/* Guesses what followed when the text last went on as it does now, where it is the same for longest; a text that repeats
   itself goes on so. */
void guess_look_up(RowGuess *row);

/* Guesses how the rows that decode go on, of each no more than `most` [rows] tokens in all, and draws. *ran is false, and
   nothing is done, where decoding promises more. After an error all rows are as they were. */
int guess_run(cvn_engine *e, const int64_t *most, bool *ran, cvn_err *err);

/* The i-th token that the last run drew for a row, which has it from now on; i is at most the guesses that stood. */
int32_t guess_take(cvn_engine *e, int row, int i);

/* What a decode step took. */
int guess_timed(cvn_engine *e, double seconds, cvn_err *err);

#endif
