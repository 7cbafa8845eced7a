/*
 * Decoding: the tokens of slots that are active as a list, in which each says its slot and its position. Behind a slot's own token
 * may stand others that were drafted; after each of them is drawn, as if those before it had been decoded.
 *
 *     slot       2     5     5     5     7         five tokens of three slots: a program of eight,
 *     position   40    9     10    11    300       of which three have no slot
 *
 * Programs are of 1, 2, 4, … tokens, and of one of every slot: few slots of many take the time of few. Where a mesh splits the slots
 * of caches, the list is split alike, and tokens lie with their slots.
 */
#ifndef CVN_SERVE_DECODE_H
#define CVN_SERVE_DECODE_H

#include "serve/engine.h"

enum {
    DRAFTED_TOKENS = 32, /* of a run with drafts */
    DECODE_SIZES = 16 /* programs of a mode, at most: 1, 2, 4, … 4096, DRAFTED_TOKENS, all slots */
};

typedef struct Decoding {
    Inputs in; /* of the largest: with all that drawing after each token needs */
    int n;     /* sizes, ascending */
    EngineStep step[SAMPLE_MODE_COUNT][DECODE_SIZES];
    double seconds[DECODE_SIZES]; /* of a run, lately; 0: not known */
    const int32_t **draft;        /* [slots] what is drafted behind its token, … */
    int *n_draft;                 /* … so many */
    /* Of the last run, */
    int64_t *place;      /* [slots] where its token is; -1: it has none */
    const int32_t *next; /* what was drawn after each token, */
    const float *logits; /* of these [tokens, vocab], where the program adjusts; else NULL */
} Decoding;

/* The size that takes the tokens of active slots with so many drafts of each at most; -1: there is none. */
int decode_size(const cvn_engine *e, int64_t drafts);

/* Draws after the tokens of active slots, and after their drafts, of which those that may not come are dropped. Slots stay as they
   are. */
int decode_run(cvn_engine *e, cvn_err *err);

/* Slot's token and i of its drafts are in its cache, and what was drawn behind them is its next token, which is returned. */
int32_t decode_take(cvn_engine *e, int slot, int i);

#endif
