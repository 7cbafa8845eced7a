/*
 * Prefill without long stalls (options.max_stall): the time from one token of a decoding slot to its next is at most max_stall,
 * as far as the smallest chunk allows.
 *
 *     a token       list of 64           list of 16     the next token, of a list of its own
 *     |-- … --------|--------------------|--------------|-----------|
 *     since         now        a run starts only if it ends in time
 *
 * What comes of it is a budget, the tokens that a list may have now. Where slots decode in the list itself (serve/list.h), no step of
 * theirs is to be waited for. Times are learned: `seconds` of a size is the least that a run of it took, or, of one that has not run,
 * what tokens took in a smaller one, which is more than it will be, as a run has a time that it takes however short it is. `late` is
 * how much slower runs were recently, at worst: it jumps up with a run that was slower than any, and decays slowly. All sizes share it,
 * because they are slowed by the same things, other work on the machine and long texts. No text depends on any of this.
 */
#ifndef CVN_SERVE_PACE_H
#define CVN_SERVE_PACE_H

#include "serve/engine.h"

/* A run of a size, with a chunk, took so long. */
void pace_note(cvn_engine *e, int size, double seconds);
/* Slots have their next tokens, by a step that began then. */
void pace_decoded(StallPace *pace, double begin);

/* Whether a slot decodes. */
bool pace_decodes(const cvn_engine *e);

/* Chooses the budget of a list with a chunk; at least that of the shortest chunk if `least`. *any: there is one. All processes choose
   what the first one does. */
int pace_choose(cvn_engine *e, bool least, bool *any, cvn_err *err);

#endif
