/*
 * Prefill without long stalls (options.max_stall): the time from one token of a decoding slot to its next is at most max_stall,
 * as far as the smallest chunk allows.
 *
 *     a token       chunk of 64          chunk of 16     decode      the next token
 *     |-- … --------|--------------------|---------------|-----------|
 *     since         now        a chunk starts only if it ends in time, decoding included
 *
 * The time of each size of list is measured when the engine starts, at the beginning of a text and far into one. `late` is how much
 * slower runs were recently, at worst: it jumps up with a run that was slower than any, and decays slowly. All sizes
 * share it, because they are slowed by the same thing, other work on the machine; so a size's time is known even if it has
 * not run for long. What comes of it is a budget, the tokens that a list may have now. Where slots decode in the list itself, no step of
 * theirs is to be waited for. No text depends on any of this.
 */
#ifndef CVN_SERVE_PACE_H
#define CVN_SERVE_PACE_H

#include "serve/engine.h"

/* A run of a size, with a chunk of a text of `start` positions, took so long. */
void pace_note(cvn_engine *e, int size, int64_t start, double seconds);
/* Slots have their next tokens, by a step that began then. */
void pace_decoded(StallPace *pace, double begin);

/* Whether a slot decodes. */
bool pace_decodes(const cvn_engine *e);

/* Chooses the budget, with a chunk of a text of `start` positions; at least that of the shortest chunk if `least`. *any: there is one. All
   processes choose what the first one does. */
int pace_choose(cvn_engine *e, int64_t start, bool least, bool *any, cvn_err *err);

#endif
